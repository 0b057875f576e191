// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Weights in the layout in which products read them, while they are in use.

#include <shardwright/comm/pending.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/transition/prepared_collective.hpp>
#include <shardwright/train/gradient/background_calls.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A gather of weights that is a single collective, which runs while the program goes on. Compiled for each
/// element type, not for each layout.
template <class Element, class Target> class WeightGather {
public:
  /// Starts it. @return the weights if the transition is not a single collective on this mesh
  [[nodiscard]] BufferHandle start(TargetResources<Target>& resources, const TransitionSteps& table,
                                   std::span<const std::int64_t> shape, const BufferHandle& stored,
                                   SourceLocation where) {
    MeshCore& core = resources.core();
    if (!std::exchange(bound_, true))
      gather_ = single_call(core, table, shape, where);
    if (!gather_)
      return memory_after<Element>(resources, table, shape, stored, where);
    memory_ = new_block<Element>(resources, block_elements(core, table, *table.to, shape));
    const CollectiveCall call = gather_->with(static_cast<const Element*>(stored.data()),
                                              static_cast<Element*>(memory_.data()), where);
    order_call_after<Target>(resources.execution());
    arriving_.emplace(start_background<Target>(core, gather_->mask, Background::gathers, call));
    return {};
  }
  [[nodiscard]] bool arriving() const noexcept { return arriving_.has_value(); }
  /// Waits for the weights.
  [[nodiscard]] BufferHandle finish() {
    arriving_->wait();
    arriving_.reset();
    return std::move(memory_);
  }

private:
  bool bound_ = false;
  std::optional<PreparedCollective> gather_; // nothing if it is not one collective
  BufferHandle memory_;
  std::optional<Pending> arriving_; // after the memory that it writes
};

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
    if constexpr (moves) {
      const MemoryFor memory(MemoryKind::gathered_weights);
      begin_operation(where, stored);
      weight_ = TensorAccess::outline<Tensor>(stored.core(), stored.shape());
      TensorAccess::put_memory(weight_,
                               gather_.start(stored.resources(),
                                             transition_steps<Transition<typename Stored::layout, Compute>>,
                                             weight_.shape(), TensorAccess::buffer(stored), where));
    } else {
      weight_ = stored.share();
    }
  }
  /// Waits for the weights.
  void finish() {
    if constexpr (moves)
      if (gather_.arriving())
        TensorAccess::put_memory(weight_, gather_.finish());
  }
  /// Ends a use; with the last one the gathered memory returns to the pool.
  void release() {
    if (--uses_ > 0)
      return;
    finish();
    TensorAccess::put_memory(weight_, BufferHandle());
  }

  [[nodiscard]] bool in_use() const noexcept { return uses_ > 0; }
  /// Invalid if they are not gathered.
  [[nodiscard]] const Tensor& tensor() const noexcept { return weight_; }

private:
  Tensor weight_ = TensorAccess::nothing<Tensor>();
  WeightGather<element, target> gather_;
  int uses_ = 0;
};

#if defined(SHARDWRIGHT_COMPILED)
extern template class WeightGather<float, DefaultTarget>;
extern template class WeightGather<double, DefaultTarget>;
extern template class WeightGather<bfloat16, DefaultTarget>;
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
