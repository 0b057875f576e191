// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Low-rank adapters of a published model in the files of PEFT: adapter_config.json and
/// adapter_model.safetensors.

#include "adapter_settings.hpp"
#include "tensor_files.hpp"

#include <shardwright/io/checkpoint/block.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

/// @brief The adapters in a directory, of a model that is known by its settings.
class AdapterFiles {
public:
  /// @throws sw::DataError as parse_adapter_settings, and naming every tensor that is missing, belongs to no
  /// matrix of the model, or has another shape. PEFT's files name a module's A and B, [rank, in] and [out,
  /// rank], MODULE.lora_A.weight and MODULE.lora_B.weight, those of an embedding MODULE.lora_embedding_A and
  /// MODULE.lora_embedding_B.
  AdapterFiles(const std::filesystem::path& directory, const Settings& settings);

  [[nodiscard]] const AdapterSettings& settings() const noexcept { return adapters_; }
  [[nodiscard]] const sw::safetensors::Files& files() const noexcept { return files_; }
  /// @brief Adds factor B A to the block of a parameter that read_pieces() has filled.
  void add_to(std::span<const Piece> pieces, std::span<float> block) const;

private:
  AdapterSettings adapters_;
  sw::safetensors::Files files_;
};

/// @brief The last names of the linear layers of a model that can have adapters in training, such as
/// "q_proj", in the order of the forward pass: not routers, nor the matrix that compresses keys and values,
/// which is two in training.
[[nodiscard]] std::vector<std::string> adaptable_modules(const Settings& settings);
/// @brief Those of experts among them; other layers may have the same last names.
[[nodiscard]] std::vector<std::string> expert_modules(const Settings& settings);
/// @brief The last names of embedding and head, too, unless they are one table, whose adapter PEFT gives to
/// one of both uses.
[[nodiscard]] std::vector<std::string> table_modules(const Settings& settings);

/// @brief The last name of the module in files that a layer of a training decoder becomes, such as "q_proj"
/// of "layers.3.attention.qkv.queries"; empty if it becomes none, or one in part.
[[nodiscard]] std::string adapted_module(const Settings& settings, std::string_view path);

/// @brief The pieces of PEFT's tensors that make up a block of an adapter's matrix of a training decoder,
/// such as "layers.3.attention.qkv.queries.lora.a"; none for another parameter.
[[nodiscard]] std::vector<Piece> adapter_pieces(const Settings& settings, const std::string& name,
                                                std::int64_t rank, std::span<const std::uint64_t> offset,
                                                std::span<const std::uint64_t> extent);

/// @brief Adds factor B A to the weights of a model that are to be written.
void merge_adapters(TensorWriter& model, const AdapterSettings& adapters, const TensorWriter& tensors);

/// @brief Writes a directory that PEFT and generate load.
/// @param tensors those of adapter_pieces
/// @param base directory or name of the model that they are for
void write_adapters(const std::filesystem::path& directory, const AdapterSettings& adapters,
                    const TensorWriter& tensors, const std::string& base);

} // namespace pretrained
