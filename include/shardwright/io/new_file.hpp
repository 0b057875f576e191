// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A file that appears whole or not at all: written under another name, on the disk before it is
/// renamed.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/write_text.hpp>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// "PATH must be writable, but No space left on device (...)".
[[noreturn, gnu::noinline]] inline void reject_unwritable(const std::filesystem::path& path, int code) {
  throw DataError(path.string() + " must be writable, but " + std::generic_category().message(code) +
                  " (give a path in a directory that exists, has space and may be written)");
}

/// Waits until the names in a directory are on the disk; the error number, else 0.
[[nodiscard]] inline int sync_directory(const std::filesystem::path& directory) noexcept {
  const int file = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0)
    return errno;
  // Some file systems have nothing to wait for, and say so.
  const int failed = ::fsync(file) != 0 && errno != EINVAL && errno != ENOTSUP ? errno : 0;
  ::close(file);
  return failed;
}

/// A file beside `path`, which takes that name in commit() and is removed without it.
class NewFile {
public:
  /// @throws DataError where no file can be made there.
  explicit NewFile(std::filesystem::path path) : path_(std::move(path)) {
    do {
      temporary_ = temporary_beside(path_.string());
      file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file_ < 0 && errno == EEXIST); // left by a process of the same number that was killed
    if (file_ < 0)
      reject_unwritable(path_, errno);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (file_ >= 0)
      ::close(file_);
    if (!temporary_.empty())
      ::unlink(temporary_.c_str());
  }

  /// Appends bytes. @throws DataError where they do not all arrive, as on a full disk.
  void write(std::string_view bytes) {
    if (const int failed = write_all(file_, bytes); failed != 0)
      reject_unwritable(path_, failed);
  }

  /// Waits until the bytes are on the disk, gives the file its name, and waits for that.
  /// @throws DataError where one of these fails; the path then holds what it held before, unless the last
  /// did.
  void commit() {
    int failed = ::fsync(file_) != 0 ? errno : 0;
    if (::close(std::exchange(file_, -1)) != 0 && failed == 0)
      failed = errno;
    if (failed == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0)
      failed = errno;
    if (failed == 0) {
      temporary_.clear();
      failed = sync_directory(path_.parent_path());
    }
    if (failed != 0)
      reject_unwritable(path_, failed);
  }

private:
  std::filesystem::path path_;
  std::string temporary_;
  int file_ = -1;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
