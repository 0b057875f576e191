// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Lists of recomputed operations as people write them: "norm, act", "mla_up_proj+moe_act".

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/recompute.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief An operation by a name of `name_of`, or by one that Megatron-LM or its users use.
[[nodiscard]] constexpr std::optional<LayerOperation> find_operation(std::string_view name) noexcept {
  for (int i = 0; i < layer_operations; ++i)
    if (name == name_of(static_cast<LayerOperation>(i)))
      return static_cast<LayerOperation>(i);
  constexpr std::array<std::pair<std::string_view, LayerOperation>, 8> others{
      {{"core_attn", LayerOperation::attention},
       {"attn", LayerOperation::attention},
       {"layernorm", LayerOperation::norm},
       {"norms", LayerOperation::norm},
       {"moe_act", LayerOperation::activation},
       {"activation", LayerOperation::activation},
       {"feed_forward", LayerOperation::feed_forward},
       {"experts", LayerOperation::experts}}};
  for (const auto& [word, operation] : others)
    if (name == word)
      return operation;
  return {};
}

/// @brief The operations of a list, with commas, plus signs or blanks between their names; nothing if a name
/// is unknown or there is none.
[[nodiscard]] constexpr std::optional<RecomputedOperations> find_operations(std::string_view list) noexcept {
  RecomputedOperations out;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(",+ "), list.size());
    if (const std::string_view name = list.substr(0, end); !name.empty()) {
      const std::optional<LayerOperation> one = find_operation(name);
      if (!one)
        return {};
      out.add(*one);
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

/// @brief "norm+act", in the order of LayerOperation; empty if there are none.
[[nodiscard]] inline std::string operations_text(const RecomputedOperations& operations) {
  std::string out;
  for (int i = 0; i < layer_operations; ++i)
    if (const auto one = static_cast<LayerOperation>(i); operations.has(one))
      out.append(out.empty() ? "" : "+").append(name_of(one));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
