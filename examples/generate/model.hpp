// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A published model on a mesh of pipeline, expert and tensor parallel ranks, for generation.

#include <pretrained/adapter_files.hpp>
#include <pretrained/settings.hpp>
#include <pretrained/weights.hpp>

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/safetensors/files.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace generate {

namespace sw = shardwright;
using pretrained::Parameter;
using pretrained::Settings;

/// @brief Ranks along the axes of the mesh.
struct Extents {
  int pp = 1; ///< Stages of layers.
  int ep = 1; ///< Ranks that divide the experts of each layer, and hold all the rest whole.
  int tp = 1; ///< Ranks that divide each layer: its heads, its hidden dimension, and the vocabulary.

  [[nodiscard]] int ranks() const noexcept { return pp * ep * tp; }
};

/// @brief The tokens whose scores are wanted.
enum class Scores { last, all };

/// @brief New tokens of one sequence.
struct NewTokens {
  std::int64_t sequence = 0;
  std::span<const std::int32_t> ids; ///< At least one, within the vocabulary.
};

/// @brief A model with the keys and values of the tokens so far, of several sequences. Its weights and sums
/// are float.
class Model {
public:
  virtual ~Model() = default;

  /// @brief Appends tokens to sequences, in one pass without padding; returns the scores of the tokens that
  /// follow each, or the last one of each sequence, row-major [tokens, vocabulary], the same on every rank.
  /// Collective: all ranks give the same ids.
  /// @throws sw::InvalidArgument without tokens, or beyond the sequences and positions that the model was
  /// created for; it then appends none.
  [[nodiscard]] virtual std::vector<float> append(std::span<const NewTokens> added, Scores of) = 0;
  /// @brief The same for the first sequence alone.
  [[nodiscard]] std::vector<float> append(std::span<const std::int32_t> ids, Scores of) {
    const NewTokens added{0, ids};
    return append(std::span(&added, 1), of);
  }
  /// @brief Tokens of a sequence so far.
  /// @throws sw::InvalidArgument beyond the sequences.
  [[nodiscard]] virtual std::int64_t size(std::int64_t sequence = 0) const = 0;
  /// @brief A whole parameter, on every rank. Collective.
  [[nodiscard]] virtual std::vector<float> parameter(const Parameter& parameter) = 0;
};

/// @brief Loads a model: each rank reads the blocks that it holds. Collective.
/// @param positions maximum number of tokens in a sequence; memory for the keys and values of all `sequences`
/// is allocated at once
/// @param adapters merged into the weights; null: none
/// @param note called on the first rank with a line about each group of tensors that is skipped
/// @throws sw::InvalidArgument if the sizes cannot be divided over the mesh; sw::DataError as check_tensors.
[[nodiscard]] std::unique_ptr<Model> load_model(const sw::HostCommunicator& world, const Extents& extents,
                                                const Settings& settings, const sw::safetensors::Files& files,
                                                std::int64_t positions,
                                                const std::function<void(const std::string&)>& note,
                                                const pretrained::AdapterFiles* adapters = nullptr,
                                                std::int64_t sequences = 1);

} // namespace generate
