// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Plans and their problems, in words.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/recompute_names.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The name of a schedule as `make_schedule` expects it.
[[nodiscard]] constexpr std::string_view schedule_name(PlanSchedule schedule) noexcept {
  constexpr std::array<std::string_view, plan_schedule_count> names{
      "gpipe", "1f1b", "interleaved", "zbh1", "zbh2", "interleavedzb", "zbv", "dualpipe", "dualpipev"};
  return names[static_cast<std::size_t>(schedule)];
}

/// @brief Returns what must change if there is no plan.
[[nodiscard]] constexpr std::string_view problem_text(PlanProblem problem) noexcept {
  constexpr std::array<std::string_view, 13> texts{
      "it can run",
      "a dimension, the batch, an extent or a bandwidth is not positive",
      "tp * cp * pp * dp must be the number of chips",
      "the sequences of a step must divide into dp * microbatch for some extents that divide heads, sequence and chips",
      "tp must divide the heads",
      "cp, and tp with sequence parallelism, must divide the sequence",
      "there must be a layer for every stage of the pipeline (if it is interleaved, embedding and output matrix count as two)",
      "ep must divide the experts and the ranks of a stage",
      "shard_ranks must divide dp * cp, and the model must have no experts",
      "tp and cp of a reproducible run must be 1, 2, 4 or 8",
      "the schedule must allow the numbers of ranks and microbatches",
      "a chip has too little memory",
      "a dimension of the model must be at most 134217728, and chips, sequences and tokens of a sequence at most 1073741824"};
  return texts[static_cast<std::size_t>(problem)];
}

/// @brief The axes of more than one rank, from inner to outer: "pp,tp,dp".
[[nodiscard]] inline std::string order_text(const PlanConfiguration& plan) {
  constexpr std::array<std::string_view, 4> names{"tp", "cp", "dp", "pp"};
  std::string out;
  for (const PlanAxis axis : axes_of(plan.order))
    if (plan.extent(axis) > 1) {
      if (!out.empty())
        out += ',';
      out += names[static_cast<std::size_t>(axis)];
    }
  return out;
}

/// @brief "none", "selective", "full", or, if the plan lists the operations that are run again, "norm+act".
[[nodiscard]] inline std::string recomputation_text(const PlanConfiguration& plan) {
  return plan.recomputation == Recompute::selective && !plan.recomputed.empty()
             ? operations_text(plan.recomputed)
             : std::string(name_of(plan.recomputation));
}

/// @brief "tp=8 pp=16 (1f1b) dp=64 ZeRO-1 microbatch=1", without axes of extent 1; if the order of the axes
/// is not the usual one, "order=pp,tp,dp" follows, from inner to outer.
[[nodiscard]] inline std::string plan_text(const PlanConfiguration& plan) {
  std::string out;
  const auto axis = [&out](const char* name, int extent) {
    if (extent > 1)
      out.append(name).append("=").append(std::to_string(extent)).append(" ");
  };
  axis("tp", plan.tp);
  axis("cp", plan.cp);
  axis("pp", plan.pp);
  if (plan.pp > 1) {
    out.append("(").append(schedule_name(plan.schedule));
    if (plan.chunks > 1)
      out.append(", ").append(std::to_string(plan.chunks)).append(" chunks");
    out.append(") ");
  }
  axis("ep", plan.ep);
  axis("dp", plan.dp);
  if (plan.zero_stage > 0)
    out.append("ZeRO-").append(std::to_string(plan.zero_stage)).append(" ");
  axis("shard_ranks", plan.shard_ranks);
  out.append("microbatch=").append(std::to_string(plan.microbatch));
  if (plan.recomputation != Recompute::none)
    out += " recomputation=" + recomputation_text(plan);
  if (plan.order != PlanOrder::usual)
    out += " order=" + order_text(plan);
  if (plan.experts_outside)
    out += " experts=outside";
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
