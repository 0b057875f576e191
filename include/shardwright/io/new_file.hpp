// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A file that appears whole or not at all: it is written under another name and synced to disk before
/// it is renamed. Devices and pipes are written in place.

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
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// "PATH must be writable, but No space left on device (...)".
[[noreturn, gnu::noinline]] inline void reject_unwritable(const std::filesystem::path& path, int code) {
  throw DataError(path.string() + " must be writable, but " + std::generic_category().message(code) +
                  " (give a path in a directory that exists, has space and may be written)");
}

/// Writes all bytes; returns the error number of the first call that fails, else 0.
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

/// Makes a directory and those above it; returns whether it was missing. @throws DataError if that fails.
inline bool make_directories(const std::filesystem::path& directory) {
  std::error_code code;
  const bool is_new = std::filesystem::create_directories(directory, code);
  if (code)
    reject_unwritable(directory, code.value());
  return is_new;
}

/// A name in the same directory that no other writer uses: a counter makes it unique in the process, the
/// process ID among processes.
[[nodiscard]] inline std::string temporary_beside(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return path + ".part-" + std::to_string(::getpid()) + "-" + std::to_string(count.fetch_add(1));
}

/// Waits until the names in a directory are on disk; returns the error number, else 0.
[[nodiscard]] inline int sync_directory(const std::filesystem::path& directory) noexcept {
  const int file = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0)
    return errno;
  // Some file systems do not support this and report so.
  const int failed = ::fsync(file) != 0 && errno != EINVAL && errno != ENOTSUP ? errno : 0;
  ::close(file);
  return failed;
}

/// Where the bytes for a path go. The one place that decides this: a file that is replaced, or something that
/// must not be.
struct WriteTarget {
  std::filesystem::path path; ///< With its symbolic links followed, also to a file that is not there yet.
  bool in_place = false;      ///< A device, pipe or socket, or the file that this program prints to.
  int printed = -1;           ///< The descriptor of that file.
  mode_t mode = 0;            ///< Permissions of the file that is there; 0 if none is.
};

/// @throws DataError if symbolic links lead nowhere but to each other.
[[nodiscard]] inline WriteTarget write_target(const std::filesystem::path& path) {
  WriteTarget out{path};
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    out.mode = status.st_mode & 07777;
    out.in_place = !S_ISREG(status.st_mode);
    struct stat other {};
    for (const int printed : {STDOUT_FILENO, STDERR_FILENO})
      if (::fstat(printed, &other) == 0 && other.st_dev == status.st_dev && other.st_ino == status.st_ino) {
        out.in_place = true;
        out.printed = printed;
      }
  }
  constexpr int most = 40; // as Linux follows
  std::error_code ignored;
  for (int links = 0; !out.in_place && std::filesystem::is_symlink(out.path, ignored); ++links) {
    if (links == most)
      reject_unwritable(path, ELOOP);
    out.path = out.path.parent_path() / std::filesystem::read_symlink(out.path, ignored);
  }
  return out;
}

/// A temporary file next to a path's target; commit() renames it to the target, and without commit() it is
/// removed. What must not be replaced, as write_target() decides, is written in place instead.
class NewFile {
public:
  /// Keeps the permissions of a file that is there.
  /// @throws DataError if no file can be created there, or what is there cannot be opened.
  explicit NewFile(std::filesystem::path path) : path_(std::move(path)), target_(write_target(path_)) {
    if (target_.in_place) {
      open_in_place();
      return;
    }
    do {
      temporary_ = temporary_beside(target_.path.string());
      file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file_ < 0 && errno == EEXIST); // left by a process of the same number that was killed
    if (file_ < 0)
      reject_unwritable(path_, errno);
    if (target_.mode != 0 && ::fchmod(file_, target_.mode) != 0) {
      const int failed = errno;
      discard();
      reject_unwritable(path_, failed);
    }
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() { discard(); }

  /// Appends bytes. @throws DataError if not all of them can be written, as on a full disk.
  void write(std::string_view bytes) {
    if (const int failed = write_all(file_, bytes); failed != 0)
      reject_unwritable(path_, failed);
  }

  [[nodiscard]] int descriptor() const noexcept { return file_; }
  /// Whether the bytes already are in their place.
  [[nodiscard]] bool in_place() const noexcept { return target_.in_place; }

  /// Waits until the bytes are on disk, renames the file, and waits until the new name is on disk too.
  /// @throws DataError if one of these fails; the path then holds what it held before, unless only the last
  /// one failed.
  void commit() {
    const auto cannot_sync = [this] { return in_place() && (errno == EINVAL || errno == ENOTSUP); };
    int failed = ::fsync(file_) != 0 && !cannot_sync() ? errno : 0;
    if (::close(std::exchange(file_, -1)) != 0 && failed == 0)
      failed = errno;
    if (failed == 0 && !in_place() && ::rename(temporary_.c_str(), target_.path.c_str()) != 0)
      failed = errno;
    if (failed == 0 && !in_place()) {
      temporary_.clear();
      failed = sync_directory(target_.path.parent_path());
    }
    if (failed != 0)
      reject_unwritable(path_, failed);
  }

private:
  /// A pipe without a reader is an error here; open() would wait for one.
  void open_in_place() {
    file_ = target_.printed >= 0 ? ::fcntl(target_.printed, F_DUPFD_CLOEXEC, 0)
                                 : ::open(target_.path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    const int flags = file_ < 0 ? -1 : ::fcntl(file_, F_GETFL);
    if (flags < 0 || (target_.printed < 0 && ::fcntl(file_, F_SETFL, flags & ~O_NONBLOCK) != 0)) {
      const int failed = errno;
      discard();
      reject_unwritable(path_, failed);
    }
  }

  void discard() noexcept {
    if (file_ >= 0)
      ::close(file_);
    if (!temporary_.empty())
      ::unlink(temporary_.c_str());
  }

  std::filesystem::path path_;
  WriteTarget target_;
  std::string temporary_;
  int file_ = -1;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
