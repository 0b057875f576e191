// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention of new tokens over the keys and values of all tokens so far, on a host.

#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cmath>
#include <cstddef>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief A new token's place in a cache of several sequences.
struct CachedToken {
  std::size_t sequence = 0;
  std::size_t position = 0;
};

/// @brief The rows of each sequence's keys and values, and the position of the new tokens among them.
struct CachedTokens {
  std::size_t capacity = 0; ///< Rows of each sequence in the buffer of keys and values.
  std::size_t first = 0;    ///< Position, and row, of the first new token.
  KeyWindow window{};       ///< The keys that a query sees; none after its own.
  /// Of each new token, if they are of several sequences side by side; `first` then does not count.
  const CachedToken* places = nullptr;
  std::size_t sequences = 0; ///< Sequences in the buffer, if there are places.
};

namespace detail {

/// One query of one head per call. It processes the keys in blocks, and rescales its sums whenever a block
/// has a larger score (Milakov and Gimelshein 2018, arXiv 1805.02867).
template <class Element> struct CachedAttention {
  using Number = AccumulationElement<Element>;
  static constexpr std::size_t keys_at_once = 64;
  MatrixSpan<const Element> qkv;
  KeyValueSpan<const Element> key_values;
  MatrixSpan<Number> out;
  AttentionShape shape;
  CachedTokens tokens;
  Number scale;

  void operator()(std::size_t call) const {
    const std::size_t token = call / shape.heads(), head = call % shape.heads();
    const std::size_t kv_head = head / shape.q_per_kv, d = shape.head_dim, v = shape.value_width();
    const CachedToken place = tokens.places == nullptr
                                  ? CachedToken{token / shape.sequence, tokens.first + token % shape.sequence}
                                  : tokens.places[token];
    const std::size_t position = place.position;
    const std::size_t base = place.sequence * tokens.capacity;
    const Element* const query = qkv.row(token) + kv_head * shape.group_width() + head % shape.q_per_kv * d;
    Number* const to = out.row(token) + head * v;
    for (std::size_t c = 0; c < v; ++c)
      to[c] = Number(0);
    Number best = std::numeric_limits<Number>::lowest(), total(0);
    for (std::size_t first = tokens.window.first_key(position); first <= position; first += keys_at_once) {
      const std::size_t left = position + 1 - first, count = left < keys_at_once ? left : keys_at_once;
      Number scores[keys_at_once];
      Number greatest = best;
      for (std::size_t j = 0; j < count; ++j) {
        scores[j] = scale * dot_lanes(query, key_values.key(base + first + j, kv_head), d);
        greatest = scores[j] > greatest ? scores[j] : greatest;
      }
      const Number kept = total == Number(0) ? Number(0) : std::exp(best - greatest);
      total *= kept;
      for (std::size_t c = 0; c < v; ++c)
        to[c] *= kept;
      for (std::size_t j = 0; j < count; ++j) {
        const Number weight = std::exp(scores[j] - greatest);
        total += weight;
        add_scaled(to, weight, key_values.key(base + first + j, kv_head) + d, v);
      }
      best = greatest;
    }
    const Number share = Number(1) / total;
    for (std::size_t c = 0; c < v; ++c)
      to[c] *= share;
  }

private:
  static void add_scaled(Number* to, Number factor, const Element* from, std::size_t count) {
    for_chunks<Number>(0, count, [=](auto chunk, std::size_t i) {
      chunk.store(to + i, chunk.load(to + i) + chunk.load(from + i) * factor);
    });
  }
};

} // namespace detail

/// @brief out = softmax(scale Q K') V of the new tokens of each sequence over the keys up to their own.
///
/// Cost: 2 key_value_width operations for each pair of a query and a key that it sees; no workspace.
/// @param qkv         fused buffer of `shape`, the new tokens
/// @param key_values  [batch * capacity, kv_heads * key_value_width], including those of the new tokens
/// @param out         AccumulationElement [batch * sequence, output_width]
/// @throws InvalidArgument for other shapes, and for tokens beyond the capacity.
template <class Execution, KernelMatrix Qkv, KernelMatrix KeyValues, KernelMatrix Out>
void cached_attention(const Execution& execution, const Qkv& qkv, const KeyValues& key_values, const Out& out,
                      const AttentionShape& shape, const CachedTokens& tokens, double scale) {
  using Element = typename Qkv::non_const_value_type;
  static_assert(runs_on_host<Execution>, "cached_attention: it must run on a host (use attention_forward)");
  constexpr const char* operation = "cached_attention";
  detail::require_qkv(operation, shape, qkv);
  detail::require_output(operation, shape, out);
  const std::size_t sequences = tokens.places == nullptr ? shape.batch : tokens.sequences;
  require(key_values.extent(0) == sequences * tokens.capacity &&
              key_values.extent(1) == shape.kv_heads * shape.key_value_width(),
          operation, "keys and values must be [batch * capacity, kv_heads * key_value_width].");
  require(tokens.places != nullptr || tokens.first + shape.sequence <= tokens.capacity, operation,
          "the new tokens must fit within the capacity.");
  run("sw::cached_attn", execution, shape.tokens() * shape.heads(),
      detail::CachedAttention<Element>{
          span_of(qkv), detail::KeyValueSpan<const Element>::packed(span_of(key_values), shape), span_of(out),
          shape, tokens, static_cast<AccumulationElement<Element>>(scale)});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
