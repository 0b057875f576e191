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

namespace detail {

/// The value with a name in a table of pairs; nothing if the table lacks it.
template <class Table>
[[nodiscard]] constexpr auto value_of(const Table& table, std::string_view name) noexcept {
  using Value = typename Table::value_type::second_type;
  for (const auto& [known, value] : table)
    if (known == name)
      return std::optional<Value>(value);
  return std::optional<Value>();
}

/// The operations of all names in a list, with commas, plus signs or blanks between them; nothing if
/// `operations_of` knows none for one of them, or the list holds no name.
template <class OperationsOf>
[[nodiscard]] constexpr std::optional<RecomputedOperations>
all_of_list(std::string_view list, const OperationsOf& operations_of) noexcept {
  std::optional<RecomputedOperations> out;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(",+ "), list.size());
    if (const std::string_view name = list.substr(0, end); !name.empty()) {
      const std::optional<RecomputedOperations> of_name = operations_of(name);
      if (!of_name)
        return {};
      out = out.value_or(RecomputedOperations{});
      out->add(*of_name);
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

} // namespace detail

/// @brief The operations of a list ("norm, act", "core_attn+mlp") by the names of `name_of`, or those that
/// Megatron-LM and its users give them; nothing if one is unknown or there is none.
[[nodiscard]] constexpr std::optional<RecomputedOperations> find_operations(std::string_view list) noexcept {
  using enum LayerOperation;
  constexpr std::array<std::pair<std::string_view, RecomputedOperations>, 8> others{
      {{"core_attn", {attention}},
       {"attn", {attention}},
       {"layernorm", {norm}},
       {"norms", {norm}},
       {"moe_act", {activation}},
       {"activation", {activation}},
       {"feed_forward", {feed_forward}},
       {"experts", {experts}}}};
  return detail::all_of_list(list, [&](std::string_view name) {
    for (int i = 0; i < layer_operations; ++i)
      if (const auto one = static_cast<LayerOperation>(i); name == name_of(one))
        return std::optional(RecomputedOperations{one});
    return detail::value_of(others, name);
  });
}

/// @brief The operations that are run again if only these values of a layer are kept, by the names that
/// MaxText gives them ("query_proj+context"), beside the input of the layer (decoder_layer_input); nothing if
/// a name is unknown.
///
/// Keys and values without queries save no product. What is kept in the host's memory is not run again
/// either.
[[nodiscard]] constexpr std::optional<RecomputedOperations> find_kept(std::string_view list) noexcept {
  using enum LayerOperation;
  constexpr std::array<std::pair<std::string_view, RecomputedOperations>, 11> saved{
      {{"context", {attention}},
       {"query_proj", {qkv_projections, latent_projections}},
       {"qkv_proj", {qkv_projections, latent_projections}},
       {"out_proj", {output_projection}},
       {"mlpwi", {up_projections, experts}},
       {"mlpwi_0", {up_projections, experts}},
       {"mlpwi_1", {}},
       {"mlpwo", {}},
       {"key_proj", {}},
       {"value_proj", {}},
       {"decoder_layer_input", {}}}};
  const std::optional<RecomputedOperations> kept =
      detail::all_of_list(list, [&](std::string_view name) { return detail::value_of(saved, name); });
  if (!kept)
    return {};
  RecomputedOperations again{attention,          norm,          activation,
                             latent_projections, experts,       qkv_projections,
                             output_projection,  up_projections};
  again.remove(*kept);
  return again;
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
  return find_kept(detail::value_of(policies, name).value_or(""));
}

/// @brief Returns whether a policy moves what it keeps to the host's memory.
[[nodiscard]] constexpr bool is_offloading(std::string_view policy) noexcept {
  return policy.ends_with("_offloaded");
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
