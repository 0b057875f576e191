// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A plan that the compiler finds, and the types that it names: mesh, layouts of ZeRO, schedule.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/mesh_shape.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/plan/search.hpp>
#include <shardwright/schedule/dual_pipe.hpp>
#include <shardwright/schedule/dual_pipe_v.hpp>
#include <shardwright/schedule/gpipe.hpp>
#include <shardwright/schedule/interleaved.hpp>
#include <shardwright/schedule/one_f_one_b.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/zb_h1.hpp>
#include <shardwright/schedule/zb_h2.hpp>
#include <shardwright/schedule/zb_v.hpp>

#include <tuple>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// So many evaluations stay below a million operations, the least limit of a constant among the compilers.
inline constexpr std::int64_t evaluations_per_constant = 400;

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run>
inline constexpr SearchTables static_tables = PlanSearch(model, cluster, run, {}).tables();

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run>
[[nodiscard]] constexpr SearchState advanced(SearchState state) {
  PlanSearch(model, cluster, run, {})
      .advance(static_tables<model, cluster, run>, state, evaluations_per_constant);
  return state;
}

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, int step>
struct SearchStep {
  static constexpr SearchState state =
      advanced<model, cluster, run>(SearchStep<model, cluster, run, step - 1>::state);
};
template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run>
struct SearchStep<model, cluster, run, 0> {
  static constexpr SearchState state{};
};

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, int step>
[[nodiscard]] consteval Plan plan_from() {
  if constexpr (SearchStep<model, cluster, run, step>::state.done)
    return PlanSearch(model, cluster, run, {})
        .result(static_tables<model, cluster, run>, SearchStep<model, cluster, run, step>::state);
  else
    return plan_from<model, cluster, run, step + 1>();
}

} // namespace detail

/// @brief The plan that `search` finds, as a constant: `constexpr Plan best = plan<model, cluster, run>();`.
///
/// The specifications are objects of static storage that are constant. The search is spread over constants,
/// so that compilers with their usual limits find plans of a thousand chips and more; it takes them seconds.
template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run>
[[nodiscard]] consteval Plan plan() {
  return detail::plan_from<model, cluster, run, 1>();
}

/// @brief The types that a plan names, for layers that instantiate them.
template <PlanConfiguration configuration>
struct PlanTypes {
  /// Its mesh, major to minor, with extents in the type.
  using Mesh = MeshShape<StaticExtent<axis::pp, configuration.pp>, StaticExtent<axis::dp, configuration.dp>,
                         StaticExtent<axis::cp, configuration.cp>, StaticExtent<axis::tp, configuration.tp>>;
  /// What data-parallel ranks shard of parameters, gradients and optimizer state.
  using Zero = std::tuple_element_t<static_cast<std::size_t>(configuration.zero_stage),
                                    std::tuple<DataParallel, Zero1, Zero2, Zero3>>;
  /// Its schedule's policy.
  using Policy = std::tuple_element_t<
      static_cast<std::size_t>(configuration.schedule),
      std::tuple<GPipe, OneFOneB, Interleaved<(configuration.chunks > 1 ? configuration.chunks : 2)>, ZBH1,
                 ZBH2, ZBV, DualPipe, DualPipeV>>;
  using Schedule = PipelineSchedule<Policy>;
  static constexpr bool sequence_parallel = configuration.tp > 1 && configuration.sequence_parallel;

  /// @brief Microbatches of a step of `sequences`.
  [[nodiscard]] static constexpr int microbatches(std::int64_t sequences) noexcept {
    return static_cast<int>(sequences /
                            (static_cast<std::int64_t>(configuration.dp) * configuration.microbatch));
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
