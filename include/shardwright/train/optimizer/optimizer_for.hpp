// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The members that Training, checkpoints and comparisons of replicas need of an optimizer, with an
/// error sentence for each one that is missing.

#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/agreement.hpp>
#include <shardwright/train/parameter.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A visitor of states that does nothing.
struct VisitsStates {
  template <class State> void operator()(std::string_view, State&) const {}
};

/// A parameter of a target, as a model may have one.
template <class Target> using AnyParameterOf = Parameter<Layout<1>, Layout<1>, float, DataParallel, Target>;

template <class Optimizer, class Target>
concept KeepsStates = requires(Optimizer& optimizer, const AnyParameterOf<Target>& parameter) {
  optimizer.for_each_state(parameter, VisitsStates{});
  optimizer.for_each_state_made(parameter, VisitsStates{});
};
template <class Optimizer, class Target>
concept NumbersSteps = requires(Optimizer& optimizer, TargetResources<Target>& resources) {
  optimizer.set_steps(resources, static_cast<std::int64_t>(optimizer.steps(resources)));
};
template <class Optimizer, class Model>
concept StepsOnHost = requires(Optimizer& optimizer, Model& model, const GradientSummary& summary) {
  optimizer.step(model, summary, 0.1);
};
template <class Optimizer, class Model>
concept StepsOnDevice = requires(Optimizer& optimizer, Model& model,
                                 const DeviceSummary<typename TargetOfModel<Model>::type>& summary) {
  optimizer.template set_learning_rate<typename TargetOfModel<Model>::type>(summary.resources(), 0.1);
  optimizer.step(model, summary);
};

/// Checks that an optimizer has states that can be visited, with an error sentence if not.
template <class Optimizer, class Model> struct StatesOf {
  static constexpr bool value = KeepsStates<Optimizer, typename TargetOfModel<Model>::type>;
  static_assert(
      value,
      "Optimizer: an optimizer of your own must have for_each_state(parameter, visit) and for_each_state_made(parameter, visit), which call visit(name, tensor) for every state, for checkpoints and comparisons of replicas (call visit() of its OptimizerStates, or do nothing if it keeps no state)");
};

} // namespace detail

/// @brief An optimizer that can train a model, such as AdamW; for the members of one of your own see
/// docs/how_to/your_own_optimizer.md.
///
/// | member | does |
/// |---|---|
/// | `step(model, summary, learning_rate)` | updates every parameter from its gradient |
/// | `steps(resources)`, `set_steps(resources, n)` | the number of steps, for resuming |
/// | `for_each_state(parameter, visit)` | calls visit(name, tensor) for the states that exist |
/// | `for_each_state_made(parameter, visit)` | the same after creating those that do not |
/// | `numbers()` | optional: the GivenNumbers, such as a decay, that all ranks must give alike |
/// | `numbers_of(parameter)` | optional: those that depend on a parameter, by its ParameterInfo |
///
/// On a device the first is `step(model, summary)` with a DeviceSummary, after `set_learning_rate<Target>(
/// resources, rate)`.
template <class Optimizer, class Model>
concept OptimizerFor = detail::KeepsStates<Optimizer, typename detail::TargetOfModel<Model>::type> &&
    detail::NumbersSteps<Optimizer, typename detail::TargetOfModel<Model>::type> &&
    (detail::TargetOfModel<Model>::type::host_accessible ? detail::StepsOnHost<Optimizer, Model>
                                                         : detail::StepsOnDevice<Optimizer, Model>);

namespace detail {

/// The same with an error sentence for what is missing.
template <class Optimizer, class Model> struct RequiredOptimizer : StatesOf<Optimizer, Model> {
  using Target = typename TargetOfModel<Model>::type;
  static_assert(
      GivesNumbers<Optimizer> || !requires { &Optimizer::numbers; },
      "Optimizer: numbers() of an optimizer of your own must take no argument, be const, and return GivenNumbers that all ranks must give alike (return an array of them, without the learning rate, which is compared anyway)");
  static_assert(
      NumbersSteps<Optimizer, Target>,
      "Optimizer: an optimizer of your own must have steps(resources) and set_steps(resources, steps), from which a run resumes (count the calls of step)");
  static_assert(
      !Target::host_accessible || StepsOnHost<Optimizer, Model>,
      "Optimizer: an optimizer of your own must have step(model, summary, learning_rate), which updates every parameter from its gradient (take the GradientSummary by const reference)");
  static_assert(
      Target::host_accessible || StepsOnDevice<Optimizer, Model>,
      "Optimizer: an optimizer of your own must have, for a model on a device, step(model, summary) with a DeviceSummary, and set_learning_rate<Target>(resources, learning_rate) (write it for the host, or train with one of the library's)");
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
