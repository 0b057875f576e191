// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Weights in the layout in which products read them, while they are in use.

#include <shardwright/comm/pending.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/bucket_collective.hpp>

#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Brings weights from where they are stored to layout `Compute` and holds them until their last use ends.
template <LayoutType Compute, class Stored>
class GatheredWeight {
public:
  using element = typename Stored::element;
  using target = typename Stored::target;
  using Tensor = ShardedTensor<Compute, const element, target>;

  /// Begins a use. The first one starts the gather; collective where the layouts differ.
  /// @param where the line of the program that the weights are of
  void start(const Stored& stored, SourceLocation where) {
    if (uses_++ > 0)
      return;
    const MemoryFor memory(MemoryKind::gathered_weights);
    gather_.bind(stored.core(), transition_steps<Transition<typename Stored::layout, Compute>>,
                 stored.shape(), Background::gathers, where);
    if (gather_.kind != BucketCollective::Kind::one) {
      weight_.emplace(redistribute<Compute>(stored, where));
      return;
    }
    gathered_.emplace(stored.resources(), stored.shape());
    CollectiveCall call = gather_.call;
    call.element = element_type_of<element>();
    call.in = stored.data();
    call.out = gathered_->mutable_data();
    order_call_after<target>(stored.execution());
    arriving_.emplace(gather_.template start<target>(call));
  }
  /// Waits for the weights.
  void finish() {
    if (!arriving_)
      return;
    arriving_->wait();
    arriving_.reset();
    weight_.emplace(TensorAccess::take<Tensor>(*std::move(gathered_)));
    gathered_.reset();
  }
  /// Ends a use; with the last one the gathered memory returns to the pool.
  void release() {
    if (--uses_ > 0)
      return;
    finish();
    weight_.reset();
  }

  [[nodiscard]] bool in_use() const noexcept { return uses_ > 0; }
  /// Nothing where they are not there.
  [[nodiscard]] const std::optional<Tensor>& tensor() const noexcept { return weight_; }

private:
  BucketCollective gather_;
  std::optional<Tensor> weight_;
  std::optional<ShardedTensor<Compute, element, target>> gathered_;
  std::optional<Pending> arriving_; // after the memory that it writes
  int uses_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
