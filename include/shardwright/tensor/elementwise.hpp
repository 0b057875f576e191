// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise operations on sharded tensors: sums, products, scaling and nonlinear functions, typed
/// by layout.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/tensor/kernels/activation.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/map_kernels.hpp>
#include <shardwright/tensor/operation_checks.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// out = left + right.
struct AddOperation {
  static constexpr const char* name = "add";
  template <class Left, class Right>
  using layout = AddLayout<Left, Right>;
  template <class Element>
  SHARDWRIGHT_FUNCTION static Element combine(Element left, Element right) {
    return left + right;
  }
  template <class Execution, class Left, class Right, class Out>
  static void run_equal(const Execution& execution, const Left& left, const Right& right, const Out& out) {
    kernels::add(execution, left, right, out);
  }
};

/// out = left * right.
struct MultiplyOperation {
  static constexpr const char* name = "multiply";
  template <class Left, class Right>
  using layout = MultiplyLayout<Left, Right>;
  template <class Element>
  SHARDWRIGHT_FUNCTION static Element combine(Element left, Element right) {
    return left * right;
  }
  template <class Execution, class Left, class Right, class Out>
  static void run_equal(const Execution& execution, const Left& left, const Right& right, const Out& out) {
    kernels::multiply(execution, left, right, out);
  }
};

template <class Operation, class Left, class Right>
using CombinedTensor =
    ResultTensor<typename Operation::template layout<typename Left::layout, typename Right::layout>, Left>;

/// The right operand may lack leading dimensions; the trailing extents must agree.
template <class Left, class Right>
void require_broadcast(const char* operation, const Left& left, const Right& right, SourceLocation where) {
  constexpr std::size_t lacking = Left::tensor_rank - Right::tensor_rank;
  require_equal_extents(operation, "the right tensor must have the last extents of the left one",
                        left.shape(), lacking, right.shape(), 0, Right::tensor_rank, left.core(), where);
}

template <class Operation, class Left, class Right, class Out>
void combine_blocks(const Left& left, const Right& right, Out& out) {
  using Element = typename Left::value_type;
  if (left.local_size() == 0)
    return;
  if constexpr (RealElement<Element> && Left::tensor_rank == Right::tensor_rank) {
    Operation::run_equal(left.execution(), vector_of(left), vector_of(right), mutable_vector_of(out));
  } else {
    combine_repeated<Operation, typename Left::target>(left.execution(), left.data(), right.data(),
                                                       out.mutable_data(), left.local_size(),
                                                       right.local_size());
  }
}

template <class Operation, class Left, class Right>
[[nodiscard]] CombinedTensor<Operation, Left, Right> combined(const Left& left, const Right& right,
                                                              SourceLocation where) {
  using Result = CombinedTensor<Operation, Left, Right>;
  if constexpr (SameElementAndTarget<Left, Right>::value && !any_invalid<typename Result::layout>) {
    require_one_mesh(Operation::name, left, right, where);
    require_broadcast(Operation::name, left, right, where);
    Result out(left.resources(), left.shape(), where);
    combine_blocks<Operation>(left, right, out);
    return out;
  } else {
    return Result(left.resources(), {}, where);
  }
}

template <class Operation, class Out, class Left, class Right>
void combined_into(Out& out, const Left& left, const Right& right, SourceLocation where) {
  using Result = CombinedTensor<Operation, Left, Right>;
  if constexpr (SameElementAndTarget<Left, Right>::value && !any_invalid<typename Result::layout>) {
    if constexpr (DestinationOf<Result, Out>::value) {
      require_one_mesh(Operation::name, left, right, where);
      require_one_mesh(Operation::name, left, out, where);
      require_broadcast(Operation::name, left, right, where);
      require_shape(Operation::name, "destination", out.shape(), left.shape(), left.core(), where);
      combine_blocks<Operation>(left, right, out);
    }
  }
}

