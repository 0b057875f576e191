// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes a file whole: after a failure the path holds what it held before.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Writes all bytes; the error number of the first call that fails, else 0.
[[nodiscard]] inline int write_all(int file, std::string_view bytes) noexcept {
  constexpr std::size_t chunk = std::size_t{1} << 30; // some systems take no more at a time
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file, bytes.data(), std::min(bytes.size(), chunk));
    if (wrote < 0 && errno != EINTR)
      return errno;
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(wrote, 0)));
  }
  return 0;
}

/// Opens, writes and closes; the error number of the first call that fails, else 0.
/// @param mode of the file where it differs from that of new files; 0 leaves it
[[nodiscard]] inline int write_file(const std::string& path, int flags, mode_t mode, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (file < 0)
    return errno;
  int failed = write_all(file, bytes);
  if (failed == 0 && mode != 0 && ::fchmod(file, mode) != 0)
    failed = errno;
  if (failed == 0 && (flags & O_EXCL) != 0 && ::fsync(file) != 0)
    failed = errno;
  if (::close(file) != 0 && failed == 0)
    failed = errno;
  return failed;
}

/// A name in the same directory that no other writer has: unique in the process, and by its number outside.
[[nodiscard]] inline std::string temporary_beside(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return path + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(count.fetch_add(1));
}

} // namespace detail

/// @brief Replaces what the file holds, at once: bytes go into a new file beside it, which takes its name
/// after they are on the disk. A link keeps pointing to its file. What is no regular file, such as
/// /dev/stdout, is written as it is.
/// @throws DataError naming the file and what the operating system says of it; the file then holds what it
/// held before.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::canonical(path, ignored); // empty where there is none
  const std::string target = ignored ? path.string() : real.string();
  struct stat status {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  int failed = 0;
  if (exists && !S_ISREG(status.st_mode)) {
    failed = detail::write_file(target, 0, 0, text);
  } else {
    std::string temporary;
    do {
      temporary = detail::temporary_beside(target);
      failed =
          detail::write_file(temporary, O_CREAT | O_EXCL, exists ? status.st_mode & 07777 : mode_t{0}, text);
    } while (failed == EEXIST); // left by a process of the same number that was killed
    if (failed == 0 && ::rename(temporary.c_str(), target.c_str()) != 0)
      failed = errno;
    if (failed != 0)
      ::unlink(temporary.c_str());
  }
  if (failed != 0)
    throw DataError(path.string() + " must be writable, but " + std::generic_category().message(failed) +
                    " (give a path in a directory that exists, has space and may be written)");
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
