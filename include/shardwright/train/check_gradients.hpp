// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief check_gradients: whether the gradients of a function on a tape are its slopes, in double precision
/// and on any mesh.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/host_copy.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/batch_origin.hpp>
#include <shardwright/train/global_sum.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/operation_node.hpp>
#include <shardwright/train/tape.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The options of check_gradients.
struct GradientCheck {
  double step = 1e-5;      ///< Of the central differences.
  double tolerance = 1e-6; ///< Of a slope, relative to the norm of its input's gradient.
  int directions = 2;      ///< Random ones in which each input is moved.
  int elements = 0; ///< Elements of each input that are moved one by one; where a direction fails, up to 100.
  std::uint64_t seed = 1;
  BatchOrigin
      origin{}; ///< Of the batch that the function is of, which the tape tells operations such as dropout.
  TokenRuns runs{}; ///< Positions of its rows on this rank.
};

/// @brief The place at which gradient and difference quotient differ the most.
struct GradientDifference {
  std::string input; ///< Its name, and the element's indices where it is one: "w[2, 3]".
  double gradient = 0;
  double quotient = 0;
  double error = 0; ///< |gradient - quotient|, relative to the norm of the input's gradient.
};

/// @brief A gradient is not the slope of its function.
class GradientMismatch : public Error {
public:
  GradientMismatch(const std::string& sentence, GradientDifference difference, ErrorContext context = {})
      : Error(sentence, std::move(context)), difference_(std::move(difference)) {}
  [[nodiscard]] const GradientDifference& difference() const noexcept { return difference_; }

private:
  GradientDifference difference_;
};

namespace detail {

/// What is moved: a tensor or a parameter.
class MovedInput {
public:
  virtual ~MovedInput() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> shape() const = 0;
  virtual void point_randomly(RandomKey key) = 0;
  virtual void point_at(std::size_t element) = 0;
  /// Puts the input that far away from where it was; 0 puts it back.
  virtual void move(double step) = 0;
  /// This rank's part of the gradient times the direction, and of the gradient's square.
  [[nodiscard]] virtual double slope() = 0;
  [[nodiscard]] virtual double square() = 0;
};

/// out = 1 where a global index is the one, else 0.
template <class Element, std::size_t rank>
struct OneElement {
  Element* out;
  std::array<std::int64_t, rank> offset, local, global;
  std::int64_t element;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (std::size_t d = rank; d-- > 0;) {
      index += (offset[d] + rest % local[d]) * stride;
      rest /= local[d];
      stride *= global[d];
    }
    out[i] = index == element ? Element(1) : Element(0);
  }
};

/// A direction in layout `L`, which is not Partial.
template <LayoutType L, class Target>
class Direction {
  using Tensor = ShardedTensor<L, double, Target>;

public:
  Direction(TargetResources<Target>& resources, const typename Tensor::Shape& shape)
      : tensor_(resources, shape) {}

  void point_randomly(RandomKey key) {
    if constexpr (L::tensor_rank == 0)
      fill(tensor_, 1.0);
    else
      fill_uniform(tensor_, key, -1.0, 1.0);
  }
  void point_at(std::size_t element) {
    kernels::detail::run("sw::point", tensor_.execution(), tensor_.local_size(),
                         OneElement<double, static_cast<std::size_t>(L::tensor_rank)>{
                             tensor_.mutable_data(), tensor_.local_offset(), tensor_.local_shape(),
                             tensor_.shape(), static_cast<std::int64_t>(element)});
  }
  /// This rank's part of the sum of the products.
  template <class G>
  [[nodiscard]] double times(const G& gradient) const {
    return counts_once<L>(tensor_.core()) ? local_number(dot(tensor_, gradient)) : 0;
  }
  template <class G>
  [[nodiscard]] static double square(const G& gradient) {
    return counts_once<L>(gradient.core()) ? local_number(dot(gradient, gradient)) : 0;
  }
  [[nodiscard]] const Tensor& tensor() const noexcept { return tensor_; }

private:
  template <class Scalar>
  [[nodiscard]] static double local_number(const Scalar& scalar) {
    double number = 0;
    copy_to_host<Target>(scalar.execution(), scalar.data(), &number, 1);
    return number;
  }

  Tensor tensor_;
};

