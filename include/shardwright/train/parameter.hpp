// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A trained tensor in the layouts of a ZeRO stage: stored, gathered for use, gradient, optimizer
/// state.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/global_sum.hpp>
#include <shardwright/train/gradient_reduction.hpp>

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
/// another one the state holds a master copy of the weights.
///
/// Between start_gather and release there is a `weight()`. A microbatch adds its raw gradient to a slot; with
/// a whole accumulator one transition of the sum follows in a step, started by `end_contribution` or else by
/// `finish_gradient`; with a sharded one each `end_microbatch` reduces.
///
/// A pipeline may hold a parameter twice on a rank (tied tables, one object that two stages add to) and on
/// several meshes (stages of both directions, tied tables): copies, whose gradients are summed and which
/// count once in the norm.
template <LayoutType Compute, LayoutType Raw, class Element = float, class Zero = DataParallel,
          class Target = DefaultTarget>
class Parameter {
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
  using Weight = ShardedTensor<Compute, const Element, Target>;
  using RawTensor = ShardedTensor<Raw, main_element, Target>;
  using ReducedTensor = ShardedTensor<reduced_layout, main_element, Target>;
  using GradientTensor = ShardedTensor<gradient_layout, main_element, Target>;

  /// @brief Whether each microbatch's gradient is reduced, instead of their sum.
  static constexpr bool reduces_each_microbatch = !std::is_same_v<accumulator_layout, Raw>;
  /// @brief Whether there are weights of another element beside the stored ones.
  static constexpr bool has_master = !std::is_same_v<main_element, Element>;

  static_assert(
      !state_layout::value.has_partial(),
      "Parameter: the optimizer state must not be Partial, an unfinished sum (keep it replicated or "
      "sharded)");
  static_assert(!reduces_each_microbatch || std::is_same_v<accumulator_layout, reduced_layout>,
                "Parameter: the accumulator must have the layout of the raw gradient, or that of the "
                "optimizer state as far as the gradient is reduced (use ReducedGradient<Raw, State, axes>)");

  /// @brief Where a raw gradient goes: `tensor = beta * tensor + gradient`.
  struct Slot {
    RawTensor& tensor;
    main_element beta;
  };

  /// @brief What the optimizer keeps; nothing stands for a master where the stored weights are it.
  struct State {
    GradientTensor first_moment;
    GradientTensor second_moment;
    std::optional<GradientTensor> master;
  };

  Parameter(std::string name, Stored stored) : name_(std::move(name)), stored_(std::move(stored)) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// @brief The weights where they are stored.
  [[nodiscard]] const Stored& stored() const noexcept { return stored_; }
  [[nodiscard]] Stored& stored() noexcept { return stored_; }
  /// @brief Whether weight decay applies: to matrices, not to vectors.
  [[nodiscard]] static constexpr bool decays() noexcept { return Compute::tensor_rank > 1; }

  /// @brief Starts to bring the weights to the layout in which they are read; uses may overlap, and each ends
  /// with release(). Collective where they are stored in another one.
  void start_gather() {
    if (uses_++ == 0)
      weight_.emplace(redistribute<Compute>(stored_));
  }
  /// @brief Waits for the weights.
  void finish_gather() {}
  /// @brief Ends a use; with the last one the gathered memory returns to the pool.
  void release() {
    if (--uses_ == 0)
      weight_.reset();
  }
  /// @brief The weights as products read them. @throws LifecycleError where they are not gathered.
  [[nodiscard]] const Weight& weight() const {
    if (!weight_)
      throw LifecycleError("Parameter " + name_ +
                           ": the weights must be gathered before they are read (call start_gather() and "
                           "finish_gather(), and release() after the use)");
    return *weight_;
  }

  /// @brief Memory to add this microbatch's raw gradient to; the first gradient overwrites.
  /// @throws LifecycleError after finish_gradient, until drop_gradient opens the next step.
  [[nodiscard]] Slot gradient_slot() {
    if (gradient_ || reduction_.started()) {
      throw LifecycleError("Parameter " + name_ +
                           ": the step's gradient is finished, nothing must be added to it (call"
                           " restart() for the next step)");
    }
    const bool first = !raw_;
    if (first)
      raw_.emplace(stored_.resources(), stored_.shape());
    return {*raw_, first ? main_element(0) : main_element(1)};
  }

  /// @brief How many stages of this rank add to the gradient; each calls end_contribution once in a step.
  void set_contributors(int stages) noexcept { contributors_ = stages; }
  /// @brief The ranks of other meshes that hold a copy of this rank's block, this rank among them.
  void set_copies(HostCommunicator ranks) { copies_ = std::move(ranks); }
  /// @brief Whether this rank's copy is the one that stands for all.
  [[nodiscard]] bool first_copy() const { return !copies_.valid() || copies_.rank() == 0; }
  /// @brief Whether this rank is the one among all that hold a block whose squares count in the norm.
  [[nodiscard]] bool counts_once() const {
    return first_copy() && detail::counts_once<gradient_layout>(stored_.core());
  }

