// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Chips by the names that tables of published runs give them, and the domains of their clusters.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/spec/catalogue_chips.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>
#include <shardwright/plan/spec/cluster.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace plan_example {

using namespace shardwright;

namespace detail {

/// The words of a chip's name: "H800-80GB-SXM" has H800, 80GB and SXM.
template <class Function> constexpr void for_each_word(std::string_view name, const Function& function) {
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of(" -_()"), name.size());
    if (end > 0)
      function(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
}

} // namespace detail

/// @brief A chip by a name as people write it, with vendor, board and memory ("NVIDIA H800-80GB-SXM", "TPU7x
/// Ironwood", "Trillium"). Other boards (PCIe, NVL pairs) and other memory sizes are not found.
[[nodiscard]] constexpr std::optional<ChipSpec> chip_of_text(std::string_view name) {
  using shardwright::detail::same_name;
  if (const ChipSpec* known = find_chip(name))
    return *known;
  std::optional<ChipSpec> found;
  double gigabytes = 0;
  bool other_board = false;
  detail::for_each_word(name, [&](std::string_view word) {
    other_board = other_board || same_name(word, "pcie") || same_name(word, "nvl");
    double number = 0;
    std::size_t digits = 0;
    for (; digits < word.size() && word[digits] >= '0' && word[digits] <= '9'; ++digits)
      number = 10 * number + (word[digits] - '0');
    if (digits > 0 && (same_name(word.substr(digits), "gb") || same_name(word.substr(digits), "gib")))
      gigabytes = number;
    const std::string_view chip = same_name(word, "trillium")   ? "v6e"
                                  : same_name(word, "ironwood") ? "tpu7x"
                                  : same_name(word, "7x")       ? "tpu7x"
                                  : same_name(word, "trn1")     ? "trainium1"
                                  : same_name(word, "trn2")     ? "trainium2"
                                                                : word;
    if (!found)
      found = chip_of_word(chip);
  });
  if (!found || other_board)
    return {};
  if (gigabytes > 0 && gigabytes != found->memory_bytes / 1e9) {
    const ChipSpec base = *found;
    found = {};
    for (const ChipSpec& chip : chip_catalogue)
      if (chip.peak_bf16 == base.peak_bf16 && chip.scale_up_bandwidth == base.scale_up_bandwidth &&
          chip.memory_bytes == gigabytes * 1e9 && chip.sustained == 1)
        found = chip;
    if (!found && gigabytes > 0.95 * base.memory_bytes / 1e9 && gigabytes < 1.08 * base.memory_bytes / 1e9)
      found = base; // of a B200's 192 GB, a program may use 180
  }
  return found;
}

/// @brief The cluster, with the domains that published runs use if chips do not fill racks: a power of two of
/// each, and most of it, such as 64 of 72.
[[nodiscard]] constexpr ClusterSpec with_even_domains(const ClusterSpec& cluster) {
  const std::int64_t each = cluster.domains[0].chips, chips = cluster.chips();
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(each)));
  const bool even = chips % each != 0 && 4 * power >= 3 * each && chips % power == 0;
  const double factor = static_cast<double>(power) / static_cast<double>(each);
  return even ? with_more({cluster, {}}, Resource::domain, factor).cluster : cluster;
}

} // namespace plan_example
