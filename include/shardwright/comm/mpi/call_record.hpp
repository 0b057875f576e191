// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A rank's last call as plain bytes, for other processes to read.

#include <shardwright/comm/flight_recorder.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// What FlightEntry holds, with texts in place of pointers, which mean nothing to another process.
struct MpiCallRecord {
  enum class Stage : std::uint8_t { none, inside, ended };

  std::uint64_t group_id;
  std::uint64_t sequence;
  std::int32_t peer; ///< World rank of the other end of a send or receive, else -1.
  std::int32_t tag;
  std::int32_t line;
  Operation operation;
  Stage stage;
  std::array<char, 50> group;
  std::array<char, 96> file;

  /// "waiting in all_reduce #7 on group dp at train.cpp:12"
  [[nodiscard]] std::string text() const {
    if (stage == Stage::none)
      return "it has called no operation yet";
    FlightEntry entry;
    entry.operation = operation;
    entry.group = group.data();
    entry.sequence = sequence;
    entry.peer = peer;
    entry.tag = tag;
    entry.where = {file.data(), line, ""};
    return (stage == Stage::inside ? "waiting in " : "its last operation was ") + entry.text();
  }
};
static_assert(std::is_trivial_v<MpiCallRecord> && sizeof(MpiCallRecord) % 8 == 0);

/// Keeps the end of a text that is too long: of a path, the end tells more.
template <std::size_t Size>
void copy_text(std::array<char, Size>& to, std::string_view from) noexcept {
  if (from.size() >= Size)
    from.remove_prefix(from.size() - (Size - 1));
  to[from.copy(to.data(), Size - 1)] = '\0';
}

/// Leaves out the middle of an error's text that is too long: it ends with the call and its source line.
template <std::size_t Size>
void copy_sentence(std::array<char, Size>& to, std::string_view from) noexcept {
  constexpr std::size_t kept = Size / 2;
  constexpr std::string_view gap = " ... ";
  std::size_t length = from.copy(to.data(), from.size() < Size ? Size - 1 : Size - 1 - kept - gap.size());
  if (from.size() >= Size) {
    length += gap.copy(to.data() + length, gap.size());
    length += from.substr(from.size() - kept).copy(to.data() + length, kept);
  }
  to[length] = '\0';
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
