// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ranks compare a hash of their configuration at startup, so that one that differs is named before it
/// does harm.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/core/source_location.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief 64-bit hash of a configuration text (FNV-1a): equal texts have equal hashes on every machine.
[[nodiscard]] inline std::uint64_t configuration_hash(std::string_view text) noexcept {
  return detail::Fnv1a().add(text).value();
}

namespace detail {

/// The first line in which two texts differ, from each of them; "(nothing)" for a text that has ended.
inline std::array<std::string, 2> first_difference(std::string_view left, std::string_view right) {
  const auto line = [](std::string_view& text) {
    const std::size_t end = text.find('\n');
    const std::string_view out = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return out;
  };
  const auto shown = [](std::string_view text) {
    return text.empty() ? "(nothing)" : '"' + std::string(text) + '"';
  };
  while (!left.empty() || !right.empty()) {
    const std::string_view a = line(left);
    const std::string_view b = line(right);
    if (a != b)
      return {shown(a), shown(b)};
  }
  return {"(nothing)", "(nothing)"};
}

} // namespace detail

/// @brief Collective: throws on every rank unless all ranks of `world` pass the same `text`.
///
/// Write everything that must agree into the text, one setting per line: sizes, seed, mesh, hash of the data.
/// The message names the ranks that differ from the majority, and the first line in which they differ. Moves
/// 8 bytes per rank if all agree; the texts themselves are sent only after a mismatch.
///
/// @throws ConfigurationMismatch naming the ranks that differ.
/// @throws the communicator's errors.
inline void require_same_configuration(HostCommunicator world, std::string_view text,
                                       SourceLocation where = SourceLocation::current()) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::array<std::uint64_t, 1> own{configuration_hash(text)};
  std::vector<std::uint64_t> hashes(ranks);
  world.all_gather(own, hashes, {}, where);
  const std::uint64_t usual = detail::majority(hashes);
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (hashes[rank] != usual)
      odd.push_back(static_cast<int>(rank));
  if (odd.empty())
    return;

  const auto texts = all_gather_v(world, std::vector<char>(text.begin(), text.end()), where);
  const auto text_of = [&](std::size_t rank) {
    return std::string_view(texts[rank].data(), texts[rank].size());
  };
  const auto reference =
      static_cast<std::size_t>(std::find(hashes.begin(), hashes.end(), usual) - hashes.begin());
  const auto [usual_line, odd_line] =
      detail::first_difference(text_of(reference), text_of(static_cast<std::size_t>(odd.front())));

  // Without a majority nobody can say which side is wrong, so the message only contrasts the two.
  const bool undecided = 2 * odd.size() >= ranks;
  throw ConfigurationMismatch(
      "Configuration: all " + std::to_string(ranks) + " ranks must hold the same, but " +
          detail::ranks_text(odd) + (odd.size() == 1 ? " differs" : " differ") + " from " +
          (undecided ? "rank " + std::to_string(reference) : std::string("the others")) + ": rank " +
          std::to_string(odd.front()) + " has " + odd_line + " where rank " + std::to_string(reference) +
          " has " + usual_line + " (start every rank with the same options, data and seed)",
      {world.world_rank(), world.name(), "configuration check", 0, {}, where});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
