// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A cache of keys and values: attention of new tokens over all tokens so far, without a gradient.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/nn/attention.hpp>
#include <shardwright/tensor/kernels/attention/cached.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Keys and values of one layer of attention whose input has layout `Qkv`, [batch, sequence, kv_heads,
/// (queries + 1) * head width + value width]: each rank keeps those of its own sequences and heads; no
/// communication.
///
/// Memory: batch * capacity * kv_heads * (head width + value width) elements, split like the heads. On hosts.
template <LayoutType Qkv, class Element = float, class Target = DefaultTarget> class KeyValueCache {
public:
  static_assert(Target::host_accessible,
                "KeyValueCache: its target must be host memory (keep the model there for generation)");
  using Out = ShardedTensor<AttentionLayout<Qkv>, AccumulationElement<Element>, Target>;

  /// @param capacity maximum number of tokens in a sequence
  template <class Mesh>
  KeyValueCache(const Mesh& mesh, std::int64_t batch, std::int64_t capacity, std::int64_t kv_heads,
                HeadShape heads, KeyWindow window = {}, SourceLocation where = SourceLocation::current())
      : heads_(heads), window_(window),
        stored_(mesh, {batch, capacity, kv_heads, heads.width + heads.of_value()}, where) {
    static_cast<void>(detail::WholeSequence<Qkv>::value);
  }

  [[nodiscard]] std::int64_t size() const noexcept { return size_; } ///< Tokens so far, of each sequence.
  [[nodiscard]] std::int64_t capacity() const noexcept { return stored_.shape()[1]; }
  /// @brief Forgets all tokens but the first `size`.
  /// @throws InvalidArgument if there are fewer.
  void truncate(std::int64_t size) {
    if (size < 0 || size > size_)
      throw InvalidArgument("KeyValueCache: it must hold the " + std::to_string(size) +
                            " tokens that are kept, but holds " + std::to_string(size_) + " (keep fewer)");
    size_ = size;
  }

  /// @brief Appends the keys and values of new tokens, and lets their queries attend to all tokens up to
  /// their own. Not collective.
  /// @param qkv the new tokens, rotated by their positions, which start at size()
  /// @return [batch, new tokens, heads * value width]
  /// @throws InvalidArgument beyond the capacity, or if the sequences, the heads or their width are not those
  /// of the cache.
  template <class E>
  [[nodiscard]] Out attend(const ShardedTensor<Qkv, E, Target>& qkv,
                           SourceLocation where = SourceLocation::current()) {
    const auto added = qkv.shape()[1];
    if (size_ + added > capacity())
      detail::reject_operation("KeyValueCache",
                               "the cache must have room for " + std::to_string(size_ + added) +
                                   " tokens, but it has " + std::to_string(capacity()) +
                                   " (make it with a greater capacity)",
                               qkv.core(), where);
    std::vector<kernels::CachedToken> places;
    for (std::int64_t b = 0; b < qkv.local_shape()[0]; ++b)
      for (std::int64_t i = 0; i < added; ++i)
        places.push_back({static_cast<std::size_t>(b), static_cast<std::size_t>(size_ + i)});
    require_like(qkv, stored_.shape()[0], where);
    Out out = attend_at(qkv, places, where);
    size_ += added;
    return out;
  }

  /// @brief The same for tokens of several sequences side by side in one row, without padding between them:
  /// each attends to the tokens of its own sequence. size() does not count them. Each rank must have all
  /// sequences.
  /// @param qkv [1, new tokens, ...], rotated by their positions
  /// @param places of the new tokens; those of a sequence ascend, after the tokens that it has already
  /// @throws InvalidArgument unless each token has a place within the cache.
  template <class E>
  [[nodiscard]] Out attend(const ShardedTensor<Qkv, E, Target>& qkv,
                           std::span<const kernels::CachedToken> places,
                           SourceLocation where = SourceLocation::current()) {
    static_assert(
        Qkv::value.shard(0).empty(),
        "KeyValueCache: tokens of several sequences in one row need all sequences on each rank (do not shard dimension 0, or give each sequence a row of its own)");
    require_like(qkv, 1, where);
    const bool inside = std::all_of(places.begin(), places.end(), [&](const kernels::CachedToken& place) {
      return static_cast<std::int64_t>(place.sequence) < stored_.local_shape()[0] &&
             static_cast<std::int64_t>(place.position) < capacity();
    });
    if (!inside || static_cast<std::int64_t>(places.size()) != qkv.shape()[1])
      detail::reject_operation("KeyValueCache",
                               "each of the " + std::to_string(qkv.shape()[1]) +
                                   " new tokens must have a place in " + std::to_string(stored_.shape()[0]) +
                                   " sequences of " + std::to_string(capacity()) + " tokens, but " +
                                   std::to_string(places.size()) +
                                   " places are given, or one is beyond them (make a greater cache)",
                               qkv.core(), where);
    return attend_at(qkv, places, where);
  }

private:
  template <class E>
  void require_like(const ShardedTensor<Qkv, E, Target>& qkv, std::int64_t sequences, SourceLocation where) {
    if (qkv.shape()[0] == sequences && qkv.shape()[2] == stored_.shape()[2])
      return;
    detail::reject_operation("KeyValueCache",
                             "the new tokens must be of the cache's " + std::to_string(sequences) +
                                 " sequences and " + std::to_string(stored_.shape()[2]) +
                                 " kv_heads, but they are of " + std::to_string(qkv.shape()[0]) + " and " +
                                 std::to_string(qkv.shape()[2]) + " (make a cache of that size)",
                             qkv.core(), where);
  }

  /// Keeps the keys and values of new tokens at their places, and attends to those up to each.
  template <class E>
  [[nodiscard]] Out attend_at(const ShardedTensor<Qkv, E, Target>& qkv,
                              std::span<const kernels::CachedToken> places, SourceLocation where) {
    const kernels::AttentionShape shape = detail::local_attention_shape(qkv, heads_, where);
    const auto row_width = shape.kv_heads * shape.key_value_width();
    const auto rows = static_cast<std::size_t>(capacity());
    for (std::size_t first = 0, end = 0; first < places.size(); first = end) {
      end = first + 1; // of neighbours in the cache
      while (end < places.size() && places[end].sequence == places[first].sequence &&
             places[end].position == places[first].position + (end - first))
        ++end;
      const kernels::AttentionShape run{
          1, end - first, shape.kv_heads, shape.q_per_kv, shape.head_dim, shape.value_dim};
      kernels::pack_key_values(
          qkv.execution(),
          MatrixView<const Element, Target>(qkv.data() + first * shape.qkv_width(), run.tokens(),
                                            shape.qkv_width()),
          MatrixView<Element, Target>(
              stored_.mutable_data() + (places[first].sequence * rows + places[first].position) * row_width,
              run.tokens(), row_width),
          run);
    }
    const auto sequences = static_cast<std::size_t>(stored_.local_shape()[0]);
    Out out(qkv.resources(),
            {qkv.shape()[0], qkv.shape()[1], qkv.shape()[2] * heads_.queries * heads_.of_value()}, where);
    kernels::cached_attention(qkv.execution(), detail::token_rows(qkv),
                              MatrixView<const Element, Target>(stored_.data(), sequences * rows, row_width),
                              out.mutable_local_matrix(), shape, {rows, 0, window_, places.data(), sequences},
                              detail::attention_scale(heads_));
    return out;
  }

  HeadShape heads_;
  KeyWindow window_;
  ShardedTensor<Qkv, Element, Target> stored_;
  std::int64_t size_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
