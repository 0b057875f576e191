// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Blocks of tensors to save and to read, independent of the file formats.

#include <shardwright/core/config.hpp>
#include <shardwright/io/safetensors/block_runs.hpp>
#include <shardwright/io/safetensors/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief A block of a tensor to save, dense and row-major in memory.
struct Block {
  std::string tensor;
  safetensors::Dtype dtype = safetensors::Dtype::f32;
  std::vector<std::uint64_t> shape; ///< Of the whole tensor.
  std::vector<std::uint64_t> offset;
  std::vector<std::uint64_t> extent;
  std::span<const std::byte> bytes;
  std::string layout; ///< Of the tensor, as text.
};

/// @brief A source of saved tensors, of which any block may be read: the part of a Reader that programs
/// compile for each tensor.
class BlockSource {
public:
  /// @brief The element type that a tensor was saved in.
  /// @param wanted the type that the caller needs; with `convert`, any floating-point type will do
  /// @throws DataError if there is no such tensor, or one of another shape or element type.
  [[nodiscard]] virtual safetensors::Dtype require(const std::string& name, safetensors::Dtype wanted,
                                                   const std::vector<std::uint64_t>& shape,
                                                   bool convert) const = 0;
  /// @brief Whether there is a tensor of that name.
  [[nodiscard]] virtual bool holds(const std::string& name) const = 0;
  /// @brief Reads any block of a tensor into `out`, dense and row-major, from all saved blocks that overlap
  /// it.
  /// @throws InvalidArgument for a block outside the tensor, memory of another size, or elements of less than
  /// a byte.
  /// @throws DataError if the tensor is absent or cannot be read.
  virtual void read(const std::string& name, const safetensors::BlockOf& wanted,
                    std::span<std::byte> out) const = 0;

protected:
  ~BlockSource() = default;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
