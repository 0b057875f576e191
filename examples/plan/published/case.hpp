// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Published runs as the specifications that the planner evaluates.

#include <plan/published/chip_name.hpp>
#include <plan/published/program.hpp>
#include <plan/published/run.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/recompute_names.hpp>
#include <shardwright/plan/spec/run.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace plan_example {

using namespace shardwright;

/// @brief A published run, ready for `evaluate`, or why it is not.
struct RunCase {
  std::string not_handled{};  ///< The reason why the row cannot be evaluated; empty if it can.
  std::string_view program{}; ///< Of `named_programs`; empty if it is none of them.
  std::string assumed{}; ///< Assumptions about the chip that its name leaves open; empty if there are none.
  ModelSpec model{};
  ClusterSpec cluster{};
  RunSpec run{};
  PlanConfiguration plan{};
  double measured_seconds = 0; ///< Of one step; 0 if neither it nor tokens/s was published.
  double stated_memory = 0;    ///< Bytes on the fullest rank; 0 if not stated.
};

namespace detail {

/// Fills in the dimensions that tables leave out: the usual ones that come nearest to the stated parameters.
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

/// Stated parameters may be this many times those of the dimensions, or a part as small of them: tables
/// round, and leave embeddings or small matrices out.
inline constexpr double most_off = 1.25;

/// "671", "3.2": a number for a message.
[[nodiscard]] inline std::string text_of(double number) {
  std::array<char, 32> out{};
  const auto end = std::to_chars(out.data(), out.data() + out.size(), number, std::chars_format::general, 3);
  return {out.data(), end.ptr};
}

[[nodiscard]] inline std::string missing_field(const PublishedRun& row, std::string_view field) {
  return row.text(field).empty() ? std::string(field) + " was not published" : std::string{};
}

/// Fills in what a row says of a model's layers beyond their dimensions.
inline void read_layers(const PublishedRun& row, ModelSpec& model) {
  const auto set = [&row](const char* field, int& value) {
    value = row.integer(field, true).value_or(value);
  };
  set("window", model.window);
  set("window_layers", model.window_layers);
  if (model.window > 0 && row.text("window_layers").empty() && model.window_layers == 0)
    model.window_layers = model.layers;
  set("prediction_layers", model.prediction_layers);
  model.parallel_block = row.integer("parallel_block", true).value_or(model.parallel_block ? 1 : 0) != 0;
  if (!model.experts.used())
    return;
  model.experts.every = row.integer("expert_every").value_or(model.experts.every);
  set("leading_dense_layers", model.experts.leading_dense_layers);
  set("expert_ffn", model.experts.width);
  set("shared_experts", model.experts.shared);
  set("shared_ffn", model.experts.shared_width);
}

[[nodiscard]] inline std::string read_model(const PublishedRun& row, ModelSpec& model) {
  if (const ModelSpec* known = find_model(row.text("model"))) {
    const int layers = row.integer("layers").value_or(known->layers);
    if (layers == known->layers && row.integer("hidden").value_or(known->hidden) == known->hidden) {
      model = *known;
      read_layers(row, model);
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
  read_layers(row, model);
  if (const auto parameters = row.number("params_total_B")) {
    model = nearest_in_size(model, *parameters * 1e9);
    const double counted = size_of(model).total / 1e9;
    if (counted > most_off * *parameters || *parameters > most_off * counted)
      return "its dimensions give " + text_of(counted) + " billion parameters, but params_total_B is " +
             text_of(*parameters);
  }
  return {};
}

/// The format of a row's products, bf16 if it names none; nothing if it is not known.
[[nodiscard]] inline std::optional<Precision> precision_of(std::string_view text) {
  if (text.find("fp4") != text.npos)
    return Precision::fp4;
  if (text.find("fp8") != text.npos)
    return Precision::fp8;
  if (text == "fp16")
    return Precision::fp16;
  return text.empty() || text == "bf16" ? std::optional(Precision::bf16) : std::nullopt;
}

/// Settles what a plan recomputes: a kind of recomputation, a list of operations ("norm, act"), a policy by
/// name, or the values that are kept, on the chip ("keep query_proj+context") or in the host's memory
/// ("offload decoder_layer_input"). Returns why not, if it is none of these.
[[nodiscard]] inline std::string read_recomputation(std::string_view text, RunSpec& run,
                                                    PlanConfiguration& plan) {
  constexpr std::string_view offload = "offload ";
  const bool offloads = text.starts_with(offload);
  run.offloads_layers = offloads || is_offloading(text);
  if (text.empty() || text == "none")
    return {};
  plan.recomputation = Recompute::selective;
  if (text == "selective")
    return {};
  if (const auto listed = offloads ? find_kept(text.substr(offload.size())) : find_operations(text))
    plan.recomputed = *listed;
  else if (const auto policy = find_policy(text))
    plan.recomputed = *policy;
  if (text == "full" || plan.recomputed == find_kept("decoder_layer_input")) {
    plan.recomputation = Recompute::full;
    plan.recomputed = {};
  } else if (plan.recomputed.empty()) {
    return "recompute " + shardwright::detail::quoted_text(text) +
           " is neither a kind of recomputation, nor a list of operations, nor a known policy";
  }
  return {};
}

/// The release of NVIDIA's container that a row ran in ("26.06"); empty if its notes name none.
[[nodiscard]] inline std::string_view container_of(const PublishedRun& row) {
  constexpr std::string_view name = "container ";
  const std::string_view notes = row.text("notes");
  const std::size_t at = notes.find(name);
  return at == notes.npos ? std::string_view{} : notes.substr(at + name.size(), 5);
}
/// Returns whether a row ran in a container from a release on.
[[nodiscard]] inline bool runs_in_container(const PublishedRun& row, std::string_view release) {
  return container_of(row) >= release;
}

/// The dispatch that a row names; else what programs take: fused on Hopper, which DeepEP was written for, in
/// racks and, since the containers of 2026, on other chips of Blackwell (HybridEP), and on a TPU; all-to-alls
/// elsewhere, and for experts with biases, which fused layers took up with 26.06.
[[nodiscard]] inline ExpertDispatch dispatch_of(const PublishedRun& row, const ModelSpec& model,
                                                const ChipSpec& chip) {
  const std::string_view text = row.text("dispatch").empty() ? row.text("notes") : row.text("dispatch");
  if (names_word(text, "tokendrop") || names_word(text, "padded"))
    return ExpertDispatch::padded;
  for (const std::string_view name : {"deepep", "hybridep", "fused"})
    if (names_word(text, name))
      return ExpertDispatch::fused;
  for (const std::string_view name : {"all_to_all", "alltoall"})
    if (names_word(text, name))
      return ExpertDispatch::all_to_all;
  if (model.biases && !runs_in_container(row, "26.06") && chip.host() != HostKind::compiled)
    return ExpertDispatch::all_to_all;
  return chip.generation == ChipGeneration::hopper || chip.host() != HostKind::separate ||
                 runs_in_container(row, "26.02")
             ? ExpertDispatch::fused
             : ExpertDispatch::all_to_all;
}

/// Whether a row says that layers with experts are captured; unless it says that the host launches them,
/// NVIDIA's containers capture them on Blackwell since 26.06.
[[nodiscard]] inline bool captures_experts(const PublishedRun& row, const ChipSpec& chip) {
  const std::string_view dispatch = row.text("dispatch");
  return names_word(dispatch, "captured") ||
         (chip.generation == ChipGeneration::blackwell && runs_in_container(row, "26.06") &&
          !names_word(dispatch, "launched"));
}

/// Months from the first systems with a GPU's generation to the program of a row, by its container (YY.MM) or
/// its date (YYYY or YYYY-MM); infinite, as of old chips, if it names neither. Systems
/// with Hopper were to ship from October 2022 on (AnandTech, "H100 Hopper Accelerator Now in Full
/// Production", 20 September 2022). December 2024 is assumed for Blackwell, whose shipments were to begin in
/// the quarter after 27 October 2024 (NVIDIA's report on the third quarter of fiscal 2025).
[[nodiscard]] inline double chip_months(const PublishedRun& row, ChipGeneration generation) {
  const int first = generation == ChipGeneration::hopper      ? 12 * 2022 + 10
                    : generation == ChipGeneration::blackwell ? 12 * 2025
                                                              : 0;
  const std::string_view container = container_of(row), date = row.text("date");
  const std::string_view text = container.empty() ? date : container;
  int year = 0, month = 6;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), year);
  if (first == 0 || problem != std::errc{})
    return std::numeric_limits<double>::infinity();
  if (end != text.data() + text.size())
    std::from_chars(end + 1, text.data() + text.size(), month);
  return 12.0 * (container.empty() ? year : 2000 + year) + month - first;
}

/// What a row overlaps: the words of its column, or without one, of its notes and its dispatch.
inline void read_overlap(const PublishedRun& row, const ModelSpec& model, RunSpec& run) {
  const std::string_view overlap = row.text("overlap");
  run.overlapped_tensor = names_word(overlap, "tensor");
  run.overlapped_experts =
      model.experts.used() && (overlap.empty() ? names_word(row.text("notes"), "overlap") ||
                                                     names_word(row.text("dispatch"), "overlap")
                                               : names_word(overlap, "expert"));
}

/// Settles the kernels of attention: as the row or its notes say; else runs in fp16 that are not dated 2023
/// or later are assumed to predate fused ones, and programs that are not named to run FlashAttention-2.
inline void read_attention(const PublishedRun& row, bool named, RunSpec& run) {
  const std::string_view text = row.text("attention"), notes = row.text("notes");
  if (!text.empty() && text != "fused" && text != "flash2" && text != "unfused")
    throw DataError("Runs, line " + std::to_string(row.line()) +
                    ": attention must be fused, flash2 or unfused, but it is " +
                    shardwright::detail::quoted_text(text));
  run.fused_attention =
      text.empty() ? run.precision != Precision::fp16 || row.text("date") >= "2023" : text != "unfused";
  run.flash_2 =
      text.empty() ? names_word(notes, "flash attention 2") || names_word(notes, "flashattention-2") || !named
                   : text == "flash2";
  run.vendors_attention = text == "fused";
}

/// Returns whether a row ran on a framework's own kernels: as it says; else where ZeRO-2 or 3 on GPUs means
/// PyTorch FSDP, unless it names a program of the vendors or XLA.
/// @throws DataError naming the line if the column is neither empty nor a stack.
[[nodiscard]] inline bool uses_framework_kernels(const PublishedRun& row, int zero_stage,
                                                 const ChipSpec& chip) {
  if (const std::string_view stack = row.text("stack"); !stack.empty()) {
    if (stack != "tuned" && stack != "plain" && stack != "compiled")
      throw DataError("Runs, line " + std::to_string(row.line()) +
                      ": stack must be tuned, plain or compiled, but it is " +
                      shardwright::detail::quoted_text(stack));
    return stack != "tuned";
  }
  const auto names = [&](std::string_view word) {
    return names_word(row.text("source"), word) || names_word(row.text("notes"), word);
  };
  const bool vendors = names("maxtext") || names("jax") || names("megatron") || names("nemo");
  return zero_stage >= 2 && chip.generation != ChipGeneration::tpu && !vendors;
}

} // namespace detail

