// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Looks up models, chips and clusters by name, ignoring case: chips by their first word, too, and
/// clusters as a number of chips ("h800x2048").

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/catalogue_chips.hpp>
#include <shardwright/plan/spec/catalogue_models.hpp>
#include <shardwright/plan/spec/cluster.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Capital letters and underscores make no difference.
[[nodiscard]] constexpr bool same_name(std::string_view left, std::string_view right) noexcept {
  const auto lower = [](char c) {
    return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  if (left.size() != right.size())
    return false;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (lower(left[i]) != lower(right[i]))
      return false;
  return true;
}

template <class Catalogue>
[[nodiscard]] constexpr auto* find_named(const Catalogue& catalogue, std::string_view name) noexcept {
  for (const auto& one : catalogue)
    if (same_name(one.name, name))
      return &one;
  return static_cast<decltype(catalogue.data())>(nullptr);
}

} // namespace detail

/// @brief The model of a given name; null if the catalogue lacks it.
[[nodiscard]] constexpr const ModelSpec* find_model(std::string_view name) noexcept {
  return detail::find_named(model_catalogue, name);
}
/// @brief The chip of a given name; null if the catalogue lacks it.
[[nodiscard]] constexpr const ChipSpec* find_chip(std::string_view name) noexcept {
  return detail::find_named(chip_catalogue, name);
}
/// @brief The cluster of a given name; null if the catalogue lacks it.
[[nodiscard]] constexpr const ClusterSpec* find_cluster(std::string_view name) noexcept {
  return detail::find_named(cluster_catalogue, name);
}

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
