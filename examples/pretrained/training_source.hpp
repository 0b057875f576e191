// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Converts between the files of a published model and the parameters of a decoder in training, which
/// have the names that they have in checkpoints.

#include "adapter_files.hpp"
#include "tensor_files.hpp"

#include <shardwright/io/checkpoint/block.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

/// @brief The global shape of a training decoder's parameter, such as "layers.3.attention.qkv"; empty for a
/// name that is not a weight.
[[nodiscard]] std::vector<std::uint64_t> training_shape(const Settings& settings, std::string_view name);

/// @brief The pieces that make up a block of a training decoder's parameter, such as
/// "layers.3.attention.qkv", [offset, offset + extent); none for a name that is not a weight.
[[nodiscard]] std::vector<Piece> training_pieces(const Settings& settings, const std::string& name,
                                                 std::span<const std::uint64_t> offset,
                                                 std::span<const std::uint64_t> extent);

/// @brief A published model as a checkpoint that training starts from: weights from the files, in F32, and
/// the bias of routers; optimizer states and expert loads, which it does not have, are zero.
//! [source]
class ModelSource final : public sw::checkpoint::BlockSource {
public:
  /// @param adapters directory of adapters that the model has beside its weights; empty: none
  /// @throws sw::DataError as check_tensors and AdapterFiles.
  ModelSource(const std::filesystem::path& directory, const Settings& settings,
              const std::filesystem::path& adapters = {});

  [[nodiscard]] sw::safetensors::Dtype require(const std::string& name, sw::safetensors::Dtype wanted,
                                               const std::vector<std::uint64_t>& shape,
                                               bool convert) const override;
  [[nodiscard]] bool holds(const std::string& name) const override;
  void read(const std::string& name, const sw::safetensors::BlockOf& wanted,
            std::span<std::byte> out) const override;
  //! [source]
  /// @brief A line for each layer of the files that is not trained, as check_tensors().
  [[nodiscard]] const std::vector<std::string>& skipped() const { return skipped_; }

private:
  Settings settings_;
  sw::safetensors::Files files_;
  std::optional<AdapterFiles> adapters_;
  std::vector<std::string> skipped_;
};

/// @brief Adds a block of a checkpoint, F32, F64 or a 16-bit type, to the tensors to write; blocks that are
/// not weights are left out, and those of adapters.
void add_block(TensorWriter& writer, const Settings& settings, const sw::checkpoint::Block& block);
/// @brief The same with blocks of adapters only, as PEFT's tensors.
void add_adapter_block(TensorWriter& writer, const Settings& settings, std::int64_t rank,
                       const sw::checkpoint::Block& block);

} // namespace pretrained