/// Whether this rank's part of a Partial value is the one that is moved.
template <LayoutType L>
[[nodiscard]] bool moves_part(const MeshCore& core) {
  for (std::size_t i = 0; i < L::axes.size(); ++i)
    if (L::value.is_partial(static_cast<int>(i)) && core.coordinate(core.axis_index(L::axes[i])) != 0)
      return false;
  return true;
}

template <class Tensor>
class MovedTensor final : public MovedInput {
public:
  using L = typename Tensor::layout;
  using Target = typename Tensor::target;
  static_assert(
      std::is_same_v<typename Tensor::value_type, double>,
      "check_gradients: the inputs must be of double, for the differences of other elements are too coarse (convert them first)");

  MovedTensor(std::string name, const Tensor& tensor)
      : name_(std::move(name)), origin_(tensor.share()), tensor_(tensor.clone()),
        direction_(tensor.resources(), tensor.shape()) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::vector<std::int64_t> shape() const override {
    return {tensor_.shape().begin(), tensor_.shape().end()};
  }
  void point_randomly(RandomKey key) override { direction_.point_randomly(key); }
  void point_at(std::size_t element) override { direction_.point_at(element); }
  void move(double step) override {
    if (tensor_.local_size() == 0)
      return;
    kernels::copy(tensor_.execution(), vector_of(origin_), mutable_vector_of(tensor_));
    if (step != 0 && moves_part<L>(tensor_.core()))
      kernels::axpy(tensor_.execution(), step, vector_of(direction_.tensor()), mutable_vector_of(tensor_));
  }
  [[nodiscard]] double slope() override { return direction_.times(*gradient_); }
  [[nodiscard]] double square() override { return direction_.square(*gradient_); }

  [[nodiscard]] MeshCore& mesh_core() const { return origin_.core(); }
  [[nodiscard]] auto on(Tape<Target>& tape) const { return tape.variable(tensor_); }
  template <class V>
  void take_gradient(const Tape<Target>& tape, const V& var) {
    gradient_.emplace(tape.gradient(var));
  }

private:
  std::string name_;
  ShardedTensor<L, const double, Target> origin_;
  ShardedTensor<L, double, Target> tensor_;
  Direction<Gradient<L>, Target> direction_;
  std::optional<ShardedTensor<Gradient<L>, const double, Target>> gradient_;
};

template <class P>
class MovedParameter final : public MovedInput {
  using L = typename P::state_layout;

public:
  static_assert(
      std::is_same_v<typename P::element, double>,
      "check_gradients: the parameters must be of double, for the differences of other elements are too coarse (give the model a plan of double)");

  explicit MovedParameter(P& parameter)
      : parameter_(parameter), direction_(parameter.resources(), parameter.shape()) {
    parameter.update_weights([this](auto& weights) { origin_.emplace(weights.clone()); });
  }
  [[nodiscard]] std::string name() const override { return parameter_.name(); }
  [[nodiscard]] std::vector<std::int64_t> shape() const override {
    return {parameter_.shape().begin(), parameter_.shape().end()};
  }
  void point_randomly(RandomKey key) override { direction_.point_randomly(key); }
  void point_at(std::size_t element) override { direction_.point_at(element); }
  void move(double step) override {
    parameter_.update_weights([&](auto& weights) {
      if (weights.local_size() == 0)
        return;
      kernels::copy(weights.execution(), vector_of(*origin_), mutable_vector_of(weights));
      if (step != 0)
        kernels::axpy(weights.execution(), step, vector_of(direction_.tensor()), mutable_vector_of(weights));
    });
  }
  [[nodiscard]] double slope() override { return direction_.times(parameter_.gradient()); }
  [[nodiscard]] double square() override { return direction_.square(parameter_.gradient()); }

private:
  P& parameter_;
  std::optional<ShardedTensor<L, double, typename P::target>> origin_;
  Direction<L, typename P::target> direction_;
};

/// The function as a number: a loss, or the sum of a value's elements with random factors.
class NumberedFunction {
public:
  virtual ~NumberedFunction() = default;
  /// This rank's part.
  [[nodiscard]] virtual double value() = 0;
};

class GradientCheckRun {
public:
  GradientCheckRun(const GradientCheck& options, HostCommunicator ranks, NumberedFunction& function)
      : options_(options), ranks_(std::move(ranks)), function_(function) {}

