// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A trained tensor in the layouts of a ZeRO stage: stored, gathered for use, gradient, optimizer
/// state.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/non_finite_elements.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/bucket_collective.hpp>
#include <shardwright/train/gathered_weight.hpp>
#include <shardwright/train/global_sum.hpp>
#include <shardwright/train/gradient_buckets.hpp>
#include <shardwright/train/reach.hpp>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A parameter that products read in layout `Compute` and whose gradient propagation gives in layout
/// `Raw`, such as Partial<Sum, dp>.
///
/// `Zero` (layout/zero.hpp) says where it is stored, where its gradient is accumulated and where its
/// optimizer state lies; every transition follows from the types. Weights, as stored and as read, have
/// `Element`; gradients, their sums and the optimizer state have MainElement<Element>, and where that is
/// another one there is a master copy of the weights beside the optimizer state.
///
/// Between start_gather and release there is a `weight()`. A microbatch adds its raw gradient to a slot and
/// ends with `end_pass`: it is reduced then where the accumulator is sharded, and the sum of all of them with
/// the last one where it is whole. Reductions run in buckets beside the passes (GradientBuckets), in two
/// phases: over the axes of `Zero`, then over the rest; per element in one order, whatever is sharded.
///
/// A pipeline may hold a parameter twice on a rank (tied tables, one object that two stages add to) and on
/// several meshes (stages of both directions, tied tables): copies, whose gradients are summed and which
/// count once in the norm.
template <LayoutType Compute, LayoutType Raw, class Element = float, class Zero = DataParallel,
          class Target = DefaultTarget>
class Parameter final : private detail::BucketMember<MainElement<Element>, Target> {
public:
  using element = Element;
  using main_element = MainElement<Element>;
  using target = Target;
  using zero = Zero;
  using compute_layout = Compute;
  using raw_layout = Raw;
  using stored_layout = typename Zero::template Stored<Compute>;
  using accumulator_layout = typename Zero::template Accumulator<Compute, Raw>;
  using state_layout = typename Zero::template State<Compute>;
  /// @brief A finished gradient lies where the optimizer state does.
  using gradient_layout = state_layout;
  /// @brief A gradient that is reduced over the axes that shard.
  using reduced_layout = ReducedGradient<Raw, state_layout, typename Zero::axes>;

  using Stored = ShardedTensor<stored_layout, Element, Target>;
  using Weight = typename detail::GatheredWeight<Compute, Stored>::Tensor;
  using RawTensor = ShardedTensor<Raw, main_element, Target>;
  using ReducedTensor = ShardedTensor<reduced_layout, main_element, Target>;
  using GradientTensor = ShardedTensor<gradient_layout, main_element, Target>;
  using Buckets = GradientBuckets<main_element, Target>;

  /// @brief Whether each microbatch's gradient is reduced, instead of their sum.
  static constexpr bool reduces_each_microbatch = !std::is_same_v<accumulator_layout, Raw>;
  /// @brief Whether there are weights of another element beside the stored ones.
  static constexpr bool has_master = !std::is_same_v<main_element, Element>;

  static_assert(
      !state_layout::value.has_partial(),
      "Parameter: the optimizer state must not be Partial, an unfinished sum (keep it replicated or sharded)");
  static_assert(
      !reduces_each_microbatch || std::is_same_v<accumulator_layout, reduced_layout>,
      "Parameter: the accumulator must have the layout of the raw gradient, or that of the optimizer state as far as the gradient is reduced (use ReducedGradient<Raw, State, axes>)");

  /// @brief Where a raw gradient goes: `tensor = beta * tensor + gradient`.
  struct Slot {
    RawTensor& tensor;
    main_element beta;
  };

  /// @brief What the optimizer keeps.
  struct State {
    GradientTensor first_moment;
    GradientTensor second_moment;
  };

