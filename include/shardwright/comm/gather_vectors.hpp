// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Gathers vectors whose lengths differ from rank to rank.

#include <shardwright/comm/host_communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The vectors of all ranks, in rank order, on every rank. Collective; two all_gathers.
/// @throws the typed errors of the transport.
template <class Value>
[[nodiscard]] std::vector<std::vector<Value>> gather_vectors(HostCommunicator ranks,
                                                             const std::vector<Value>& own) {
  static_assert(std::is_trivially_copyable_v<Value>,
                "gather_vectors: values must be trivially copyable (pack them into bytes)");
  const std::vector<std::uint64_t> bytes{own.size() * sizeof(Value)};
  std::vector<std::uint64_t> all_bytes(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(bytes, all_bytes);
  const std::vector<std::size_t> counts(all_bytes.begin(), all_bytes.end());
  std::vector<std::uint8_t> packed(bytes.front());
  if (!packed.empty())
    std::memcpy(packed.data(), own.data(), packed.size());
  std::vector<std::uint8_t> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  ranks.all_gather(packed, all, std::span<const std::size_t>(counts));
  std::vector<std::vector<Value>> out(counts.size());
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    out[rank].resize(counts[rank] / sizeof(Value));
    if (counts[rank] != 0)
      std::memcpy(out[rank].data(), all.data() + offset, counts[rank]);
    offset += counts[rank];
  }
  return out;
}

/// @brief The texts of all ranks, in rank order, on every rank; a text must not hold a NUL. Collective.
/// @throws the typed errors of the transport.
[[nodiscard]] inline std::vector<std::vector<std::string>> gather_texts(const HostCommunicator& ranks,
                                                                        const std::vector<std::string>& own) {
  std::vector<char> letters;
  for (const std::string& text : own)
    letters.insert(letters.end(), text.c_str(), text.c_str() + text.size() + 1);
  std::vector<std::vector<std::string>> out;
  for (const std::vector<char>& rank : gather_vectors(ranks, letters)) {
    std::vector<std::string>& texts = out.emplace_back();
    for (std::size_t at = 0; at < rank.size(); at += texts.back().size() + 1)
      texts.emplace_back(rank.data() + at);
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
