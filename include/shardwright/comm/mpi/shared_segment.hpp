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
  /// @param creates Whether this process creates the segment, which must not exist; otherwise it must.
  SharedSegment(std::string name, std::size_t bytes, bool creates) : name_(std::move(name)), bytes_(bytes) {
    const int file = ::shm_open(name_.c_str(), O_RDWR | O_CLOEXEC | (creates ? O_CREAT | O_EXCL : 0), 0600);
    if (file < 0)
      fail("shm_open");
    if (creates && ::ftruncate(file, static_cast<off_t>(bytes_)) != 0) {
      ::close(file);
      unlink();
      fail("ftruncate");
    }
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory_ == MAP_FAILED) {
      if (creates)
        unlink();
      fail("mmap");
    }
  }
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment() { ::munmap(memory_, bytes_); }

  [[nodiscard]] void* memory() const noexcept { return memory_; }
  /// Removes the name, so that nothing is left behind whatever happens later; the mapping stays.
  void unlink() const noexcept { ::shm_unlink(name_.c_str()); }

private:
  [[noreturn]] void fail(const char* function) const {
    const int code = errno;
    throw TransportError(
        code, std::string(function) +
                  ": the ranks of one node need a shared-memory segment, but the system reported \"" +
                  std::strerror(code) + "\" for " + name_ + " (mount /dev/shm with room for it)");
  }

  std::string name_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