  /// @brief Says that a microbatch has added all its raw gradients: a sharded accumulator takes them in.
  /// Collective then.
  void end_microbatch() {
    if constexpr (reduces_each_microbatch)
      if (raw_)
        add(redistribute<reduced_layout>(*take_raw()));
  }

  /// @brief Says that one contributor has added its last microbatch; the last of them starts the transition,
  /// which runs while the caller goes on. Collective then, in one order on all ranks of the mesh.
  void end_contribution() {
    if (++contributions_ < contributors_ || (!raw_ && reduced_))
      return;
    reduction_.start(*take_raw());
  }

  /// @brief Ends the reduction of the gradient, or runs all of it, and sums over the copies.
  /// @throws LifecycleError where no gradient was accumulated.
  void finish_gradient() {
    if (reduction_.started())
      add(reduction_.finish());
    else if (raw_ || !reduced_)
      add(redistribute<reduced_layout>(*take_raw()));
    gradient_.emplace(redistribute<gradient_layout>(*std::exchange(reduced_, std::nullopt)));
    contributions_ = 0;
    if (copies_.valid() && copies_.size() > 1)
      sum_over_copies();
  }

  /// @brief The gradient of the summed loss, after finish_gradient. @throws LifecycleError before it.
  [[nodiscard]] const GradientTensor& gradient() const {
    if (!gradient_)
      throw LifecycleError("Parameter " + name_ + ": the gradient is not finished (call finish() first)");
    return *gradient_;
  }
  /// @brief Gives the gradient's memory back to the pool; a transition under way is waited for.
  void drop_gradient() {
    if (reduction_.started())
      static_cast<void>(reduction_.finish());
    gradient_.reset();
    reduced_.reset();
    raw_.reset();
    contributions_ = 0;
  }

  /// @brief The optimizer's state, made by its first step.
  [[nodiscard]] std::optional<State>& state() noexcept { return state_; }

  /// @brief Moments of zero and, where there is one, the master copy of the weights.
  void make_state() {
    state_.emplace(
        State{{stored_.resources(), stored_.shape()}, {stored_.resources(), stored_.shape()}, std::nullopt});
    fill(state_->first_moment, main_element(0));
    fill(state_->second_moment, main_element(0));
    if constexpr (has_master) {
      const auto slice = redistribute<state_layout>(stored_);
      state_->master.emplace(stored_.resources(), stored_.shape());
      kernels::copy(stored_.execution(), slice.local_matrix(), state_->master->mutable_local_matrix());
    }
  }

  /// @brief Calls `change(weights)` with the weights of the optimizer's block, in its element, and brings
  /// them to where they are stored. Collective where that is another layout.
  template <class Change>
  void update_weights(Change change) {
    if constexpr (has_master) {
      change(*state_->master);
      ShardedTensor<state_layout, Element, Target> slice(stored_.resources(), stored_.shape());
      kernels::copy(stored_.execution(), state_->master->local_matrix(), slice.mutable_local_matrix());
      stored_ = redistribute<stored_layout>(std::move(slice));
    } else {
      auto slice = redistribute<state_layout>(std::move(stored_));
      change(slice);
      stored_ = redistribute<stored_layout>(std::move(slice));
    }
  }

private:
  /// The raw gradient, which the parameter is left without.
  [[nodiscard]] std::optional<RawTensor> take_raw() {
    if (!raw_) {
      throw LifecycleError(
          "Parameter " + name_ +
          ": a step must give every parameter a gradient, but this one got none (run its backward pass)");
    }
    return std::exchange(raw_, std::nullopt);
  }

  void add(ReducedTensor gradient) {
    if (!reduced_)
      reduced_.emplace(std::move(gradient));
    else
      kernels::add(gradient.execution(), reduced_->local_matrix(), gradient.local_matrix(),
                   reduced_->mutable_local_matrix());
  }

  void sum_over_copies() {
    if constexpr (Target::host_accessible) {
      detail::wait_for_kernels(gradient_->execution());
      copies_.all_reduce_in_place(
          std::span<main_element>(gradient_->mutable_data(), gradient_->local_size()));
    } else {
      throw InvalidArgument("Parameter " + name_ +
                            ": copies of other stages must lie in host memory, which their communicator "
                            "reaches (use a host target)");
    }
  }

  std::string name_;
  Stored stored_;
  std::optional<Weight> weight_;
  int uses_ = 0;
  std::optional<RawTensor> raw_;
  std::optional<ReducedTensor> reduced_;
  detail::GradientReduction<RawTensor, ReducedTensor> reduction_;
  std::optional<GradientTensor> gradient_;
  std::optional<State> state_;
  HostCommunicator copies_;
  int contributors_ = 1;
  int contributions_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
