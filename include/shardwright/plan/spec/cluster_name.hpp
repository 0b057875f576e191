// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Looks up clusters by names such as "h800x2048", and chips by their first word.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/catalogue_chips.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>
#include <shardwright/plan/spec/cluster.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A chip of the catalogue by its whole name or its first word, such as "h100" or "v5p"; of several,
/// the one with 80 GB, otherwise the first.
[[nodiscard]] constexpr std::optional<ChipSpec> chip_of_word(std::string_view name) {
  std::optional<ChipSpec> found;
  for (const ChipSpec& chip : chip_catalogue) {
    std::string_view word = chip.name.substr(0, chip.name.find_first_of("- "));
    if (detail::same_name(chip.name, name))
      return chip;
    const bool tpu = word.starts_with("TPU") && detail::same_name(word.substr(3), name);
    if ((tpu || detail::same_name(word, name)) && (!found || chip.memory_bytes == 80e9))
      found = chip;
  }
  return found;
}

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
  if (const ChipSpec* known = find_chip(name))
    return *known;
  std::optional<ChipSpec> found;
  double gigabytes = 0;
  bool other_board = false;
  detail::for_each_word(name, [&](std::string_view word) {
    other_board = other_board || detail::same_name(word, "pcie") || detail::same_name(word, "nvl");
    double number = 0;
    std::size_t digits = 0;
    for (; digits < word.size() && word[digits] >= '0' && word[digits] <= '9'; ++digits)
      number = 10 * number + (word[digits] - '0');
    if (digits > 0 &&
        (detail::same_name(word.substr(digits), "gb") || detail::same_name(word.substr(digits), "gib")))
      gigabytes = number;
    const std::string_view chip = detail::same_name(word, "trillium")   ? "v6e"
                                  : detail::same_name(word, "ironwood") ? "tpu7x"
                                  : detail::same_name(word, "7x")       ? "tpu7x"
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

/// @brief A cluster of the catalogue, or "<chip>x<number>" in the chip's usual domains.
[[nodiscard]] constexpr std::optional<ClusterSpec> cluster_of_name(std::string_view name) {
  if (const ClusterSpec* known = find_cluster(name))
    return *known;
  const std::size_t times = name.find_last_of("xX");
  if (times == std::string_view::npos || times + 1 == name.size() || name.size() - times > 10)
    return {};
  std::int64_t chips = 0;
  for (const char digit : name.substr(times + 1)) {
    if (digit < '0' || digit > '9')
      return {};
    chips = 10 * chips + (digit - '0');
  }
  const std::optional<ChipSpec> chip = chip_of_word(name.substr(0, times));
  if (!chip || chips == 0)
    return {};
  ClusterSpec cluster = cluster_of(*chip, chips);
  cluster.name = name;
  return cluster;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