  /// @param weights in the main element; where the stored weights are of another one they are these rounded,
  /// and the optimizer's block of them is kept as its master copy
  Parameter(std::string name, ShardedTensor<stored_layout, main_element, Target> weights)
      : name_(std::move(name)), master_(master_of(weights)), stored_(convert<Element>(std::move(weights))) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// @brief The weights where they are stored.
  [[nodiscard]] const Stored& stored() const noexcept { return stored_; }
  [[nodiscard]] Stored& stored() noexcept { return stored_; }
  /// @brief The optimizer's block of the weights in the element of gradients; nothing where the stored
  /// weights have that element.
  [[nodiscard]] const std::optional<GradientTensor>& master() const noexcept { return master_; }
  /// @brief Whether weight decay applies: to matrices, not to vectors.
  [[nodiscard]] static constexpr bool decays() noexcept { return Compute::tensor_rank > 1; }

  /// @brief Starts to bring the weights to the layout in which they are read, beside what the caller does;
  /// uses may overlap, and each ends with release(). Collective where they are stored in another one.
  void start_gather() { weight_.start(stored_); }
  /// @brief Waits for the weights.
  void finish_gather() { weight_.finish(); }
  /// @brief Ends a use; with the last one the gathered memory returns to the pool.
  void release() { weight_.release(); }
  /// @brief The weights as products read them. @throws LifecycleError where they are not gathered.
  [[nodiscard]] const Weight& weight() const {
    if (!weight_.tensor())
      throw LifecycleError(
          "Parameter " + name_ +
          ": the weights must be gathered before they are read (call start_gather() and finish_gather(), and release() after the use)");
    return *weight_.tensor();
  }

  /// @brief Memory to add this microbatch's raw gradient to; the first gradient overwrites.
  /// @throws LifecycleError after the step's last gradient, until drop_gradient opens the next step.
  [[nodiscard]] Slot gradient_slot() {
    if (complete_) {
      throw LifecycleError(
          "Parameter " + name_ +
          ": the step's gradient is finished, nothing must be added to it (call restart() for the next step)");
    }
    const bool first = !raw_;
    if (first)
      raw_.emplace(stored_.resources(), stored_.shape());
    return {*raw_, first ? main_element(0) : main_element(1)};
  }

  /// @brief Adds a raw gradient that was not made in the slot.
  template <AnyShardedTensor G>
  void add_gradient(const G& gradient) {
    constexpr bool raw = std::is_same_v<typename G::layout, Raw>;
    static_assert(
        raw,
        "Parameter: a gradient must be reduced once, but this one is not Partial where the raw gradient is (add what propagation gives, before any redistribute)");
    if constexpr (raw) {
      const Slot slot = gradient_slot();
      if (slot.beta == main_element(0))
        kernels::copy(stored_.execution(), gradient.local_matrix(), slot.tensor.mutable_local_matrix());
      else
        kernels::add(stored_.execution(), slot.tensor.local_matrix(), gradient.local_matrix(),
                     slot.tensor.mutable_local_matrix());
    }
  }
  /// @brief Whether raw gradients are looked at before they are summed with those of other ranks.
  void watch(bool on) noexcept { watched_ = on; }
  [[nodiscard]] bool watched() const noexcept { return watched_; }
  /// @brief Infinite elements and NaN in this rank's raw gradients of the step, where they were watched.
  [[nodiscard]] std::int64_t raw_non_finite() const noexcept { return raw_non_finite_; }

  /// @brief The buckets in which its gradients are reduced; they must outlive the steps. Without, each
  /// parameter has its own.
  void set_buckets(std::shared_ptr<Buckets> buckets) { buckets_ = std::move(buckets); }
  /// @brief How many stages of this rank add to the gradient; each gives a last pass once in a step.
  void set_contributors(int stages) noexcept { contributors_ = stages; }
  /// @brief The ranks of other meshes that hold a copy of this rank's block, this rank among them.
  void set_copies(HostCommunicator ranks) {
    copies_ = std::move(ranks);
    reached_copies_ = {};
  }
  /// @brief Those ranks; without a group where there are none.
  [[nodiscard]] const HostCommunicator& copies() const noexcept { return copies_; }
  /// @brief Whether this rank's copy is the one that stands for all.
  [[nodiscard]] bool first_copy() const { return !copies_.valid() || copies_.rank() == 0; }
  /// @brief Whether this rank is the one among all that hold a block whose squares count in the norm.
  [[nodiscard]] bool counts_once() const {
    return first_copy() && detail::counts_once<gradient_layout>(stored_.core());
  }