/// out = function(input), element by element; `Tag` is the operation of the error sentence.
template <class Tag, class Function, class Input>
[[nodiscard]] auto mapped(const Input& input, const Function& function, SourceLocation where) {
  using Result = ResultTensor<ElementwiseNonlinearLayout<Tag, typename Input::layout>, Input>;
  if constexpr (any_invalid<typename Result::layout>) {
    return Result(input.resources(), {}, where);
  } else {
    Result out(input.resources(), input.shape(), where);
    if (input.local_size() > 0)
      function(input.execution(), vector_of(input), mutable_vector_of(out));
    return out;
  }
}
template <class Tag, class Function, class Out, class Input>
void mapped_into(Out& out, const Input& input, const Function& function, SourceLocation where) {
  using Result = ResultTensor<ElementwiseNonlinearLayout<Tag, typename Input::layout>, Input>;
  if constexpr (!any_invalid<typename Result::layout>) {
    if constexpr (DestinationOf<Result, Out>::value) {
      require_one_mesh(Tag::name.data(), input, out, where);
      require_shape(Tag::name.data(), "destination", out.shape(), input.shape(), input.core(), where);
      if (input.local_size() > 0)
        function(input.execution(), vector_of(input), mutable_vector_of(out));
    }
  }
}

/// A nonlinear function as a kernel on flat views.
#define SHARDWRIGHT_MAPPED(NAME, CALL)                                                                       \
  struct NAME {                                                                                              \
    template <class Execution, class In, class Out>                                                          \
    void operator()(const Execution& execution, const In& in, const Out& out) const {                        \
      CALL;                                                                                                  \
    }                                                                                                        \
  }
SHARDWRIGHT_MAPPED(MapGelu, kernels::gelu_forward(execution, in, out));
SHARDWRIGHT_MAPPED(MapSilu, kernels::silu_forward(execution, in, out));
SHARDWRIGHT_MAPPED(MapRelu, kernels::relu_forward(execution, in, out));
SHARDWRIGHT_MAPPED(MapExp, map_elements<ExpFunction>(execution, in, out));
SHARDWRIGHT_MAPPED(MapLog, map_elements<LogFunction>(execution, in, out));
SHARDWRIGHT_MAPPED(MapSqrt, map_elements<SqrtFunction>(execution, in, out));
SHARDWRIGHT_MAPPED(MapSquare, map_elements<SquareFunction>(execution, in, out));
SHARDWRIGHT_MAPPED(MapTanh, map_elements<TanhFunction>(execution, in, out));
SHARDWRIGHT_MAPPED(MapSigmoid, map_elements<SigmoidFunction>(execution, in, out));
#undef SHARDWRIGHT_MAPPED

} // namespace detail

/// @brief left + right, element by element; the right tensor may lack leading dimensions (a bias).
///
/// No communication. Partial plus Partial of one linear operation is Partial; Partial plus a finished value
/// is an error. @throws InvalidArgument where the extents differ or the tensors are on two meshes.
template <AnyShardedTensor Left, AnyShardedTensor Right>
[[nodiscard]] auto add(const Left& left, const Right& right,
                       SourceLocation where = SourceLocation::current()) {
  return detail::combined<detail::AddOperation>(left, right, where);
}
/// @brief A sharded tensor and a plain one: a sentence.
template <class Left, class Right>
requires(detail::MixedOperands<Left, Right>) auto add(const Left& left, const Right& right,
                                                      SourceLocation where = SourceLocation::current()) {
  return detail::mixed_operands(left, right, where);
}
/// @brief `out` = left + right; `out` may be one of the operands.
template <AnyShardedTensor Out, AnyShardedTensor Left, AnyShardedTensor Right>
void add_into(Out& out, const Left& left, const Right& right,
              SourceLocation where = SourceLocation::current()) {
  detail::combined_into<detail::AddOperation>(out, left, right, where);
}

/// @brief left * right, element by element; the right tensor may lack leading dimensions.
///
/// No communication. Partial times replicated is Partial. @throws as add.
template <AnyShardedTensor Left, AnyShardedTensor Right>
[[nodiscard]] auto multiply(const Left& left, const Right& right,
                            SourceLocation where = SourceLocation::current()) {
  return detail::combined<detail::MultiplyOperation>(left, right, where);
}
/// @brief A sharded tensor and a plain one: a sentence.
template <class Left, class Right>
requires(detail::MixedOperands<Left, Right>) auto multiply(const Left& left, const Right& right,
                                                           SourceLocation where = SourceLocation::current()) {
  return detail::mixed_operands(left, right, where);
}
/// @brief `out` = left * right; `out` may be one of the operands.
template <AnyShardedTensor Out, AnyShardedTensor Left, AnyShardedTensor Right>
void multiply_into(Out& out, const Left& left, const Right& right,
                   SourceLocation where = SourceLocation::current()) {
  detail::combined_into<detail::MultiplyOperation>(out, left, right, where);
}

