// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A plan found at compile time, and the types that follow from it: mesh, ZeRO layouts, schedule.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/mesh_shape.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>

#include <cstddef>
#include <tuple>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// This many evaluations, and those between two points where a search may stop, stay below a million
/// operations, the lowest limit for a constant among the compilers.
inline constexpr std::int64_t evaluations_per_constant = 60;

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, const SearchSpace& space>
inline constexpr SearchTables static_tables = PlanSearch(model, cluster, run, space).tables();

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, const SearchSpace& space>
[[nodiscard]] constexpr SearchState advanced(SearchState state) {
  PlanSearch(model, cluster, run, space)
      .advance(static_tables<model, cluster, run, space>, state, evaluations_per_constant);
  return state;
}

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, const SearchSpace& space,
          int step>
struct SearchStep {
  static constexpr SearchState state =
      advanced<model, cluster, run, space>(SearchStep<model, cluster, run, space, step - 1>::state);
};
template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, const SearchSpace& space>
struct SearchStep<model, cluster, run, space, 0> {
  static constexpr SearchState state{};
};

template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run, const SearchSpace& space,
          int step>
[[nodiscard]] consteval Plan plan_from() {
  if constexpr (SearchStep<model, cluster, run, space, step>::state.done)
    return PlanSearch(model, cluster, run, space)
        .result(static_tables<model, cluster, run, space>,
                SearchStep<model, cluster, run, space, step>::state);
  else
    return plan_from<model, cluster, run, space, step + 1>();
}

} // namespace detail

/// @brief The default search space of `plan`: everything except the order of the axes, which is the usual
/// one.
inline constexpr SearchSpace usual_order{.order = PlanOrder::usual, .experts_outside = false};

/// @brief The plan that `search` finds, as a constant: `constexpr Plan best = plan<model, cluster, run>();`.
///
/// The specifications are constant objects with static storage. The search is spread over constants, so that
/// compilers with their usual limits find plans of a thousand chips and more. That takes a few seconds, or
/// half a minute for a mixture of experts, for which g++ needs up to 4.3 GB of memory (DeepSeek-V3 on 1,024
/// chips). Other
/// orders of the axes take them several times as long: they are left to `search` unless a space without
/// `order` is given.
template <const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
          const SearchSpace& space = usual_order>
[[nodiscard]] consteval Plan plan() {
  return detail::plan_from<model, cluster, run, space, 1>();
}

/// @brief The types that follow from a plan, for layers that instantiate them.
template <PlanConfiguration configuration> struct PlanTypes {
  /// The axis at a position of its order, from inner to outer, with its extent.
  template <std::size_t place>
  using Extent =
      StaticExtent<std::tuple_element_t<static_cast<std::size_t>(axes_of(configuration.order)[place]),
                                        std::tuple<axis::tp, axis::cp, axis::dp, axis::pp>>,
                   configuration.extent(axes_of(configuration.order)[place])>;
  /// Its mesh, major to minor, with extents in the type: neighbours along the last axis are neighbours.
  using Mesh = MeshShape<Extent<3>, Extent<2>, Extent<1>, Extent<0>>;
  /// The sharding of parameters, gradients and optimizer state over data-parallel ranks.
  using Zero = std::tuple_element_t<static_cast<std::size_t>(configuration.zero_stage),
                                    std::tuple<DataParallel, Zero1, Zero2, Zero3>>;
  static constexpr int chunks = configuration.chunks > 1 ? configuration.chunks : 2;
  /// Its schedule's policy.
  using Policy = std::tuple_element_t<static_cast<std::size_t>(configuration.schedule),
                                      std::tuple<GPipe, OneFOneB, Interleaved<chunks>, ZBH1, ZBH2,
                                                 InterleavedZB<chunks>, ZBV, DualPipe, DualPipeV>>;
  using Schedule = PipelineSchedule<Policy>;
  static constexpr bool sequence_parallel = configuration.tp > 1 && configuration.sequence_parallel;

  /// @brief Microbatches of a step of `sequences`.
  [[nodiscard]] static constexpr int microbatches(std::int64_t sequences) noexcept {
    return static_cast<int>(sequences /
                            (static_cast<std::int64_t>(configuration.dp) * configuration.microbatch));
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
