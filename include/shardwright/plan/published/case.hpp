// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Published runs as the specifications that the planner evaluates.

#include <shardwright/core/config.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/published/run.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A published run, ready for `evaluate`, or why it is not.
struct RunCase {
  std::string not_handled{}; ///< The reason why the row cannot be evaluated; empty where it can.
  ModelSpec model{};
  ClusterSpec cluster{};
  RunSpec run{};
  PlanConfiguration plan{};
  double measured_seconds = 0; ///< Of one step; 0 where neither it nor tokens/s was published.
  double stated_memory = 0;    ///< Bytes of the fullest rank; 0 where not stated.
};

namespace detail {

/// The dimensions that tables leave out, of all usual ones those that come nearest to the stated parameters.
[[nodiscard]] inline ModelSpec nearest_in_size(ModelSpec model, double parameters) {
  ModelSpec best = model;
  double least = 1e300;
  const int usual = model.hidden / model.heads;
  const bool four_times = model.feed_forward == 4 * std::int64_t{model.hidden};
  for (const bool gated : {!four_times, four_times})
    for (const int width : {usual, 128, 256, 64})
      for (const bool tied : {false, true}) {
        model.gated = gated;
        model.head_width = width;
        model.tied_embeddings = tied;
        const double off = size_of(model).total / parameters;
        const double distance = off > 1 ? off - 1 : 1 - off;
        if (distance + 0.01 < least) { // the first in the list unless another is plainly nearer
          least = distance;
          best = model;
        }
      }
  return best;
}

[[nodiscard]] inline std::string missing_field(const PublishedRun& row, std::string_view field) {
  return row.text(field).empty() ? std::string(field) + " was not published" : std::string{};
}

[[nodiscard]] inline std::string read_model(const PublishedRun& row, ModelSpec& model) {
  if (const ModelSpec* known = find_model(row.text("model"))) {
    const int layers = row.integer("layers").value_or(known->layers);
    if (layers == known->layers && row.integer("hidden").value_or(known->hidden) == known->hidden) {
      model = *known;
      return {};
    }
  }
  for (const std::string_view field : {"layers", "hidden", "ffn"})
    if (std::string reason = missing_field(row, field); !reason.empty())
      return reason + " and the model is not in the catalogue";
  model.name = row.text("model");
  model.layers = *row.integer("layers");
  model.hidden = *row.integer("hidden");
  model.heads = row.integer("heads").value_or(std::max(1, model.hidden / 128));
  model.key_value_heads = row.integer("kv_heads").value_or(model.heads);
  model.feed_forward = *row.integer("ffn");
  model.vocabulary = row.integer("vocab").value_or(51200);
  if (const auto experts = row.integer("experts")) {
    model.experts.count = *experts;
    model.experts.active = row.integer("topk").value_or(1);
    model.experts.width = model.feed_forward;
  }
  if (const auto parameters = row.number("params_total_B"))
    model = nearest_in_size(model, *parameters * 1e9);
  return {};
}

[[nodiscard]] inline Precision precision_of(std::string_view text) {
  return text.find("fp4") != text.npos   ? Precision::fp4
         : text.find("fp8") != text.npos ? Precision::fp8
         : text == "fp16"                ? Precision::fp16
                                         : Precision::bf16;
}

[[nodiscard]] inline Recompute recomputation_of(std::string_view text) {
  return text.empty() || text == "none"             ? Recompute::none
         : text == "selective" || text == "minimal" ? Recompute::selective
                                                    : Recompute::full;
}

/// NVIDIA's containers capture layers with experts on Blackwell since 26.06.
[[nodiscard]] inline bool captures_experts(const PublishedRun& row, const ChipSpec& chip) {
  constexpr std::string_view name = "container ";
  const std::string_view notes = row.text("notes");
  const std::size_t at = notes.find(name);
  return chip.generation == ChipGeneration::blackwell && at != notes.npos &&
         notes.substr(at + name.size(), 5) >= "26.06";
}

/// PyTorch FSDP: its own sources, and ZeRO-2 or 3 on GPUs that is not XLA's.
[[nodiscard]] inline bool uses_plain_stack(const PublishedRun& row, int zero_stage, const ChipSpec& chip) {
  const auto names = [&](std::string_view word) {
    return row.text("source").find(word) != std::string_view::npos ||
           row.text("notes").find(word) != std::string_view::npos;
  };
  if (names("torchtitan") || names("mosaicml"))
    return true;
  const bool vendors =
      names("axtext") || names("axText") || names("JAX") || names("egatron") || names("NeMo");
  return zero_stage >= 2 && chip.generation != ChipGeneration::tpu && !vendors;
}

} // namespace detail

