// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training of pipeline_training.hpp with each choice of sharding, in single precision.

#include "nn/pipeline_training.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace nn_test {

/// @brief Plain data parallelism, the ZeRO stages, and ZeRO-3 with one reduction in a step.
enum class Sharding : std::uint8_t { none, zero1, zero2, zero3, zero3_once };
inline constexpr std::array every_sharding{Sharding::none, Sharding::zero1, Sharding::zero2, Sharding::zero3,
                                           Sharding::zero3_once};

/// @brief Trains on the ranks of `world`; collective. Compiled in zero_test.cpp and zero3_test.cpp.
[[nodiscard]] PipelineOutcome train_zero(Sharding sharding, const sw::HostCommunicator& world,
                                         const Problem& problem, const PipelineWay& way,
                                         const sw::Schedule& schedule, const AtStep& at_step);
[[nodiscard]] PipelineOutcome train_zero3(Sharding sharding, const sw::HostCommunicator& world,
                                          const Problem& problem, const PipelineWay& way,
                                          const sw::Schedule& schedule, const AtStep& at_step);

/// @brief A small decoder whose sizes four ranks of tp and cp divide.
[[nodiscard]] inline Problem zero_problem() {
  Problem problem;
  problem.config = config_of_four();
  problem.config.tied_embedding = true;
  problem.batch = 16;
  problem.steps = 8; // the first half with rising rates; each sharding and mesh repeats them
  return problem;
}

/// @brief Trains on thread ranks, on a pipeline of one or more ranks, with as many microbatches as `way`
/// accumulates; the outcome of each rank.
[[nodiscard]] inline std::vector<PipelineOutcome>
train_zero_on_threads(Sharding sharding, const Problem& problem, const PipelineWay& way) {
  const sw::Schedule schedule = sw::make_schedule("1f1b", way.pp, way.inside.accumulation);
  return pipeline_outcomes(way, [&](const sw::HostCommunicator& world) {
    return train_zero(sharding, world, problem, way, schedule, {});
  });
}

/// @brief Whether two runs gave the same bits: losses and parameters of every rank, and norms up to the order
/// in which their squares are added.
[[nodiscard]] inline bool same_bits(const std::vector<PipelineOutcome>& runs,
                                    const std::vector<PipelineOutcome>& others) {
  bool same = runs.size() == others.size();
  for (std::size_t rank = 0; same && rank < runs.size(); ++rank) {
    const Outcome& run = runs[rank].training;
    const Outcome& other = others[rank].training;
    same = run.losses == other.losses && run.parameters == other.parameters && run.tokens == other.tokens &&
           runs[rank].evaluated == others[rank].evaluated &&
           largest_difference(run.norms, other.norms) <= 1e-13;
  }
  return same;
}

} // namespace nn_test
