// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention masks on sharded tensors: hiding keys beyond the length of their sequence, keeping packed
/// documents apart, and the masks that a target supports.

#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/layout/document_order.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <LayoutType Qkv, int rank> struct BatchOf {
  static constexpr LayoutValue value = [] {
    LayoutValue layout{rank, {}, {}, {}};
    layout.shard(0) = Qkv::value.shard(0);
    return layout;
  }();
};

} // namespace detail

/// @brief Layout of the key lengths, [batch], from that of attention's input: sharded like its dimension 0.
template <LayoutType Qkv>
using KeyLengthsLayout = detail::LayoutOf<typename Qkv::axis_list, detail::BatchOf<Qkv, 1>>;

/// @brief Layout of the starts of documents, [batch, sequence], from that of attention's input: sharded like
/// its dimension 0, every position of a sequence on all ranks that share it.
template <LayoutType Qkv>
using DocumentStartsLayout = detail::LayoutOf<typename Qkv::axis_list, detail::BatchOf<Qkv, 2>>;

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
  static_assert(std::is_empty_v<Mask>,
                "padded: the mask must have no lengths or documents (make the padding a document)");
  if constexpr (counts)
    return PaddedMask<Mask, L, Target>(lengths.share());
}

/// @brief A mask under which a token attends only to tokens of its own document, of the several that share a
/// sequence.
///
/// Results and gradients are those of each document in a sequence of its own. It holds a read-only handle to
/// the starts, in the memory of the target, which must not be written before the last gradient; without one,
/// each sequence is one document.
template <AttentionMask Mask, LayoutType L, class Target> class DocumentsMask {
public:
  static constexpr KeyWindow window = Mask::window;
  using starts_layout = L;
  using Starts = ShardedTensor<L, const std::int32_t, Target>;

  DocumentsMask() = default;
  explicit DocumentsMask(Starts starts) : starts_(std::move(starts)) {}
  [[nodiscard]] const std::optional<Starts>& starts() const noexcept { return starts_; }

private:
  std::optional<Starts> starts_;
};

/// @brief `mask` within documents.
/// @param starts int32 [batch, sequence], the first position of each token's document, in
/// DocumentStartsLayout; see fill_document_starts
template <AttentionMask Mask, LayoutType L, class E, class Target>
[[nodiscard]] DocumentsMask<Mask, L, Target> documents(Mask, const ShardedTensor<L, E, Target>& starts) {
  constexpr bool counts = std::is_same_v<std::remove_const_t<E>, std::int32_t>;
  static_assert(counts, "documents: the starts must be int32 (convert them first)");
  static_assert(std::is_empty_v<Mask>,
                "documents: the mask must have no lengths or documents (make the padding a document)");
  if constexpr (counts)
    return DocumentsMask<Mask, L, Target>(starts.share());
}

/// @brief Writes the starts of one sequence: documents of these lengths one after the other, and one of the
/// tokens after them, such as padding.
/// @throws InvalidArgument for a negative length, or if the documents are longer than the sequence.
inline void fill_document_starts(std::span<const std::int32_t> lengths, std::span<std::int32_t> starts) {
  std::size_t at = 0;
  const auto write_document = [&](std::size_t length) {
    const std::size_t begin = at;
    for (; at < begin + length; ++at)
      starts[at] = static_cast<std::int32_t>(begin);
  };
  for (const std::int32_t length : lengths) {
    if (length < 0 || static_cast<std::size_t>(length) > starts.size() - at)
      throw InvalidArgument("fill_document_starts: the lengths must be from 0 on, and together at most the " +
                            std::to_string(starts.size()) + " tokens of the sequence, but after " +
                            std::to_string(at) + " tokens comes a document of " + std::to_string(length) +
                            " (cut it, or begin another sequence)");
    write_document(static_cast<std::size_t>(length));
  }
  write_document(starts.size() - at);
}

namespace detail {

template <class Mask> inline constexpr bool is_padded = false;
template <class Mask, class L, class Target>
inline constexpr bool is_padded<PaddedMask<Mask, L, Target>> = true;
template <class Mask> inline constexpr bool has_documents = false;
template <class Mask, class L, class Target>
inline constexpr bool has_documents<DocumentsMask<Mask, L, Target>> = true;

/// The trace shows the mask and the target.
template <class Mask, class Target> struct MaskOnTarget {
  static_assert(
      Target::host_accessible || !is_padded<Mask>,
      "attention: on a device the mask must have no key lengths (make the padding of a sequence a document, or attend in host memory)");
};

template <class Lengths, class Wanted> struct LengthsLikeBatch {
  static_assert(
      std::is_same_v<Lengths, Wanted>,
      "attention: the key lengths must be sharded like dimension 0 of the input (make them in its KeyLengthsLayout)");
};

template <class Starts, class Wanted> struct StartsLikeBatch {
  static_assert(
      std::is_same_v<Starts, Wanted>,
      "attention: the starts of documents must be sharded like dimension 0 of the input, with whole sequences (make them in its DocumentStartsLayout)");
};

/// Rejects starts of a rank's sequences that no documents have.
/// @param all the elements of `starts` in host memory
template <class Starts>
void require_document_starts(const Starts& starts, const std::int32_t* all, SourceLocation where) {
  const auto sequence = static_cast<std::size_t>(starts.shape()[1]);
  for (std::size_t begin = 0; begin < starts.local_size(); begin += sequence)
    if (const std::string wrong = wrong_document_start({all + begin, sequence}); !wrong.empty())
      reject_operation("attention", wrong, starts.core(), where);
}

/// The mask for this rank's block of `qkv`. Starts in a device's memory are not read: see
/// attention_after_rotary.
/// @param text the position of each place of its sequences, or null
/// @throws InvalidArgument if lengths or documents do not match its sequences.
template <AttentionMask Mask, LayoutType L, class E, class Target>
[[nodiscard]] kernels::KeyMask key_mask(const Mask& mask, const ShardedTensor<L, E, Target>& qkv,
                                        const std::int32_t* text, SourceLocation where) {
  static_assert(sizeof(MaskOnTarget<Mask, Target>) != 0);
  kernels::KeyMask out{Mask::window};
  const auto positions = static_cast<std::size_t>(qkv.shape()[1]);
  out.text = text;
  out.positions = text == nullptr ? 0 : positions;
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
  if constexpr (has_documents<Mask>) {
    static_assert(sizeof(StartsLikeBatch<typename Mask::starts_layout, DocumentStartsLayout<L>>) != 0);
    if (!mask.starts())
      return out;
    require_one_mesh("attention", qkv, *mask.starts(), where);
    require_shape("attention", "tensor of the starts of documents", mask.starts()->shape(),
                  {qkv.shape()[0], qkv.shape()[1]}, qkv.core(), where);
    out.positions = positions;
    if constexpr (counts_only<Target>)
      return out;
    if constexpr (Target::host_accessible)
      require_document_starts(*mask.starts(), mask.starts()->data(), where);
    out.starts = mask.starts()->data();
  }
  return out;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
