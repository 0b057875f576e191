// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds models, chips and clusters by their names.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/catalogue_chips.hpp>
#include <shardwright/plan/catalogue_models.hpp>
#include <shardwright/plan/cluster_spec.hpp>
#include <shardwright/plan/model_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Whether two words are the same but for upper and lower case.
[[nodiscard]] constexpr bool equal_words(std::string_view left, std::string_view right) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  if (left.size() != right.size())
    return false;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (lower(left[i]) != lower(right[i]))
      return false;
  return true;
}

} // namespace detail

/// @brief A model of the catalogue; nothing where there is none of the name.
[[nodiscard]] constexpr std::optional<ModelSpec> find_model(std::string_view name) {
  for (const ModelSpec& model : model_catalogue)
    if (detail::equal_words(model.name, name))
      return model;
  return {};
}

/// @brief A chip of the catalogue by its whole name or the first word of it, such as "h100" or "v5p"; where
/// there are several, the one of 80 GB, or else the first.
[[nodiscard]] constexpr std::optional<ChipSpec> find_chip(std::string_view name) {
  std::optional<ChipSpec> found;
  for (const ChipSpec& chip : chip_catalogue) {
    std::string_view word = chip.name.substr(0, chip.name.find_first_of("- "));
    if (detail::equal_words(chip.name, name))
      return chip;
    const bool tpu = word.starts_with("TPU") && detail::equal_words(word.substr(3), name);
    if ((tpu || detail::equal_words(word, name)) && (!found || chip.memory_bytes == 80e9))
      found = chip;
  }
  return found;
}

/// @brief A cluster of the catalogue, or "<chip>x<number>" in the chip's usual domains.
[[nodiscard]] constexpr std::optional<ClusterSpec> find_cluster(std::string_view name) {
  for (const ClusterSpec& cluster : cluster_catalogue)
    if (detail::equal_words(cluster.name, name))
      return cluster;
  const std::size_t times = name.find_last_of("xX");
  if (times == std::string_view::npos || times + 1 == name.size() || name.size() - times > 10)
    return {};
  std::int64_t chips = 0;
  for (const char digit : name.substr(times + 1)) {
    if (digit < '0' || digit > '9')
      return {};
    chips = 10 * chips + (digit - '0');
  }
  const std::optional<ChipSpec> chip = find_chip(name.substr(0, times));
  if (!chip || chips == 0)
    return {};
  ClusterSpec cluster = cluster_of(*chip, chips);
  cluster.name = name;
  return cluster;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
