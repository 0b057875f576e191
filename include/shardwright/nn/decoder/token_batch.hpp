// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A microbatch of token ids with their targets, and the mask that keeps its documents apart.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/layout/document_order.hpp>
#include <shardwright/nn/attention/mask.hpp>
#include <shardwright/nn/decoder/token_tensor.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/step/batch_origin.hpp>
#include <shardwright/train/step/global_sum.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Ids and targets, [batch, sequence], in the order that attention requires; a negative target does
/// not count.
/// @tparam Mask of attention: CausalMask, or a DocumentsMask if sequences may hold several documents
template <TokenOrder Order, LayoutType L, class Target = DefaultTarget, AttentionMask Mask = CausalMask>
struct TokenBatch {
  using Ids = TokenTensor<Order, L, std::int32_t, Target>;
  typename Ids::Handle ids, targets;
  std::optional<BatchOrigin>
      origin{}; ///< Keys dropout masks; a constant origin would drop the same elements in every step.
  Mask mask{};
  double counted_share =
      1; ///< Of all tokens of the step, those whose targets count; see set_counted_share().

  /// @brief Sequences of the microbatch, on all ranks.
  [[nodiscard]] std::uint64_t sequences() const { return static_cast<std::uint64_t>(ids.shape()[0]); }
  /// @brief Positions of the rows of whole sequences.
  /// @throws InvalidArgument if ids and targets are arranged differently.
  [[nodiscard]] RowOrder row_order() const {
    if (ids.row_order() != targets.row_order())
      throw InvalidArgument(
          "TokenBatch: ids and targets must be in one order, but only one of them, or each by "
          "itself, is arranged (arrange() both by one order_of_documents)");
    return ids.row_order();
  }
};

/// @brief An order of packed documents over a ring of hosts by which each computes about as many query-key
/// pairs (balanced_order); none on one rank, or if nothing is computed. In all-to-all, ranks share the heads,
/// so they are balanced in any order.
/// @param tokens ids or targets, to be given the order by arrange()
/// @param starts of documents, [batch, sequence], as for documents()
/// @throws InvalidArgument if their shape is not that of the tokens, or, where an order is made, no documents
/// have them.
template <LayoutType L, class E, class Target, LayoutType S, class Start>
[[nodiscard]] TextOrder
order_of_documents(const TokenTensor<ZigZagOrder, L, E, Target>& tokens,
                   const ShardedTensor<S, Start, Target>& starts,
                   SourceLocation where = SourceLocation::current()) requires(Target::host_accessible) {
  static_assert(sizeof(detail::StartsLikeBatch<S, DocumentStartsLayout<L>>) != 0);
  detail::require_shape("order_of_documents", "tensor of the starts of documents", starts.shape(),
                        tokens.shape(), tokens.core(), where);
  const int ranks = tokens.positions().ranks();
  if (counts_only<Target> || ranks == 1)
    return {};
  const std::span<const std::int32_t> all(starts.data(), starts.local_size());
  const auto sequence = static_cast<std::size_t>(tokens.shape()[1]);
  std::vector<std::int32_t> out;
  for (std::size_t first = 0; first < all.size(); first += sequence) {
    const std::vector<std::int32_t> order = balanced_order(all.subspan(first, sequence), ranks);
    out.insert(out.end(), order.begin(), order.end());
  }
  return std::make_shared<const std::vector<std::int32_t>>(std::move(out));
}

/// @brief Tells the microbatches of one step which share of its tokens has targets that count.
///
/// Losses of routed tokens, such as balance_loss, then are means over these, and masked prompts do not
/// amplify them. Without it, they are divided by the targets that count, like the loss of tokens. Collective:
/// one all_reduce of two numbers over the mesh of the batch; waits for a device.
template <TokenOrder Order, LayoutType L, class Target, AttentionMask Mask>
void set_counted_share(std::span<TokenBatch<Order, L, Target, Mask>> step) {
  if (step.empty())
    return;
  const detail::MeshCore& core = step.front().targets.core();
  std::array<double, 2> numbers{}; // of tokens, and of those that count
  if (detail::counts_once<L>(core))
    for (const auto& batch : step) {
      numbers[0] += static_cast<double>(batch.targets.local_size());
      if constexpr (!counts_only<Target>) {
        const auto targets = local_values(batch.targets);
        numbers[1] += static_cast<double>(
            std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; }));
      }
    }
  detail::sum_over_ranks(core.world(), numbers);
  for (auto& batch : step)
    batch.counted_share = numbers[0] > 0 ? numbers[1] / numbers[0] : 1;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
