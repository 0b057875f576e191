// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The gradient of one parameter during a step: the slot of raw gradients, their reduction, the
/// reduced sum.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/non_finite_elements.hpp>
#include <shardwright/train/gradient/group.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/pipeline/reach.hpp>
#include <shardwright/train/step/device_loss_scale.hpp>
#include <shardwright/train/step/loss.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The part that does not depend on the parameter's type.
template <class Target> class AnyParameterGradient {
public:
  virtual ~AnyParameterGradient() = default;
  [[nodiscard]] virtual const ParameterBase& parameter() const = 0;

  /// Records the loss scale of a tape whose pass has added to the gradient.
  /// @throws LifecycleError if another pass of the step had another one.
  void note_loss_scale(const LossScaleOn<Target>& scale) { origin_.join({.scale = scale}, false); }
  /// With the loss scale in the gradient, if it comes from a tape.
  [[nodiscard]] const SumOrigin<LossScaleOn<Target>>& origin() const noexcept { return origin_; }

  /// Declares that the step has no more passes. Collective like end_pass.
  virtual void end_passes() = 0;
  /// Waits for the reductions, or performs them.
  /// @throws LifecycleError if no gradient was accumulated.
  virtual void finish_reductions() = 0;
  /// Sums the results over the copies to give the final gradient. Collective over the copies, so it must be
  /// called for all parameters in the same order on all ranks that hold copies, whatever the order of their
  /// models.
  virtual void finish_copies() = 0;
  /// Both, of one parameter.
  void finish() {
    finish_reductions();
    finish_copies();
  }
  /// Returns the memory to the pool, after waiting for pending reductions.
  virtual void drop() = 0;

  /// Partial sums that the squares of this rank's elements need.
  [[nodiscard]] virtual std::size_t squares_workspace() const = 0;
  /// Adds the squares of the elements that this rank counts.
  virtual void add_squares(kernels::SquareSum<typename Target::execution_space>& sum) const = 0;

  /// Whether raw gradients are checked before they are summed with those of other ranks.
  virtual void watch(bool on) noexcept = 0;
  /// Number of non-finite elements: in this rank's raw gradients of the step, if they were watched, else in
  /// the reduced gradient.
  [[nodiscard]] virtual std::int64_t non_finite() const = 0;

protected:
  void forget_origin() noexcept { origin_ = {}; }

private:
  SumOrigin<LossScaleOn<Target>> origin_;
};

/// The reduction of a gradient, independent of its layouts. A pass adds its raw gradient and ends with
/// `end_pass`: the gradient is reduced then if the accumulator is sharded; otherwise the sum of all is
/// reduced with the last one. Reductions run in buckets and overlap with the passes (GradientBuckets), in two
/// phases: over the axes of the parameter's `zero`, then over the rest. The order per element does not depend
/// on the sharding.
template <class Number, class Target>
class GradientReduction : public AnyParameterGradient<Target>, private BucketMember<Number, Target> {
  using Block = MatrixView<const Number, Target>;

public:
  GradientReduction(const GradientReduction&) = delete;
  GradientReduction& operator=(const GradientReduction&) = delete;

  void watch(bool on) noexcept final { watched_ = on; }
  [[nodiscard]] std::int64_t non_finite() const final {
    return watched_ ? raw_non_finite_ : non_finite_elements<Number, Target>(resources_, finished_block());
  }
  [[nodiscard]] std::size_t squares_workspace() const final {
    return counts_once() ? kernels::reduce_workspace(finished_block().size()) : 0;
  }
  void add_squares(kernels::SquareSum<typename Target::execution_space>& sum) const final {
    if (counts_once())
      sum.add(finished_block());
  }

  /// Declares that a pass has added its raw gradients: if a reduction is due, it is started asynchronously.
  /// It is then collective, in the same order on all ranks of the mesh.
  void end_pass() {
    // If several stages add to it, each has its own last pass, and the group is that of one of them.
    if (group_.last_pass() && !this->parameter().completes_with_step())
      complete_ = true;
    if (complete_ || each_pass_)
      reduce_raw();
  }
  void end_passes() final {
    complete_ = true;
    reduce_raw();
  }
  void finish_reductions() final {
    end_passes();
    buckets_.finish();
    const ParameterBase& parameter = this->parameter();
    if (!sums_[1])
      throw LifecycleError("Parameter " + parameter.name() +
                           ": a step must give every parameter a gradient, but this one" +
                           parameter.where().text_after(", made at ") +
                           ", got none (use it in the model, or leave it out of members())");
  }
  void finish_copies() final {
    const HostCommunicator& copies = this->parameter().copies();
    if (copies.valid() && copies.size() > 1)
      sum_over_copies();
    keep(std::move(sums_[1]));
  }
  void drop() final {
    if (under_way_ > 0)
      buckets_.finish();
    let_go();
    this->forget_origin();
    sums_ = {};
    complete_ = false;
    raw_non_finite_ = 0;
  }

protected:
  [[gnu::noinline]] GradientReduction(GradientGroup& group, TargetResources<Target>& resources,
                                      std::span<const std::int64_t> shape, const TransitionSteps& first,
                                      const TransitionSteps& second, bool each_pass)
      : group_(group), buckets_(group.buckets<Number, Target>(resources)), resources_(resources),
        shape_(shape), steps_{&first, &second}, each_pass_(each_pass) {}
  [[gnu::noinline]] ~GradientReduction() override {} // NOLINT(modernize-use-equals-default): one for all

