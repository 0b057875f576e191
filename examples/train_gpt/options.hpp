// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of train_gpt as a value: the options, or a message that says what is wrong with
/// them.

#include <command_line/mesh.hpp>
#include <pretrained/settings.hpp>
#include <shardwright/comm/observe/link_cost.hpp>
#include <shardwright/train/step/non_finite.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace train_gpt {

using command_line::MeshAxis;

/// @brief Sizes of the model; the vocabulary is in tokens, and tokens are bytes.
struct ModelSize {
  int layers = 0;
  int d_model = 0;
  int heads = 0;
  int kv_heads = 0;
  int hidden = 0;
  int sequence = 0;
  int vocabulary = 256;
  int experts = 0;       ///< Routed experts in each layer after the dense ones; 0: a dense model.
  int chosen = 0;        ///< Experts per token.
  int expert_hidden = 0; ///< Width of each expert, and of the shared expert.
  int dense_layers = 0;  ///< Number of first layers, which have no experts.
  friend bool operator==(const ModelSize&, const ModelSize&) = default;
};

/// @brief A named model size.
struct Preset {
  std::string_view name;
  ModelSize size;
};

/// @brief The presets of --model, smallest first.
[[nodiscard]] const std::vector<Preset>& presets();

/// @brief Element type of parameters and activations; that of gradients and optimizer state is float for bf16
/// and fp16.
enum class Precision : std::uint8_t { fp32, fp64, bf16, fp16 };

/// @brief As it is written after --precision.
[[nodiscard]] constexpr std::string_view name_of(Precision precision) noexcept {
  constexpr std::string_view names[] = {"fp32", "fp64", "bf16", "fp16"};
  return names[static_cast<std::size_t>(precision)];
}
/// @brief Returns whether elements have two bytes.
[[nodiscard]] constexpr bool is_narrow(Precision precision) noexcept {
  return precision == Precision::bf16 || precision == Precision::fp16;
}

/// @brief The device on which tensors are stored and kernels run.
enum class Device : std::uint8_t { host, cuda };

/// @brief As it is written after --target.
[[nodiscard]] constexpr std::string_view name_of(Device device) noexcept {
  return device == Device::cuda ? "cuda" : "host";
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

/// @brief Everything that the command line specifies; parse() leaves no contradictions in it.
struct Options {
  std::vector<std::filesystem::path> data;
  std::vector<MeshAxis> mesh;
  int ranks = 1;
  Transport transport = Transport::automatic;
  Device target = Device::host;
  int gpus = 1;            ///< Assigned to ranks in turn; 1: the one that Kokkos uses.
  bool cuda_graph = false; ///< Capture a step on a GPU, and replay it.
  double deadline_seconds = 120;

  std::string model = "small";
  ModelSize size;
  bool tied = false;
  Precision precision = Precision::fp32;
  bool sequence_parallel = false;
  int zero = 0;      ///< What data ranks shard: 1 the optimizer state, 2 gradients too, 3 parameters too.
  bool ring = false; ///< Ring attention over cp instead of all-to-all.
  double dropout = 0;
  double capacity = 0; ///< Choices that an expert accepts, relative to an even share; 0: all.
  /// How the load of experts is balanced: sequence, microbatch, global, previous or bias; empty: the bias,
  /// and a small loss of each sequence.
  std::string balance;
  bool counting_pass = false;             ///< One more forward pass, to count the whole batch first.
  shardwright::Recomputation recompute{}; ///< What layers recompute in the backward pass.

  int batch = 12;       ///< Sequences per step, over all ranks.
  int microbatch = 0;   ///< Sequences per microbatch and data rank.
  int accumulation = 1; ///< Passes per step: the microbatches of a pipeline.
  std::string schedule =
      "1f1b";     ///< The pipeline's schedule; with one rank of pp, forward and backward passes alternate.
  int chunks = 2; ///< Stages per rank of an interleaved schedule.
  std::int64_t steps = 300;
  std::uint64_t seed = 1;
  double learning_rate = 0;
  double least_learning_rate = 0;
  std::int64_t warmup = 0;
  double weight_decay = 0.1;
  double clip = 1.0;

  shardwright::NonFinite non_finite = shardwright::NonFinite::stop;
  shardwright::EmptyBatch empty_batch = shardwright::EmptyBatch::skip;
  std::int64_t check_replicas = 0; ///< Steps between comparisons of all copies; 0: none.
  shardwright::LinkOptions link;   ///< Simulated if it has a latency or a bandwidth.

  std::int64_t validate_every = 0; ///< 0: only at the end.
  int validation_batches = 16;
  int sample = 0; ///< Bytes of text to generate at the end.
  double temperature = 0.8;
  std::string prompt;
  std::filesystem::path metrics;      ///< Empty: none.
  std::filesystem::path tensorboard;  ///< Directory of event files; empty: none.
  std::filesystem::path timeline;     ///< Trace of the last step; empty: none.
  std::filesystem::path timeline_svg; ///< Drawing of it, planned and measured; empty: none.
  bool verify = false;
  CheckpointOptions checkpoint;
  std::filesystem::path init;               ///< Directory of a published model to start from; empty: none.
  bool widen_fp8 = false;                   ///< Read its FP8 weights.
  std::vector<std::string> accepted_fields; ///< Unknown ones of its config.json.
  std::optional<pretrained::Settings> published; ///< Its settings.
  std::filesystem::path export_to;               ///< Directory for the trained model; empty: none.

  bool dry_run = false;               ///< Count instead of training.
  std::vector<int> dry_run_ranks{0};  ///< Of the mesh.
  std::filesystem::path dry_run_json; ///< Empty: none.

  /// @brief Extent of an axis of the mesh; 1 if the mesh does not have it.
  [[nodiscard]] int extent(std::string_view axis) const noexcept;
  /// @brief Ranks that split the batch.
  [[nodiscard]] int data_ranks() const noexcept { return extent("dpr") * extent("dp") * extent("ep"); }
  /// @brief Returns whether ranks keep a timeline.
  [[nodiscard]] bool records() const noexcept { return !timeline.empty() || !timeline_svg.empty(); }
  /// @brief The axes of more than one rank, as the mesh names the group of all ranks: "dp,tp".
  [[nodiscard]] std::string wide_axes() const;
  /// @brief The mesh as it would be written after --mesh.
  [[nodiscard]] std::string mesh_text() const;
  /// @brief The recomputation as it would be written after --recompute.
  [[nodiscard]] std::string recompute_text() const;
  /// @brief Every setting that all ranks must share, one per line.
  [[nodiscard]] std::string configuration_text() const;
};

/// @brief The circumstances in which the program was started.
struct Environment {
  std::optional<int>
      launched_ranks; ///< Ranks that an MPI launcher started; none if the program was started directly.
  std::filesystem::path source_directory; ///< Read if --data is not given.
};

/// @brief Options, or a message and the exit code: 0 after --help, 2 after an error.
struct ParseResult {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};

/// @brief Reads the command line; changes nothing outside and never ends the program.
[[nodiscard]] ParseResult parse(int argc, const char* const* argv, const Environment& environment);

/// @brief The environment of this process: the launcher's variables and the source directory it was built
/// from.
/// @throws shardwright::InvalidArgument naming variable and value, if a launcher's variable is not a positive
/// number.
[[nodiscard]] Environment current_environment();

} // namespace train_gpt
