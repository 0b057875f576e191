// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The fingerprint of a collective, on which its ranks must agree: a hash to compare, and text to
/// report.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/validate.hpp>
#include <shardwright/core/hash.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Hash of everything about a call that all ranks share, and sums that check the pairing of all_to_all
/// blocks.
///
/// A collective is consistent if all ranks have the same `common`, and the sum over the ranks of `sent`
/// equals that of `received` modulo 2^64: barring hash collisions, block r of rank s and block s of rank r
/// then have the same number of elements. No rank needs to see another's blocks, so all ranks reach the same
/// verdict.
struct Fingerprint {
  std::uint64_t common = 0;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;

  [[nodiscard]] constexpr std::uint64_t unpaired() const noexcept { return sent - received; }
};

namespace detail {

/// Compares the fingerprints of all ranks of a collective, one after the other.
class FingerprintComparison {
public:
  constexpr void add(std::uint64_t common, std::uint64_t unpaired) noexcept {
    equal_ = equal_ && (first_ || common == common_);
    first_ = false;
    common_ = common;
    unpaired_ += unpaired;
  }
  /// Whether all ranks issued the same call.
  [[nodiscard]] constexpr bool agree() const noexcept { return equal_ && unpaired_ == 0; }

private:
  bool first_ = true;
  bool equal_ = true;
  std::uint64_t common_ = 0;
  std::uint64_t unpaired_ = 0;
};

[[nodiscard]] constexpr std::uint64_t hash_of(const ReductionOrder& order) noexcept {
  std::uint64_t hash = 0;
  for (int level = 0; level < order.count; ++level) {
    const auto [extent, stride] = order.levels[static_cast<std::size_t>(level)];
    hash = mixed(hash, (static_cast<std::uint64_t>(static_cast<std::uint32_t>(extent)) << 32U) |
                           static_cast<std::uint32_t>(stride));
  }
  return hash;
}

} // namespace detail

/// @brief The fingerprint of a rank's call.
[[nodiscard]] inline Fingerprint fingerprint(const CollectiveCall& call, int rank, int ranks,
                                             std::uint64_t sequence) noexcept {
  const bool reduces = detail::reduces(call.operation);
  const bool rooted = call.operation == Operation::broadcast;
  const std::uint64_t kinds =
      static_cast<std::uint64_t>(call.operation) |
      (reduces ? static_cast<std::uint64_t>(call.reduce_op) << 8U : 0U) |
      (static_cast<std::uint64_t>(call.element) << 16U) |
      (rooted ? static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32U : 0U);
  Fingerprint out;
  out.common = detail::mixed(sequence, kinds);
  if (reduces && call.order.count > 0)
    out.common = detail::mixed(out.common, detail::hash_of(call.order));
  if (call.subject.known())
    out.common = detail::mixed(out.common, call.subject.hash());
  switch (call.operation) {
  case Operation::all_reduce:
  case Operation::broadcast:
    out.common = detail::mixed(out.common, call.count);
    break;
  case Operation::all_gather:
    for (int r = 0; r < ranks; ++r)
      out.common = detail::mixed(out.common, call.out_block(r).count());
    break;
  case Operation::reduce_scatter:
    for (int r = 0; r < ranks; ++r)
      out.common = detail::mixed(out.common, call.in_block(r).count());
    break;
  case Operation::all_to_all:
    for (int r = 0; r < ranks; ++r) {
      const auto pair = [](int from, int to) {
        return (static_cast<std::uint64_t>(from) << 32U) | static_cast<std::uint64_t>(to);
      };
      out.sent += detail::mixed(detail::mixed(1, pair(rank, r)), call.in_block(r).count());
      out.received += detail::mixed(detail::mixed(1, pair(r, rank)), call.out_block(r).count());
    }
    break;
  default:
    break;
  }
  return out;
}

/// @brief A call in words: "all_reduce(sum, 1024 float32) #7 at train.cpp:12".
[[nodiscard]] inline std::string describe(const CollectiveCall& call, std::uint64_t sequence) {
  std::string inside;
  const auto append = [&inside](const std::string& part) { inside += (inside.empty() ? "" : ", ") + part; };
  if (detail::reduces(call.operation))
    append(std::string(name_of(call.reduce_op)));
  if (call.operation != Operation::barrier && call.operation != Operation::split)
    append((call.operation == Operation::all_to_all && !call.in_blocks.empty() ? "uneven"
                                                                               : std::to_string(call.count)) +
           " " + std::string(name_of(call.element)));
  if (call.subject.known())
    append("of " + call.subject.text());
  if (call.operation == Operation::broadcast)
    append("root " + std::to_string(call.root));
  if (call.operation == Operation::send)
    append("to rank " + std::to_string(call.root) + ", tag " + std::to_string(call.tag));
  if (call.operation == Operation::receive)
    append("from rank " + std::to_string(call.root) + ", tag " + std::to_string(call.tag));
  if (detail::reduces(call.operation) && call.order.count > 0) {
    std::string levels = "order";
    for (int level = 0; level < call.order.count; ++level)
      levels += " " + std::to_string(call.order.levels[static_cast<std::size_t>(level)].extent) + "x" +
                std::to_string(call.order.levels[static_cast<std::size_t>(level)].stride);
    append(levels);
  }
  std::string out = std::string(name_of(call.operation)) + "(" + inside + ")";
  if (sequence != 0)
    out += " #" + std::to_string(sequence);
  return out + call.where.text_after(" at ");
}

namespace detail {

/// The first difference between two calls of a collective, such as "the counts", for a mismatch sentence.
[[nodiscard]] inline std::string difference(const CollectiveCall& a, const CollectiveCall& b, int ranks) {
  if (a.operation != b.operation)
    return "the operations differ";
  if (a.element != b.element)
    return "the element types differ";
  if (reduces(a.operation) && a.reduce_op != b.reduce_op)
    return "the reduce operations differ";
  if (a.operation == Operation::broadcast && a.root != b.root)
    return "the roots differ";
  if (a.operation == Operation::all_reduce || a.operation == Operation::broadcast)
    if (a.count != b.count)
      return "the counts differ";
  if (reduces(a.operation) && hash_of(a.order) != hash_of(b.order))
    return "the reduction orders differ";
  if (a.subject != b.subject)
    return "the shapes of their tensors differ";
  for (int r = 0; r < ranks; ++r) {
    const bool gather =
        a.operation == Operation::all_gather && a.out_block(r).count() != b.out_block(r).count();
    const bool scatter =
        a.operation == Operation::reduce_scatter && a.in_block(r).count() != b.in_block(r).count();
    if (gather || scatter)
      return "the counts of block " + std::to_string(r) + " differ (" +
             std::to_string(gather ? a.out_block(r).count() : a.in_block(r).count()) + " and " +
             std::to_string(gather ? b.out_block(r).count() : b.in_block(r).count()) + ")";
  }
  return "";
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
