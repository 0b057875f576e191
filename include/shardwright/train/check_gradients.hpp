// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief check_gradients compares the gradients of a function on a tape with finite differences, in double
/// precision and on any mesh.

#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/checks/gradient_comparison.hpp>
#include <shardwright/train/checks/perturbed_input.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/step/batch_origin.hpp>
#include <shardwright/train/step/global_sum.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {
namespace detail {

/// Reduces a Var to a number with random factors, which are then its gradient.
template <class Y> class Weighing;
template <LayoutType L, class Element, class Target> class Weighing<Var<L, Element, Target>> {
public:
  using Y = Var<L, Element, Target>;
  explicit Weighing(const MeshCore&) {}
  [[nodiscard]] double number(const Y& y) {
    static_assert(std::is_same_v<Element, double>,
                  "check_gradients: the function's value must be double (convert its operands)");
    const auto finished = redistribute<Gradient<L>>(y.value());
    return factors(y).times(finished);
  }
  void seed(Tape<Target>& tape, const Y& y) { tape.seed(y, factors(y).tensor().share()); }

private:
  [[nodiscard]] const Direction<Gradient<L>, Target>& factors(const Y& y) {
    if (!factors_) {
      factors_.emplace(y.resources(), y.shape());
      factors_->point_randomly({0x5eed, 0});
    }
    return *factors_;
  }
  std::optional<Direction<Gradient<L>, Target>> factors_;
};
/// A loss, whose gradient is 1.
template <class Loss>
requires requires(const Loss& loss) { loss.read().loss.value; }
class Weighing<Loss> {
public:
  explicit Weighing(const MeshCore& core) : core_(core) {}
  template <class Target> void seed(Tape<Target>&, const Loss&) const {}
  [[nodiscard]] double number(const Loss& loss) const {
    return counts_once<typename Loss::layout>(core_) ? loss.read().loss.value : 0;
  }

private:
  const MeshCore& core_;
};

template <class Result> [[nodiscard]] Result checked_result(Result result) { return result; }
template <LayoutType From, LayoutType To, class Element, class Target>
[[nodiscard]] auto checked_result(Edge<From, To, Element, Target> result) {
  return as_var(std::move(result));
}

/// The target of the first input that names one, or host memory.
template <class... Types> struct TargetOfInputs { using type = DefaultTarget; };
template <class First, class... Rest> struct TargetOfInputs<First, Rest...> : TargetOfInputs<Rest...> {};
template <class First, class... Rest>
requires requires { typename First::target; }
struct TargetOfInputs<First, Rest...> {
  using type = typename First::target;
};

template <class Type> inline constexpr bool is_tensor_input = is_sharded_tensor<std::remove_const_t<Type>>;

/// The tensors among the inputs; others are ignored.
template <class... Types> struct PerturbedTensors {
  explicit PerturbedTensors(const MemberList<>&) {}
  static void list(std::vector<PerturbedInput*>&, MeshCore*&) {}
  /// Calls use(variables...).
  template <class Tape, class Use, class... Vars>
  static double with_variables(Tape&, const Use& use, const Vars&... variables) {
    return use(variables...);
  }
  template <class Tape> static void take_gradients(const Tape&) {}
};
template <class First, class... Rest> struct PerturbedTensors<First, Rest...> {
  PerturbedTensor<std::remove_const_t<First>> first;
  PerturbedTensors<Rest...> rest;

  explicit PerturbedTensors(const MemberList<First, Rest...>& inputs)
      : first(std::string(inputs.name), inputs.object), rest(inputs.rest) {}
  void list(std::vector<PerturbedInput*>& perturbed, MeshCore*& core) {
    perturbed.push_back(&first);
    core = &first.mesh_core();
    rest.list(perturbed, core);
  }
  template <class Tape, class Use, class... Vars>
  double with_variables(Tape& tape, const Use& use, const Vars&... variables) {
    return rest.with_variables(tape, use, variables..., first.on(tape));
  }
  template <class Tape, class Var, class... Vars>
  void take_gradients(const Tape& tape, const Var& variable, const Vars&... variables) {
    first.take_gradient(tape, variable);
    rest.take_gradients(tape, variables...);
  }
};
template <class First, class... Rest>
requires(!is_tensor_input<First>) struct PerturbedTensors<First, Rest...> : PerturbedTensors<Rest...> {
  explicit PerturbedTensors(const MemberList<First, Rest...>& inputs)
      : PerturbedTensors<Rest...>(inputs.rest) {}
};

/// The modules among the inputs, as one model.
template <class... Types> struct CheckedModel {
  using target = typename TargetOfInputs<Types...>::type;
  MemberList<Types...> inputs;
  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    inputs.each([&visit](std::string_view, auto& input) {
      if constexpr (!is_tensor_input<std::remove_reference_t<decltype(input)>>)
        visit_parameters(input, visit);
    });
  }
};