/// @brief factor * input; linear, so Partial Sums and Avgs pass.
template <AnyShardedTensor Input>
[[nodiscard]] auto scale(const Input& input, double factor,
                         SourceLocation where = SourceLocation::current()) {
  using Result = detail::ResultTensor<ElementwiseLinearLayout<typename Input::layout>, Input>;
  if constexpr (detail::any_invalid<typename Result::layout>) {
    return Result(input.resources(), {}, where);
  } else {
    Result out(input.resources(), input.shape(), where);
    detail::map_elements<detail::ScaleFunction<MainElement<typename Input::value_type>>>(
        input.execution(), detail::vector_of(input), detail::mutable_vector_of(out), {factor});
    return out;
  }
}
/// @brief tensor = factor * tensor.
template <AnyShardedTensor Tensor>
void scale_in_place(Tensor& tensor, double factor) {
  using Result = detail::ResultTensor<ElementwiseLinearLayout<typename Tensor::layout>, Tensor>;
  if constexpr (!detail::any_invalid<typename Result::layout>)
    detail::map_elements<detail::ScaleFunction<MainElement<typename Tensor::value_type>>>(
        tensor.execution(), detail::vector_of(tensor), detail::mutable_vector_of(tensor), {factor});
}

/// @brief The tensor with another floating-point element type; narrowing rounds to nearest, ties to even.
template <class Element, AnyShardedTensor Input>
[[nodiscard]] auto convert(const Input& input, SourceLocation where = SourceLocation::current()) {
  static_assert(RealElement<Element> && RealElement<typename Input::value_type>,
                "convert: both element types must be floating-point (rounding to integers is not linear)");
  ShardedTensor<ElementwiseLinearLayout<typename Input::layout>, Element, typename Input::target> out(
      input.resources(), input.shape(), where);
  if (input.local_size() > 0)
    kernels::copy(input.execution(), detail::vector_of(input), detail::mutable_vector_of(out));
  return out;
}
/// @brief The same of an owner that is not needed any more: itself, where it has that element.
template <class Element, LayoutType L, class Target>
[[nodiscard]] ShardedTensor<L, Element, Target> convert(ShardedTensor<L, Element, Target>&& input) {
  return std::move(input);
}

/// Declares `name(input)` and `name_into(out, input)` of a nonlinear function.
#define SHARDWRIGHT_ELEMENTWISE(NAME, KERNEL)                                                                \
  template <AnyShardedTensor Input>                                                                          \
  [[nodiscard]] auto NAME(const Input& input, SourceLocation where = SourceLocation::current()) {            \
    return detail::mapped<operation::NAME>(input, detail::KERNEL{}, where);                                  \
  }                                                                                                          \
  template <AnyShardedTensor Out, AnyShardedTensor Input>                                                    \
  void NAME##_into(Out& out, const Input& input, SourceLocation where = SourceLocation::current()) {         \
    detail::mapped_into<operation::NAME>(out, input, detail::KERNEL{}, where);                               \
  }

/// @name Nonlinear functions of every element
/// The input must not be Partial. Real elements; `out` may be the input. No communication.
/// @{
SHARDWRIGHT_ELEMENTWISE(gelu, MapGelu)
SHARDWRIGHT_ELEMENTWISE(silu, MapSilu)
SHARDWRIGHT_ELEMENTWISE(relu, MapRelu)
SHARDWRIGHT_ELEMENTWISE(exp, MapExp)
SHARDWRIGHT_ELEMENTWISE(log, MapLog)
SHARDWRIGHT_ELEMENTWISE(sqrt, MapSqrt)
SHARDWRIGHT_ELEMENTWISE(square, MapSquare)
SHARDWRIGHT_ELEMENTWISE(tanh, MapTanh)
SHARDWRIGHT_ELEMENTWISE(sigmoid, MapSigmoid)
/// @}
#undef SHARDWRIGHT_ELEMENTWISE

} // namespace shardwright::inline SHARDWRIGHT_ABI
