// SPDX-License-Identifier: Apache-2.0
//
// A custom operation, softplus, with layout rule, kernel and gradient, on tensors and on tapes; its gradient
// is checked on four thread ranks, and a wrong one is caught.
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/train/check_gradients.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace sw = shardwright;
using namespace sw::axis;

//! [rule]
namespace mine {

SHARDWRIGHT_NONLINEAR_OPERATION(softplus); // messages that begin with "softplus: "

template <class Input>
using SoftplusLayout =
    sw::ElementwiseNonlinearLayout<softplus, Input>; // same as the input; Partial is an error

} // namespace mine
//! [rule]

//! [kernel]
namespace mine {

/// out = log(1 + exp(x)), or for a gradient, the derivative times `from`.
template <class Element> struct SoftplusKernel {
  const Element* x;
  const Element* from; // null in the forward pass
  Element* out;
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
    const Element e = std::exp(-std::abs(x[i])); // never overflows
    if (from == nullptr)
      out[i] = (x[i] > 0 ? x[i] : Element(0)) + std::log1p(e);
    else
      out[i] = from[i] * (x[i] > 0 ? 1 / (1 + e) : e / (1 + e));
  }
};

template <class Tensor, class Kernel> void run(const Tensor& out, const Kernel& kernel) {
  using Policy =
      Kokkos::RangePolicy<typename Tensor::target::execution_space, Kokkos::IndexType<std::size_t>>;
  if constexpr (!sw::counts_only<typename Tensor::target>) // a dry run has shapes but no memory
    Kokkos::parallel_for("softplus", Policy(out.execution(), 0, out.local_size()), kernel);
}

} // namespace mine
//! [kernel]

//! [operation]
namespace mine {

struct Softplus {
  static constexpr std::string_view name = "softplus"; // in a dry run's table
  static constexpr bool gradient_reads_input = true;   // x is kept for it
  static constexpr bool gradient_reads_output = false; // y is not

  template <sw::AnyShardedTensor X> auto forward(sw::SourceLocation where, const X& x) const {
    using Element = typename X::value_type;
    sw::ShardedTensor<SoftplusLayout<typename X::layout>, Element, typename X::target> y(x.resources(),
                                                                                         x.shape(), where);
    run(y, SoftplusKernel<Element>{x.data(), nullptr, y.mutable_data()});
    return y;
  }
  template <sw::AnyShardedTensor G, sw::AnyShardedTensor X, sw::AnyShardedTensor Y>
  auto gradient(const G& y_gradient, const X& x, const Y&) const {
    using Element = typename X::value_type;
    sw::ShardedTensor<typename G::layout, Element, typename X::target> out(x.resources(), x.shape());
    run(out, SoftplusKernel<Element>{x.data(), y_gradient.data(), out.mutable_data()});
    return out;
  }
};

/// log(1 + exp(x)) of every element.
template <sw::Operand X> auto softplus_of(X&& x, sw::SourceLocation where = sw::SourceLocation::current()) {
  return apply(Softplus{}, where,
               std::forward<X>(x)); // on tensors: only the forward pass; on a tape: recorded as well
}

} // namespace mine
//! [operation]

//! [wrong]
/// As a first attempt might look: the derivative of exp, not of softplus.
struct WrongSoftplus : mine::Softplus {
  template <class G, class X, class Y> auto gradient(const G& y_gradient, const X& x, const Y&) const {
    return sw::multiply(y_gradient, sw::exp(x));
  }
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

  const auto layer = [](auto rows, auto weights) { return mine::softplus_of(sw::matmul(rows, weights)); };
  const sw::GradientDifference worst = sw::check_gradients(layer, sw::members("x", x, "w", w));
  //! [check]

  bool found = false;
  std::string sentence;
  //! [find]
  try {
    const auto wrong = [](auto rows) { return apply(WrongSoftplus{}, sw::SourceLocation::current(), rows); };
    sw::check_gradients(wrong, sw::members("x", x));
  } catch (const sw::GradientMismatch& mismatch) {
    found = mismatch.difference().error > 0.01;
    sentence = mismatch.what();
  }
  //! [find]

  const auto y = mine::softplus_of(x); // of tensors
  if (world.rank() == 0)
    std::printf("largest error of a gradient: %.1e\n%s\n", worst.error, sentence.c_str());
  return worst.error < 1e-7 && found && std::is_same_v<decltype(y)::layout, Rows> ? 0 : 1;
}

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  try {
    return sw::launch({.ranks = 4}, program);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