  void lose_parameter() noexcept { group_.lose_model(); }
  /// Whether the step's passes are over.
  [[nodiscard]] bool complete() const noexcept { return complete_; }

private:
  [[nodiscard]] virtual bool counts_once() const = 0;
  [[nodiscard]] virtual bool has_raw() const = 0;
  [[nodiscard]] virtual Block raw_block() const = 0;
  /// Takes its memory; the next pass begins a new one.
  [[nodiscard]] virtual BufferHandle take_raw() = 0;
  /// Takes the memory of the reduced gradient.
  virtual void keep(BufferHandle memory) = 0;
  /// @throws LifecycleError if there is none.
  [[nodiscard]] virtual Block finished_block() const = 0;
  /// Drops both.
  virtual void let_go() = 0;

  /// Starts the reduction of the raw gradient, if there is one.
  void reduce_raw() {
    const MemoryFor memory(MemoryKind::gradients);
    if (has_raw()) {
      if (watched_)
        raw_non_finite_ += non_finite_elements<Number, Target>(resources_, raw_block());
      // Bind both now: phase two starts inside a bucket's completion.
      for (std::size_t phase = 0; phase < 2 && !bound_; ++phase)
        calls_[phase] = single_call(resources_.core(), *steps_[phase], shape_, this->parameter().where());
      bound_ = true;
      ++under_way_;
      send(0, take_raw());
    }
    reduce_rest();
  }
  /// The second phase begins when the first has produced the step's sum.
  void reduce_rest() {
    if (!complete_ || under_way_ > 0 || !sums_[0])
      return;
    ++under_way_;
    send(1, std::move(sums_[0]));
  }

  void send(std::size_t phase, BufferHandle memory) {
    if (calls_[phase])
      return buckets_.add(static_cast<int>(phase), *this, *calls_[phase], std::move(memory));
    memory = memory_after<Number>(resources_, *steps_[phase], shape_, std::move(memory),
                                  this->parameter().where());
    const auto* const at = static_cast<const Number*>(memory.data());
    take(static_cast<int>(phase), std::move(memory), at, true);
  }

  void take(int phase, BufferHandle memory, const Number* at, bool alone) final {
    const MemoryFor purpose(MemoryKind::gradients);
    --under_way_;
    add_to(static_cast<std::size_t>(phase), std::move(memory), at, alone);
    if (phase == 0)
      reduce_rest();
  }

  /// The result of a collective becomes the sum, or is added to it.
  void add_to(std::size_t phase, BufferHandle memory, const Number* at, bool alone) {
    BufferHandle& sum = sums_[phase];
    if (!sum && alone) {
      sum = std::move(memory);
      return;
    }
    const std::size_t count = block_elements(resources_.core(), *steps_[phase], *steps_[phase]->to, shape_);
    const bool first = !sum;
    if (first)
      sum = new_block<Number>(resources_, count);
    const VectorView<const Number, Target> from(at, count);
    const VectorView<Number, Target> to(static_cast<Number*>(sum.data()), count);
    if (first)
      kernels::copy(resources_.execution(), from, to);
    else
      kernels::add(resources_.execution(), to, from, to);
  }

  void sum_over_copies() {
    if (!reached_copies_.valid())
      reached_copies_ = reach<Target>(resources_.core(), this->parameter().copies());
    order_call_after<Target>(resources_.execution());
    const std::size_t count = block_elements(resources_.core(), *steps_[1], *steps_[1]->to, shape_);
    reached_copies_.all_reduce_in_place(std::span<Number>(static_cast<Number*>(sums_[1].data()), count));
  }