namespace detail {

/// The chip of a row, and its network if the row has columns for it: GB/s or Gbit/s, one way and per chip.
[[nodiscard]] inline std::string read_cluster(const PublishedRun& row, int chips, RunCase& out) {
  const std::string_view name = row.text("chip");
  const std::optional<ChipSpec> chip = chip_of_text(name);
  if (!chip)
    return "chip " + shardwright::detail::quoted_text(name) + " is not in the catalogue";
  if (find_chip(name) == nullptr)
    out.assumed = std::string(chip->name);
  double scale_out = row.number("scale_out_GBps").value_or(0) * 1e9;
  if (const auto bits = row.number("network_Gbps"); bits && scale_out == 0)
    scale_out = *bits * 1e9 / 8;
  out.cluster = cluster_of(*chip, chips, row.integer("chips_per_node").value_or(0), scale_out);
  if (chip->torus_dimensions == 0)
    out.cluster = with_even_domains(out.cluster);
  if (const auto scale_up = row.number("scale_up_GBps"))
    out.cluster.domains[0].bandwidth = *scale_up * 1e9;
  return {};
}

/// The work of a step, according to the row and its notes.
[[nodiscard]] inline std::string read_run(const PublishedRun& row, RunCase& out) {
  const ChipSpec& chip = out.cluster.chip;
  RunSpec& run = out.run;
  run.sequences = *row.integer("global_batch_seqs");
  run.sequence_length = *row.integer("seq_len");
  const std::optional<Precision> precision = precision_of(row.text("precision"));
  if (!precision)
    return "precision " + shardwright::detail::quoted_text(row.text("precision")) +
           " is none of bf16, fp16, fp8 and fp4";
  run.precision = *precision;
  if (run.precision == Precision::fp8 && chip.peak_fp8 <= 0)
    return std::string(chip.name) + " has no fp8";
  if (run.precision == Precision::fp4 && chip.peak_fp4 <= 0)
    return std::string(chip.name) + " has no fp4";
  run.captured_experts = captures_experts(row, chip);
  read_overlap(row, out.model, run);
  run.dispatch = dispatch_of(row, out.model, chip);
  read_attention(row, !out.program.empty(), run);
  if (chip.generation == ChipGeneration::tpu) // XLA's static shapes
    run.expert_capacity = 1.25;
  run.chip_months = chip_months(row, chip.generation);
  run.logit_bytes = row.number("logit_bytes").value_or(0);
  if (const auto bytes = row.number("optimizer_bytes"))
    run.optimizer.state_bytes = *bytes;
  run.optimizer.gathered_bytes = row.number("gathered_bytes").value_or(0);
  run.optimizer.reduced_bytes = row.number("reduced_bytes").value_or(0);
  return {};
}

/// The schedule of a row's pipeline, by its columns and notes.
inline void read_schedule(const PublishedRun& row, PlanConfiguration& plan) {
  const std::string_view notes = row.text("notes");
  plan.chunks = row.integer("vpp").value_or(1);
  if (row.text("vpp").empty() && names_word(notes, "interleaved"))
    plan.chunks = 2;
  if (plan.pp > 1 && plan.chunks > 1)
    plan.schedule = PlanSchedule::interleaved;
  else
    plan.chunks = 1;
  if (plan.pp > 1 && names_word(notes, "dualpipe")) {
    plan.schedule = names_word(notes, "dualpipev") ? PlanSchedule::dual_pipe_v : PlanSchedule::dual_pipe;
    plan.chunks = 1;
  }
}

/// The sequences of a microbatch that a row does not state, if its chip or its pipeline tells: all of a
/// rank's on a TPU, whose programs seldom accumulate, and with the pipelines of torch.distributed.pipelining
/// as many as they take unless told otherwise.
inline void guess_microbatch(const PublishedRun& row, const RunCase& out, PlanConfiguration& plan,
                             bool fsdp) {
  const auto each = static_cast<int>(out.run.sequences / plan.dp);
  if (out.cluster.chip.generation == ChipGeneration::tpu && plan.pp == 1)
    plan.microbatch = std::max(1, each);
  if (fsdp && plan.pp > 1) {
    plan.microbatch = std::max(1, static_cast<int>(each / (std::int64_t{plan.pp} * plan.chunks)));
    if (row.text("zero_stage").empty())
      plan.zero_stage = 3;
  }
}

/// Settles what a row leaves open by memory: no more is recomputed than must be, and without a pipeline, a
/// microbatch is the largest part of a rank's batch that fits.
inline void settle_by_memory(const PublishedRun& row, RunCase& out) {
  PlanConfiguration& plan = out.plan;
  const auto fits = [&out] {
    return evaluate(out.model, out.cluster, out.run, out.plan).memory.total() <=
           out.cluster.chip.memory_bytes;
  };
  // The tables of NVIDIA name recomputation wherever it runs.
  if (row.text("recompute").empty() && !names_word(row.text("source"), "nvidia"))
    while (plan.recomputation != Recompute::full && !fits())
      plan.recomputation = plan.recomputation == Recompute::none ? Recompute::selective : Recompute::full;
  if (row.text("microbatch_size").empty() && plan.pp == 1 && plan.microbatch == 1) {
    const std::int64_t each = out.run.sequences / plan.dp;
    plan.microbatch = static_cast<int>(std::clamp<std::int64_t>(each, 1, 256));
    while (plan.microbatch > 1 && (each % plan.microbatch != 0 || !fits()))
      --plan.microbatch;
  }
}

} // namespace detail

