// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The files of a published model: checked, read by blocks, and written.

#include "weights.hpp"

#include <shardwright/io/safetensors/files.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace pretrained {

/// @brief Checks that the files contain exactly the tensors of a model, with its shapes, in BF16, F16 or F32,
/// or in FP8 with scales if the settings say so. Layers from Settings::layers on are skipped.
/// @return a line for each skipped layer: these predict tokens after the next one
/// @throws sw::DataError that names every tensor that is missing, unexpected or wrong.
[[nodiscard]] std::vector<std::string> check_tensors(const Settings& settings,
                                                     const sw::safetensors::Files& files);

/// @brief Reads pieces of tensors into a block as floats, and nothing else of the files.
/// @throws sw::DataError naming the first element that is not finite.
void read_pieces(const sw::safetensors::Files& files, const Settings& settings, std::span<const Piece> pieces,
                 std::span<float> block);

/// @brief Checks that a directory, if it is there, has no model: files of an old one would stay beside the
/// new ones, and the model that is read could be the one that is replaced.
/// @throws sw::InvalidArgument naming a file of a model.
void require_new_model(const std::filesystem::path& directory);

/// @brief Reassembles blocks of parameters into whole tensors with a file's shapes, and writes them. It holds
/// all of them as floats and, while it writes BF16 or F16, as those elements, too.
class TensorWriter {
public:
  /// @param pieces of `block`
  /// @param block a block of a parameter, as read_pieces() would have filled it
  void add(std::span<const Piece> pieces, std::span<const float> block);
  /// @brief Writes all tensors to a directory, with an index if they need more than one file.
  /// @param element type to write: F32, BF16 or F16
  /// @param file of all tensors; empty: model.safetensors, or several
  /// @throws sw::DataError if a file cannot be written.
  void write(const std::filesystem::path& directory, sw::safetensors::Dtype element,
             const std::string& file = {}) const;
  /// @brief A tensor that has been added.
  struct Tensor {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  /// @brief Those that have been added, by name.
  [[nodiscard]] std::map<std::string, Tensor>& tensors() noexcept { return tensors_; }
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const noexcept { return tensors_; }

private:
  std::map<std::string, Tensor> tensors_;
};

/// @brief Writes `directory`/config.json.
/// @param element of the weights: "float32", "bfloat16" or "float16"
void write_settings(const std::filesystem::path& directory, const Settings& settings,
                    const std::string& element);

/// @brief Copies a config.json, sets the weights' element type to `element`, and removes any quantisation and
/// the layers that predict tokens after the next one.
/// @throws sw::DataError if a file cannot be read or written.
void copy_settings(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& element);

/// @brief Copies the tokenizer files and the generation settings in a model's directory.
/// @throws sw::DataError if a file cannot be read or written.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

/// @brief Writes the tokenizer's files of a model of bytes, whose tokens are the 256 bytes, and the template
/// of ChatML.
/// @throws sw::DataError if a file cannot be written.
void write_byte_tokenizer(const std::filesystem::path& directory);

/// @brief Writes a directory that other programs can load: config.json and the tensors, in F32.
/// @param values returns a whole parameter, row-major; called for each in turn
/// @throws sw::DataError if a file cannot be written.
void write_model(const std::filesystem::path& directory, const Settings& settings,
                 const std::function<std::vector<float>(const Parameter&)>& values);

} // namespace pretrained
