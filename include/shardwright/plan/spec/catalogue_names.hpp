// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Looks up models, chips and clusters of the catalogue by name, ignoring case.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/catalogue_chips.hpp>
#include <shardwright/plan/spec/catalogue_models.hpp>

#include <cstddef>
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

} // namespace shardwright::inline SHARDWRIGHT_ABI
