// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Every public operation on values of a tape, once: what operations_gradient tests check.
/// scripts/check_operations fails where one is missing.

#include "train/operation_check.hpp"

#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/softmax.hpp>
#include <shardwright/train/lazy_sum.hpp>

namespace operations_test {

using Shape1 = std::array<std::int64_t, 1>;
using Shape2 = std::array<std::int64_t, 2>;
using Shape3 = std::array<std::int64_t, 3>;

// Functions of every element.

template <class Entry>
struct Function : OfOne<Entry> {
  static constexpr Shape2 shape{5, 4};
  template <class L>
  static constexpr bool legal = nonlinear<L>;
};
struct GeluTanh : Function<GeluTanh> {
  static constexpr std::string_view name = "gelu_tanh";
  static auto call(auto x) { return sw::gelu_tanh(x); }
};
struct GeluErf : Function<GeluErf> {
  static constexpr std::string_view name = "gelu_erf";
  static auto call(auto x) { return sw::gelu_erf(x); }
};
struct Silu : Function<Silu> {
  static constexpr std::string_view name = "silu";
  static auto call(auto x) { return sw::silu(x); }
};
struct Relu : Function<Relu> {
  static constexpr std::string_view name = "relu";
  static auto call(auto x) { return sw::relu(x); }
};
struct Sigmoid : Function<Sigmoid> {
  static constexpr std::string_view name = "sigmoid";
  static auto call(auto x) { return sw::sigmoid(x); }
};
struct Tanh : Function<Tanh> {
  static constexpr std::string_view name = "tanh";
  static auto call(auto x) { return sw::tanh(x); }
};
struct Exp : Function<Exp> {
  static constexpr std::string_view name = "exp";
  static auto call(auto x) { return sw::exp(x); }
};
struct Log : Function<Log> {
  static constexpr std::string_view name = "log";
  static constexpr double low = 0.2;
  static auto call(auto x) { return sw::log(x); }
};
struct Sqrt : Function<Sqrt> {
  static constexpr std::string_view name = "sqrt";
  static constexpr double low = 0.2;
  static auto call(auto x) { return sw::sqrt(x); }
};
struct Square : Function<Square> {
  static constexpr std::string_view name = "square";
  static auto call(auto x) { return sw::square(x); }
};

// Functions of rows.

template <class Entry>
struct RowFunction : OfOne<Entry> {
  static constexpr Shape3 shape{5, 3, 4};
  template <class L>
  static constexpr bool legal = rowwise<L>;
};
struct Softmax : RowFunction<Softmax> {
  static constexpr std::string_view name = "softmax";
  static auto call(auto x) { return sw::softmax(x); }
};
struct LogSoftmax : RowFunction<LogSoftmax> {
  static constexpr std::string_view name = "log_softmax";
  static auto call(auto x) { return sw::log_softmax(x); }
};

// Linear ones.

template <class Entry>
struct Linear : OfOne<Entry> {
  static constexpr Shape2 shape{5, 4};
  template <class L>
  static constexpr bool legal = linear<L>;
};
struct Scale : Linear<Scale> {
  static constexpr std::string_view name = "scale";
  static auto call(auto x) { return sw::scale(x, -2.5); }
};
struct Signs : Linear<Signs> {
  static constexpr std::string_view name = "operator-, operator*, operator/";
  static auto call(auto x) { return -(2.0 * x) + x * 3.0 - x / 4.0; }
};
struct Convert : Linear<Convert> {
  static constexpr std::string_view name = "convert";
  static constexpr sw::GradientCheck options{.step = 1,
                                             .tolerance = 1e-5}; // linear, but for the rounding to float
  static auto call(auto x) { return sw::convert<double>(sw::convert<float>(x)); }
};

// Reductions.

template <class Entry, int dimension>
struct Reduction : OfOne<Entry> {
  static constexpr Shape3 shape{5, 3, 4};
  template <class L>
  static constexpr bool legal = accepts<sw::detail::ReductionRule<sw::Sum, dimension>, L>;
};
struct SumOver0 : Reduction<SumOver0, 0> {
  static constexpr std::string_view name = "sum, reduce";
  static auto call(auto x) { return sw::sum<0>(x); }
};
struct SumOver1 : Reduction<SumOver1, 1> {
  static constexpr std::string_view name = "sum, reduce";
  static auto call(auto x) { return sw::sum<1>(x); }
};
struct MeanOver2 : Reduction<MeanOver2, 2> {
  static constexpr std::string_view name = "mean";
  static auto call(auto x) { return sw::mean<2>(x); }
};
template <class Entry>
struct ReductionOfAll : OfOne<Entry> {
  static constexpr Shape3 shape{5, 3, 4};
  template <class L>
  static constexpr bool legal = accepts<sw::detail::ReduceAllRule<sw::Sum>, L>;
};
struct SumOfAll : ReductionOfAll<SumOfAll> {
  static constexpr std::string_view name = "sum, reduce_all";
  static auto call(auto x) { return sw::sum(x); }
};
struct MeanOfAll : ReductionOfAll<MeanOfAll> {
  static constexpr std::string_view name = "mean";
  static auto call(auto x) { return sw::mean(x); }
};
struct SquaredNorm : Function<SquaredNorm> {
  static constexpr std::string_view name = "squared_norm";
  static auto call(auto x) { return sw::squared_norm(x); }
};
struct Norm : Function<Norm> {
  static constexpr std::string_view name = "norm";
  static auto call(auto x) { return sw::norm(x); }
};

// Two operands.

template <class Entry, class Rule>
struct Arithmetic : OfTwo<Entry> {
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{5, 4};
  template <class Left, class Right>
  static constexpr bool legal = accepts<Rule, Left, Right>;
};
template <class Entry, class Rule>
struct WithRow : Arithmetic<Entry, Rule> {
  static constexpr Shape1 right_shape{4};
};
struct Add : Arithmetic<Add, sw::detail::AddRule> {
  static constexpr std::string_view name = "add, operator+";
  static auto call(auto x, auto y) { return x + y; }
};
struct AddRow : WithRow<AddRow, sw::detail::AddRule> {
  static constexpr std::string_view name = "add, operator+";
  static auto call(auto x, auto y) { return x + y; }
};
struct Subtract : Arithmetic<Subtract, sw::detail::AddRule> {
  static constexpr std::string_view name = "subtract, operator-";
  static auto call(auto x, auto y) { return x - y; }
};
struct SubtractRow : WithRow<SubtractRow, sw::detail::AddRule> {
  static constexpr std::string_view name = "subtract, operator-";
  static auto call(auto x, auto y) { return x - y; }
};
struct Multiply : Arithmetic<Multiply, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "multiply, operator*";
  static auto call(auto x, auto y) { return x * y; }
};
struct MultiplyRow : WithRow<MultiplyRow, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "multiply, operator*";
  static auto call(auto x, auto y) { return x * y; }
};
template <class Left, class Right>
inline constexpr bool divisible = nonlinear<Right>&& accepts<sw::detail::MultiplyRule, Left, Right>;
struct Divide : Arithmetic<Divide, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "divide, operator/";
  static constexpr double low = 0.5;
  template <class Left, class Right>
  static constexpr bool legal = divisible<Left, Right>;
  static auto call(auto x, auto y) { return x / y; }
};
struct DivideRow : WithRow<DivideRow, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "divide, operator/";
  static constexpr double low = 0.5;
  template <class Left, class Right>
  static constexpr bool legal = divisible<Left, Right>;
  static auto call(auto x, auto y) { return x / y; }
};
struct Dot : Arithmetic<Dot, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "dot";
  static auto call(auto x, auto y) { return sw::dot(x, y); }
};
struct Matmul : OfTwo<Matmul> {
  static constexpr std::string_view name = "matmul";
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{4, 3};
  template <class Left, class Right>
  static constexpr bool legal = accepts<sw::detail::MatmulRule<sw::MatmulForm::plain>, Left, Right>;
  static auto call(auto x, auto y) { return sw::matmul(x, y); }
};
struct MatmulTransposed : OfTwo<MatmulTransposed> {
  static constexpr std::string_view name = "matmul_transposed";
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{3, 4};
  template <class Left, class Right>
  static constexpr bool legal =
      accepts<sw::detail::MatmulRule<sw::MatmulForm::right_transposed>, Left, Right>;
  static auto call(auto x, auto y) { return sw::matmul_transposed(x, y); }
};

/// @brief The list. Operations of one operand are checked on three ranks of one axis, those of two on two
/// axes.
using OnOneAxis =
    Operations<GeluTanh, GeluErf, Silu, Relu, Sigmoid, Tanh, Exp, Log, Sqrt, Square, Softmax, LogSoftmax,
               Scale, Signs, Convert, SumOver0, SumOver1, MeanOver2, SumOfAll, MeanOfAll, SquaredNorm, Norm>;
using OnTwoAxes = Operations<Add, AddRow, Subtract, SubtractRow, Multiply, MultiplyRow, Divide, DivideRow,
                             Dot, Matmul, MatmulTransposed>;

} // namespace operations_test