/// @brief Reads a row: columns as in data/published_runs.csv.
///
/// Where a column is empty: ZeRO-1, one sequence per microbatch, nothing recomputed, 1F1B (interleaved with
/// two chunks where the notes name it). TPU runs pad experts to 1.25 of the mean load (GShard's capacity).
/// Runs in fp16 are taken to be from before fused attention. Policies of recomputation that keep some
/// products count as full ones, except "minimal". ZeRO-2 and 3 on GPUs mean PyTorch FSDP, and so the plain
/// stack, unless source or notes name MaxText, JAX, Megatron or NeMo.
/// @throws DataError naming line and field where a cell is not what it must be.
[[nodiscard]] inline RunCase read_run_case(const PublishedRun& row) {
  RunCase out;
  const auto fail = [&](std::string reason) {
    out.not_handled = std::move(reason);
    return out;
  };
  if (std::string reason = detail::read_model(row, out.model); !reason.empty())
    return fail(std::move(reason));
  const ChipSpec* chip = find_chip(row.text("chip"));
  if (chip == nullptr)
    return fail("chip " + detail::quoted_text(row.text("chip")) + " is not in the catalogue");
  for (const std::string_view field : {"n_chips", "seq_len", "global_batch_seqs"})
    if (std::string reason = detail::missing_field(row, field); !reason.empty())
      return fail(std::move(reason));
  if (row.text("tp").empty() && row.text("pp").empty() && row.text("dp").empty())
    return fail("tp, pp and dp were not published");

  const int chips = *row.integer("n_chips");
  out.cluster = cluster_of(*chip, chips, row.integer("chips_per_node").value_or(0));
  out.run.sequences = *row.integer("global_batch_seqs");
  out.run.sequence_length = *row.integer("seq_len");
  out.run.precision = detail::precision_of(row.text("precision"));
  out.run.captured_experts = detail::captures_experts(row, *chip);
  out.run.fused_attention = out.run.precision != Precision::fp16;

  if (chip->generation == ChipGeneration::tpu) // XLA's static shapes
    out.run.expert_capacity = 1.25;

  PlanConfiguration& plan = out.plan;
  plan.tp = row.integer("tp").value_or(1);
  plan.cp = row.integer("cp").value_or(1);
  plan.pp = row.integer("pp").value_or(1);
  plan.ep = row.integer("ep").value_or(1);
  std::int64_t ranks = 1; // of a replica; each factor is small enough that no product overflows
  for (const int extent : {plan.tp, plan.cp, plan.pp})
    ranks = ranks > chips ? ranks : ranks * extent;
  if (chips % ranks != 0)
    return fail("tp * cp * pp does not divide n_chips");
  plan.dp = static_cast<int>(chips / ranks);
  plan.zero_stage = row.integer("zero_stage").value_or(1);
  const bool fsdp = detail::uses_plain_stack(row, plan.zero_stage, *chip);
  out.run.stack = fsdp ? KernelStack::plain : KernelStack::tuned;
  plan.microbatch = row.integer("microbatch_size").value_or(1);
  plan.recomputation = detail::recomputation_of(row.text("recompute"));
  plan.chunks = row.integer("vpp").value_or(1);
  if (row.text("vpp").empty() && row.text("notes").find("nterleaved") != std::string_view::npos)
    plan.chunks = 2;
  if (plan.pp > 1 && plan.chunks > 1)
    plan.schedule = PlanSchedule::interleaved;
  else
    plan.chunks = 1;
  if (fsdp && plan.pp > 1) { // as torch.distributed.pipelining does unless told otherwise
    const auto each = static_cast<int>(out.run.sequences / plan.dp);
    if (row.text("microbatch_size").empty())
      plan.microbatch = std::max(1, static_cast<int>(each / (std::int64_t{plan.pp} * plan.chunks)));
    if (row.text("zero_stage").empty())
      plan.zero_stage = 3;
  }

  const double tokens = static_cast<double>(out.run.tokens());
  if (const auto seconds = row.number("step_time_s"))
    out.measured_seconds = *seconds;
  else if (const auto rate = row.number("tokens_per_s_per_chip"))
    out.measured_seconds = tokens / (*rate * chips);
  const std::string_view notes = row.text("notes");
  if (const std::size_t at = notes.find("peak mem "); at != notes.npos) {
    const std::string_view number = notes.substr(at + 9);
    std::from_chars(number.data(), number.data() + number.size(), out.stated_memory);
    out.stated_memory *= 1024.0 * 1024.0 * 1024.0;
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
