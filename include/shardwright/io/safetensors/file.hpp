// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A safetensors file: its header, and whole tensors or blocks of them, read on demand.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/io/safetensors/block_runs.hpp>
#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/io/safetensors/header.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {

static_assert(std::endian::native == std::endian::little,
              "safetensors: the processor must be little-endian, as the files are");

/// @brief An open file. The header is checked on opening; data are read on request with positioned reads, so
/// a file that shrinks causes an error, whereas a mapping would crash the process.
///
/// Any number of threads may read at once.
class File {
public:
  /// @brief Opens a file and reads its header.
  /// @throws DataError naming the file: it cannot be opened, is not a regular file, or breaks a rule of the
  /// format.
  explicit File(std::filesystem::path path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    struct stat status {};
    if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0)
      detail::refuse(path_.string(), shardwright::detail::open_fault());
    if (!S_ISREG(status.st_mode))
      detail::refuse(path_.string(),
                     "it must be a regular file, not a directory, pipe, socket or device (name the "
                     "file)");
    bytes_ = static_cast<std::uint64_t>(status.st_size);
    std::string text(static_cast<std::size_t>(std::min<std::uint64_t>(bytes_, 8)), '\0');
    read_at(0, std::as_writable_bytes(std::span(text)));
    text.resize(detail::header_bytes(text, bytes_, path_.string()));
    read_at(8, std::as_writable_bytes(std::span(text)));
    header_ = parse_header(text, bytes_ - 8 - text.size(), path_.string());
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept {
    return path_;
  }                                                                       ///< As passed to the constructor.
  [[nodiscard]] const Header& header() const noexcept { return header_; } ///< Tensors and metadata.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }   ///< Of the whole file.

  /// @brief The bytes before the data, as they are in the file now.
  /// @throws DataError if they cannot be read.
  [[nodiscard]] std::string head() const {
    std::string out(static_cast<std::size_t>(header_.data_begin), '\0');
    read_at(0, std::as_writable_bytes(std::span(out)));
    return out;
  }

  /// @brief The tensor of that name.
  /// @throws DataError if there is none.
  [[nodiscard]] const Entry& entry(std::string_view name) const {
    const Entry* const found = header_.find(name);
    if (found == nullptr)
      detail::refuse(path_.string(), "it must hold the tensor " + shardwright::detail::quoted_text(name) +
                                         ", but none of its " + std::to_string(header_.tensors.size()) +
                                         " has that name (check the name)");
    return *found;
  }

  /// @brief Reads a whole tensor into `out`, which has its bytes.
  /// @throws InvalidArgument for another size.
  /// @throws DataError if the tensor is absent or cannot be read.
  void read(std::string_view name, std::span<std::byte> out) const {
    const Entry& tensor = entry(name);
    check_size(tensor, tensor.bytes(), out.size());
    read_at(header_.data_begin + tensor.begin, out);
  }

  /// @brief Reads a whole tensor in pieces of the size of `memory`, each into it, and calls `visit(piece)`.
  /// @throws InvalidArgument if `memory` is empty.
  /// @throws DataError if the tensor is missing or cannot be read.
  template <class Visit>
  void read_through(std::string_view name, std::span<std::byte> memory, const Visit& visit) const {
    const Entry& tensor = entry(name);
    if (memory.empty())
      check_size(tensor, tensor.bytes(), 0);
    for (std::uint64_t at = tensor.begin; at < tensor.end;) {
      const auto piece =
          memory.first(static_cast<std::size_t>(std::min<std::uint64_t>(memory.size(), tensor.end - at)));
      read_at(header_.data_begin + at, piece);
      visit(std::span<const std::byte>(piece));
      at += piece.size();
    }
  }

  /// @brief Reads a block of a tensor into `out`, row-major and dense; of the rest of the file, only gaps of
  /// less than a page are read.
  /// @throws InvalidArgument for a block outside the tensor, one that does not begin and end at whole bytes
  /// (F4, F6), or another size.
  /// @throws DataError if the tensor is absent or cannot be read.
  void read(std::string_view name, const BlockOf& block, std::span<std::byte> out) const {
    const Entry& tensor = entry(name);
    check_inside(tensor, block);
    const detail::BlockRuns runs(tensor.shape, block.offset, block.extent);
    const std::uint64_t bits = bits_of(tensor.dtype);
    if (bits % 8 != 0)
      runs.for_each([&](std::uint64_t begin) {
        if (begin * bits % 8 != 0 || runs.length() * bits % 8 != 0)
          throw InvalidArgument(subject(tensor) + "a block of " + std::string(name_of(tensor.dtype)) +
                                " must begin and end at whole bytes in every row (take more of a row)");
      });
    check_size(tensor, runs.count() * (runs.length() * bits / 8), out.size());
    read_runs(tensor, runs, bits, out);
  }

