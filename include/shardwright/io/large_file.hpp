// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A large new file, written around the page cache if the file system allows it.

#include <shardwright/core/config.hpp>
#include <shardwright/io/new_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// As NewFile. When the page cache fills up, it blocks its writers for most of a second, and takes ten times
/// as much processor time from concurrent computation.
class LargeFile {
public:
  /// Bytes that are written to the disk at a time; a file takes as much memory until its commit().
  static constexpr std::size_t chunk = std::size_t{4} << 20;
  /// Alignment of memory and of offsets in the file; disks need less.
  static constexpr std::size_t page = 4096;
  /// Fewer bytes are cheaper to copy than to write by themselves.
  static constexpr std::size_t least_in_place = std::size_t{1} << 20;

  /// @throws DataError if no file can be created there.
  explicit LargeFile(const std::filesystem::path& path) : path_(path), file_(path) {}

  /// Returns whether write() takes whole pages of these bytes from their place, without a copy.
  [[nodiscard]] bool takes_in_place(std::string_view bytes) const noexcept {
    return bytes.size() >= least_in_place && (written_ + filled_) % page == 0 &&
           reinterpret_cast<std::uintptr_t>(bytes.data()) % page == 0;
  }

  /// Appends bytes.
  /// @throws DataError if not all of them can be written, as on a full disk.
  void write(std::string_view bytes) {
    if (takes_in_place(bytes)) {
      bypass_at_start();
      write_memory();
      while (bytes.size() >= page) {
        const std::string_view some = bytes.substr(0, std::min(bytes.size() / page * page, chunk));
        write_pages(some);
        bytes.remove_prefix(some.size());
      }
    }
    if (!memory_ && !bytes.empty())
      memory_.reset(new (std::align_val_t{page}) char[chunk]);
    while (!bytes.empty()) {
      const std::size_t some = std::min(bytes.size(), chunk - filled_);
      std::memcpy(memory_.get() + filled_, bytes.data(), some);
      bytes.remove_prefix(some);
      filled_ += some;
      if (filled_ == chunk) {
        bypass_at_start();
        write_memory();
      }
    }
  }

  /// Like NewFile::commit().
  void commit() {
    bypass(false); // for a last piece that fills no block
    write_memory();
    file_.commit();
  }

  /// Whether the last bytes bypassed the page cache.
  [[nodiscard]] bool bypasses() const noexcept { return bypasses_; }

private:
  struct Free {
    void operator()(char* memory) const noexcept { ::operator delete[](memory, std::align_val_t{page}); }
  };

  void write_memory() {
    write_pages({memory_.get(), filled_});
    filled_ = 0;
  }

  /// Writes whole pages, or the end of the file.
  void write_pages(std::string_view bytes) {
    int failed = write_all(file_.descriptor(), bytes);
    if (failed == EINVAL && bypasses_) { // the file system needs a larger alignment than it said
      bypass(false);
      const off_t at = ::lseek(file_.descriptor(), 0, SEEK_CUR);
      failed = at < 0 ? errno
                      : write_all(file_.descriptor(), bytes.substr(static_cast<std::size_t>(at) - written_));
    }
    if (failed != 0)
      reject_unwritable(path_, failed);
    written_ += bytes.size();
  }

  /// Not later, when the file system may have refused it.
  void bypass_at_start() noexcept {
    if (written_ == 0)
      bypass(true);
  }
  /// Has no effect if the file system does not support it.
  void bypass([[maybe_unused]] bool on) noexcept {
#if defined(O_DIRECT)
    const int flags = ::fcntl(file_.descriptor(), F_GETFL);
    if (flags >= 0 && on != bypasses_ && !file_.in_place() && // to a pipe the flag means packets
        ::fcntl(file_.descriptor(), F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0)
      bypasses_ = on;
#endif
  }

  std::filesystem::path path_;
  NewFile file_;
  std::unique_ptr<char[], Free> memory_;
  std::size_t filled_ = 0;
  std::size_t written_ = 0;
  bool bypasses_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
