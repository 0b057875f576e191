// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes scalars to event files for TensorBoard.
///
/// The formats are TensorFlow's: events and summaries are messages of tensorflow/core/util/event.proto and
/// tensorflow/core/framework/summary.proto in the wire format of Protocol Buffers; a file is a sequence of
/// records as in tensorflow/core/lib/io/record_writer.h. The checksum CRC-32C (RFC 3720, appendix B.4) is
/// Boost's; without its headers a program warns at run time and writes nothing.

#include <shardwright/core/config.hpp>
#include <shardwright/io/log_file.hpp>

#if __has_include(<boost/crc.hpp>)
#include <boost/crc.hpp>
#endif

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A named number; TensorBoard groups charts by the part of the name before a slash.
struct Scalar {
  std::string tag;
  double value = 0; ///< Kept in single precision.
};

/// @brief True if this program can write event files.
#if __has_include(<boost/crc.hpp>)
inline constexpr bool has_tensorboard = true;
#else
inline constexpr bool has_tensorboard = false;
#endif

namespace detail {

/// The lowest bytes of a number, lowest first.
template <int bytes> void append_fixed(std::string& out, std::uint64_t number) {
  for (int byte = 0; byte < bytes; ++byte)
    out.push_back(static_cast<char>(number >> (8 * byte) & 0xffu));
}

/// Protocol Buffers: seven bits per byte, lowest first; the high bit says that more bytes follow.
inline void append_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80u; number >>= 7u)
    out.push_back(static_cast<char>((number & 0x7fu) | 0x80u));
  out.push_back(static_cast<char>(number));
}

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

inline void append_key(std::string& out, unsigned field, WireType type) {
  append_varint(out, field << 3u | static_cast<unsigned>(type));
}
inline void append_bytes(std::string& out, unsigned field, std::string_view bytes) {
  append_key(out, field, WireType::bytes);
  append_varint(out, bytes.size());
  out += bytes;
}

/// The masked CRC-32C that a record stores: rotated and offset, because the bytes may contain checksums
/// themselves.
[[nodiscard]] inline std::uint32_t masked_checksum([[maybe_unused]] std::string_view bytes) {
#if __has_include(<boost/crc.hpp>)
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xa282ead8u;
#else
  return 0;
#endif
}

/// A record: length, its checksum, bytes, their checksum.
[[nodiscard]] inline std::string framed(std::string_view bytes) {
  std::string out;
  append_fixed<8>(out, bytes.size());
  append_fixed<4>(out, masked_checksum(out));
  out += bytes;
  append_fixed<4>(out, masked_checksum(bytes));
  return out;
}

/// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
[[nodiscard]] inline std::string event_at(double wall_seconds, std::int64_t step) {
  std::string out;
  append_key(out, 1, WireType::fixed64);
  append_fixed<8>(out, std::bit_cast<std::uint64_t>(wall_seconds));
  append_key(out, 2, WireType::varint);
  append_varint(out, static_cast<std::uint64_t>(step));
  return out;
}

/// Summary: value = 1, and of a value tag = 1, simple_value = 2.
[[nodiscard]] inline std::string summary_of(std::span<const Scalar> scalars) {
  std::string out;
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_bytes(value, 1, scalar.tag);
    append_key(value, 2, WireType::fixed32);
    append_fixed<4>(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    append_bytes(out, 1, value);
  }
  return out;
}

/// A name that TensorBoard recognizes as an event file and that no other writer uses.
[[nodiscard]] inline std::string event_file_name(double wall_seconds) {
  static std::atomic<int> files{0};
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0')
    host = {"localhost"};
  std::string seconds = std::to_string(static_cast<std::int64_t>(wall_seconds));
  seconds.insert(0, seconds.size() < 10 ? 10 - seconds.size() : 0, '0');
  return "events.out.tfevents." + seconds + "." + host.data() + "." + std::to_string(::getpid()) + "." +
         std::to_string(files.fetch_add(1));
}

} // namespace detail

/// @brief The options of a TensorBoardWriter.
struct TensorBoardOptions {
  double flush_seconds = 0; ///< Least time between flushes; 0: after each write, so that nothing is lost.
};

/// @brief Writes scalars to a new event file in a directory; point `tensorboard --logdir` at it or one of its
/// parents.
///
/// If the directory or disk cannot be written to, it warns once and drops all further scalars; training
/// continues. Not thread-safe; use it on one rank.
class TensorBoardWriter {
public:
  /// @brief A writer that drops everything: no directory was requested.
  TensorBoardWriter() = default;

  /// @brief Creates the file, with its directory if that is missing; an empty path drops everything.
  explicit TensorBoardWriter(const std::filesystem::path& directory, TensorBoardOptions options = {},
                             LogWarning warning = detail::warn_on_standard_error)
      : options_(options) {
    if (directory.empty())
      return;
    const double now = seconds_since_1970();
    file_ =
        detail::LogFile(directory / detail::event_file_name(now), "wbx", "TensorBoard", std::move(warning));
    if (!has_tensorboard)
      file_.give_up("needs a program that was built with the headers of Boost.CRC");
    std::string version = detail::event_at(now, 0);
    detail::append_bytes(version, 3, "brain.Event:2");
    file_.write(detail::framed(version));
    file_.flush();
  }

  /// @brief Returns whether scalars are still being written to the file.
  [[nodiscard]] bool active() const noexcept { return file_.active(); }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_.path(); }

  /// @brief Appends the scalars of a step. @param wall_time in seconds since 1970
  void write(std::int64_t step, std::span<const Scalar> scalars, double wall_time = seconds_since_1970()) {
    if (!file_.active())
      return;
    std::string event = detail::event_at(wall_time, step);
    detail::append_bytes(event, 5, detail::summary_of(scalars));
    file_.write(detail::framed(event));
    const auto now = Clock::now();
    if (now - flushed_ < std::chrono::duration<double>(options_.flush_seconds))
      return;
    file_.flush();
    flushed_ = now;
  }

private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] static double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }

  TensorBoardOptions options_;
  detail::LogFile file_;
  Clock::time_point flushed_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
