// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes a whole file: after a failure the path holds what it held before.

#include <shardwright/core/config.hpp>
#include <shardwright/io/new_file.hpp>

#include <filesystem>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Replaces a file's contents atomically: the bytes go into a new file next to it, which is renamed
/// once they are on disk. A symbolic link keeps pointing to its file, which is made if it is not there. A
/// device, a pipe, and the file that the program prints to are written in place.
/// @throws DataError naming the file and the operating system's error; the file then holds what it held
/// before.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  detail::NewFile file(path);
  file.write(text);
  file.commit();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
