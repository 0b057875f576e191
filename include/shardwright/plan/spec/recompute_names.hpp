// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Recomputed operations as people write them: lists ("norm, act", "mla_up_proj+moe_act"), and
/// policies by name ("save_qkv_proj").

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

namespace detail {

/// Calls `function` with each name of a list with commas, plus signs or blanks between them, as long as it
/// returns true; returns whether it always did, and there was a name.
template <class Function>
[[nodiscard]] constexpr bool for_each_name(std::string_view list, const Function& function) {
  bool any = false;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(",+ "), list.size());
    if (const std::string_view name = list.substr(0, end); !name.empty()) {
      if (!function(name))
        return false;
      any = true;
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return any;
}

} // namespace detail

/// @brief The operations of a list, with commas, plus signs or blanks between their names; nothing if a name
/// is unknown or there is none.
[[nodiscard]] constexpr std::optional<RecomputedOperations> find_operations(std::string_view list) noexcept {
  RecomputedOperations out;
  const bool known = detail::for_each_name(list, [&out](std::string_view name) {
    const std::optional<LayerOperation> one = find_operation(name);
    if (one)
      out.add(*one);
    return one.has_value();
  });
  return known ? std::optional(out) : std::nullopt;
}

/// @brief The operations that are run again if only these values of a layer are kept, by the names that
/// MaxText gives them ("query_proj+context"), beside the input of the layer (decoder_layer_input); nothing if
/// a name is unknown.
///
/// Keys and values without queries save no product. What is kept in the host's memory is not run again
/// either.
[[nodiscard]] constexpr std::optional<RecomputedOperations> find_kept(std::string_view list) noexcept {
  using enum LayerOperation;
  RecomputedOperations again{attention,          norm,          activation,
                             latent_projections, experts,       qkv_projections,
                             output_projection,  up_projections};
  const bool known = detail::for_each_name(list, [&again](std::string_view name) {
    if (name == "context") {
      again.remove(attention);
    } else if (name == "query_proj" || name == "qkv_proj") {
      again.remove(qkv_projections);
      again.remove(latent_projections);
    } else if (name == "out_proj") {
      again.remove(output_projection);
    } else if (name == "mlpwi" || name == "mlpwi_0") {
      again.remove(up_projections);
      again.remove(experts);
    } else {
      return name == "decoder_layer_input" || name == "key_proj" || name == "value_proj" ||
             name == "mlpwi_1" || name == "mlpwo";
    }
    return true;
  });
  return known ? std::optional(again) : std::nullopt;
}

/// @brief The operations that a policy of MaxText runs again (`remat_policy`), or those of a list of values
/// that are kept, after the word "keep"; nothing if it is neither.
[[nodiscard]] constexpr std::optional<RecomputedOperations> find_policy(std::string_view name) noexcept {
  if (name.starts_with("keep "))
    return find_kept(name.substr(5));
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> policies{
      {{"minimal", "qkv_proj+out_proj+mlpwi+mlpwo"},
       {"minimal_flash", "qkv_proj+context+out_proj+mlpwi+mlpwo"},
       {"minimal_offloaded", "qkv_proj+out_proj+mlpwi+mlpwo"},
       {"minimal_with_context", "qkv_proj+context+out_proj+mlpwi+mlpwo"},
       {"save_dot_except_mlp", "qkv_proj+out_proj"},
       {"save_dot_except_mlpwi", "qkv_proj+out_proj+mlpwo"},
       {"save_dot_with_context_except_mlp", "qkv_proj+context+out_proj"},
       {"save_qkv_proj", "qkv_proj"},
       {"qkv_proj_offloaded", "qkv_proj"},
       {"save_out_proj", "out_proj"}}};
  for (const auto& [policy, kept] : policies)
    if (name == policy)
      return find_kept(kept);
  return {};
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
