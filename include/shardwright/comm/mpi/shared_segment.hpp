// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Memory that the processes of one node map under a common name.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A mapped segment of shared memory, initially zero.
class SharedSegment {
public:
  /// @param more_bytes Wanted after the others, but not needed; see has_more().
  /// @param creates Whether this process creates the segment, which must not exist; otherwise it must.
  SharedSegment(std::string name, std::size_t bytes, std::size_t more_bytes, bool creates)
      : name_(std::move(name)), bytes_(bytes + more_bytes) {
    const int file = ::shm_open(name_.c_str(), O_RDWR | O_CLOEXEC | (creates ? O_CREAT | O_EXCL : 0), 0600);
    if (file < 0)
      fail("shm_open", errno);
    if (creates) {
      // Without a reservation, a page for which there is no room would end the process at its first use.
      const bool has_length = ::ftruncate(file, static_cast<off_t>(bytes_)) == 0;
      if (const int code = has_length ? reserve(file, 0, bytes) : errno; code != 0) {
        ::close(file);
        unlink();
        fail(has_length ? "posix_fallocate" : "ftruncate", code);
      }
      has_more_ = more_bytes > 0 && reserve(file, bytes, more_bytes) == 0;
    }
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const int code = errno;
    ::close(file);
    if (memory_ == MAP_FAILED) {
      if (creates)
        unlink();
      fail("mmap", code);
    }
  }
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment() { ::munmap(memory_, bytes_); }

  [[nodiscard]] void* memory() const noexcept { return memory_; }
  /// Whether there was room for the bytes that are wanted but not needed. Known to the creator only.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }
  /// Removes the name, so that nothing is left behind whatever happens later; the mapping stays.
  void unlink() const noexcept { ::shm_unlink(name_.c_str()); }

private:
  /// @return zero or the number of an error
  [[nodiscard]] static int reserve(int file, std::size_t begin, std::size_t bytes) noexcept {
    int code = 0;
    do
      code = ::posix_fallocate(file, static_cast<off_t>(begin), static_cast<off_t>(bytes));
    while (code == EINTR);
    return code;
  }
  [[noreturn]] void fail(const char* function, int code) const {
    throw TransportError(
        code, std::string(function) +
                  ": the ranks of one node need a shared-memory segment, but the system reported \"" +
                  std::strerror(code) + "\" for " + name_ + " (mount /dev/shm with room for it)");
  }

  std::string name_;
  std::size_t bytes_;
  bool has_more_ = false;
  void* memory_ = nullptr;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
