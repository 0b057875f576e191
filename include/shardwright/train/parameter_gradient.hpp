// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The gradient of one parameter through a step: the slot of raw gradients, their reduction, the
/// finished sum.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/non_finite_elements.hpp>
#include <shardwright/train/gradient_group.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/reach.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The part that does not depend on the parameter's type.
template <class Target>
class AnyParameterGradient {
public:
  virtual ~AnyParameterGradient() = default;
  [[nodiscard]] virtual const ParameterBase& parameter() const noexcept = 0;

  /// Says that the step has no more passes. Collective as end_pass.
  virtual void end_passes() = 0;
  /// Waits for the reductions, or runs them, and sums over the copies.
  /// @throws LifecycleError where no gradient was accumulated.
  virtual void finish() = 0;
  /// Gives the memory back to the pool; reductions under way are waited for.
  virtual void drop() = 0;

  /// Partial sums that the squares of this rank's elements need.
  [[nodiscard]] virtual std::size_t squares_workspace() const = 0;
  /// Adds the squares of the elements that this rank counts.
  virtual void add_squares(kernels::SquareSum<typename Target::execution_space>& sum) const = 0;

  /// Whether raw gradients are looked at before they are summed with those of other ranks.
  virtual void watch(bool on) noexcept = 0;
  /// Infinite elements and NaN: in this rank's raw gradients of the step, where they were watched, else in what the
  /// reductions left.
  [[nodiscard]] virtual std::int64_t non_finite() const = 0;
};

