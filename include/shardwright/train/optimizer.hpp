// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of the optimizers: applies an elementwise rule to a model's parameters, with
/// clipping by the global norm fused into the update.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/optimizer/update.hpp>
#include <shardwright/tensor/kernels/parts.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/train/gradient/parameter_gradient.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/agreement.hpp>
#include <shardwright/train/optimizer/states.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/step/record.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Factor that reduces a gradient of norm `norm` to `max_norm`: max_norm / (norm + 1e-6) if that is
/// below 1. A `max_norm` of 0 does not clip.
[[nodiscard]] SHARDWRIGHT_FUNCTION inline double clip_coefficient(double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return max_norm > 0 && coefficient < 1.0 ? coefficient : 1.0;
}

namespace detail {

/// Begins an optimizer step from the results of a finished step, with clipping.
template <class Open> struct OpenClippedStep {
  using functor = Open;
  Open open;
  const GradientSummary* step;
  double max_norm;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    open.open(step->take, step->scale.clipped(clip_coefficient(step->gradient_norm, max_norm)).factor());
  }
};

/// Begins the update of a parameter, which counts its own steps, at the rate of the optimizer's step.
template <class Open> struct OpenParameterStep {
  OpenClippedStep<Open> clipped;
  const kernels::OptimizerStep* of_all;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    if (!kernels::first_lane())
      return;
    clipped.open.to->learning_rate = of_all->learning_rate * clipped.open.to->rate_factor;
    clipped(i);
  }
};

/// Updates of parameters with elements of one kind.
template <class Rule, class Execution, class Element>
using UpdatesOf =
    kernels::OptimizerLaunches<Execution, typename Rule::template Update<AccumulationElement<Element>>,
                               Element>;

/// The updates of a model's parameters, launched together if the model names their `element`.
template <class Rule, class Model, class Execution> struct UpdatesTogether {
  explicit UpdatesTogether(const Execution&) {}
  void launch() {}
};
template <class Rule, class Model, class Execution>
requires requires { typename Model::element; }
struct UpdatesTogether<Rule, Model, Execution> : UpdatesOf<Rule, Execution, typename Model::element> {
  explicit UpdatesTogether(const Execution& execution)
      : UpdatesOf<Rule, Execution, typename Model::element>(Rule::label, execution) {}
};

/// Checks that a gradient can be used in an update, with an error sentence if not.
template <class P, class L> struct CompleteGradient : TrainedParameter<P> {
  static constexpr bool complete = !L::value.has_partial();
  static constexpr bool fits = std::is_same_v<L, typename P::state_layout>;
  static_assert(
      complete,
      "Optimizer: the gradient must not be Partial, an incomplete sum (finish() the GradAccumulator, or redistribute it to the parameter's gradient_layout)");
  static_assert(
      !complete || fits,
      "Optimizer: the optimizer state must have the layout of the gradient (redistribute the gradient to the parameter's gradient_layout, or choose the Zero type that shards both alike)");
  static constexpr bool value = P::trained && complete && fits;
};

