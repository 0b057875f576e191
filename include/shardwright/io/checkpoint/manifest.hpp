// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A checkpoint's table of contents: its tensors, the blocks that they were saved in, and a hash of
/// each.

#include <shardwright/core/config.hpp>
#include <shardwright/io/safetensors/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief The version of the manifests that this library writes, and the newest that it reads.
inline constexpr std::uint64_t manifest_version = 1;

/// @brief A 128-bit XXH3 hash: detects accidental corruption, but not tampering.
struct BlockHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend constexpr bool operator==(const BlockHash&, const BlockHash&) = default;

  /// @brief 32 hexadecimal digits, as the program xxh128sum prints them.
  [[nodiscard]] std::string text() const {
    std::string out(32, '0');
    for (std::size_t i = 0; i < 32; ++i)
      out[i] = "0123456789abcdef"[(i < 16 ? high : low) >> (60 - 4 * (i % 16)) & 15U];
    return out;
  }
};

/// @brief A part of a tensor, as it was saved.
struct SavedBlock {
  std::vector<std::uint64_t> offset; ///< First element of each dimension.
  std::vector<std::uint64_t> extent; ///< Elements of each dimension.
  std::string file;                  ///< Name of the part that holds it.
  std::uint64_t bytes = 0;
  BlockHash hash;

  friend bool operator==(const SavedBlock&, const SavedBlock&) = default;
};

/// @brief A whole tensor of a checkpoint.
struct SavedTensor {
  safetensors::Dtype dtype = safetensors::Dtype::f32;
  std::vector<std::uint64_t> shape; ///< Global.
  std::string layout;               ///< As text, for people only: a tensor may be loaded in any layout.
  std::vector<SavedBlock> blocks;   ///< Cover the shape once.

  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

/// @brief A file of a checkpoint, with a hash for each block and one for the header.
struct SavedPart {
  std::uint64_t bytes = 0;
  BlockHash header_hash; ///< Of all bytes before the data.

  friend bool operator==(const SavedPart&, const SavedPart&) = default;
};

/// @brief A checkpoint's step, mesh, configuration and further text.
struct Description {
  std::uint64_t step = 0;
  std::string mesh;                        ///< As text, such as "dp=2, tp=4".
  std::string configuration_hash;          ///< Hash of the settings that must be equal in a run that resumes.
  std::map<std::string, std::string> more; ///< Added by the program: seeds, position in the data.

  friend bool operator==(const Description&, const Description&) = default;
};

/// @brief Everything but the data.
struct Manifest {
  Description description;
  std::map<std::string, SavedTensor> tensors; ///< By name.
  std::map<std::string, SavedPart> parts;     ///< By the name of the file.

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// @brief The name of a block in the header of its part: the tensor's, with the offset unless the block is
/// the whole tensor.
/// @param shape, offset of the tensor and of the block in it, in elements of each dimension
[[nodiscard]] inline std::string block_name(const std::string& tensor,
                                            const std::vector<std::uint64_t>& shape,
                                            const std::vector<std::uint64_t>& offset,
                                            const std::vector<std::uint64_t>& extent) {
  if (extent == shape)
    return tensor;
  std::string out = tensor + "@";
  for (std::size_t d = 0; d < offset.size(); ++d)
    out.append(d == 0 ? "" : ",").append(std::to_string(offset[d]));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
