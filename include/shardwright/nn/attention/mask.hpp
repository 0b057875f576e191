// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention masks on sharded tensors: hiding keys beyond the length of their sequence, and the masks
/// that a target supports.

#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <LayoutType Qkv> struct BatchOf {
  static constexpr LayoutValue value = [] {
    LayoutValue layout{1, {}, {}, {}};
    layout.shard(0) = Qkv::value.shard(0);
    return layout;
  }();
};

} // namespace detail

/// @brief Layout of the key lengths, [batch], from that of attention's input: sharded like its dimension 0.
template <LayoutType Qkv>
using KeyLengthsLayout = detail::LayoutOf<typename Qkv::axis_list, detail::BatchOf<Qkv>>;

/// @brief A mask that also hides keys beyond the length of their sequence from every query.
///
/// For a query that sees no key, result and gradient are zero. For hosts. It holds a read-only handle to the
/// lengths, which must not be written before the last gradient.
template <AttentionMask Mask, LayoutType L, class Target> class PaddedMask {
public:
  static constexpr KeyWindow window = Mask::window;
  using lengths_layout = L;
  using Lengths = ShardedTensor<L, const std::int32_t, Target>;

  explicit PaddedMask(Lengths lengths) : lengths_(std::move(lengths)) {}
  [[nodiscard]] const Lengths& lengths() const noexcept { return lengths_; }

private:
  Lengths lengths_;
};

/// @brief `mask` without keys beyond the length of their sequence.
/// @param lengths int32 [batch], each from 0 to the sequence length, in KeyLengthsLayout
template <AttentionMask Mask, LayoutType L, class E, class Target>
[[nodiscard]] PaddedMask<Mask, L, Target> padded(Mask, const ShardedTensor<L, E, Target>& lengths) {
  constexpr bool counts = std::is_same_v<std::remove_const_t<E>, std::int32_t>;
  static_assert(counts, "padded: the key lengths must be int32 (convert them first)");
  if constexpr (counts)
    return PaddedMask<Mask, L, Target>(lengths.share());
}

namespace detail {

template <class Mask> inline constexpr bool is_padded = false;
template <class Mask, class L, class Target>
inline constexpr bool is_padded<PaddedMask<Mask, L, Target>> = true;

/// The trace shows the mask and the target.
template <class Mask, class Target> struct MaskOnTarget {
  static_assert(
      Target::host_accessible || (!is_padded<Mask> && kernels::KeyMask{Mask::window}.has_causal_form()),
      "attention: on a device the mask must be causal or full, without key lengths (take sw::causal or sw::full, or attend in host memory)");
};

template <class Lengths, class Wanted> struct LengthsLikeBatch {
  static_assert(
      std::is_same_v<Lengths, Wanted>,
      "attention: the key lengths must be sharded like dimension 0 of the input (make them in its KeyLengthsLayout)");
};

/// The mask for this rank's block of `qkv`.
/// @throws InvalidArgument if the lengths do not match its sequences.
template <AttentionMask Mask, LayoutType L, class E, class Target>
[[nodiscard]] kernels::KeyMask key_mask(const Mask& mask, const ShardedTensor<L, E, Target>& qkv,
                                        SourceLocation where) {
  static_assert(sizeof(MaskOnTarget<Mask, Target>) != 0);
  kernels::KeyMask out{Mask::window};
  if constexpr (is_padded<Mask> && Target::host_accessible) {
    static_assert(sizeof(LengthsLikeBatch<typename Mask::lengths_layout, KeyLengthsLayout<L>>) != 0);
    require_one_mesh("attention", qkv, mask.lengths(), where);
    require_shape("attention", "tensor of key lengths", mask.lengths().shape(), {qkv.shape()[0]}, qkv.core(),
                  where);
    if constexpr (counts_only<Target>)
      return out; // a dry run has no lengths in memory
    out.lengths = mask.lengths().data();
    for (std::size_t i = 0; i < mask.lengths().local_size(); ++i)
      if (out.lengths[i] < 0 || out.lengths[i] > qkv.shape()[1])
        reject_operation("attention",
                         "key lengths must be from 0 to the sequence of " + std::to_string(qkv.shape()[1]) +
                             ", but one is " + std::to_string(out.lengths[i]) +
                             " (count the tokens of each sequence before its padding)",
                         qkv.core(), where);
  }
  return out;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
