// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A microbatch of token ids with their targets, and the mask that keeps its documents apart.

#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/nn/decoder/token_tensor.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/step/batch_origin.hpp>
#include <shardwright/train/step/global_sum.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

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
  [[nodiscard]] RowOrder row_order() const { return ids.row_order(); }
};

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
