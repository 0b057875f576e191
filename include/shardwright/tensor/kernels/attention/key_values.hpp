// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Copies keys and values between a fused query-key-value buffer and a separate one.

#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// One token per call.
template <class Element, bool accumulate> struct CopyKeyValues {
  KeyValueSpan<const Element> from;
  KeyValueSpan<Element> to;
  AttentionShape shape;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t token) const {
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const Element* source = from.key(token, head);
      Element* target = to.key(token, head);
      if constexpr (accumulate)
        add_lanes(source, target, 0, shape.key_value_width());
      else
        copy_lanes(source, target, 0, shape.key_value_width());
    }
  }
};

template <class Qkv, class KeyValues>
void require_key_values(const char* operation, const AttentionShape& shape, const Qkv& qkv,
                        const KeyValues& key_values) {
  require_qkv(operation, shape, qkv);
  require(key_values.extent(0) == shape.tokens() &&
              key_values.extent(1) == shape.kv_heads * shape.key_value_width(),
          operation, "keys and values must be [batch * sequence, kv_heads * key_value_width].");
}

} // namespace detail

/// @brief Copies the keys and values of a fused buffer of `shape` into [tokens, kv_heads * key_value_width].
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues>
void pack_key_values(const Execution& execution, const Qkv& qkv, const KeyValues& key_values,
                     const AttentionShape& shape) {
  using Element = typename KeyValues::value_type;
  detail::require_key_values("pack_key_values", shape, qkv, key_values);
  moves("sw::pack_kv", execution, key_values, key_values);
  run_lanes("sw::pack_kv", execution, shape.tokens(),
            detail::CopyKeyValues<Element, false>{
                detail::KeyValueSpan<const Element>::fused(span_of(qkv), shape),
                detail::KeyValueSpan<Element>::packed(span_of(key_values), shape), shape});
}

/// @brief Adds `key_values` [tokens, kv_heads * key_value_width] to the keys and values of a fused buffer of
/// `shape`.
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix KeyValues, KernelMatrix Qkv>
void add_key_values(const Execution& execution, const KeyValues& key_values, const Qkv& qkv,
                    const AttentionShape& shape) {
  using Element = typename Qkv::value_type;
  detail::require_key_values("add_key_values", shape, qkv, key_values);
  moves("sw::add_kv", execution, key_values, 2 * key_values.size() * sizeof(Element));
  run_lanes("sw::add_kv", execution, shape.tokens(),
            detail::CopyKeyValues<Element, true>{
                detail::KeyValueSpan<const Element>::packed(span_of(key_values), shape),
                detail::KeyValueSpan<Element>::fused(span_of(qkv), shape), shape});
}

namespace detail {

/// Copies `key_values` [tokens, kv_heads * key_value_width] into the keys and values of a fused buffer
/// of `shape`.
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix KeyValues, KernelMatrix Qkv>
void unpack_key_values(const Execution& execution, const KeyValues& key_values, const Qkv& qkv,
                       const AttentionShape& shape) {
  using Element = typename Qkv::value_type;
  require_key_values("unpack_key_values", shape, qkv, key_values);
  moves("sw::unpack_kv", execution, key_values, key_values);
  run_lanes("sw::unpack_kv", execution, shape.tokens(),
            CopyKeyValues<Element, false>{KeyValueSpan<const Element>::packed(span_of(key_values), shape),
                                          KeyValueSpan<Element>::fused(span_of(qkv), shape), shape});
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
