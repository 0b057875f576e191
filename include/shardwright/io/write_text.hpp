// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes a text into a file at once.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Replaces what the file holds.
/// @throws DataError naming the file and what the operating system says of it.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file)
    throw DataError(path.string() + " must be writable, but " + std::generic_category().message(errno) +
                    " (give a path in a directory that exists)");
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
