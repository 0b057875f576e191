// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief How ranks without shared memory describe their calls to each other: the header of a message, the
/// summary of a collective, and the errors that result.

#include <shardwright/comm/fingerprint.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/stderr_line.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Keeps the end of a text that is too long: the end of a path is more informative.
template <std::size_t Size> void copy_text(std::array<char, Size>& to, std::string_view from) noexcept {
  if (from.size() >= Size)
    from.remove_prefix(from.size() - (Size - 1));
  to[from.copy(to.data(), Size - 1)] = '\0';
}

/// A message as its sender tells the receiver, which compares it with its own call.
struct MessageHeader {
  std::uint64_t count = 0;
  std::uint64_t sequence = 0;
  std::int32_t tag = 0;
  std::int32_t line = 0;
  ElementType element = ElementType::uint8;
  std::array<char, 95> file{};

  MessageHeader() = default;
  MessageHeader(const CollectiveCall& send, std::uint64_t number) noexcept
      : count(send.count), sequence(number), tag(send.tag), line(send.where.line), element(send.element) {
    copy_text(file, send.where.file);
  }
  [[nodiscard]] bool matches(const CollectiveCall& receive) const noexcept {
    return count == receive.count && tag == receive.tag && element == receive.element;
  }
  /// The sentence about a message that does not match; `group` is that of the receiver.
  template <class Group>
  [[nodiscard]] std::string mismatch(const Group& group, const CollectiveCall& receive,
                                     std::uint64_t receive_sequence) const {
    CollectiveCall send = receive;
    send.operation = Operation::send;
    send.root = group.rank();
    send.count = static_cast<std::size_t>(count);
    send.tag = tag;
    send.element = element;
    const std::string path = printable({file.data(), ::strnlen(file.data(), file.size())});
    send.where = {path.c_str(), line, ""};
    return message_mismatch(group.world_rank(receive.root), send, sequence, group.world_rank(group.rank()),
                            receive, receive_sequence);
  }
};
static_assert(std::is_trivially_copyable_v<MessageHeader>);

/// The summary of a rank's call, exchanged if fingerprints differ: the plain members, the text, and the
/// counts of its blocks for every rank.
class CallAccount {
public:
  [[nodiscard]] static std::vector<std::byte> pack(const CollectiveCall& call, std::uint64_t sequence,
                                                   int ranks) {
    Plain plain{call, {}};
    plain.call.in = nullptr;
    plain.call.out = nullptr;
    plain.call.in_blocks = {};
    plain.call.out_blocks = {};
    plain.call.where = {};
    const std::string words = describe(call, sequence);
    words.copy(plain.text.data(), plain.text.size() - 1);
    std::vector<std::uint64_t> counts;
    for (int rank = 0; rank < ranks; ++rank)
      counts.push_back(call.in_block(rank).count());
    for (int rank = 0; rank < ranks; ++rank)
      counts.push_back(call.out_block(rank).count());
    std::vector<std::byte> out(sizeof plain + counts.size() * sizeof(std::uint64_t));
    std::memcpy(out.data(), &plain, sizeof plain);
    std::memcpy(out.data() + sizeof plain, counts.data(), counts.size() * sizeof(std::uint64_t));
    return out;
  }

  CallAccount(const std::byte* bytes, int ranks) {
    std::memcpy(&plain_, bytes, sizeof plain_);
    std::vector<std::uint64_t> counts(2 * static_cast<std::size_t>(ranks));
    std::memcpy(counts.data(), bytes + sizeof plain_, counts.size() * sizeof(std::uint64_t));
    for (const std::uint64_t count : counts)
      blocks_.push_back(contiguous_block(0, static_cast<std::size_t>(count)));
  }

  /// The call, with blocks of which only the counts are valid.
  [[nodiscard]] CollectiveCall call() const {
    CollectiveCall out = plain_.call;
    const std::span<const StridedBlock> all(blocks_);
    out.in_blocks = all.first(blocks_.size() / 2);
    out.out_blocks = all.last(blocks_.size() / 2);
    return out;
  }
  [[nodiscard]] std::string text() const {
    return printable({plain_.text.data(), ::strnlen(plain_.text.data(), plain_.text.size())});
  }

private:
  struct Plain {
    CollectiveCall call;
    std::array<char, 240> text;
  };
  static_assert(std::is_trivially_copyable_v<Plain>);

  Plain plain_{};
  std::vector<StridedBlock> blocks_;
};

/// All ranks with their calls, equal calls grouped. `bytes_of(rank)` returns a rank's summary; `unknown` is
/// the reason to give if the calls show no difference.
template <class Group, class BytesOf>
[[nodiscard]] std::string mismatch_of_accounts(const Group& group, const std::string& unknown,
                                               BytesOf&& bytes_of) {
  std::vector<CallAccount> all;
  std::vector<IssuedCall> issued;
  for (int rank = 0; rank < group.size(); ++rank) {
    all.emplace_back(bytes_of(rank), group.size());
    issued.push_back({group.world_rank(rank), all.back().text()});
  }
  const std::string what = difference_of(
      group.size(), [&](int rank) { return all[static_cast<std::size_t>(rank)].call(); },
      [&](int rank) { return group.world_rank(rank); });
  return mismatch_sentence(group.name(), what.empty() ? unknown : what, issued);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
