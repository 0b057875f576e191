// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Where a decoder's tensors live on a mesh with data and tensor parallel axes.

#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/layout.hpp>

#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layouts of a tensor-parallel decoder (Shoeybi et al., arXiv 1909.08053), with or without the
/// residual stream sharded over the sequence (Korthikanti et al., arXiv 2205.05198).
///
/// Sequences are split over dp. The layouts alone choose the collectives: a layer's code is the same for
/// both.
template <bool sequence_parallel>
struct DecoderLayouts {
  static constexpr bool sharded_sequence = sequence_parallel;

  using Ids = Layout<2, Shard<0, axis::dp>>;    ///< [batch, sequence]
  using Tokens = Layout<3, Shard<0, axis::dp>>; ///< [batch, sequence, width]
  using Residual =
      std::conditional_t<sequence_parallel, Layout<3, Shard<0, axis::dp>, Shard<1, axis::tp>>, Tokens>;

  using Gain = Layout<1>;                       ///< [width]
  using Table = Layout<2, Shard<0, axis::tp>>;  ///< [vocabulary, width]
  using Head = Table;                           ///< [vocabulary, width], the output table
  using Qkv = Layout<3, Shard<1, axis::tp>>;    ///< [width, kv_heads, (queries per kv head + 2) * head width]
  using Output = Layout<2, Shard<0, axis::tp>>; ///< [heads * head width, width]
  using GateUp = Layout<3, Shard<2, axis::tp>>; ///< [width, 2, hidden]
  using Down = Layout<2, Shard<0, axis::tp>>;   ///< [hidden, width]
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
