// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The options and the results of a simulation of one step, and names of its spans and ranks.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/simulate/step_program.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A chip that is slower than the others.
struct Straggler {
  std::int64_t rank = 0; ///< Its rank in the mesh, inner to outer tp, cp, dp, pp.
  double factor = 1;     ///< At least 1: how much longer its computation takes than that of other chips.
  double link = 1;       ///< The same for its links.
};

/// @brief Conditions of a step beyond the plan: shared links, slow chips and the like.
struct SimulationOptions {
  bool contention = true; ///< Whether transfers share links; otherwise each has its links to itself.
  double oversubscription =
      1; ///< At least 1: the bandwidth of a domain's chips to the outside over that of its uplinks.
  std::vector<Straggler> stragglers{};
  double jitter = 0;        ///< Mean of the exponential distribution by which every pass of every chip is
                            ///< lengthened, as a fraction of it.
  std::uint64_t seed = 0;   ///< Seed of the jitter.
  bool even_stages = false; ///< Whether all stages take the mean stage's time.
  bool fold = true;         ///< Whether ranks that behave alike are simulated once.
  int timelines = 0;        ///< The most replicas whose timelines are kept.
};

/// @brief One span of a rank's time.
struct ActivitySpan {
  Activity activity = Activity::compute;
  Step step{}; ///< The step that it belongs to, if `has_step`.
  bool has_step = false;
  bool beside = false; ///< Whether it runs in the background, concurrently with the rank's other work.
  double begin = 0;
  double end = 0;
};

/// @brief Ranks that behave alike: those of one stage in replicas that behave alike.
struct RankClass {
  int pipeline_rank = 0;
  std::int64_t rank = 0;  ///< The first of them, as a rank of the mesh.
  std::int64_t count = 0; ///< Number of such ranks.
  double slowest = 1;     ///< Factor of the slowest chip among those that step together layer by layer.
  std::array<double, activity_names.size()> seconds{}; ///< By Activity, only the exposed time.
  double end = 0;                                      ///< End of its step.
  std::vector<ActivitySpan> timeline{};                ///< Empty if it was not requested.

  [[nodiscard]] double of(Activity activity) const { return seconds[static_cast<std::size_t>(activity)]; }
  /// @brief Seconds that it waits for others, until all have finished.
  [[nodiscard]] double waiting(double step_seconds) const {
    return of(Activity::wait_input) + of(Activity::wait_send) + of(Activity::wait_peers) + step_seconds - end;
  }
};

/// @brief One step, simulated.
struct StepSimulation {
  double step_seconds = 0;
  StagePlacement placement{};
  int microbatches = 0;
  std::vector<RankClass> classes{}; ///< Replica by replica, the ranks of each pipeline in turn.
  std::int64_t chips = 0;
  std::uint64_t events = 0;
};

namespace detail {

/// "F3 s1", or two such names if a step overlaps two passes.
[[nodiscard]] inline std::string step_text(const Step& step) {
  std::string out;
  for (int i = 0; i < step.size(); ++i)
    out += (i == 0 ? "" : " & ") + std::string(1, letter_of(step[i].pass)) +
           std::to_string(step[i].microbatch) + " s" + std::to_string(step[i].stage);
  return out;
}

[[nodiscard]] inline std::string span_text(const ActivitySpan& span) {
  const std::string name(activity_names[static_cast<std::size_t>(span.activity)]);
  return span.activity == Activity::compute ? step_text(span.step)
         : span.has_step                    ? name + ", " + step_text(span.step)
                                            : name;
}

} // namespace detail

/// @brief "rank 0 and 127 alike"
[[nodiscard]] inline std::string class_text(const RankClass& one) {
  return "rank " + std::to_string(one.rank) +
         (one.count > 1 ? " and " + std::to_string(one.count - 1) + " alike" : std::string());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
