// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The gradient of one parameter during a step: the sums of what its passes give, in three layouts.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/device_communicator_for.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/ordered/fixed_point_sums.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/non_finite_elements.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/gradient/any_parameter_gradient.hpp>
#include <shardwright/train/gradient/buckets.hpp>
#include <shardwright/train/gradient/pass_position.hpp>
#include <shardwright/train/gradient/squares.hpp>
#include <shardwright/train/parameter_base.hpp>
#include <shardwright/train/step/global_sum.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The numbers as which gradients of FixedPoint or other numbers are summed.
template <class Number>
using SummedNumber = std::conditional_t<std::is_same_v<Number, FixedPoint>, std::int64_t, Number>;

/// A sum of gradients in one layout, which grows in the background.
template <class Number, class Target> class GradientSum final : private BucketMember<Number, Target> {
public:
  /// @param steps to its layout from that of what is added to it
  [[gnu::noinline]] GradientSum(BucketQueue<Number, Target>& queue, TargetResources<Target>& resources,
                                const TransitionSteps& steps, std::span<const std::int64_t> shape,
                                SourceLocation where)
      : queue_(queue), resources_(resources), steps_(steps), shape_(shape), where_(where) {}
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;
  [[gnu::noinline]] ~GradientSum() {} // NOLINT(modernize-use-equals-default)

  /// Prepares its collective, which may have to be added to inside the completion of another one.
  void bind() {
    if (!std::exchange(bound_, true))
      call_ = single_call(resources_.core(), steps_, shape_, where_);
  }
  /// Adds a block, redistributed: in a bucket if that takes one collective, else at once. Collective, in the
  /// same order on all ranks of the mesh.
  void add(BufferHandle block) {
    ++under_way_;
    if (call_)
      return queue_.add(*this, *call_, std::move(block));
    block = memory_after<Number>(resources_, steps_, shape_, std::move(block), where_);
    const auto* const at = static_cast<const Number*>(block.data());
    take(std::move(block), at, true);
  }
  /// Declares that nothing more will be added: `next` gets the sum as soon as it is complete.
  void pass_to(GradientSum& next) {
    next_ = &next;
    pass_on();
  }
  void drop() noexcept {
    memory_ = BufferHandle();
    next_ = nullptr;
  }

  [[nodiscard]] bool under_way() const noexcept { return under_way_ > 0; }
  /// Nothing if nothing has been added.
  [[nodiscard]] const BufferHandle& memory() const noexcept { return memory_; }
  /// Elements of this rank's block of the sum.
  [[nodiscard]] std::size_t elements() const {
    return block_elements(resources_.core(), steps_, *steps_.to, shape_);
  }
  [[nodiscard]] VectorView<Number, Target> block() const {
    return VectorView<Number, Target>(static_cast<Number*>(memory_.data()), elements());
  }

private:
  void take(BufferHandle memory, const Number* at, bool alone) override {
    const MemoryFor purpose(MemoryKind::gradients);
    --under_way_;
    const bool first = !memory_;
    if (first && alone) {
      memory_ = std::move(memory);
      return pass_on();
    }
    if (first)
      memory_ = new_block<Number>(resources_, elements());
    const VectorView<Number, Target> sum = block();
    const VectorView<const Number, Target> from(at, sum.size());
    if (first)
      kernels::copy(resources_.execution(), from, sum);
    else
      kernels::add(resources_.execution(), sum, from, sum);
    pass_on();
  }
  void pass_on() {
    if (next_ != nullptr && under_way_ == 0 && memory_)
      next_->add(std::move(memory_));
  }

  BucketQueue<Number, Target>& queue_;
  TargetResources<Target>& resources_;
  const TransitionSteps& steps_;
  std::span<const std::int64_t> shape_; // of the parameter
  SourceLocation where_;
  std::optional<PreparedCollective> call_; // if the transition is a single collective
  BufferHandle memory_;
  GradientSum* next_ = nullptr;
  int under_way_ = 0; // blocks in buckets
  bool bound_ = false;
};

/// Sums of FixedPoint as floats, each rounded once; a sum out of range sets `fault`.
template <class Target>
[[nodiscard]] BufferHandle rounded(TargetResources<Target>& resources,
                                   const VectorView<std::int64_t, Target>& sum, bool& fault) {
  BufferHandle floats = new_block<float>(resources, sum.size());
  kernels::round_sums(
      resources.execution(),
      VectorView<const FixedPoint, Target>(reinterpret_cast<const FixedPoint*>(sum.data()), sum.size()),
      VectorView<float, Target>(static_cast<float*>(floats.data()), sum.size()), &fault);
  return floats;
}

