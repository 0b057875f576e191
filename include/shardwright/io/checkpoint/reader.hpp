// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A saved checkpoint: checked before anything is read, and every block against its hash.

#include <shardwright/core/config.hpp>
#include <shardwright/io/checkpoint/block.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {
class File;
} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief An open checkpoint. Its manifest, the headers of its parts and the place of every block have been
/// checked; blocks are checked as they are read.
class Reader final : public BlockSource {
public:
  /// @brief Opens the checkpoint in a directory `step-N`.
  /// @throws DataError naming file and field: something is missing, cut short, changed, a symbolic link, or
  /// written by a newer version.
  explicit Reader(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept {
    return path_;
  } ///< As passed to the constructor.
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; } ///< Tensors and blocks.

  /// @brief The tensor of that name.
  /// @throws DataError if there is none.
  [[nodiscard]] const SavedTensor& tensor(const std::string& name) const;

  /// @brief Reads block `number` of a tensor into `out`, which has its bytes.
  /// @throws DataError if they cannot be read, or are not those that were saved.
  /// @throws InvalidArgument for memory of another size, or a block that does not exist.
  void read(const std::string& name, std::size_t number, std::span<std::byte> out) const;

  safetensors::Dtype require(const std::string& name, safetensors::Dtype wanted,
                             const std::vector<std::uint64_t>& shape, bool convert) const override;

  [[nodiscard]] bool holds(const std::string& name) const override;

  /// @brief Reads only the requested part of each saved block, so it compares no hashes.
  void read(const std::string& name, const safetensors::BlockOf& wanted,
            std::span<std::byte> out) const override;

  /// @brief Reads every block and compares its hash; uses 256 KiB of memory.
  /// @param share,shares of several readers, each of which takes its share of the blocks
  /// @throws DataError as read() does.
  void verify(std::size_t share = 0, std::size_t shares = 1) const;

private:
  static constexpr std::size_t hash_at_a_time = std::size_t{1} << 18; // still in the cache when it is hashed

  [[noreturn]] static void refuse_changed(const safetensors::File& file, const std::string& name,
                                          const SavedBlock& block);
  /// The files that a manifest names are in its directory, and nowhere else.
  static void check_regular(const std::filesystem::path& path);

  void check_wanted(const std::string& name, const SavedTensor& from, const safetensors::BlockOf& wanted,
                    std::size_t bytes) const;

  void open_part(const std::string& name, const SavedPart& part);

  void check_place(const std::string& name, const SavedTensor& tensor, const SavedBlock& block) const;

  std::filesystem::path path_;
  Manifest manifest_;
  std::map<std::string, std::shared_ptr<const safetensors::File>> parts_; // which this header only names
};

/// @brief The extent of the checks before a checkpoint is accepted: manifest and headers, or every byte.
enum class Check { headers, all };

/// @brief The newest checkpoint that passes, and a sentence for each newer one that does not.
struct Newest {
  std::optional<std::filesystem::path> path;
  std::vector<std::string> refused;
};

/// @brief Searches a directory from the newest step backwards. Unfinished saves do not count as checkpoints.
/// @throws DataError if the directory cannot be read.
[[nodiscard]] Newest newest(const std::filesystem::path& directory, Check check = Check::all);

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint

#if !defined(SHARDWRIGHT_COMPILED_CHECKPOINTS)
#include <shardwright/io/checkpoint/reader_definitions.hpp>
#endif
