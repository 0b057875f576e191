// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Weights in the layout in which products read them, while they are in use.

#include <shardwright/comm/pending.hpp>
#include <shardwright/mesh/prepared_collective.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Redistributes weights from their stored layout to layout `Compute` and holds them until their last use
/// ends.
template <LayoutType Compute, class Stored> class GatheredWeight {
public:
  using element = typename Stored::element;
  using target = typename Stored::target;
  using Tensor = ShardedTensor<Compute, const element, target>;

  /// Begins a use. The first one starts the gather; collective if the layouts differ.
  /// @param where the source line of the weights
  void start(const Stored& stored, SourceLocation where) {
    if (uses_++ > 0)
      return;
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
    arriving_.emplace(
        stored.core().template start_background<target>(gather_->mask, Background::gathers, call));
  }
  /// Waits for the weights.
  void finish() {
    if (!arriving_)
      return;
    arriving_->wait();
    arriving_.reset();
    weight_ = TensorAccess::take<Tensor>(std::move(gathered_));
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

  bool bound_ = false;
  std::optional<PreparedCollective> gather_; // nothing if it is not one collective
  Tensor weight_ = TensorAccess::nothing<Tensor>();
  Gathered gathered_ = TensorAccess::nothing<Gathered>();
  std::optional<Pending> arriving_; // after the memory that it writes
  int uses_ = 0;
};

/// Weights that are read in the layout in which they are stored, so nothing moves.
template <class Stored> class StoredWeight {
public:
  using Tensor =
      ShardedTensor<typename Stored::layout, const typename Stored::element, typename Stored::target>;

  void start(const Stored& stored, SourceLocation) {
    if (uses_++ == 0)
      weight_ = stored.share();
  }
  static constexpr void finish() noexcept {}
  void release() {
    if (--uses_ == 0)
      weight_ = TensorAccess::nothing<Tensor>();
  }

  [[nodiscard]] bool in_use() const noexcept { return uses_ > 0; }
  [[nodiscard]] const Tensor& tensor() const noexcept { return weight_; }

private:
  Tensor weight_ = TensorAccess::nothing<Tensor>();
  int uses_ = 0;
};

template <class Compute, class Stored>
using WeightInUse = std::conditional_t<std::is_same_v<Compute, typename Stored::layout>, StoredWeight<Stored>,
                                       GatheredWeight<Compute, Stored>>;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
