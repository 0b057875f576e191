// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads a whole file, up to a given size; anything but a regular file is rejected before a byte is
/// read.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The result of reading one file: its bytes, or what is wrong.
struct FileText {
  std::string bytes;
  std::string fault;
  std::optional<std::size_t> offset; ///< The byte at which it is wrong, if the rest is not.
  bool too_long = false;             ///< Whether the problem is the length.

  /// The fault of this file at `path`.
  [[nodiscard]] std::string fault_at(const std::filesystem::path& path) const {
    return path.string() + (offset ? " at offset " + std::to_string(*offset) : "") + ": " + fault;
  }
};

/// Why the system did not open a file.
[[nodiscard]] inline std::string open_fault() {
  if (errno == ENOENT)
    return "the file must exist (correct its name, or write it first)";
  return "cannot be opened, " + std::generic_category().message(errno);
}

class OpenFile {
public:
  explicit OpenFile(int file) noexcept : file_(file) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (file_ >= 0)
      ::close(file_);
  }
  [[nodiscard]] int get() const noexcept { return file_; }

private:
  int file_;
};

/// Called for every chunk as it is read, with its position; returns true if the rest need not be read.
struct ReadAll {
  [[nodiscard]] bool operator()(const std::string&, std::size_t) const noexcept { return false; }
};

/// Reads until the end rather than up to the reported size, which is 0 in /proc.
template <class Stop = ReadAll>
[[nodiscard]] FileText read_regular_file(const std::filesystem::path& path, std::size_t most_bytes,
                                         const Stop& stop = {}) {
  FileText out;
  const auto fault = [&out](const std::string& what) {
    out.bytes.clear();
    out.fault = what;
    return out;
  };
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0)
    return fault(open_fault());
  const auto unreadable = [&] { return fault("cannot be read, " + std::generic_category().message(errno)); };
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return unreadable();
  if (!S_ISREG(status.st_mode))
    return fault(S_ISDIR(status.st_mode) ? "it is a directory (name a file in it)"
                                         : "it must be a regular file, not a pipe, socket or device (copy it "
                                           "into a file first)");
  const auto too_long = [&] {
    out.too_long = true;
    return fault("it must hold at most " + std::to_string(most_bytes) +
                 " bytes (split it, or give a shorter one)");
  };
  if (status.st_size > 0 && static_cast<std::size_t>(status.st_size) > most_bytes)
    return too_long();
  constexpr std::size_t chunk = std::size_t{1} << 16;
  for (;;) {
    const std::size_t before = out.bytes.size();
    out.bytes.resize(before + chunk);
    ssize_t got = 0;
    do
      got = ::read(file.get(), out.bytes.data() + before, chunk);
    while (got < 0 && errno == EINTR);
    out.bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0) {
      out.offset = before;
      return unreadable();
    }
    if (out.bytes.size() > most_bytes)
      return too_long();
    if (got == 0 || stop(out.bytes, before))
      return out;
  }
}

} // namespace detail

/// @brief The bytes of a regular file, at most `most_bytes` of them.
/// @throws DataError naming the file: it cannot be opened or read, is a pipe, device or directory, or is
/// longer.
[[nodiscard]] inline std::string read_text(const std::filesystem::path& path, std::size_t most_bytes) {
  detail::FileText text = detail::read_regular_file(path, most_bytes);
  if (!text.fault.empty())
    throw DataError(text.fault_at(path));
  return std::move(text.bytes);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
