// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command line of train_gpt as a value: the options, or a message that says what is wrong with
/// them.

#include <pretrained/adapter_files.hpp>
#include <pretrained/conversations.hpp>
#include <pretrained/settings.hpp>
#include <trainer/initial_weights.hpp>
#include <trainer/options.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace train_gpt {

using trainer::Environment;
using trainer::IsGiven;
using trainer::MeshAxis;
using trainer::Precision;

/// @brief The programs that share these options, and differ in their defaults.
enum class Program : std::uint8_t { train_gpt, finetune };

/// @brief As it is called.
[[nodiscard]] constexpr std::string_view name_of(Program program) noexcept {
  return program == Program::finetune ? "finetune" : "train_gpt";
}

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

/// @brief The device on which tensors are stored and kernels run.
enum class Device : std::uint8_t { host, cuda };

/// @brief As it is written after --target.
[[nodiscard]] constexpr std::string_view name_of(Device device) noexcept {
  return device == Device::cuda ? "cuda" : "host";
}

/// @brief How the weights beside adapters are stored: in their element type, or in a form of few bits.
enum class Base : std::uint8_t { whole, nf4, int8 };

/// @brief As it is written after --quantize-base.
[[nodiscard]] constexpr std::string_view name_of(Base base) noexcept {
  return base == Base::nf4 ? "nf4" : base == Base::int8 ? "int8" : "whole";
}

/// @brief The properties that distinguish one compiled training from another.
struct TrainingKind {
  Precision precision = Precision::fp32;
  int zero = 0;
  bool ring = false;
  Device target = Device::host;
  bool experts = false;
  bool adapters = false;
  Base base = Base::whole;
  bool reproducible = false;

  friend bool operator==(const TrainingKind&, const TrainingKind&) = default;
};

/// @brief Everything that the command line specifies; parse() leaves no contradictions in it.
struct Options : trainer::RunOptions {
  using Kind = TrainingKind;
  explicit Options(Program by = Program::train_gpt) {
    program = name_of(by);
    model = "small";
    if (by == Program::train_gpt)
      return;
    epochs = 1;
    pack = true;
    validate_every = sample_every = 50;
  }

  std::vector<std::filesystem::path> data;
  Device target = Device::host;
  int gpus = 1; ///< Assigned to ranks in turn; 1: the one that Kokkos uses.

  ModelSize size;
  bool tied = false;
  bool sequence_parallel = false;
  bool ring = false; ///< Ring attention over cp instead of all-to-all.
  double dropout = 0;
  double capacity = 0; ///< Choices that an expert accepts, relative to an even share; 0: all.
  int microbatch = 0;  ///< Sequences per microbatch and data rank.

  int sample = 0;                ///< Bytes of text to generate at the end.
  std::int64_t sample_every = 0; ///< Steps between answers to held-out questions; 0: none.
  double temperature = 0.8;
  std::string prompt;
  std::filesystem::path init;               ///< Directory of a published model to start from; empty: none.
  bool widen_fp8 = false;                   ///< Read its FP8 weights.
  std::vector<std::string> accepted_fields; ///< Unknown ones of its config.json.
  std::optional<pretrained::Settings> published; ///< Its settings.
  std::filesystem::path export_to; ///< Directory for the trained model or adapters; empty: none.
  std::optional<pretrained::AdapterSettings> lora; ///< Train adapters of these sizes, and nothing else.
  std::filesystem::path adapter;                   ///< Directory of adapters to start from; empty: new ones.
  Base base = Base::whole;                         ///< What the adapters are beside.
  bool merge = false;                              ///< Export the model with its adapters merged.
  int epochs = 0;                                  ///< Of conversations, instead of steps; 0: steps.
  std::string chat_template;                       ///< Of conversations; empty: the model's own.
  bool drop_longer = false; ///< Leave out conversations longer than --sequence instead of cutting them.
  bool pack = false;        ///< Several documents share a sequence.

  /// @brief Whether the data are conversations: files of --data, for a published model, that end with
  /// ".jsonl".
  [[nodiscard]] bool has_conversations() const {
    return !init.empty() && std::any_of(data.begin(), data.end(), pretrained::is_conversation_file);
  }
  /// @brief The compiled training that runs it.
  [[nodiscard]] TrainingKind kind() const {
    return {precision, zero, ring, target, size.experts > 0, lora.has_value(), base, reproducible};
  }
  /// @brief Every setting that all ranks must share, one per line.
  [[nodiscard]] std::string configuration_text() const;
  /// @brief The settings of the adapters, one per line; empty if none are trained.
  [[nodiscard]] std::string lora_text() const;
  /// @brief Every setting that affects the numbers of a run, one per line; mesh, schedule and sharding do
  /// not.
  [[nodiscard]] std::string continued_text(std::uint64_t data_hash) const;
  /// @brief Sizes, precision and batch, for the first line of a dry run.
  [[nodiscard]] std::string dry_run_text() const;
};

/// @brief The same run on one rank, on a host.
[[nodiscard]] Options on_one_rank(Options options);

/// @brief The weights of --init; none if it is not given.
[[nodiscard]] trainer::InitialWeights published_weights(const Options& options);

using ParseResult = trainer::Parsed<Options>;

/// @brief Reads the command line; has no side effects, and never ends the program.
[[nodiscard]] ParseResult parse(int argc, const char* const* argv, const Environment& environment,
                                Program program = Program::train_gpt);

} // namespace train_gpt
