// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes a whole file: after a failure the path holds what it held before.

#include <shardwright/core/config.hpp>
#include <shardwright/io/new_file.hpp>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Replaces a file's contents atomically: the bytes go into a new file next to it, which is renamed
/// once they are on disk. A symbolic link keeps pointing to its file. A path that is not a regular file, such
/// as /dev/stdout, is written in place.
/// @throws DataError naming the file and the operating system's error; the file then holds what it held
/// before.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::canonical(path, ignored); // empty if there is none
  const std::string target = ignored ? path.string() : real.string();
  struct stat status {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (!exists || S_ISREG(status.st_mode)) {
    detail::NewFile file(target, exists ? status.st_mode & 07777 : mode_t{0});
    file.write(text);
    file.commit();
    return;
  }
  const int file = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
  int failed = file < 0 ? errno : detail::write_all(file, text);
  if (file >= 0 && ::close(file) != 0 && failed == 0)
    failed = errno;
  if (failed != 0)
    detail::reject_unwritable(path, failed);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