  /// @brief Says that a pass has added its raw gradients: a reduction starts where it is due, which runs
  /// while the caller goes on. Collective then, in one order on all ranks of the mesh.
  /// @param last whether no pass of this stage follows in the step
  void end_pass(bool last) {
    if (last && ++contributions_ == contributors_)
      complete_ = true;
    if (complete_ || reduces_each_microbatch)
      reduce_raw();
  }

  /// @brief Says that the step has no more passes. Collective as end_pass.
  void end_passes() {
    complete_ = true;
    reduce_raw();
  }

  /// @brief Waits for the reductions, or runs them, and sums over the copies.
  /// @throws LifecycleError where no gradient was accumulated.
  void finish_gradient() {
    end_passes();
    buckets().finish();
    if (!gradient_) {
      throw LifecycleError(
          "Parameter " + name_ +
          ": a step must give every parameter a gradient, but this one got none (run its backward pass)");
    }
    if (copies_.valid() && copies_.size() > 1)
      sum_over_copies();
  }

  /// @brief The gradient of the summed loss, after finish_gradient. @throws LifecycleError before it.
  [[nodiscard]] const GradientTensor& gradient() const {
    if (!gradient_)
      throw LifecycleError("Parameter " + name_ + ": the gradient is not finished (call finish() first)");
    return *gradient_;
  }
  /// @brief Gives the gradient's memory back to the pool; reductions under way are waited for.
  void drop_gradient() {
    if (under_way_ > 0)
      buckets().finish();
    gradient_.reset();
    reduced_.reset();
    raw_.reset();
    contributions_ = 0;
    complete_ = false;
    raw_non_finite_ = 0;
  }

  /// @brief The optimizer's state, made by its first step.
  [[nodiscard]] std::optional<State>& state() noexcept { return state_; }

  /// @brief Moments of zero.
  void make_state() {
    state_.emplace(State{{stored_.resources(), stored_.shape()}, {stored_.resources(), stored_.shape()}});
    fill(state_->first_moment, main_element(0));
    fill(state_->second_moment, main_element(0));
  }

  /// @brief The weights of the optimizer's block where an update in place is all that there is to do, but for
  /// the stored weights, which must become the same rounded where they are of another element.
  struct InPlace {
    main_element* weights;
    Element* rounded; ///< Null where the weights are the stored ones.
  };
  /// @brief That place on a device; nothing where an update needs a transition, for which update_weights is.
  /// @throws LifecycleError while the weights are gathered.
  [[nodiscard]] std::optional<InPlace> in_place() {
    static_assert(!Target::host_accessible);
    require_released();
    if (!detail::bind_transition<Transition<state_layout, stored_layout>>(stored_.core()).trivial())
      return std::nullopt;
    if constexpr (has_master)
      return InPlace{master_->mutable_data(), stored_.mutable_data()};
    else
      return InPlace{stored_.mutable_data(), nullptr};
  }

  /// @brief Calls `change(weights)` with the weights of the optimizer's block, in its element, and brings
  /// them to where they are stored; on a device, into the memory that they have, where captured kernels find
  /// them in every step. Collective where that is another layout.
  /// @throws LifecycleError while the weights are gathered.
  template <class Change>
  void update_weights(Change change) {
    require_released();
    if constexpr (has_master) {
      change(*master_);
      if constexpr (Target::host_accessible)
        stored_ = redistribute<stored_layout>(convert<Element>(*master_));
      else
        redistribute_into(convert<Element>(*master_), stored_);
    } else if constexpr (!Target::host_accessible) {
      ShardedTensor<state_layout, Element, Target> slice(stored_.resources(), stored_.shape());
      redistribute_into(stored_, slice);
      change(slice);
      redistribute_into(slice, stored_);
    } else {
      auto slice = redistribute<state_layout>(std::move(stored_));
      change(slice);
      stored_ = redistribute<stored_layout>(std::move(slice));
    }
  }

private:
  using Master = std::optional<GradientTensor>;
  using FirstPhase = Transition<Raw, reduced_layout>;
  using SecondPhase = Transition<reduced_layout, gradient_layout>;

