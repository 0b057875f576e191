// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory that is predicted for a training, against the pool's peak of the training itself.

#include "nn/small_training.hpp"
#include "support/ranks.hpp"

#include <shardwright/layout/mesh_place.hpp>
#include <shardwright/nn/decoder_memory.hpp>
#include <shardwright/schedule/named_schedule.hpp>

#include <cmath>
#include <cstdint>
#include <string>

namespace nn_test {

/// @brief For a rank of a pipeline of stages that are spread out as `inside`.
template <class Layouts, class Element>
[[nodiscard]] sw::MemoryTable predicted_memory(const Problem& problem, const Way& inside,
                                               const sw::Schedule& schedule, int world_rank) {
  using namespace sw::axis;
  const auto extents = inside.extents();
  const sw::MeshShape stage{sw::extent<dpr>(extents.dpr), sw::extent<dp>(extents.dp),
                            sw::extent<cp>(extents.cp), sw::extent<tp>(extents.tp)};
  const int ranks = static_cast<int>(stage.size());
  return sw::decoder_memory<Layouts, Element>(
      problem.config, sw::MeshPlace(stage, world_rank % ranks), schedule,
      sw::LayerPartition(static_cast<int>(problem.config.layers), schedule.stages()), world_rank / ranks,
      problem.batch / schedule.microbatches());
}

/// @brief Within 3%.
inline void expect_memory(const sw::MemoryTable& predicted, const sw::PoolStatistics& pool,
                          const std::string& what, shardwright_test::Findings& findings) {
  const double share = static_cast<double>(pool.peak_bytes) / static_cast<double>(predicted.total()) - 1;
  findings.expect(std::abs(share) < 0.03, what, ": ", pool.peak_bytes, " bytes measured, ", predicted.total(),
                  " predicted");
}

/// @brief Trains without a pipeline, one microbatch in a step, with every kind of recomputation. Collective.
template <class Layouts, class Element>
void check_memory(const sw::HostCommunicator& world, shardwright_test::Findings& findings, Problem problem,
                  const Way& way) {
  problem.steps = 3;
  for (const auto kind : {sw::Recompute::none, sw::Recompute::selective, sw::Recompute::full}) {
    problem.config.recompute.kind = kind;
    sw::PoolStatistics pool;
    static_cast<void>(train_with<Layouts, Element>(
        world, problem, way, [&pool](int, const sw::PoolStatistics& now) { pool = now; }));
    expect_memory(
        predicted_memory<Layouts, Element>(problem, way, sw::make_schedule("1f1b", 1, 1), world.rank()), pool,
        way.text() + " " + std::string(sw::name_of(kind)), findings);
  }
}

} // namespace nn_test