  /// Compares in random directions, and where one fails, or where asked for, element by element.
  void check(MovedInput& input, std::uint64_t number) {
    std::array<double, 1> square{input.square()};
    sum_over_ranks(ranks_, square);
    const double norm = std::sqrt(square[0]);
    GradientDifference direction, element;
    for (int d = 0; d < options_.directions; ++d) {
      input.point_randomly({options_.seed, (number << 16) + static_cast<std::uint64_t>(d)});
      compare(input, norm, direction, [&] { return input.name(); });
    }
    const bool sound = direction.error <= options_.tolerance;
    std::size_t size = 1;
    for (const std::int64_t extent : input.shape())
      size *= static_cast<std::size_t>(extent);
    const std::size_t looked_at =
        std::min<std::size_t>(size, static_cast<std::size_t>(sound ? options_.elements : 100));
    for (std::size_t i = 0; i < looked_at; ++i) {
      const std::size_t place = i * size / looked_at;
      input.point_at(place);
      compare(input, norm, element, [&] { return name_of(input, place); });
    }
    input.move(0);
    // An element says more than a direction in which it fails with others. Where all of those looked at are
    // right, it is another one that is wrong.
    const bool by_element =
        (!sound && !(element.error <= options_.tolerance)) || is_worse(element, direction);
    keep_worse(std::move(by_element ? element : direction), worst_);
  }
  [[nodiscard]] const GradientDifference& worst() const noexcept { return worst_; }

private:
  /// A number that is none is the worst.
  [[nodiscard]] static bool is_worse(const GradientDifference& one, const GradientDifference& other) {
    return !std::isnan(other.error) && !(one.error <= other.error);
  }
  static void keep_worse(GradientDifference&& found, GradientDifference& worst) {
    if (is_worse(found, worst))
      worst = std::move(found);
  }
  template <class Name>
  void compare(MovedInput& input, double norm, GradientDifference& worst, const Name& name) {
    std::array<double, 3> totals{};
    input.move(options_.step);
    totals[0] = function_.value();
    input.move(-options_.step);
    totals[1] = function_.value();
    totals[2] = input.slope();
    sum_over_ranks(ranks_, totals);
    const double quotient = (totals[0] - totals[1]) / (2 * options_.step);
    // What differs from nothing by rounding alone is nothing.
    const double error = std::abs(totals[2] - quotient) / (norm + std::abs(quotient) + 1e-3);
    keep_worse({name(), totals[2], quotient, error}, worst);
  }
  [[nodiscard]] static std::string name_of(const MovedInput& input, std::size_t element) {
    const std::vector<std::int64_t> shape = input.shape();
    std::string indices;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const auto extent = static_cast<std::size_t>(shape[d]);
      indices = std::to_string(element % extent) + (indices.empty() ? "" : ", ") + indices;
      element /= extent;
    }
    return input.name() + "[" + indices + "]";
  }

  const GradientCheck& options_;
  HostCommunicator ranks_;
  NumberedFunction& function_;
  GradientDifference worst_;
};

inline void require_slopes(const GradientDifference& worst, const GradientCheck& options,
                           SourceLocation where) {
  if (worst.error <= options.tolerance)
    return;
  std::ostringstream sentence;
  sentence.precision(10);
  sentence << "check_gradients: a gradient must be the slope of its function, but that of " << worst.input
           << " is " << worst.gradient << ", and the difference quotient " << worst.quotient
           << " (look at the gradient of the operations that read it)";
  throw GradientMismatch(sentence.str(), worst, {.where = where});
}