  [[nodiscard]] Buckets& buckets() {
    if (!buckets_)
      buckets_ = std::make_shared<Buckets>(stored_.resources());
    return *buckets_;
  }

  [[nodiscard]] static Master master_of(const ShardedTensor<stored_layout, main_element, Target>& weights) {
    if constexpr (has_master)
      return redistribute<state_layout>(weights.clone());
    else
      return std::nullopt;
  }

  void require_released() const {
    if (weight_.in_use())
      throw LifecycleError(
          "Parameter " + name_ +
          ": the weights must not be updated while they are gathered (release() them first)");
  }

  /// Sends the raw gradient on its way, if there is one.
  void reduce_raw() {
    if (raw_) {
      if (watched_)
        raw_non_finite_ += detail::non_finite_elements(*raw_);
      // Both at once: the second phase begins when a bucket happens to be back.
      reductions_[0].template bind<FirstPhase>(stored_.core(), stored_.shape(),
                                               detail::Background::reductions);
      reductions_[1].template bind<SecondPhase>(stored_.core(), stored_.shape(),
                                                detail::Background::reductions);
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
    detail::BucketCollective& collective = reductions_[static_cast<std::size_t>(phase)];
    if (collective.kind == detail::BucketCollective::Kind::one)
      return buckets().add(phase, *this, collective, detail::TensorAccess::take_memory(std::move(tensor)));
    auto moved = redistribute<typename Steps::to_layout>(std::move(tensor));
    detail::BufferHandle memory = detail::TensorAccess::take_memory(std::move(moved));
    const auto* const at = static_cast<const main_element*>(memory.data());
    take(phase, std::move(memory), at, true);
  }

  void take(int phase, detail::BufferHandle memory, const main_element* at, bool alone) override {
    --under_way_;
    if (phase == 1)
      return place(gradient_, std::move(memory), at, alone);
    place(reduced_, std::move(memory), at, alone);
    reduce_rest();
  }

  /// The result of a collective becomes the tensor, or is added to it.
  template <class Tensor>
  void place(std::optional<Tensor>& tensor, detail::BufferHandle memory, const main_element* at, bool alone) {
    if (!tensor && alone) {
      tensor.emplace(detail::TensorAccess::in_memory<Tensor>(std::move(memory), stored_.shape()));
      return;
    }
    const bool first = !tensor;
    if (first)
      tensor.emplace(stored_.resources(), stored_.shape());
    const VectorView<const main_element, Target> from(at, tensor->local_size());
    const VectorView<main_element, Target> to(tensor->mutable_data(), tensor->local_size());
    if (first)
      kernels::copy(stored_.execution(), from, to);
    else
      kernels::add(stored_.execution(), to, from, to);
  }

  void sum_over_copies() {
    if (!reached_copies_.valid())
      reached_copies_ = detail::reach<Target>(stored_.core(), copies_);
    detail::order_call_after<Target>(gradient_->execution());
    reached_copies_.all_reduce_in_place(
        std::span<main_element>(gradient_->mutable_data(), gradient_->local_size()));
  }

  std::string name_;
  Master master_;
  Stored stored_;
  detail::GatheredWeight<Compute, Stored> weight_;
  std::optional<RawTensor> raw_;
  std::optional<ReducedTensor> reduced_;
  std::optional<GradientTensor> gradient_;
  std::optional<State> state_;
  HostCommunicator copies_;
  CommunicatorOf<Target> reached_copies_; // the same, for the memory of gradients
  int contributors_ = 1;
  int contributions_ = 0;
  bool watched_ = false;
  std::int64_t raw_non_finite_ = 0;
  bool complete_ = false;                              // the step's passes are over
  int under_way_ = 0;                                  // gradients in buckets
  std::array<detail::BucketCollective, 2> reductions_; // by phase
  std::shared_ptr<Buckets> buckets_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