  /// @brief The elements of a whole tensor.
  /// @throws DataError if it is absent, cannot be read, or holds another element type.
  template <StoredElement Element>
  [[nodiscard]] std::vector<Element> read_as(std::string_view name) const
      requires(!std::same_as<Element, bool>) {
    const Entry& tensor = entry(name);
    if (tensor.dtype != dtype_of<Element>())
      detail::refuse(path_.string(), "tensor " + shardwright::detail::quoted_text(name) + " must hold " +
                                         std::string(name_of(dtype_of<Element>())) + ", but holds " +
                                         std::string(name_of(tensor.dtype)) + " (read that, and convert it)");
    std::vector<Element> out(static_cast<std::size_t>(tensor.bytes() / sizeof(Element)));
    read_at(header_.data_begin + tensor.begin, std::as_writable_bytes(std::span(out)));
    return out;
  }

private:
  static constexpr std::uint64_t page = 4096;
  static constexpr std::uint64_t window_bytes = 64 * page;

  [[nodiscard]] std::string subject(const Entry& tensor) const {
    return path_.string() + ": tensor " + shardwright::detail::quoted_text(tensor.name) + ": ";
  }

  void check_size(const Entry& tensor, std::uint64_t wanted, std::size_t given) const {
    if (wanted != given)
      throw InvalidArgument(subject(tensor) + "the memory that it is read into must have " +
                            std::to_string(wanted) + " bytes, but has " + std::to_string(given));
  }

  void check_inside(const Entry& tensor, const BlockOf& block) const {
    bool inside = block.offset.size() == tensor.shape.size() && block.extent.size() == tensor.shape.size();
    for (std::size_t d = 0; inside && d < tensor.shape.size(); ++d)
      inside = block.offset[d] <= tensor.shape[d] && block.extent[d] <= tensor.shape[d] - block.offset[d];
    if (!inside)
      throw InvalidArgument(subject(tensor) + "a block must lie inside " + detail::shape_text(tensor.shape) +
                            ", but it has offset " + detail::shape_text(block.offset) + " and extent " +
                            detail::shape_text(block.extent));
  }

  /// Short runs with small gaps are read through a window: the pages between them are read in any case.
  void read_runs(const Entry& tensor, const detail::BlockRuns& runs, std::uint64_t bits,
                 std::span<std::byte> out) const {
    const std::uint64_t length = runs.length() * bits / 8;
    const bool by_window =
        runs.count() > 1 && runs.stride() * bits / 8 - length < page && length < window_bytes;
    std::vector<std::byte> window;
    std::uint64_t window_begin = 0;
    std::size_t done = 0;
    runs.for_each([&](std::uint64_t element) {
      const std::uint64_t begin = tensor.begin + element * bits / 8;
      const std::span<std::byte> to = out.subspan(done, static_cast<std::size_t>(length));
      done += to.size();
      if (!by_window)
        return read_at(header_.data_begin + begin, to);
      if (window.empty() || begin < window_begin || begin + length > window_begin + window.size()) {
        window_begin = begin;
        window.resize(static_cast<std::size_t>(std::min(window_bytes, tensor.end - begin)));
        read_at(header_.data_begin + begin, window);
      }
      std::memcpy(to.data(), window.data() + (begin - window_begin), to.size());
    });
  }

  void read_at(std::uint64_t position, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ssize_t got =
          ::pread(file_.get(), out.data(), std::min<std::size_t>(out.size(), std::size_t{1} << 30),
                  static_cast<off_t>(position));
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        detail::refuse(path_.string(),
                       got < 0 ? "cannot be read, " + std::generic_category().message(errno)
                               : "it must keep its bytes while it is open, but has been cut short "
                                 "(fetch it again)");
      out = out.subspan(static_cast<std::size_t>(got));
      position += static_cast<std::uint64_t>(got);
    }
  }

  std::filesystem::path path_;
  shardwright::detail::OpenFile file_;
  std::uint64_t bytes_ = 0;
  Header header_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors
