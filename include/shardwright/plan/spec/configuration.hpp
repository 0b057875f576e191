// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One plan: the extents of the mesh, the schedule, what is sharded and what is recomputed.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/order.hpp>
#include <shardwright/plan/spec/recompute.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

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
