// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Gathers vectors whose lengths differ between ranks, and finds the ranks whose value differs from
/// the majority.

#include <shardwright/comm/host_communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The bytes of all ranks.
[[nodiscard]] std::vector<std::vector<std::uint8_t>>
gather_bytes(HostCommunicator ranks, std::span<const std::uint8_t> own, SourceLocation where);

/// The value that most ranks hold; in a tie, that of the lowest rank.
[[nodiscard]] std::uint64_t majority(const std::vector<std::uint64_t>& values);

} // namespace detail

/// @brief The vectors of all ranks, in rank order, on every rank. Collective; two all_gathers.
/// @throws the typed errors of the transport.
template <class Value>
[[nodiscard]] std::vector<std::vector<Value>> all_gather_v(HostCommunicator ranks,
                                                           const std::vector<Value>& own,
                                                           SourceLocation where = SourceLocation::current()) {
  static_assert(std::is_trivially_copyable_v<Value>,
                "all_gather_v: values must be trivially copyable (pack them into bytes)");
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(own.data());
  std::vector<std::vector<Value>> out;
  for (const auto& theirs : detail::gather_bytes(ranks, {bytes, own.size() * sizeof(Value)}, where)) {
    std::vector<Value>& values = out.emplace_back(theirs.size() / sizeof(Value));
    if (!theirs.empty())
      std::memcpy(values.data(), theirs.data(), theirs.size());
  }
  return out;
}

/// @brief The texts of all ranks, in rank order, on every rank; a text must not contain a NUL. Collective;
/// cost: two all_gathers, of the lengths and of the letters.
/// @throws the typed errors of the transport.
/// @tparam Text a parameter only so that translation units which do not call it need not compile it
template <class Text = std::string>
[[nodiscard]] std::vector<std::vector<Text>> gather_texts(const HostCommunicator& ranks,
                                                          const std::vector<std::type_identity_t<Text>>& own,
                                                          SourceLocation where = SourceLocation::current()) {
  std::vector<typename Text::value_type> letters;
  for (const Text& text : own)
    letters.insert(letters.end(), text.c_str(), text.c_str() + text.size() + 1);
  std::vector<std::vector<Text>> out;
  for (const auto& rank : all_gather_v(ranks, letters, where)) {
    std::vector<Text>& texts = out.emplace_back();
    for (std::size_t at = 0; at < rank.size(); at += texts.back().size() + 1)
      texts.emplace_back(rank.data() + at);
  }
  return out;
}

#if defined(SHARDWRIGHT_COMPILED)
extern template std::vector<std::vector<std::string>>
gather_texts<std::string>(const HostCommunicator& ranks, const std::vector<std::string>& own,
                          SourceLocation where);
#endif

#if !defined(SHARDWRIGHT_COMPILED)
namespace detail {

SHARDWRIGHT_INLINE std::vector<std::vector<std::uint8_t>>
gather_bytes(HostCommunicator ranks, std::span<const std::uint8_t> own, SourceLocation where) {
  const std::vector<std::uint64_t> bytes{own.size()};
  std::vector<std::uint64_t> all_bytes(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(bytes, all_bytes, {}, where);
  const std::vector<std::size_t> counts(all_bytes.begin(), all_bytes.end());
  std::vector<std::uint8_t> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  ranks.all_gather(own, all, std::span<const std::size_t>(counts), where);
  std::vector<std::vector<std::uint8_t>> out;
  auto begin = all.begin();
  for (const std::size_t count : counts) {
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    out.emplace_back(begin, end);
    begin = end;
  }
  return out;
}

SHARDWRIGHT_INLINE std::uint64_t majority(const std::vector<std::uint64_t>& values) {
  std::uint64_t best = values.front();
  std::ptrdiff_t votes = 0;
  for (const std::uint64_t value : values) {
    const std::ptrdiff_t count = std::count(values.begin(), values.end(), value);
    if (count > votes) {
      best = value;
      votes = count;
    }
  }
  return best;
}

} // namespace detail
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
