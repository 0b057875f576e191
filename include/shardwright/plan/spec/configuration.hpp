// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One plan: the extents of the mesh, the order of its axes, the schedule, what is sharded and what is
/// recomputed.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/recompute.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief An axis of a plan's mesh, in the usual order from inner to outer.
enum class PlanAxis : std::uint8_t { tp, cp, dp, pp };

/// @brief The index of an order of the four axes among all 24 in lexicographic order, so that the usual one
/// comes first.
///
/// The ranks of an inner axis are neighbours and share a domain as far as it extends; those of an outer axis
/// are as many ranks apart as the product of the extents inside it.
enum class PlanOrder : std::uint8_t { usual = 0 };
inline constexpr int plan_order_count = 24;

namespace detail {

inline constexpr auto plan_orders = [] {
  std::array<std::array<PlanAxis, 4>, plan_order_count> orders{};
  std::array<PlanAxis, 4> axes{PlanAxis::tp, PlanAxis::cp, PlanAxis::dp, PlanAxis::pp};
  for (std::array<PlanAxis, 4>& order : orders) {
    order = axes;
    std::next_permutation(axes.begin(), axes.end());
  }
  return orders;
}();

} // namespace detail

/// @brief The axes of an order, from inner to outer.
[[nodiscard]] constexpr const std::array<PlanAxis, 4>& axes_of(PlanOrder order) noexcept {
  return detail::plan_orders[static_cast<std::size_t>(order)];
}

/// @brief The order with these axes from inner to outer; each must occur once.
[[nodiscard]] constexpr PlanOrder plan_order(PlanAxis first, PlanAxis second, PlanAxis third,
                                             PlanAxis fourth) noexcept {
  const std::array<PlanAxis, 4> order{first, second, third, fourth};
  const auto* const found = std::find(detail::plan_orders.begin(), detail::plan_orders.end(), order);
  return static_cast<PlanOrder>(found - detail::plan_orders.begin());
}

/// @brief The schedules of `schedule/` that a plan may name.
enum class PlanSchedule : std::uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  interleaved_zb,
  zb_v,
  dual_pipe,
  dual_pipe_v
};
inline constexpr int plan_schedule_count = 9;

/// @brief Returns whether a schedule may have several numbers of chunks.
[[nodiscard]] constexpr bool takes_chunks(PlanSchedule schedule) noexcept {
  return schedule == PlanSchedule::interleaved || schedule == PlanSchedule::interleaved_zb;
}

/// @brief The spread of a run over chips: the extents of the mesh, and the order in which its axes are placed
/// on the domains of the cluster.
///
/// Experts are distributed over `ep` of the tp * cp * dp ranks of a stage, the innermost ones first unless
/// `experts_outside`; over the remaining factor of these ranks they are sharded or replicated, as in data
/// parallelism.
struct PlanConfiguration {
  int tp = 1;
  int cp = 1;
  int pp = 1;
  int chunks = 1; ///< Stages per pipeline rank, for the interleaved schedules.
  PlanSchedule schedule = PlanSchedule::one_f_one_b;
  int ep = 1;
  int dp = 1;
  int zero_stage = 0; ///< 0 to 3: what data-parallel ranks shard.
  int microbatch = 1; ///< Sequences per microbatch and data-parallel rank.
  Recompute recomputation = Recompute::none;
  bool sequence_parallel = true; ///< Norms and residuals are sharded over tp.
  PlanOrder order = PlanOrder::usual;
  bool experts_outside = false;      ///< Copies of an expert are neighbours, rather than different experts.
  RecomputedOperations recomputed{}; ///< By a selective recomputation; the usual ones if empty.
  int shard_ranks = 0; ///< That share what ZeRO shards, with copies on others (HSDP); 0: all of dp * cp.

  [[nodiscard]] constexpr int extent(PlanAxis axis) const noexcept {
    return axis == PlanAxis::tp ? tp : axis == PlanAxis::cp ? cp : axis == PlanAxis::dp ? dp : pp;
  }
  /// @brief Chips that it uses.
  [[nodiscard]] constexpr std::int64_t chips() const noexcept {
    return static_cast<std::int64_t>(tp) * cp * pp * dp;
  }
  /// @brief Ranks that hold copies of an expert; 1 if there are fewer ranks than parts of the experts.
  [[nodiscard]] constexpr std::int64_t expert_dp() const noexcept {
    const std::int64_t copies = static_cast<std::int64_t>(tp) * cp * dp / ep;
    return copies > 1 ? copies : 1;
  }
  /// @brief Ranks that share what ZeRO shards of the parameters beside experts.
  [[nodiscard]] constexpr double data_shards() const noexcept {
    return shard_ranks > 0 ? shard_ranks : static_cast<double>(dp) * cp;
  }
  friend constexpr bool operator==(const PlanConfiguration&, const PlanConfiguration&) = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
