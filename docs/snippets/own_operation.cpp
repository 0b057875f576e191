// SPDX-License-Identifier: Apache-2.0
//
// Operations of a program's own, on tensors and on tapes: elementwise functions of one and of two operands,
// made from formulas, and one with a layout rule, a kernel and a gradient. Gradients are checked on four
// thread ranks, and a wrong one is caught.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/train/check_gradients.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace sw = shardwright;
using namespace sw::axis;

//! [function]
namespace mine {

/// log(1 + exp(x)).
struct Softplus {
  static constexpr std::string_view name = "softplus"; // in errors, profiles and a dry run's table
  static constexpr bool slope_of_result = false;       // the slope is a function of x, which is kept
  template <class V> V operator()(V x) const {
    return chosen(x > 0, x, 0) + log(1 + exp(chosen(x > 0, -x, x))); // never overflows
  }
  template <class V> V slope(V x) const { return sigmoid(x); }
};
inline constexpr sw::Elementwise<Softplus> softplus{};

} // namespace mine
//! [function]

//! [numbers]
namespace mine {

/// x, or a part of it below 0.
struct LeakyRelu {
  static constexpr std::string_view name = "leaky_relu";
  static constexpr bool slope_of_result = true; // the result has the sign of x, which need not be kept
  double below;
  template <class V> V operator()(V x) const { return chosen(x < 0, below * x, x); }
  template <class V> V slope(V y) const { return chosen(y < 0, below, 1); }
  auto numbers() const { return std::array{sw::GivenNumber("slope below 0", below)}; }
};
inline constexpr sw::Elementwise<LeakyRelu> leaky_relu{{.below = 0.01}};

} // namespace mine
//! [numbers]

//! [binary]
namespace mine {

/// sqrt(left^2 + right^2).
struct Hypotenuse {
  static constexpr std::string_view name = "hypotenuse";
  template <class V> V operator()(V left, V right) const { return sqrt(left * left + right * right); }
  template <class V> V left_gradient(V dy, V left, V right) const { return dy * left / (*this)(left, right); }
  template <class V> V right_gradient(V dy, V left, V right) const {
    return dy * right / (*this)(left, right);
  }
};
inline constexpr sw::Binary<Hypotenuse> hypotenuse{};

} // namespace mine
//! [binary]

//! [linear]
namespace mine {

/// (left + right) / 2.
struct Midpoint {
  static constexpr std::string_view name = "midpoint";
  template <class Left, class Right>
  using layout = sw::AddLayout<Left, Right>; // linear: Partial plus Partial
  template <class V> V operator()(V left, V right) const { return 0.5 * (left + right); }
  template <class V> V left_gradient(V dy, sw::Unread, sw::Unread) const { return 0.5 * dy; }
  template <class V> V right_gradient(V dy, sw::Unread, sw::Unread) const { return 0.5 * dy; }
};
inline constexpr sw::Binary<Midpoint> midpoint{};

} // namespace mine
//! [linear]

//! [rule]
namespace mine {

SHARDWRIGHT_NONLINEAR_OPERATION(running_sum); // messages that begin with "running_sum: "

template <class Input>
using RunningSumLayout = sw::RowwiseLayout<running_sum, Input>; // same as the input, with whole rows

} // namespace mine
//! [rule]

//! [kernel]
namespace mine {

/// The sum of each element of a row and those before it, or after it.
template <class Element> struct RunningSumKernel {
  const Element* x;
  Element* out;
  std::size_t columns;
  bool backwards;
  KOKKOS_FUNCTION void operator()(std::size_t row) const {
    Element sum = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t i = row * columns + (backwards ? columns - 1 - c : c);
      out[i] = sum += x[i];
    }
  }
};