/// What a Var gives the function's number by: random factors, which are its gradient.
template <class Y>
class Weighing;
template <LayoutType L, class Element, class Target>
class Weighing<Var<L, Element, Target>> {
public:
  using Y = Var<L, Element, Target>;
  [[nodiscard]] double number(const Y& y) {
    static_assert(std::is_same_v<Element, double>,
                  "check_gradients: the function's value must be of double (convert its operands)");
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
  template <class Target>
  void seed(Tape<Target>&, const Loss&) const {}
  [[nodiscard]] double number(const Loss& loss) const {
    return counts_once<typename Loss::layout>(*core_) ? loss.read().loss.value : 0;
  }
  void set_core(const MeshCore& core) { core_ = &core; }

private:
  const MeshCore* core_ = nullptr;
};

template <class Result>
[[nodiscard]] Result checked_result(Result result) {
  return result;
}
template <LayoutType From, LayoutType To, class Element, class Target>
[[nodiscard]] auto checked_result(Edge<From, To, Element, Target> result) {
  return as_var(std::move(result));
}

template <class Type>
struct TargetOfInput {
  using type = void;
};
template <class Type>
requires requires { typename Type::target; }
struct TargetOfInput<Type> {
  using type = typename Type::target;
};
/// The target of the first input that names one, or host memory.
template <class... Types>
struct TargetOfInputs {
  using type = DefaultTarget;
};
template <class First, class... Rest>
struct TargetOfInputs<First, Rest...> {
  using type =
      std::conditional_t<std::is_void_v<typename TargetOfInput<First>::type>,
                         typename TargetOfInputs<Rest...>::type, typename TargetOfInput<First>::type>;
};

template <class Type>
inline constexpr bool is_tensor_input = is_sharded_tensor<std::remove_const_t<Type>>;

/// The tensors among the inputs; what is none is left out.
template <class... Types>
struct MovedTensors {
  explicit MovedTensors(const MemberList<>&) {}
  static void list(std::vector<MovedInput*>&, MeshCore*&) {}
  /// Calls use(variables...).
  template <class Tape, class Use, class... Vars>
  static double with_variables(Tape&, const Use& use, const Vars&... variables) {
    return use(variables...);
  }
  template <class Tape>
  static void take_gradients(const Tape&) {}
};
template <class First, class... Rest>
struct MovedTensors<First, Rest...> {
  MovedTensor<std::remove_const_t<First>> first;
  MovedTensors<Rest...> rest;