  GradientGroup& group_;
  GradientBuckets<Number, Target>& buckets_;
  TargetResources<Target>& resources_;
  std::span<const std::int64_t> shape_;           // of the parameter
  std::array<const TransitionSteps*, 2> steps_;   // by phase
  std::array<std::optional<BoundCall>, 2> calls_; // by phase; for transitions that are a single collective
  std::array<BufferHandle, 2> sums_;              // the results of each
  CommunicatorOf<Target> reached_copies_;         // those of the parameter, for the memory of gradients
  bool each_pass_;
  bool bound_ = false; // the calls, at the first gradient
  bool watched_ = false;
  bool complete_ = false;
  int under_way_ = 0; // gradients in buckets
  std::int64_t raw_non_finite_ = 0;
};

/// The gradient of a parameter, in its layouts.
template <class P>
class ParameterGradient final : public GradientReduction<typename P::main_element, typename P::target>,
                                public GradientOfParameter {
  using Number = typename P::main_element;
  using Target = typename P::target;
  using Block = MatrixView<const Number, Target>;
  using RawTensor = typename P::RawTensor;
  using GradientTensor = typename P::GradientTensor;
  using FirstPhase = Transition<typename P::raw_layout, typename P::reduced_layout>;
  using SecondPhase = Transition<typename P::reduced_layout, typename P::gradient_layout>;
  static_assert(
      !P::gradient_layout::value.has_partial(),
      "GradAccumulator: a reduced gradient must not be Partial (take a gradient layout without Partial)");

public:
  ParameterGradient(P& parameter, GradientGroup& group)
      : GradientReduction<Number, Target>(group, parameter.resources(), parameter.shape(),
                                          transition_steps<FirstPhase>, transition_steps<SecondPhase>,
                                          P::reduces_each_microbatch),
        parameter_(&parameter) {
    parameter.hold_gradient(this);
  }
  ~ParameterGradient() override {
    if (parameter_ != nullptr)
      parameter_->hold_gradient(nullptr);
  }
  void forget_parameter() noexcept override {
    parameter_ = nullptr;
    this->lose_parameter();
  }

  /// Memory to which this microbatch's raw gradient is added; the first gradient overwrites.
  /// @throws LifecycleError after the step's last gradient, until drop() begins the next step.
  [[nodiscard]] typename P::Slot slot() {
    if (this->complete())
      reject_parameter(
          parameter_->name(),
          ": the step's gradient is complete, and nothing may be added to it (call restart() for the next step)");
    const bool first = !raw_.valid();
    const MemoryFor memory(MemoryKind::gradients);
    if (first)
      raw_ = RawTensor(parameter_->resources(), parameter_->shape());
    return {raw_, first ? Number(0) : Number(1)};
  }
  /// Adds a raw gradient that was computed elsewhere.
  template <AnyShardedTensor G> void add(const G& gradient) {
    const typename P::Slot to = slot();
    const auto& execution = gradient.execution();
    if (to.beta == Number(0))
      kernels::copy(execution, gradient.local_matrix(), to.tensor.mutable_local_matrix());
    else
      kernels::add(execution, to.tensor.local_matrix(), gradient.local_matrix(),
                   to.tensor.mutable_local_matrix());
  }

  /// @throws LifecycleError before finish().
  [[nodiscard]] const GradientTensor& finished() const {
    if (!gradient_.valid())
      reject_parameter(parameter_->name(),
                       ": the gradient is not finished (call finish() of the GradAccumulator first)");
    return gradient_;
  }
  [[nodiscard]] const ParameterBase& parameter() const override {
    if (parameter_ == nullptr)
      reject_lost_model();
    return *parameter_;
  }

private:
  [[nodiscard]] bool counts_once() const override { return parameter_->counts_once(); }
  [[nodiscard]] bool has_raw() const override { return raw_.valid(); }
  [[nodiscard]] Block raw_block() const override { return raw_.local_matrix(); }
  [[nodiscard]] BufferHandle take_raw() override { return TensorAccess::take_memory(std::move(raw_)); }
  [[nodiscard]] Block finished_block() const override { return finished().local_matrix(); }
  void keep(BufferHandle memory) override {
    gradient_ = TensorAccess::in_memory<GradientTensor>(std::move(memory), parameter_->shape());
  }
  void let_go() override {
    gradient_ = TensorAccess::nothing<GradientTensor>();
    raw_ = TensorAccess::nothing<RawTensor>();
  }

  P* parameter_;                                                      // null once it is destroyed
  RawTensor raw_ = TensorAccess::nothing<RawTensor>();                // of the microbatches so far
  GradientTensor gradient_ = TensorAccess::nothing<GradientTensor>(); // finished
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail

namespace shardwright::inline SHARDWRIGHT_ABI {

template <LayoutType Compute, LayoutType Raw, class Element, class Zero, class Target>
auto Parameter<Compute, Raw, Element, Zero, Target>::gradient() const -> const GradientTensor& {
  return gradient_state().finished();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
