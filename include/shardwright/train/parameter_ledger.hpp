// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory of a Parameter through a training step, counted from its layouts.

#include <shardwright/train/bucket_ledger.hpp>
#include <shardwright/train/tensor_ledger.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes that one element of a rank's share of a parameter takes for good, and for a step.
struct ModelStateBytes {
  std::int64_t stored = 0;
  std::int64_t accumulator = 0; ///< The gradient between microbatches.
  std::int64_t moments = 0;
  std::int64_t master = 0;

  [[nodiscard]] constexpr std::int64_t total() const noexcept {
    return stored + accumulator + moments + master;
  }
  constexpr ModelStateBytes& operator+=(const ModelStateBytes& other) noexcept {
    stored += other.stored;
    accumulator += other.accumulator;
    moments += other.moments;
    master += other.master;
    return *this;
  }
};

/// @brief Model state of a parameter of type `P` (train/parameter.hpp) and global `shape` on one rank.
///
/// Gradients and moments have the main element, which is float where weights are bfloat16 or float16: with N
/// data ranks and Adam 18 bytes per parameter for plain data parallelism, 6 + 12 / N for ZeRO-1, 2 + 16 / N
/// for ZeRO-2 and 18 / N for ZeRO-3, where gradients of two bytes would give 16, 4 + 12 / N, 2 + 14 / N and
/// 16 / N (Rajbhandari et al., arXiv 1910.02054, section 3).
template <class P, std::size_t rank>
[[nodiscard]] constexpr ModelStateBytes model_state_bytes(const MeshPlace& place,
                                                          const std::array<std::int64_t, rank>& shape) {
  const auto bytes = [](std::int64_t elements, std::size_t each) {
    return elements * static_cast<std::int64_t>(each);
  };
  const std::int64_t state = place.template elements<typename P::state_layout>(shape);
  return {.stored =
              bytes(place.template elements<typename P::stored_layout>(shape), sizeof(typename P::element)),
          .accumulator = bytes(place.template elements<typename P::accumulator_layout>(shape),
                               sizeof(typename P::main_element)),
          .moments = bytes(2 * state, sizeof(typename P::main_element)),
          .master = P::has_master ? bytes(state, sizeof(typename P::main_element)) : 0};
}

/// @brief A parameter's blocks in the order in which Parameter takes and returns them.
template <class P, std::size_t rank>
class ParameterLedger final : detail::BucketLedger::Member {
  using Block = MemoryLedger::Block;
  using Main = typename P::main_element;
  using Raw = typename P::raw_layout;
  using Reduced = typename P::reduced_layout;

public:
  ParameterLedger(TensorLedger& tensors, const std::array<std::int64_t, rank>& shape)
      : tensors_(&tensors), shape_(shape),
        stored_(
            tensors.tensor<typename P::stored_layout, typename P::element>(MemoryKind::parameters, shape)) {}
  ParameterLedger(const ParameterLedger&) = delete;
  ParameterLedger& operator=(const ParameterLedger&) = delete;
  ~ParameterLedger() = default;

  void start_gather() {
    if (uses_++ == 0)
      weight_ =
          tensors_->redistributed_copy<typename P::stored_layout, typename P::compute_layout,
                                       typename P::element>(MemoryKind::gathered_weights, stored_, shape_);
  }
  void finish_gather() {}
  void release() {
    if (--uses_ == 0)
      weight_ = {};
  }
  void gradient_slot() {
    if (!raw_)
      raw_ = tensors_->tensor<Raw, Main>(MemoryKind::gradients, shape_);
  }
  void set_buckets(detail::BucketLedger& buckets) { buckets_ = &buckets; }
  void set_contributors(int stages) { contributors_ = stages; }
  void end_pass(bool last) {
    if (last && ++contributions_ == contributors_)
      complete_ = true;
    if (complete_ || P::reduces_each_microbatch)
      reduce_raw();
  }
  void end_passes() {
    complete_ = true;
    reduce_raw();
  }
  void finish_gradient() {
    end_passes();
    buckets_->finish();
  }
  void make_state() {
    if (first_moment_)
      return;
    const auto state = [&](MemoryKind kind) {
      return tensors_->tensor<typename P::state_layout, Main>(kind, shape_);
    };
    first_moment_ = state(MemoryKind::optimizer_state);
    second_moment_ = state(MemoryKind::optimizer_state);
    if constexpr (P::has_master)
      master_ = state(MemoryKind::master_weights);
  }
  void update_weights() {
    using Stored = typename P::stored_layout;
    using State = typename P::state_layout;
    using Element = typename P::element;
    Block slice = P::has_master ? tensors_->tensor<State, Element>(MemoryKind::parameters, shape_)
                                : tensors_->redistributed<Stored, State, Element>(
                                      MemoryKind::parameters, std::exchange(stored_, {}), shape_);
    stored_ =
        tensors_->redistributed<State, Stored, Element>(MemoryKind::parameters, std::move(slice), shape_);
  }
  void drop_gradient() {
    gradient_ = {};
    contributions_ = 0;
    complete_ = false;
  }

  /// @brief Elements of this rank's block of the finished gradient.
  [[nodiscard]] std::size_t gradient_elements() const {
    return static_cast<std::size_t>(tensors_->place().template elements<typename P::gradient_layout>(shape_));
  }

private:
  void reduce_raw() {
    if (raw_) {
      ++under_way_;
      send<Raw, Reduced>(0, std::exchange(raw_, {}));
    }
    reduce_rest();
  }
  void reduce_rest() {
    if (!complete_ || under_way_ > 0 || !reduced_)
      return;
    ++under_way_;
    send<Reduced, typename P::gradient_layout>(1, std::exchange(reduced_, {}));
  }
  template <class From, class To>
  void send(int phase, Block block) {
    const LedgerMove move = tensors_->move<From, To, Main>(shape_);
    if (move.one())
      return buckets_->add(phase, *this, move, std::move(block));
    take(phase, tensors_->redistributed<From, To, Main>(MemoryKind::gradients, std::move(block), shape_),
         true);
  }
  void take(int phase, Block memory, bool alone) override {
    --under_way_;
    Block& tensor = phase == 1 ? gradient_ : reduced_;
    if (!tensor)
      tensor = alone ? std::move(memory)
               : phase == 1
                   ? tensors_->tensor<typename P::gradient_layout, Main>(MemoryKind::gradients, shape_)
                   : tensors_->tensor<Reduced, Main>(MemoryKind::gradients, shape_);
    memory = {};
    if (phase == 0)
      reduce_rest();
  }

  TensorLedger* tensors_;
  std::array<std::int64_t, rank> shape_;
  Block stored_, weight_, raw_, reduced_, gradient_, first_moment_, second_moment_, master_;
  detail::BucketLedger* buckets_ = nullptr;
  int uses_ = 0;
  int contributors_ = 1;
  int contributions_ = 0;
  int under_way_ = 0;
  bool complete_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
