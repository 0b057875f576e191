// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The layouts of a decoder's tensors on a mesh with data, context and tensor parallel axes.

#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/nn/attention/context.hpp>

#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layouts of a tensor-parallel decoder (Shoeybi et al., arXiv 1909.08053), with or without the
/// residual stream sharded over the sequence (Korthikanti et al., arXiv 2205.05198).
///
/// The batch is split over `RowsChoice`, dpr and dp, sequences over cp. Weights are named as products read
/// them; `ZeroChoice` decides how they, their gradients and optimizer state are stored. The layouts determine
/// the collectives, so a layer's code is the same for all choices.
/// @tparam ZeroChoice DataParallel, Zero1, Zero2, Zero3 or a type with their members
/// @tparam ContextChoice the form of context parallelism: AllToAllContext or RingContext
template <bool sequence_parallel, class ZeroChoice = DataParallel, class ContextChoice = AllToAllContext,
          class RowsChoice = Shard<0, axis::dpr, axis::dp>>
struct DecoderLayouts {
  static constexpr bool sharded_sequence = sequence_parallel;
  using Zero = ZeroChoice;
  using Context = ContextChoice;
  using Order = typename Context::Order; ///< Of the tokens along a sequence.

  using Rows = RowsChoice;
  using Ids = Layout<2, Rows, Shard<1, axis::cp>>;    ///< [batch, sequence]
  using Tokens = Layout<3, Rows, Shard<1, axis::cp>>; ///< [batch, sequence, width]
  using Residual =
      std::conditional_t<sequence_parallel, Layout<3, Rows, Shard<1, axis::cp, axis::tp>>, Tokens>;
  /// Input of attention, [batch, sequence, kv_heads, (queries per kv head + 2) * head width].
  using AttentionInput =
      typename Context::template AttentionInput<Layout<4, Rows, Shard<1, axis::cp>, Shard<2, axis::tp>>>;

  using Gain = Layout<1>;                       ///< [width]
  using Table = Layout<2, Shard<0, axis::tp>>;  ///< [vocabulary, width]
  using Head = Table;                           ///< [vocabulary, width], the output table
  using Qkv = Layout<3, Shard<1, axis::tp>>;    ///< [width, kv_heads, (queries per kv head + 2) * head width]
  using Output = Layout<2, Shard<0, axis::tp>>; ///< [heads * head width, width]
  using GateUp = Layout<3, Shard<2, axis::tp>>; ///< [width, 2, hidden]
  using Up = Layout<2, Shard<1, axis::tp>>;     ///< [width, hidden], if the feed-forward part has no gate
  using Down = Layout<2, Shard<0, axis::tp>>;   ///< [hidden, width]
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