/// A microbatch adds its raw gradient to a slot and ends with `end_pass`: it is reduced then where the accumulator is
/// sharded, and the sum of all of them with the last one where it is whole. Reductions run in buckets beside the passes
/// (GradientBuckets), in two phases: over the axes of the parameter's `zero`, then over the rest; per element in one
/// order, whatever is sharded.
template <class P>
class ParameterGradient final : public AnyParameterGradient<typename P::target>,
                                private BucketMember<typename P::main_element, typename P::target> {
  using Target = typename P::target;
  using Number = typename P::main_element;
  using Raw = typename P::raw_layout;
  using Reduced = typename P::reduced_layout;
  using RawTensor = typename P::RawTensor;
  using ReducedTensor = ShardedTensor<Reduced, Number, Target>;
  using GradientTensor = typename P::GradientTensor;
  using FirstPhase = Transition<Raw, Reduced>;
  using SecondPhase = Transition<Reduced, typename P::gradient_layout>;

public:
  ParameterGradient(P& parameter, GradientGroup& group)
      : parameter_(parameter), group_(group),
        buckets_(group.buckets<Number, Target>(parameter.resources())) {
    parameter.hold_gradient(this);
  }
  ParameterGradient(const ParameterGradient&) = delete;
  ParameterGradient& operator=(const ParameterGradient&) = delete;
  ~ParameterGradient() override { parameter_.hold_gradient(nullptr); }

  /// Memory to add this microbatch's raw gradient to; the first gradient overwrites.
  /// @throws LifecycleError after the step's last gradient, until drop() opens the next step.
  [[nodiscard]] typename P::Slot slot() {
    if (complete_)
      throw LifecycleError("Parameter " + parameter_.name() + ": the step's gradient is finished, nothing must be added to it (call restart() for the next step)");
    const bool first = !raw_;
    const MemoryFor memory(MemoryKind::gradients);
    if (first)
      raw_.emplace(parameter_.resources(), parameter_.shape());
    return {*raw_, first ? Number(0) : Number(1)};
  }
  /// Adds a raw gradient that was not made in the slot.
  template <AnyShardedTensor G>
  void add(const G& gradient) {
    const typename P::Slot to = slot();
    const auto& execution = gradient.execution();
    if (to.beta == Number(0))
      kernels::copy(execution, gradient.local_matrix(), to.tensor.mutable_local_matrix());
    else
      kernels::add(execution, to.tensor.local_matrix(), gradient.local_matrix(), to.tensor.mutable_local_matrix());
  }

  [[nodiscard]] const ParameterBase& parameter() const noexcept override { return parameter_; }
  void watch(bool on) noexcept override { watched_ = on; }
  [[nodiscard]] std::int64_t non_finite() const override {
    return watched_ ? raw_non_finite_ : non_finite_elements(finished());
  }
  [[nodiscard]] std::size_t squares_workspace() const override {
    return parameter_.counts_once() ? kernels::reduce_workspace(finished().local_size()) : 0;
  }
  void add_squares(kernels::SquareSum<typename Target::execution_space>& sum) const override {
    static_assert(!P::gradient_layout::value.has_partial(), "GradAccumulator: a finished gradient must not be Partial");
    if (parameter_.counts_once())
      sum.add(finished().local_matrix());
  }

  /// Says that a pass has added its raw gradients: a reduction starts where it is due, which runs while the caller goes
  /// on. Collective then, in one order on all ranks of the mesh.
  void end_pass() {
    if (group_.last_pass() && ++contributions_ == parameter_.contributors())
      complete_ = true;
    if (complete_ || P::reduces_each_microbatch)
      reduce_raw();
  }
  void end_passes() override {
    complete_ = true;
    reduce_raw();
  }
  void finish() override {
    end_passes();
    buckets_.finish();
    if (!gradient_)
      throw LifecycleError("Parameter " + parameter_.name() + ": a step must give every parameter a gradient, but this one, made at " + parameter_.where().text() + ", got none (use it in the model, or leave it out of members())");
    if (parameter_.copies().valid() && parameter_.copies().size() > 1)
      sum_over_copies();
  }
  /// @throws LifecycleError before finish().
  [[nodiscard]] const GradientTensor& finished() const {
    if (!gradient_)
      throw LifecycleError("Parameter " + parameter_.name() + ": the gradient is not finished (call finish() of the GradAccumulator first)");
    return *gradient_;
  }
  void drop() override {
    if (under_way_ > 0)
      buckets_.finish();
    gradient_.reset();
    reduced_.reset();
    raw_.reset();
    contributions_ = 0;
    complete_ = false;
    raw_non_finite_ = 0;
  }

private:
  /// Sends the raw gradient on its way, if there is one.
  void reduce_raw() {
    const MemoryFor memory(MemoryKind::gradients);
    if (raw_) {
      if (watched_)
        raw_non_finite_ += non_finite_elements(*raw_);
      // Bind both now: phase two starts inside a bucket's completion.
      reductions_[0].template bind<FirstPhase>(parameter_.resources().core(), parameter_.shape(), Background::reductions);
      reductions_[1].template bind<SecondPhase>(parameter_.resources().core(), parameter_.shape(), Background::reductions);
      ++under_way_;
      send<FirstPhase>(0, *std::exchange(raw_, std::nullopt));
    }
    reduce_rest();
  }
  /// The second phase begins when the step's sum has come out of the first.
  void reduce_rest() {
    if (!complete_ || under_way_ > 0 || !reduced_)
      return;
    ++under_way_;
    send<SecondPhase>(1, *std::exchange(reduced_, std::nullopt));
  }

  template <class Steps, class Tensor>
  void send(int phase, Tensor tensor) {
    BucketCollective& collective = reductions_[static_cast<std::size_t>(phase)];
    if (collective.kind == BucketCollective::Kind::one)
      return buckets_.add(phase, *this, collective, TensorAccess::take_memory(std::move(tensor)));
    auto moved = redistribute<typename Steps::to_layout>(std::move(tensor));
    BufferHandle memory = TensorAccess::take_memory(std::move(moved));
    const auto* const at = static_cast<const Number*>(memory.data());
    take(phase, std::move(memory), at, true);
  }

  void take(int phase, BufferHandle memory, const Number* at, bool alone) override {
    const MemoryFor purpose(MemoryKind::gradients);
    --under_way_;
    if (phase == 1)
      return place(gradient_, std::move(memory), at, alone);
    place(reduced_, std::move(memory), at, alone);
    reduce_rest();
  }

  /// The result of a collective becomes the tensor, or is added to it.
  template <class Tensor>
  void place(std::optional<Tensor>& tensor, BufferHandle memory, const Number* at, bool alone) {
    if (!tensor && alone) {
      tensor.emplace(TensorAccess::in_memory<Tensor>(std::move(memory), parameter_.shape()));
      return;
    }
    const bool first = !tensor;
    if (first)
      tensor.emplace(parameter_.resources(), parameter_.shape());
    const auto& execution = parameter_.resources().execution();
    const VectorView<const Number, Target> from(at, tensor->local_size());
    const VectorView<Number, Target> to(tensor->mutable_data(), tensor->local_size());
    if (first)
      kernels::copy(execution, from, to);
    else
      kernels::add(execution, to, from, to);
  }

  void sum_over_copies() {
    if (!reached_copies_.valid())
      reached_copies_ = reach<Target>(parameter_.resources().core(), parameter_.copies());
    order_call_after<Target>(gradient_->execution());
    reached_copies_.all_reduce_in_place(std::span<Number>(gradient_->mutable_data(), gradient_->local_size()));
  }

  P& parameter_;
  GradientGroup& group_;
  GradientBuckets<Number, Target>& buckets_;
  std::optional<RawTensor> raw_;
  std::optional<ReducedTensor> reduced_;
  std::optional<GradientTensor> gradient_;
  CommunicatorOf<Target> reached_copies_; // those of the parameter, for the memory of gradients
  int contributions_ = 0;
  bool watched_ = false;
  std::int64_t raw_non_finite_ = 0;
  bool complete_ = false;                      // the step's passes are over
  int under_way_ = 0;                          // gradients in buckets
  std::array<BucketCollective, 2> reductions_; // by phase
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail

namespace shardwright::inline SHARDWRIGHT_ABI {

template <LayoutType Compute, LayoutType Raw, class Element, class Zero, class Target>
auto Parameter<Compute, Raw, Element, Zero, Target>::gradient() const -> const GradientTensor& {
  return gradient_state().finished();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
