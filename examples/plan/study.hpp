// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Everything that plan reports about a run, computed once and then written as text or JSON.

#include "options.hpp"

#include <shardwright/plan/search/explanation.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/search/sweep.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace plan_example {

/// @brief The factor of a resource from which on a plan changes; nothing if none up to the limit does so.
struct Counterfactual {
  shardwright::Resource resource{};
  std::optional<double> factor{};
};
/// @brief The largest factor that counterfactuals try.
inline constexpr double most_factor = 64;

/// @brief The fraction of its time per token that the fastest plan saves with twice as much of a resource.
struct Gain {
  shardwright::Resource resource{};
  double saves = 0;

  /// @brief Returns whether it saves too little to be seen.
  [[nodiscard]] bool slack() const noexcept { return saves < 0.005; }
};

/// @brief A number of sequences nearby that more ranks can share, and its best plan.
struct Rounder {
  std::int64_t sequences = 0;
  shardwright::Plan plan{};
  double saves = 0; ///< Fraction of the time per token.
};

/// @brief The best plan of a run, or why there is none, and its reasons.
struct Study {
  shardwright::Plan best;
  /// The step with a program that is not named, if no option says which will run.
  std::optional<shardwright::StepCost> unnamed;
  std::vector<Gain> gains;                   ///< Of the resources that the cluster has; none without a plan.
  std::vector<shardwright::Plan> runners_up; ///< Other plans, in ascending order of loss.
  std::optional<Rounder> rounder;            ///< If it is faster by more than 2% per token.
  /// If neither sequences nor chips divide the other, the nearest numbers of sequences that do.
  std::vector<Rounder> dividing;
  shardwright::Plan usual;            ///< Of the usual recipe.
  shardwright::Plan without_pipeline; ///< The best one with pp = 1.
  /// Where the pipeline ends or, without a plan, where plans begin to exist.
  std::vector<Counterfactual> turns;
  /// The same with 1F1B, if the best plan hides expert traffic in pairs of passes and may need its pipeline
  /// only for that.
  std::vector<Counterfactual> turns_unpaired;
  std::vector<shardwright::Sweep> sweeps;
  std::optional<shardwright::Sweep> unpaired_sweep; ///< The first sweep with 1F1B, as above.
  /// A number of sequences that all chips can share, if no plan, or none without a pipeline, can divide the
  /// given number.
  std::optional<std::int64_t> divisible_sequences;
  double seconds = 0; ///< That all of this took.
};

/// @brief The best plan and its reasons, the time that finding them took, and on request the sweeps that only
/// JSON has.
[[nodiscard]] Study study_of(const Options& options, bool with_sweeps);

/// @brief The best plans over a range of the resource that the options name.
[[nodiscard]] shardwright::Sweep sweep_of(const Options& options);

} // namespace plan_example
