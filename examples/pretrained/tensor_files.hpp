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

/// @brief Checks that the files hold the tensors of a model and no others, of its shapes and of BF16, F16 or
/// F32, or of FP8 with scales where the settings say so. Layers from Settings::layers on are passed over.
/// @return a line for each layer that was passed over: those foresee tokens behind the next one
/// @throws sw::DataError that names every tensor that is missing, surplus or otherwise.
[[nodiscard]] std::vector<std::string> check_tensors(const Settings& settings,
                                                     const sw::safetensors::Files& files);

/// @brief Reads pieces of tensors into a block, as floats, and of the files nothing else.
void read_pieces(const sw::safetensors::Files& files, const Settings& settings, std::span<const Piece> pieces,
                 std::span<float> block);

/// @brief Puts blocks of parameters back into whole tensors of a file's shapes and writes those: one after
/// the other, so that a rank holds no more than it is given.
class TensorWriter {
public:
  /// @param pieces of `block` @param block of a parameter, as read_pieces() would have filled it
  void add(std::span<const Piece> pieces, std::span<const float> block);
  /// @brief Writes all tensors to a directory, with an index where they take more than one file.
  /// @param element of what is written, F32, BF16 or F16
  /// @throws sw::DataError where a file cannot be written.
  void write(const std::filesystem::path& directory, sw::safetensors::Dtype element) const;

private:
  struct Tensor {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  std::map<std::string, Tensor> tensors_;
};

/// @brief Writes `directory`/config.json.
/// @param element of the weights: "float32", "bfloat16" or "float16"
void write_settings(const std::filesystem::path& directory, const Settings& settings,
                    const std::string& element);

/// @brief Copies a config.json, in which the element of the weights becomes `element` and no quantisation
/// stays.
/// @throws sw::DataError where a file cannot be read or written.
void copy_settings(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& element);

/// @brief Copies what a model's directory has of a tokenizer, and its settings for generation.
/// @throws sw::DataError where a file cannot be read or written.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

/// @brief Writes a directory that other programs load: config.json and the tensors, F32.
/// @param values gives a whole parameter, row-major; called for each in turn
/// @throws sw::DataError where a file cannot be written.
void write_model(const std::filesystem::path& directory, const Settings& settings,
                 const std::function<std::vector<float>(const Parameter&)>& values);

} // namespace pretrained