/// @brief Reads a row: columns as in data/published_runs.csv, and where it has them scale_up_GBps,
/// scale_out_GBps or network_Gbps of its own machine (one way and per chip), optimizer_bytes per parameter,
/// gathered_bytes and reduced_bytes per parameter on the wire, logit_bytes that its loss keeps per logit, the
/// stack of its kernels (tuned, plain or compiled), attention (fused, flash2 or unfused), what it overlaps
/// (overlap: tensor, experts or none), shard_ranks (HSDP: the ranks that share what ZeRO shards), and of its
/// model window and window_layers, parallel_block (0 or 1), expert_every, leading_dense_layers, expert_ffn,
/// shared_experts, shared_ffn and prediction_layers.
///
/// Defaults for empty columns: ZeRO-1, no more recomputed than memory demands (nothing by NVIDIA's tables),
/// one sequence per microbatch of a pipeline and otherwise as many as fit (on a TPU all of a rank's), 1F1B
/// (interleaved with two chunks, or DualPipe, where the notes name it). Notes that name an overlap mean that
/// all-to-alls run beside other microbatches. TPU runs pad experts to 1.25 of the mean load (GShard's
/// capacity). Runs in fp16 are assumed to predate fused attention unless dated 2023 or later. The age of a
/// GPU's generation follows from the container that notes name, else from the date. Tuned programs on GPUs
/// keep gradients in the format in which they reduce them, if the row states it. Recomputation is a kind, a
/// list of operations of `find_operations`, a policy of `find_policy`, or after the word "offload" the values
/// that wait in the host's memory, by the names of `find_kept`. If the stack is empty, ZeRO-2 and 3 on GPUs
/// mean PyTorch FSDP, and so the plain one, or the compiled one if notes name a compiler, unless source or
/// notes name MaxText, JAX, Megatron or NeMo.
/// @throws DataError naming line and field of an invalid cell.
[[nodiscard]] inline RunCase read_run_case(const PublishedRun& row) {
  RunCase out;
  const auto fail = [&](std::string reason) {
    out.not_handled = std::move(reason);
    return out;
  };
  out.program = row.text("program").empty() ? program_named_in(row.text("source"), row.text("notes"))
                                            : program_called(row.text("program"));
  if (std::string reason = detail::read_model(row, out.model); !reason.empty())
    return fail(std::move(reason));
  if (!chip_of_text(row.text("chip")))
    return fail("chip " + shardwright::detail::quoted_text(row.text("chip")) + " is not in the catalogue");
  for (const std::string_view field : {"n_chips", "seq_len", "global_batch_seqs"})
    if (std::string reason = detail::missing_field(row, field); !reason.empty())
      return fail(std::move(reason));
  if (row.text("tp").empty() && row.text("pp").empty() && row.text("dp").empty())
    return fail("tp, pp and dp were not published");
  const int chips = *row.integer("n_chips");
  if (std::string reason = detail::read_cluster(row, chips, out); !reason.empty())
    return fail(std::move(reason));
  if (std::string reason = detail::read_run(row, out); !reason.empty())
    return fail(std::move(reason));

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
  plan.zero_stage = row.integer("zero_stage", true).value_or(1);
  if (plan.zero_stage > 3)
    throw DataError("Runs, line " + std::to_string(row.line()) + ": zero_stage must be 0 to 3, but it is " +
                    std::to_string(plan.zero_stage));
  plan.shard_ranks = row.integer("shard_ranks").value_or(0);
  const bool fsdp = detail::uses_framework_kernels(row, plan.zero_stage, out.cluster.chip);
  const std::string_view compiler = row.text(row.text("stack").empty() ? "notes" : "stack");
  out.run.stack = !fsdp                             ? KernelStack::tuned
                  : names_word(compiler, "compile") ? KernelStack::compiled
                                                    : KernelStack::plain;
  out.run.stops_early = plan.zero_stage >= 3 && out.run.stack != KernelStack::compiled;
  // Megatron-LM accumulates gradients in the format in which it reduces them.
  if (OptimizerSpec& bytes = out.run.optimizer; !fsdp && out.cluster.chip.host() != HostKind::compiled &&
                                                plan.zero_stage < 3 && bytes.reduced_bytes > 0)
    bytes.gradient_bytes = std::min(bytes.gradient_bytes, bytes.reduced_bytes);
  if (std::string reason = detail::read_recomputation(row.text("recompute"), out.run, plan); !reason.empty())
    return fail(std::move(reason));
  detail::read_schedule(row, plan);
  plan.microbatch = row.integer("microbatch_size").value_or(1);
  if (row.text("microbatch_size").empty())
    detail::guess_microbatch(row, out, plan, fsdp);
  detail::settle_by_memory(row, out);

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

} // namespace plan_example