/// An optimizer with a rule that treats all elements of a parameter alike.
///
/// `Rule` has `name`, `label`, `Options` with `weight_decay`, `max_norm` and `groups`, `state_names`, and
/// static functions: `kept(options)`, how many states it needs; `numbers(options)`, those besides `max_norm`
/// that all ranks must give alike; `update_of(options, parameter, gradient, states)`, a functor of elements
/// with `set_step`, of type `Update<Element>`; and `open(options, step)`, the functor that begins a step.
/// Steps are counted for each parameter, since not every call of step() has to be for the whole model.
template <class Rule> class Optimizer {
public:
  using Options = typename Rule::Options;
  using Step = kernels::OptimizerStep;

  explicit Optimizer(Options options = {}) : options_(std::move(options)) {}

  /// @brief Updates every trained parameter of the model from its reduced gradient. Collective if parameters
  /// are stored in another layout than their optimizer state (ZeRO-1, ZeRO-2): the updated blocks are
  /// gathered. A batch without tokens is skipped, and does not count as a step.
  template <ParameterSet Model>
  void step(Model& model, const GradientSummary& summary, double learning_rate,
            SourceLocation where = SourceLocation::current()) {
    if (summary.tokens == 0)
      return;
    agree_on_step(model, learning_rate, summary.scale.factor(), where);
    const Step constants = begin(
        summary.scale.clipped(clip_coefficient(summary.gradient_norm, options_.max_norm)), learning_rate);
    for_each_trained_parameter(model,
                               [&](auto& parameter) { update(parameter, parameter.gradient(), constants); });
  }

  /// @brief The same on a device.
  template <ParameterSet Model, class Target>
  void step(Model& model, const DeviceSummary<Target>& summary, double learning_rate,
            SourceLocation where = SourceLocation::current()) {
    agree_on_step(model, learning_rate, 1, where);
    set_learning_rate(summary.resources(), learning_rate);
    step(model, summary);
  }
  /// @brief The same at the rate of set_learning_rate; all of its work can be captured.
  template <ParameterSet Model, class Target> void step(Model& model, const DeviceSummary<Target>& summary) {
    if (!device_step_)
      throw LifecycleError(
          std::string(Rule::name) +
          ": a step on a device must know its learning rate (call set_learning_rate before step, or pass the rate to step)");
    const auto open = Rule::open(options_, device_step());
    using Opens = OpenClippedStep<std::remove_const_t<decltype(open)>>;
    run_once("sw::open_step", summary.execution(), Opens{open, summary.record(), options_.max_norm});
    kernels::PartLauncher<typename Target::execution_space, OpenParameterStep<typename Opens::functor>> opens(
        "sw::open_steps", summary.execution());
    for_each_trained_parameter(model, [&](auto& parameter) {
      auto* const own = device_step_of(state_of(parameter), parameter.resources());
      opens.add({{Rule::open(options_, own), summary.record(), options_.max_norm}, device_step()}, 1);
    });
    opens.launch();
    UpdatesTogether<Rule, Model, typename Target::execution_space> together(summary.execution());
    for_each_trained_parameter(model, [&](auto& parameter) { update_on_device(parameter, together); });
    together.launch();
  }
  /// @brief Sets the rate of the next step on a device, in stream order.
  template <class Target, class Mesh> void set_learning_rate(const Mesh& mesh, double learning_rate) {
    set_learning_rate(mesh.core().template resources<Target>(), learning_rate);
  }
  /// @brief The same with the pool and instance of a tensor.
  template <class Target> void set_learning_rate(TargetResources<Target>& resources, double learning_rate) {
    if (!device_step_) {
      device_step_ = BufferHandle(resources.take(sizeof(kernels::OptimizerStep)));
      store_step(resources, device_step_, steps_);
    }
    run_once("sw::rate", resources.execution(),
             kernels::StoreValue<double>{&device_step()->learning_rate, learning_rate});
    if (std::exchange(factors_changed_, false))
      states_.for_each([&](State& state) {
        if (state.device_step)
          run_once("sw::rate_factor", resources.execution(),
                   kernels::StoreValue<double>{&step_at(state.device_step)->rate_factor,
                                               state.learning_rate_factor});
      });
  }
  /// @brief Changes the learning_rate_factor of a group from the next step on, the same on all ranks; on a
  /// device from the next set_learning_rate, also of steps that are replayed. It is part of a
  /// training's progress, which checkpoints restore.
  /// @param group index in the options' groups
  /// @throws InvalidArgument if there is no such group.
  void set_factor(std::size_t group, double learning_rate_factor) {
    if (group >= options_.groups.size())
      throw InvalidArgument(std::string(Rule::name) + ": set_factor must name one of its " +
                            std::to_string(options_.groups.size()) +
                            " groups, numbered from 0, but it names " + std::to_string(group) +
                            " (add the group to the options)");
    options_.groups[group].learning_rate_factor = factors_[group] = learning_rate_factor;
    states_.for_each([&](State& state) {
      if (state.group == group)
        state.learning_rate_factor = learning_rate_factor;
    });
    factors_changed_ = true;
  }

  /// @brief The factors of groups that set_factor has changed.
  [[nodiscard]] const std::map<std::size_t, double>& factors() const noexcept { return factors_; }

  /// @brief Updates one parameter; its gradient must be reduced to the layout of the optimizer state.
  /// @param constants from begin()
  template <class P, AnyShardedTensor G> void update(P& parameter, const G& gradient, Step constants) {
    if constexpr (CompleteGradient<P, typename G::layout>::value) {
      auto& state = state_of(parameter);
      state.steps = state.steps.value_or(first_steps_) + 1;
      parameter.update_weights([&](auto& weights) {
        update_block<typename P::accumulation_element, typename P::target>(
            weights.resources(), weights.mutable_data(), gradient.data(), weights.local_size(), state,
            constants);
      });
    }
  }

  /// @brief Begins the next step: returns the constants for update(), which numbers a parameter's step
  /// itself.
  [[nodiscard]] Step begin(GradientScale gradient_scale, double learning_rate) {
    ++steps_;
    return {.learning_rate = learning_rate, .scale = gradient_scale.factor()};
  }

  /// @brief The numbers besides the learning rate that all ranks must give alike.
  [[nodiscard]] std::vector<GivenNumber> numbers() const {
    std::vector<GivenNumber> out{GivenNumber("max_norm", options_.max_norm)};
    for (const GivenNumber& number : Rule::numbers(options_))
      out.push_back(number);
    return out;
  }
  /// @brief The factors of a parameter's group, which all ranks must give alike.
  [[nodiscard]] auto numbers_of(const ParameterInfo& parameter) const {
    return factors_of(options_.groups, parameter).numbers();
  }

  /// @brief Calls visit(name, tensor) for each state of a parameter, if a step has created it.
  template <class P, class Visitor> void for_each_state(const P& parameter, Visitor&& visit) {
    states_.visit(parameter, visit);
  }
  /// @brief The same with every state, creating those that do not exist yet.
  template <class P, class Visitor> void for_each_state_made(const P& parameter, Visitor&& visit) {
    static_cast<void>(state_of(parameter));
    states_.visit(parameter, visit);
  }
  /// @brief Number of calls of step() on the host, each for a whole model or a part of one.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  /// @brief Such calls that were taken on a target; waits for a device.
  template <class Target> [[nodiscard]] std::int64_t steps(TargetResources<Target>& resources) const {
    return Target::host_accessible || !device_step_ ? steps_ : step_in(device_step_, resources);
  }
  /// @brief Restores steps(), which also becomes the number of updates of every parameter that has none of
  /// its own yet, as after loading a checkpoint that holds none; the caller fills the states.
  template <class Target>
  void set_steps([[maybe_unused]] TargetResources<Target>& resources, std::int64_t steps) {
    first_steps_ = steps_ = steps;
    if constexpr (!Target::host_accessible)
      if (device_step_)
        store_step(resources, device_step_, steps);
  }
  /// @brief Updates of a parameter so far; waits for a device.
  template <class P> [[nodiscard]] std::int64_t parameter_steps(const P& parameter) {
    const State& state = states_.entry(parameter);
    return state.device_step ? step_in(state.device_step, parameter.resources())
                             : state.steps.value_or(first_steps_);
  }
  /// @brief Restores the number of updates of a parameter.
  template <class P> void set_parameter_steps(const P& parameter, std::int64_t steps) {
    State& state = states_.entry(parameter);
    state.steps = steps;
    if constexpr (!P::target::host_accessible)
      if (state.device_step)
        store_step(parameter.resources(), state.device_step, steps, state.learning_rate_factor);
  }

private:
  using State = OptimizerState<Rule::state_names.size()>;

  /// Compares the numbers of a step between the ranks of every mesh with parameters, in checked builds.
  template <class Model>
  void agree_on_step([[maybe_unused]] Model& model, [[maybe_unused]] double learning_rate,
                     [[maybe_unused]] double scale, [[maybe_unused]] SourceLocation where) const {
    if constexpr (always_checked) {
      std::vector<GivenNumber> given = numbers_of_step(*this, learning_rate);
      given.emplace_back("factor of the gradients", scale);
      agree_on_parameters(model, *this, Rule::name, given, where);
    }
  }

  /// The blocks of a state as vectors.
  template <class Number, class Target> struct StateVectors {
    State& state;
    std::size_t elements;
    [[nodiscard]] std::size_t size() const noexcept { return state.size(); }
    [[nodiscard]] VectorView<Number, Target> operator[](std::size_t i) const {
      return VectorView<Number, Target>(static_cast<Number*>(state[i].data()), elements);
    }
  };

  /// What an update moves: the gradient is read, the weights and each block of the state are read and
  /// written.
  template <class Number>
  [[nodiscard]] static std::size_t update_bytes(const State& state, std::size_t elements) {
    return (3 + 2 * state.size()) * elements * sizeof(Number);
  }

  /// The update of a block on the host: the same code for every layout.
  template <class Number, class Target>
  [[gnu::noinline]] void update_block(TargetResources<Target>& resources, Number* weights,
                                      const Number* gradient, std::size_t elements, State& state,
                                      Step constants) const {
    constants.step = *state.steps - 1;
    Rule::open(options_, &constants).open(true, constants.scale);
    auto update = Rule::update_of(options_, VectorView<Number, Target>(weights, elements),
                                  VectorView<const Number, Target>(gradient, elements),
                                  StateVectors<Number, Target>{state, elements});
    update.set_step(constants, constants.learning_rate * state.learning_rate_factor,
                    options_.weight_decay * state.weight_decay_factor);
    kernels::moves(Rule::label, resources.execution(), update_bytes<Number>(state, elements));
    kernels::run_elementwise<Number>(Rule::label, resources.execution(), elements, update);
  }

  template <class P> [[nodiscard]] auto& state_of(const P& parameter) {
    return states_.of(parameter, options_.groups, Rule::kept(options_));
  }

  /// Adds it to the updates that are launched together, if it has their element type and is in place.
  template <class P, class Together> void update_on_device(P& parameter, Together& together) {
    using Execution = typename P::target::execution_space;
    using Rounds = UpdatesOf<Rule, Execution, typename P::element>;
    using Keeps = UpdatesOf<Rule, Execution, typename P::accumulation_element>;
    auto& state = state_of(parameter);
    const auto add = [&](auto& launches, const auto& weights, auto* rounded) {
      const StateVectors<typename P::accumulation_element, typename P::target> blocks{state, weights.size()};
      kernels::moves(Rule::label, parameter.stored().execution(),
                     update_bytes<typename P::accumulation_element>(state, weights.size()),
                     rounded == nullptr ? 0 : weights.size() * sizeof(*rounded));
      launches.add(Rule::update_of(options_, weights, vector_of(parameter.gradient()), blocks),
                   weights.size(), rounded, options_.weight_decay * state.weight_decay_factor,
                   step_at(state.device_step));
    };
    const auto& execution = parameter.stored().execution();
    if (const auto place = parameter.in_place()) {
      const VectorView<typename P::accumulation_element, typename P::target> weights(
          place->weights, parameter.gradient().local_size());
      if constexpr (std::is_base_of_v<Rounds, Together>) {
        add(together, weights, place->rounded);
      } else {
        Rounds alone(Rule::label, execution);
        add(alone, weights, place->rounded);
        alone.launch();
      }
    } else {
      parameter.update_weights([&](auto& weights) {
        Keeps alone(Rule::label, execution);
        add(alone, mutable_vector_of(weights), static_cast<typename P::accumulation_element*>(nullptr));
        alone.launch();
      });
    }
  }

  /// The device continues the host's step count.
  template <class Target>
  static void store_step(TargetResources<Target>& resources, const BufferHandle& to, std::int64_t steps,
                         double rate_factor = 1) {
    kernels::OptimizerStep first;
    first.step = steps;
    first.rate_factor = rate_factor;
    run_once("sw::first_step", resources.execution(),
             kernels::StoreValue<kernels::OptimizerStep>{step_at(to), first});
  }
  template <class Target>
  [[nodiscard]] static std::int64_t step_in(const BufferHandle& from, TargetResources<Target>& resources) {
    kernels::OptimizerStep step;
    copy_to_host<Target>(resources.execution(), static_cast<const unsigned char*>(from.data()),
                         reinterpret_cast<unsigned char*>(&step), sizeof step);
    return step.step;
  }
  /// A parameter's own record on the device, created at its first step there.
  template <class Target>
  [[nodiscard]] kernels::OptimizerStep* device_step_of(State& state,
                                                       TargetResources<Target>& resources) const {
    if (!state.device_step) {
      state.device_step = BufferHandle(resources.take(sizeof(kernels::OptimizerStep)));
      store_step(resources, state.device_step, state.steps.value_or(first_steps_),
                 state.learning_rate_factor);
    }
    return step_at(state.device_step);
  }
  [[nodiscard]] kernels::OptimizerStep* device_step() const { return step_at(device_step_); }
  [[nodiscard]] static kernels::OptimizerStep* step_at(const BufferHandle& memory) {
    return static_cast<kernels::OptimizerStep*>(memory.data());
  }

  Options options_;
  std::map<std::size_t, double> factors_; // that set_factor has changed
  OptimizerStates<Rule::state_names.size()> states_{Rule::state_names};
  BufferHandle device_step_; // of the first device that needs it
  std::int64_t steps_ = 0;
  bool factors_changed_ = false; // since the last set_learning_rate of a device
  std::int64_t first_steps_ = 0; // of parameters that have no number of their own yet
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
