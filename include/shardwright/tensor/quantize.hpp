// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tensors in 8 or 4 bits: quantize and widen.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/quantized.hpp>
#include <shardwright/tensor/kernels/quantize.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// @param name of a parameter; empty for a tensor that was made at `where`
/// @throws InvalidArgument if a layout would cut a block of elements of this shape.
void require_whole_blocks(const MeshCore& core, const LayoutValue& layout,
                          std::span<const std::string_view> axes, std::span<const std::int64_t> shape,
                          const std::string& name, SourceLocation where);

/// The shape of a tensor's words, if no block is cut.
template <class Form, class L, class Shape> [[nodiscard]] Shape words_shape(Shape shape) {
  static_assert(sizeof(BlocksIn<L>) > 0);
  shape.back() = shape.back() / quantized_block * words_of_block<Form>;
  return shape;
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void require_whole_blocks(const MeshCore& core, const LayoutValue& layout,
                                             std::span<const std::string_view> axes,
                                             std::span<const std::int64_t> shape, const std::string& name,
                                             SourceLocation where) {
  const AxisBinding binding = bind_axes(core, axes);
  std::int64_t ranks = 1;
  for (const int axis : layout.shard(static_cast<int>(shape.size()) - 1))
    ranks *= binding.extents[static_cast<std::size_t>(axis)];
  if (shape.back() % (quantized_block * ranks) != 0)
    throw InvalidArgument(
        "Quantized weights: a rank must hold whole blocks of 64 elements of the last dimension, but " +
        (name.empty() ? "the tensor" + where.text_after(" that was made at ") : name) + " has " +
        std::to_string(shape.back()) + " over " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
        " (make that extent a multiple of " + std::to_string(quantized_block * ranks) +
        ", split it over fewer ranks, or keep these weights whole, with Frozen<Zero>)");
}
#endif

} // namespace detail

/// @brief A tensor in a form of few bits, Int8 or NormalFloat4: words in the same layout, whose last extent
/// is that of the words. Values of double are rounded to float first; a block with an infinity or a NaN
/// becomes NaNs. On hosts; no communication.
/// @throws InvalidArgument if the layout cuts a block of 64 elements of the last dimension.
template <class Form, LayoutType L, class Element, class Target>
[[nodiscard]] ShardedTensor<L, detail::QuantizedWord, Target>
quantize(const ShardedTensor<L, Element, Target>& tensor, SourceLocation where = SourceLocation::current()) {
  detail::require_whole_blocks(tensor.core(), L::value, L::axes, tensor.shape(), {}, where);
  ShardedTensor<L, detail::QuantizedWord, Target> words(tensor.resources(),
                                                        detail::words_shape<Form, L>(tensor.shape()), where);
  kernels::quantize<Form>(tensor.execution(), tensor.data(), words.mutable_data(),
                          tensor.local_size() / std::size_t(detail::quantized_block));
  return words;
}

/// @brief The elements of a tensor in a form of few bits: products in float, rounded to the Element.
template <class Form, class Element, LayoutType L, class Word, class Target>
[[nodiscard]] ShardedTensor<L, Element, Target> widen(const ShardedTensor<L, Word, Target>& words,
                                                      SourceLocation where = SourceLocation::current()) {
  auto shape = words.shape();
  shape.back() = shape.back() / detail::words_of_block<Form> * detail::quantized_block;
  ShardedTensor<L, Element, Target> out(words.resources(), shape, where);
  kernels::widen<Form>(words.execution(), words.data(), out.mutable_data(),
                       out.local_size() / std::size_t(detail::quantized_block));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