template <class Element, class Tensor> void run_running_sum(const Element* x, Tensor& out, bool backwards) {
  using Policy =
      Kokkos::RangePolicy<typename Tensor::target::execution_space, Kokkos::IndexType<std::size_t>>;
  const auto rows = out.local_matrix().extent(0);
  const RunningSumKernel<Element> kernel{x, out.mutable_data(), out.local_matrix().extent(1), backwards};
  if constexpr (!sw::counts_only<typename Tensor::target>) // a dry run has shapes but no memory
    Kokkos::parallel_for("running_sum", Policy(out.execution(), 0, rows), kernel);
}

} // namespace mine
//! [kernel]

//! [operation]
namespace mine {

struct RunningSum {
  static constexpr std::string_view name = "running_sum"; // in a dry run's table
  static constexpr bool gradient_reads_input = false;     // x need not be kept for it
  static constexpr bool gradient_reads_output = false;    // nor y

  template <sw::AnyShardedTensor X> auto forward(sw::SourceLocation where, const X& x) const {
    sw::ShardedTensor<RunningSumLayout<typename X::layout>, typename X::value_type, typename X::target> y(
        x.resources(), x.shape(), where);
    run_running_sum(x.data(), y, false);
    return y;
  }
  template <sw::AnyShardedTensor G, sw::AnyShardedTensor X, sw::AnyShardedTensor Y>
  auto gradient(G&& y_gradient, const X&, const Y&) const {    // of x and y it has only the extents
    auto [from, out] = sw::reuse(std::forward<G>(y_gradient)); // in place, if nothing else has its memory
    run_running_sum(from, out, true);
    return std::move(out);
  }
};

/// The sums of the elements of each row up to each of them.
template <sw::Operand X>
auto running_sum_of(X&& x, sw::SourceLocation where = sw::SourceLocation::current()) {
  return apply(RunningSum{}, where,
               std::forward<X>(x)); // on tensors: only the forward pass; on a tape: recorded as well
}

} // namespace mine
//! [operation]

//! [wrong]
/// As a first attempt might look: the slope of exp, not of softplus.
struct WrongSoftplus : mine::Softplus {
  template <class V> V slope(V x) const { return exp(x); }
};
//! [wrong]

int program(sw::HostCommunicator world) {
  //! [check]
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Column = sw::Layout<2, sw::Shard<1, tp>>;
  const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};

  sw::ShardedTensor<Rows, double> x(mesh, {5, 4}); // uneven: three rows and two
  sw::ShardedTensor<Column, double> w(mesh, {4, 3});
  sw::fill_normal(x, {.seed = 1, .tensor = 0});
  sw::fill_normal(w, {.seed = 1, .tensor = 1});

  const auto layer = [](auto rows, auto weights) { return mine::softplus(sw::matmul(rows, weights)); };
  const sw::GradientDifference worst = sw::check_gradients(layer, sw::members("x", x, "w", w));
  //! [check]

  sw::ShardedTensor<sw::Layout<1>, double> row(mesh, {4});
  sw::fill_normal(row, {.seed = 1, .tensor = 2});
  const auto others = [](auto rows, auto right) {
    return mine::midpoint(mine::running_sum_of(mine::hypotenuse(rows, right)), mine::leaky_relu(rows));
  };
  const sw::GradientDifference of_others = sw::check_gradients(others, sw::members("x", x, "row", row));

  bool found = false;
  std::string sentence;
  //! [find]
  try {
    const sw::Elementwise<WrongSoftplus> wrong{};
    sw::check_gradients([&](auto rows) { return wrong(rows); }, sw::members("x", x));
  } catch (const sw::GradientMismatch& mismatch) {
    found = mismatch.difference().error > 0.01;
    sentence = mismatch.what();
  }
  //! [find]

  const auto y = mine::softplus(x); // of tensors
  if (world.rank() == 0)
    std::printf("largest error of a gradient: %.1e\n%s\n", worst.error, sentence.c_str());
  return worst.error < 1e-7 && of_others.error < 1e-7 && found && std::is_same_v<decltype(y)::layout, Rows>
             ? 0
             : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
