// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The options of a training run that do not depend on what it trains.

#include <command_line/mesh.hpp>
#include <shardwright/comm/observe/link_cost.hpp>
#include <shardwright/train/step/non_finite.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

using command_line::MeshAxis;

/// @brief Element type of parameters and activations; that of gradients and optimizer state is float for bf16
/// and fp16.
enum class Precision : std::uint8_t { fp32, fp64, bf16, fp16 };

/// @brief As it is written after --precision.
[[nodiscard]] constexpr std::string_view name_of(Precision precision) noexcept {
  constexpr std::string_view names[] = {"fp32", "fp64", "bf16", "fp16"};
  return names[static_cast<std::size_t>(precision)];
}
/// @brief The precision of a name; fp32 for an unknown one.
[[nodiscard]] constexpr Precision precision_of(std::string_view name) noexcept {
  for (const Precision each : {Precision::fp64, Precision::bf16, Precision::fp16})
    if (name == name_of(each))
      return each;
  return Precision::fp32;
}
/// @brief Returns whether elements have two bytes.
[[nodiscard]] constexpr bool is_narrow(Precision precision) noexcept {
  return precision == Precision::bf16 || precision == Precision::fp16;
}

/// @brief The kind of ranks.
enum class Transport : std::uint8_t { automatic, threads, mpi };

/// @brief When a run saves checkpoints, and whether it resumes from one.
struct CheckpointOptions {
  std::filesystem::path directory; ///< Empty: none.
  std::int64_t every = 0;          ///< Steps between saves; 0: only at the end.
  int keep = 2;                    ///< Checkpoints to keep.
  bool resume = false;
  std::int64_t stop_after = 0;  ///< Step after which the run saves and ends; 0: none.
  double progress_seconds = 10; ///< Between lines about a save in progress.
  double stop_limit_seconds = 60;

  [[nodiscard]] bool on() const noexcept { return !directory.empty(); }
};

/// @brief What the options of every program have; a program adds its own.
struct RunOptions {
  std::string_view program; ///< Its name, for messages.
  std::string model;

  std::vector<MeshAxis> mesh;
  int ranks = 1;
  Transport transport = Transport::automatic;
  double deadline_seconds = 120;
  shardwright::LinkOptions link; ///< Simulated if it has a latency or a bandwidth.

  Precision precision = Precision::fp32;
  int zero = 0; ///< What data ranks shard: 1 the optimizer state, 2 gradients too, 3 parameters too.
  shardwright::Recomputation recompute{}; ///< What layers recompute in the backward pass.
  bool cuda_graph = false;                ///< Capture a step on a GPU, and replay it.

  int batch = 12;       ///< Rows per step, over all ranks.
  int accumulation = 1; ///< Passes per step: the microbatches of a pipeline.
  std::string schedule =
      "1f1b";     ///< The pipeline's schedule; with one rank of pp, forward and backward passes alternate.
  int chunks = 2; ///< Stages per rank of an interleaved schedule.
  /// How the load of experts is balanced: sequence, microbatch, global, previous or bias; empty: the model's
  /// own way.
  std::string balance;
  bool counting_pass = false; ///< One more forward pass, to count the whole batch first.

  std::int64_t steps = 300;
  std::int64_t rate_steps = 0; ///< Steps over which the learning rate falls; 0: all.
  std::uint64_t seed = 1;
  double learning_rate = 0;
  double least_learning_rate = 0;
  std::int64_t warmup = 0;
  double weight_decay = 0.1;
  double clip = 1.0;
  shardwright::NonFinite non_finite = shardwright::NonFinite::stop;
  shardwright::EmptyBatch empty_batch = shardwright::EmptyBatch::skip;
  std::int64_t check_replicas = 0; ///< Steps between comparisons of all copies; 0: none.