/// The layouts of a parameter's gradient, and when it changes them.
struct GradientLayouts {
  const TransitionSteps& over_shards; ///< From the raw gradient of a pass, over the axes of `zero`.
  const TransitionSteps& over_rest;   ///< From there to the layout of the optimizer state.
  std::span<const std::int64_t> shape;
  bool each_pass;  ///< Whether the accumulator is sharded, so that each pass is reduced, not their sum.
  Replica replica; ///< Of this rank among all that hold its block.
};

/// The gradient of one parameter. Its passes add to the parameter's raw gradient, this rank's part of a sum;
/// reductions of that run in buckets and overlap with the passes (GradientBuckets). The order of the
/// additions to an element does not depend on the sharding.
/// @tparam Number that of raw gradients; sums of FixedPoint become floats when they are complete
template <class Number, class Target> class ParameterGradient final : public AnyParameterGradient<Target> {
  static constexpr bool in_fixed_point = std::is_same_v<Number, FixedPoint>;
  using Sum = SummedNumber<Number>;
  using Finished = std::conditional_t<in_fixed_point, float, Number>;

public:
  [[gnu::noinline]] ParameterGradient(ParameterBase& parameter, const GradientLayouts& layouts,
                                      TargetResources<Target>& resources,
                                      GradientBuckets<Sum, Target>& buckets)
      : AnyParameterGradient<Target>(parameter), layouts_(layouts), resources_(resources), buckets_(buckets),
        reduced_(buckets.over_shards, resources, layouts.over_shards, layouts.shape, parameter.where()),
        gradient_(buckets.over_rest, resources, layouts.over_rest, layouts.shape, parameter.where()),
        ends_in_pass_(parameter.stages() == 1) {
    if (ends_in_pass_)
      buckets_.expect_gradient();
  }
  [[gnu::noinline]] ~ParameterGradient() override {} // NOLINT(modernize-use-equals-default): one for all

  /// Declares that a pass has added its raw gradient, which has the loss scale of its `origin`. The
  /// reductions that are due are started; they are collective over the mesh.
  /// @throws LifecycleError if another pass of the step had another loss scale.
  void end_pass(PassPosition position, const SumOrigin& origin = {}) {
    this->origin_.join(origin, false);
    this->passes_.push_back(origin.pass.known() ? origin.pass.number : 0);
    if (position == PassPosition::last && ++ended_ == this->owner().stages())
      complete();
    else if (layouts_.each_pass)
      reduce();
  }
  void complete() override {
    if (std::exchange(complete_, true))
      return;
    reduce();
    reduced_.pass_to(gradient_);
    if (ends_in_pass_)
      buckets_.gradient_complete();
  }
  /// Whether the step adds nothing more.
  [[nodiscard]] bool is_complete() const noexcept { return complete_; }
  void wait() override {
    buckets_.finish();
    const ParameterBase& parameter = this->parameter();
    if (!gradient_.memory())
      throw LifecycleError("Parameter " + parameter.name() +
                           ": a step must give every parameter a gradient, but this one" +
                           parameter.where().text_after(", made at ") +
                           ", got none (use it in the model, or leave it out of members())");
  }
  void sum_over_copies() override {
    finished_ = true;
    add_copies();
    if constexpr (in_fixed_point) {
      const MemoryFor memory(MemoryKind::gradients);
      floats_ = rounded<Target>(resources_, gradient_.block(), fault_);
      gradient_.drop();
    }
  }
  void drop() override {
    if (reduced_.under_way() || gradient_.under_way())
      buckets_.finish();
    static_cast<void>(this->owner().take_raw_gradient());
    reduced_.drop();
    gradient_.drop();
    this->origin_ = {};
    this->passes_.clear();
    if (std::exchange(complete_, false) && ends_in_pass_)
      buckets_.expect_gradient();
    finished_ = false;
    ended_ = 0;
    raw_non_finite_ = 0;
    this->raw_hash_ = 0;
    floats_ = BufferHandle();
    fault_ = false;
  }

  /// The memory of the reduced gradient. @throws LifecycleError before finish().
  [[nodiscard]] const BufferHandle& finished() const {
    if (!finished_)
      reject_parameter(this->parameter().name(),
                       ": the gradient is not finished (call finish() of the GradAccumulator first)");
    if constexpr (in_fixed_point)
      return floats_;
    else
      return gradient_.memory();
  }
  /// Where kernels note a term, or a sum, that does not fit FixedPoint, until drop().
  [[nodiscard]] bool& fault() noexcept { return fault_; }
  [[nodiscard]] std::size_t squares_workspace() const override {
    const auto [first, end] = counted();
    return kernels::reduce_workspace(end - first);
  }
  void add_squares(GradientSquares<Target>& sum) const override {
    const auto [first, end] = counted();
    if (first < end)
      sum.add(VectorView<const Finished, Target>(numbers() + first, end - first));
    if constexpr (in_fixed_point)
      if (fault_)
        sum.add_nan();
  }
  [[nodiscard]] const TransitionSteps& raw_transition() const override { return layouts_.over_shards; }
  [[nodiscard]] std::int64_t non_finite() const override {
    if constexpr (in_fixed_point) {
      return fault_ ? -1 : 0;
    } else {
      if (this->watched_)
        return raw_non_finite_;
      return non_finite_elements<Finished, Target>(
          resources_, VectorView<const Finished, Target>(numbers(), gradient_.elements()));
    }
  }

private:
  void add_copies() {
    const HostCommunicator& copies = this->parameter().copies();
    if (!copies.valid() || copies.size() == 1)
      return;
    if (!copies_.valid())
      copies_ = device_communicator_for<Target>(resources_.core(), copies);
    order_call_after<Target>(resources_.execution());
    const auto block = gradient_.block();
    copies_.all_reduce_in_place(std::span<Sum>(block.data(), block.size()));
  }
  /// The reduced gradient.
  [[nodiscard]] const Finished* numbers() const { return static_cast<const Finished*>(finished().data()); }
  /// The first element of the block that this rank counts, and the one after the last: replicas share the
  /// counting of a block, so that none waits for another to do all of it.
  [[nodiscard]] std::pair<std::size_t, std::size_t> counted() const {
    if (!this->parameter().first_copy())
      return {0, 0};
    const auto [number, count] = layouts_.replica;
    const std::size_t elements = gradient_.elements();
    return {kernels::reduce_part(elements, number, count), kernels::reduce_part(elements, number + 1, count)};
  }
  /// Starts the reduction of the raw gradient, if there is one; the next pass begins a new one.
  void reduce() {
    const MemoryFor memory(MemoryKind::gradients);
    BufferHandle raw = this->owner().take_raw_gradient();
    if (!raw)
      return;
    if constexpr (!in_fixed_point)
      if (this->watched_)
        raw_non_finite_ += non_finite_elements<Number, Target>(
            resources_,
            VectorView<const Number, Target>(static_cast<const Number*>(raw.data()),
                                             block_elements(resources_.core(), layouts_.over_shards,
                                                            *layouts_.over_shards.from, layouts_.shape)));
    if constexpr (Target::host_accessible && !counts_only<Target>)
      if (this->hashed_)
        this->add_raw(raw.data(), sizeof(Sum) * block_elements(resources_.core(), layouts_.over_shards,
                                                               *layouts_.over_shards.from, layouts_.shape));
    reduced_.bind();
    gradient_.bind();
    reduced_.add(std::move(raw));
  }

  GradientLayouts layouts_;
  TargetResources<Target>& resources_;
  GradientBuckets<Sum, Target>& buckets_;
  GradientSum<Sum, Target> reduced_;  // over the axes that shard
  GradientSum<Sum, Target> gradient_; // over the rest, too, in the layout of the optimizer state
  CommunicatorOf<Target> copies_;     // the parameter's, for the memory of gradients
  bool ends_in_pass_; // unlike that of a parameter of several stages, whose passes end one after the other
  bool complete_ = false;
  bool finished_ = false;
  int ended_ = 0; // stages whose last pass has ended
  std::int64_t raw_non_finite_ = 0;
  BufferHandle floats_; // the complete sum of FixedPoint
  bool fault_ = false;
};

#if defined(SHARDWRIGHT_COMPILED)
extern template class GradientSum<float, DefaultTarget>;
extern template class ParameterGradient<float, DefaultTarget>;
extern template class GradientSum<double, DefaultTarget>;
extern template class ParameterGradient<double, DefaultTarget>;
extern template class AnyParameterGradient<DefaultTarget>;
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