  explicit MovedTensors(const MemberList<First, Rest...>& inputs)
      : first(std::string(inputs.name), inputs.object), rest(inputs.rest) {}
  void list(std::vector<MovedInput*>& moved, MeshCore*& core) {
    moved.push_back(&first);
    core = &first.mesh_core();
    rest.list(moved, core);
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
requires(!is_tensor_input<First>) struct MovedTensors<First, Rest...> : MovedTensors<Rest...> {
  explicit MovedTensors(const MemberList<First, Rest...>& inputs) : MovedTensors<Rest...>(inputs.rest) {}
};

/// The modules among the inputs, as one model.
template <class... Types>
struct CheckedModel {
  using target = typename TargetOfInputs<Types...>::type;
  MemberList<Types...> inputs;
  template <class Visitor>
  void for_each_parameter(Visitor&& visit) {
    inputs.each([&visit](std::string_view, auto& input) {
      if constexpr (!is_tensor_input<std::remove_reference_t<decltype(input)>>)
        visit_parameters(input, visit);
    });
  }
};

/// Their parameters with accumulated gradients.
template <class... Types>
class CheckedParameters {
  using Model = CheckedModel<Types...>;
  using Target = typename Model::target;

public:
  explicit CheckedParameters(const MemberList<Types...>& inputs) : model_{inputs} {
    model_.for_each_parameter([this](auto& parameter) {
      using P = std::remove_reference_t<decltype(parameter)>;
      moved_.push_back(std::make_unique<MovedParameter<P>>(parameter));
      core_ = &parameter.resources().core();
    });
  }
  void list(std::vector<MovedInput*>& moved, MeshCore*& core) const {
    for (const auto& each : moved_)
      moved.push_back(each.get());
    if (core_ != nullptr)
      core = core_;
  }
  void begin() { accumulator_.emplace(model_); }
  /// After the backward pass.
  void finish() {
    using Once = Layout<0>;
    if constexpr (Target::host_accessible) {
      accumulator_->add(LossSum<Once>{0}, TokenCount<Once>{1});
    } else {
      ShardedTensor<Layout<1>, double, Target> ones(core_->template resources<Target>(), {2});
      fill(ones, 1.0);
      Scalars<2, Target> numbers(core_->template resources<Target>());
      kernels::copy(ones.execution(), vector_of(ones), numbers.view());
      accumulator_->add(DeviceLoss<Once, Target>(std::move(numbers)));
    }
    static_cast<void>(accumulator_->finish());
  }

private:
  Model model_;
  MeshCore* core_ = nullptr;
  std::vector<std::unique_ptr<MovedInput>> moved_;
  std::optional<GradAccumulator<Model>> accumulator_;
};
/// None.
struct NoParameters {
  template <class Inputs>
  explicit NoParameters(const Inputs&) {}
  static void list(std::vector<MovedInput*>&, MeshCore*&) {}
  static void begin() {}
  static void finish() {}
};

/// A function with its inputs: tensors, and the parameters that it knows by itself.
template <class Function, class... Types>
class CheckedFunction final : public NumberedFunction {
  using Target = typename TargetOfInputs<Types...>::type;
  using Parameters =
      std::conditional_t<(true && ... && is_tensor_input<Types>), NoParameters, CheckedParameters<Types...>>;

public:
  CheckedFunction(Function& function, const MemberList<Types...>& inputs, const GradientCheck& options)
      : function_(function), tensors_(inputs), parameters_(inputs), origin_(options.origin),
        runs_(options.runs) {
    tensors_.list(moved_, core_);
    parameters_.list(moved_, core_);
    restart();
  }

  [[nodiscard]] double value() override {
    const double number = tensors_.with_variables(tape_, [this](const auto&... variables) {
      auto result = call(variables...);
      return weighing(result).number(result);
    });
    restart(); // lets go of the inputs
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
  [[nodiscard]] const std::vector<MovedInput*>& moved() const noexcept { return moved_; }
  [[nodiscard]] const HostCommunicator& ranks() const { return core_->world(); }

private:
  void restart() { tape_.restart(Recording::training, origin_, runs_); }
  template <class... Vars>
  [[nodiscard]] auto call(const Vars&... variables) {
    if constexpr (std::is_invocable_v<Function&, const Vars&...>)
      return checked_result(function_(variables...));
    else
      return checked_result(function_(tape_, variables...));
  }
  template <class Result>
  [[nodiscard]] Weighing<Result>& weighing(const Result&) {
    if (weighing_ == nullptr)
      weighing_ = std::make_shared<Weighing<Result>>();
    auto& out = *static_cast<Weighing<Result>*>(weighing_.get());
    if constexpr (requires { out.set_core(*core_); })
      out.set_core(*core_);
    return out;
  }

  Function& function_;
  MovedTensors<Types...> tensors_;
  Parameters parameters_;
  std::vector<MovedInput*> moved_;
  MeshCore* core_ = nullptr;
  BatchOrigin origin_;
  TokenRuns runs_;
  Tape<Target> tape_;
  std::shared_ptr<void> weighing_; // of the one type of result
};

} // namespace detail

/// @brief Compares the gradients of a function on a tape with central differences.
///
/// `check_gradients([&](auto x) { return block(x); }, members("x", x, "block", block))`: tensors among the
/// inputs become the function's arguments, as variables of a tape, in their order; of parameters and modules,
/// which the function knows by itself, every parameter is moved. The function gives a Var of any layout, or a
/// loss; it may take the tape before the variables, and must be the same function in every call. Inputs may
/// be Partial: then one rank's part is moved.
///
/// Each input is moved in random directions, and where one does not agree, element by element, to name the
/// worst one. All values come back as they were. No GradAccumulator may hold the parameters' gradients
/// meanwhile. Collective. Cost: one backward pass, and two forward passes for each direction of each input.
/// @param inputs of double, with one to four dimensions or none @return what differs the most
/// @throws GradientMismatch naming the input and element, on every rank, where a slope is off by more than
/// the tolerance.
template <class Function, class... Types>
GradientDifference check_gradients(Function&& function, const detail::MemberList<Types...>& inputs,
                                   const GradientCheck& options = {},
                                   SourceLocation where = SourceLocation::current()) {
  detail::CheckedFunction<std::remove_reference_t<Function>, Types...> checked(function, inputs, options);
  checked.compute_gradients();
  detail::GradientCheckRun run(options, checked.ranks(), checked);
  std::uint64_t number = 0;
  for (detail::MovedInput* input : checked.moved())
    run.check(*input, ++number);
  detail::require_slopes(run.worst(), options, where);
  return run.worst();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