  std::int64_t validate_every = 0; ///< 0: only at the end.
  bool validate_first = false;     ///< Before the first step, too.
  int patience = 0;                ///< Validations without a lower loss that end the run; 0: none do.
  int validation_batches = 16;
  std::filesystem::path metrics;      ///< Empty: none.
  std::filesystem::path tensorboard;  ///< Directory of event files; empty: none.
  std::filesystem::path timeline;     ///< Trace of the last step; empty: none.
  std::filesystem::path timeline_svg; ///< Drawing of it, planned and measured; empty: none.
  bool verify = false;
  bool reproducible = false;           ///< Train with the same bits on every mesh.
  std::filesystem::path record_hashes; ///< File for the hashes of each step; empty: none.
  CheckpointOptions checkpoint;

  bool dry_run = false;               ///< Count instead of training.
  std::vector<int> dry_run_ranks{0};  ///< Of the mesh.
  std::filesystem::path dry_run_json; ///< Empty: none.

  /// @brief Extent of an axis of the mesh; 1 if the mesh does not have it.
  [[nodiscard]] int extent(std::string_view axis) const noexcept;
  /// @brief Ranks of the mesh.
  [[nodiscard]] int mesh_ranks() const noexcept;
  /// @brief Ranks that split the batch.
  [[nodiscard]] int data_ranks() const noexcept { return extent("dpr") * extent("dp") * extent("ep"); }
  /// @brief Rows of a microbatch, over all ranks.
  [[nodiscard]] std::int64_t rows() const noexcept { return batch / accumulation; }
  /// @brief Returns whether ranks keep a timeline.
  [[nodiscard]] bool records() const noexcept { return !timeline.empty() || !timeline_svg.empty(); }
  /// @brief The axes of more than one rank, as the mesh names the group of all ranks: "dp,tp".
  [[nodiscard]] std::string wide_axes() const;
  /// @brief The mesh as it would be written after --mesh.
  [[nodiscard]] std::string mesh_text() const;
  /// @brief The recomputation as it would be written after --recompute: "full", or "full:4" for the first
  /// layers.
  [[nodiscard]] std::string recompute_text() const;
  /// @brief These settings, as far as all ranks must share them, one per line.
  [[nodiscard]] std::string run_text() const;
};

/// @brief The same run on one rank: same batches in the same passes, no parallelism, no output.
void put_on_one_rank(RunOptions& options);

/// @brief The circumstances in which a program was started.
struct Environment {
  std::optional<int>
      launched_ranks; ///< Ranks that an MPI launcher started; none if the program was started directly.
  std::filesystem::path source_directory; ///< Read if --data is not given.
};

/// @brief The environment of this process: the launcher's variables and the source directory it was built
/// from.
/// @throws shardwright::InvalidArgument naming variable and value, if a launcher's variable is not a positive
/// number.
[[nodiscard]] Environment current_environment();

/// @brief Options, or a message and the exit code: 0 after --help, 2 after an error.
template <class Options> struct Parsed {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};

/// @brief Returns whether an option, such as "--batch", is on the command line.
using IsGiven = std::function<bool(const char*)>;

/// @name Options taken together: defaults that follow from others, and contradictions
/// @{

/// @brief Makes ranks, mesh and launcher agree.
/// @throws UsageError that names meshes that fit, if they do not agree.
void settle_ranks(RunOptions& options, const IsGiven& given, const Environment& environment);
/// @brief Reads the ranks of a dry run.
/// @throws UsageError for ranks that the mesh does not have, or options of a dry run without --dry-run.
void settle_dry_run_ranks(RunOptions& options, const std::string& ranks, const IsGiven& given);
/// @brief Checks that the schedule allows the mesh and the microbatches.
/// @throws UsageError that names the nearest values that it allows.
void check_schedule(const RunOptions& options, const IsGiven& given);
/// @brief Checks learning rate and warmup. @throws UsageError for contradictions.
void check_rate(const RunOptions& options);
/// @brief Checks the options of held-out losses. @throws UsageError for --patience without validations.
void check_validation(const RunOptions& options);
/// @brief Checks the options that belong to --checkpoint. @throws UsageError for contradictions.
void check_checkpoints(const RunOptions& options, const IsGiven& given);
/// @}

} // namespace trainer
