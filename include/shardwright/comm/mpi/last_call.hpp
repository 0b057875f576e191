// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The last call of a rank as plain bytes that other processes can read.

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/observe/flight_dump.hpp>
#include <shardwright/comm/observe/flight_recorder.hpp>
#include <shardwright/comm/stderr_line.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A FlightEntry with text instead of pointers, which mean nothing to another process.
struct MpiLastCall {
  enum class Stage : std::uint8_t { none, inside, ended };

  std::uint64_t group_id;
  std::uint64_t sequence;
  std::int32_t peer; ///< World rank of the other end of a send or receive, else -1.
  std::int32_t tag;
  std::int32_t line;
  Operation operation;
  Stage stage;
  std::array<char, 2> unused; ///< Texts begin with a word.
  std::array<char, 48> group;
  std::array<char, 96> file;

  /// "waiting in all_reduce #7 on group dp at train.cpp:12"
  [[nodiscard]] std::string text() const {
    if (stage == Stage::none)
      return "it has called no operation yet";
    FlightEntry entry;
    entry.operation = operation;
    const std::string group_text = printable(group.data());
    const std::string file_text = printable(file.data());
    entry.group = group_text.c_str();
    entry.sequence = sequence;
    entry.peer = peer;
    entry.tag = tag;
    entry.where = {file_text.c_str(), line, ""};
    return (stage == Stage::inside ? "waiting in " : "its last operation was ") + entry.text();
  }
};
static_assert(std::is_trivial_v<MpiLastCall> && sizeof(MpiLastCall) % 8 == 0 &&
              offsetof(MpiLastCall, group) % 8 == 0);

/// The dump of a rank of which only its last call is known.
[[nodiscard]] inline FlightDump flight_of(const MpiLastCall& last, int rank, int ranks, std::string doing,
                                          std::vector<int> awaited) {
  FlightDump out{rank, ranks, std::move(doing), std::move(awaited), {{0, "world", {}}}, {}};
  if (last.stage == MpiLastCall::Stage::none)
    return out;
  out.groups = {{last.group_id, printable(last.group.data()), {}}};
  out.calls = {{last.sequence, 0, last.operation, last.sequence, last.peer, last.tag,
                printable(last.file.data()), last.line, last.stage == MpiLastCall::Stage::inside}};
  return out;
}

/// The call that a rank publishes: its texts, which seldom change, are written only when they do.
class MpiShownCall {
public:
  /// Sets a call that begins. @return how many 8-byte words of the record have changed.
  std::size_t set(const CollectiveCall& call, std::uint64_t sequence, int peer, std::uint64_t group_id,
                  const std::string& group) noexcept {
    const bool same_texts = record_.group_id == group_id && file_ == call.where.file;
    record_.group_id = group_id;
    record_.sequence = sequence;
    record_.peer = peer;
    record_.tag = call.tag;
    record_.line = call.where.line;
    record_.operation = call.operation;
    record_.stage = MpiLastCall::Stage::inside;
    if (same_texts)
      return offsetof(MpiLastCall, group) / 8;
    file_ = call.where.file;
    copy_text(record_.group, group);
    copy_text(record_.file, file_);
    return sizeof record_ / 8;
  }
  [[nodiscard]] const MpiLastCall& record() const noexcept { return record_; }

private:
  MpiLastCall record_{};
  const char* file_ = nullptr;
};

/// Omits the middle of an error text that is too long, since it ends with the call and its source line.
template <std::size_t Size> void copy_sentence(std::array<char, Size>& to, std::string_view from) noexcept {
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