/// Their parameters with accumulated gradients.
template <class... Types> class CheckedParameters {
  using Model = CheckedModel<Types...>;
  using Target = typename Model::target;

public:
  explicit CheckedParameters(const MemberList<Types...>& inputs) : model_{inputs} {
    for_each_trained_parameter(model_, [this](auto& parameter) {
      using P = std::remove_reference_t<decltype(parameter)>;
      perturbed_.push_back(std::make_unique<PerturbedParameter<P>>(parameter));
      core_ = &parameter.resources().core();
    });
  }
  void list(std::vector<PerturbedInput*>& perturbed, MeshCore*& core) const {
    for (const auto& each : perturbed_)
      perturbed.push_back(each.get());
    if (core_ != nullptr)
      core = core_;
  }
  void begin() {
    if (!perturbed_.empty())
      accumulator_.emplace(model_);
  }
  /// After the backward pass.
  void finish() {
    if (!accumulator_)
      return; // all are frozen
    ShardedTensor<Layout<1>, double, Target> ones(core_->template resources<Target>(), {2});
    fill(ones, 1.0);
    Scalars<2, Target> numbers(core_->template resources<Target>());
    kernels::copy(ones.execution(), vector_of(ones), numbers.view());
    accumulator_->add(assume_replicated(counted_loss<Layout<0>>(std::move(numbers))));
    static_cast<void>(accumulator_->finish());
  }

private:
  Model model_;
  MeshCore* core_ = nullptr;
  std::vector<std::unique_ptr<PerturbedInput>> perturbed_;
  std::optional<GradAccumulator<Model>> accumulator_;
};
/// None.
struct NoParameters {
  template <class Inputs> explicit NoParameters(const Inputs&) {}
  static void list(std::vector<PerturbedInput*>&, MeshCore*&) {}
  static void begin() {}
  static void finish() {}
};

/// A function with its inputs: tensors, and the parameters that it uses.
template <class Function, class... Types> class CheckedFunction final : public NumberedFunction {
  using Target = typename TargetOfInputs<Types...>::type;
  using Parameters =
      std::conditional_t<(true && ... && is_tensor_input<Types>), NoParameters, CheckedParameters<Types...>>;

public:
  CheckedFunction(Function& function, const MemberList<Types...>& inputs, const GradientCheck& options)
      : function_(function), tensors_(inputs), parameters_(inputs), origin_(options.origin),
        rows_(options.rows) {
    tensors_.list(perturbed_, core_);
    parameters_.list(perturbed_, core_);
    restart();
  }

  [[nodiscard]] double value() override {
    const double number = tensors_.with_variables(tape_, [this](const auto&... variables) {
      auto result = this->call(variables...);
      return weighing(result).number(result);
    });
    restart(); // releases the inputs
    return number;
  }
  void compute_gradients() {
    parameters_.begin();
    tensors_.with_variables(tape_, [this](const auto&... variables) {
      auto result = call(variables...);
      weighing(result).seed(tape_, result);
      tape_.backward();
      tensors_.take_gradients(tape_, variables...);
      return 0.0;
    });
    restart();
    parameters_.finish();
  }
  [[nodiscard]] const std::vector<PerturbedInput*>& perturbed() const noexcept { return perturbed_; }
  [[nodiscard]] const HostCommunicator& ranks() const { return core_->world(); }

private:
  void restart() { tape_.restart(Recording::training, origin_, rows_); }
  template <class... Vars> [[nodiscard]] auto call(const Vars&... variables) {
    if constexpr (std::is_invocable_v<Function&, const Vars&...>)
      return checked_result(function_(variables...));
    else
      return checked_result(function_(tape_, variables...));
  }
  template <class Result> [[nodiscard]] Weighing<Result>& weighing(const Result&) {
    if (weighing_ == nullptr)
      weighing_ = std::make_shared<Weighing<Result>>(*core_);
    return *static_cast<Weighing<Result>*>(weighing_.get());
  }

  Function& function_;
  PerturbedTensors<Types...> tensors_;
  Parameters parameters_;
  std::vector<PerturbedInput*> perturbed_;
  MeshCore* core_ = nullptr;
  BatchOrigin origin_;
  RowOrder rows_;
  Tape<Target> tape_;
  std::shared_ptr<void> weighing_; // of the one type of result
};

} // namespace detail

/// @brief Compares the gradients of a function on a tape with central differences.
///
/// `check_gradients([&](auto x) { return block(x); }, members("x", x, "block", block))`: tensors among the
/// inputs become the function's arguments, in order, as variables of a tape; of modules, which the function
/// uses directly, every trained parameter is perturbed.
///
/// The function returns a Var of any layout, or a loss; it may take the tape before the variables, and must
/// compute the same in every call. Inputs may be Partial: then one rank's part is perturbed. Each input is
/// perturbed in random directions and, if one does not agree, element by element, to find the worst one. All
/// values are restored. Meanwhile no GradAccumulator may hold the parameters' gradients. Collective. Cost:
/// one backward pass, and two forward passes for each direction of each input.
/// @param inputs of double, with zero to four dimensions
/// @return the largest difference
/// @throws GradientMismatch naming the input and element, on every rank, if a slope is off by more than the
/// tolerance.
template <class Function, class... Types>
GradientDifference check_gradients(Function&& function, const detail::MemberList<Types...>& inputs,
                                   const GradientCheck& options = {},
                                   SourceLocation where = SourceLocation::current()) {
  detail::CheckedFunction<std::remove_reference_t<Function>, Types...> checked(function, inputs, options);
  checked.compute_gradients();
  detail::GradientCheckRun run(options, checked.ranks(), checked);
  std::uint64_t number = 0;
  for (detail::PerturbedInput* input : checked.perturbed())
    run.check(*input, ++number);
  detail::require_slopes(run.worst(), options, where);
  return run.worst();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
