// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Weights in the layout in which products read them, while they are in use.

#include <shardwright/comm/pending.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/transition/prepared_collective.hpp>
#include <shardwright/train/gradient/background_calls.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Weights in layout `Compute` until their last use ends: the stored ones if that is their layout, else
/// redistributed.
template <LayoutType Compute, class Stored> class WeightInUse {
  static constexpr bool moves = !std::is_same_v<Compute, typename Stored::layout>;

public:
  using element = typename Stored::element;
  using target = typename Stored::target;
  using Tensor = ShardedTensor<Compute, const element, target>;

  /// Begins a use. The first one starts the gather; collective if the layouts differ.
  /// @param where the source line of the weights
  void start(const Stored& stored, [[maybe_unused]] SourceLocation where) {
    if (uses_++ > 0)
      return;
    if constexpr (moves)
      start_gather(stored, where);
    else
      weight_ = stored.share();
  }
  /// Waits for the weights.
  void finish() {
    if constexpr (moves)
      if (arriving_) {
        arriving_->wait();
        arriving_.reset();
        weight_ = TensorAccess::take<Tensor>(std::move(gathered_));
      }
  }
  /// Ends a use; with the last one the gathered memory returns to the pool.
  void release() {
    if (--uses_ > 0)
      return;
    finish();
    weight_ = TensorAccess::nothing<Tensor>();
  }

  [[nodiscard]] bool in_use() const noexcept { return uses_ > 0; }
  /// Invalid if they are not gathered.
  [[nodiscard]] const Tensor& tensor() const noexcept { return weight_; }

private:
  using Gathered = ShardedTensor<Compute, element, target>;

  void start_gather(const Stored& stored, SourceLocation where) {
    const MemoryFor memory(MemoryKind::gathered_weights);
    if (!std::exchange(bound_, true))
      gather_ = single_call(stored.core(), transition_steps<Transition<typename Stored::layout, Compute>>,
                            stored.shape(), where);
    if (!gather_) {
      weight_ = redistribute<Compute>(stored, where);
      return;
    }
    gathered_ = Gathered(stored.resources(), stored.shape());
    const CollectiveCall call = gather_->with(stored.data(), gathered_.mutable_data(), where);
    order_call_after<target>(stored.execution());
    arriving_.emplace(start_background<target>(stored.core(), gather_->mask, Background::gathers, call));
  }

  bool bound_ = false;
  std::optional<PreparedCollective> gather_; // nothing if it is not one collective
  Tensor weight_ = TensorAccess::nothing<Tensor>();
  Gathered gathered_ = TensorAccess::nothing<Gathered>();
  std::optional<Pending> arriving_; // after the memory that it writes
  int uses_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
