// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of the kernel tests: views of random data, and the largest difference of two views.

#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/kernels/terms.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace kernels_test {

namespace sw = shardwright;
namespace kernels = sw::kernels;

using Memory = sw::DefaultTarget::memory_space;
using Execution = sw::DefaultTarget::execution_space;
template <class Element> using Matrix = Kokkos::View<Element**, Kokkos::LayoutRight, Memory>;
template <class Element> using Vector = Kokkos::View<Element*, Kokkos::LayoutRight, Memory>;

inline Execution execution() { return sw::DefaultTarget::make_execution_space(); }

/// Normal numbers that depend only on the tensor number and the index.
template <class Element>
Matrix<Element> random_matrix(std::size_t rows, std::size_t columns, std::uint64_t tensor,
                              double deviation = 1.0) {
  Matrix<Element> matrix("matrix", rows, columns);
  kernels::fill_normal(execution(), matrix, {{0, 0}, {rows, columns}}, {42, tensor}, 0.0, deviation);
  return matrix;
}

template <class Element>
Vector<Element> random_vector(std::size_t size, std::uint64_t tensor, double mean = 0.0) {
  Vector<Element> vector("vector", size);
  kernels::fill_normal(execution(), vector, {{0}, {size}}, {42, tensor}, mean, 1.0);
  return vector;
}

inline Vector<std::int32_t> random_ids(std::size_t size, std::size_t vocabulary, std::uint64_t tensor) {
  Vector<std::int32_t> ids("ids", size);
  for (std::size_t i = 0; i < size; ++i) {
    ids(i) = static_cast<std::int32_t>(sw::random_words({42, tensor}, i).word[0] % vocabulary);
  }
  return ids;
}

template <class View> View copy_of(const View& view) {
  View copy("copy", view.extent(0), view.extent(1));
  Kokkos::deep_copy(copy, view);
  return copy;
}

/// y = function(x), the kernel of Elementwise.
template <class Function, class X, class Y> void map(const Function& function, const X& x, const Y& y) {
  using Element = typename X::non_const_value_type;
  const kernels::NoElements none;
  kernels::store_formula("map", execution(), kernels::MapOf<Function>{function}, none,
                         kernels::Elements<Element>{x.data()}, none, y.data(), y.size());
}

/// dx = dy times the slope of a function at x, or at its result; the kernel of its gradient.
template <class Function, class At, class DY, class DX>
void map_slopes(const Function& function, const At& at, const DY& dy, const DX& dx) {
  using Element = typename DX::non_const_value_type;
  kernels::store_formula("slopes", execution(), kernels::SlopeOf<Function>{function},
                         kernels::Elements<Element>{dy.data()}, kernels::Elements<Element>{at.data()},
                         kernels::NoElements{}, dx.data(), dx.size());
}

/// out = function(left, right), the kernel of Binary; `period` elements of the right operand are repeated.
template <class Function, class Left, class Right, class Out>
void combine(const Function& function, const Left& left, const Right& right, const Out& out,
             std::size_t period) {
  using Element = typename Out::non_const_value_type;
  kernels::store_formula<true>("combine", execution(), kernels::CombineOf<Function>{function},
                               kernels::NoElements{}, kernels::Elements<Element>{left.data()},
                               kernels::RightElements<Element>{right.data(), period}, out.data(), out.size());
}
template <class Function, class Left, class Right, class Out>
void combine(const Function& function, const Left& left, const Right& right, const Out& out) {
  combine(function, left, right, out, out.size());
}

/// The sum over the rows of a matrix, with the kernel of a bias' gradient.
struct SameTerm {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x, sw::Unread, sw::Unread) const { return x; }
};
template <class X, class Out, class Work>
void column_sums(const X& x, const Out& out, const Work& work, bool add = false) {
  using Element = typename X::non_const_value_type;
  const kernels::NoElements none;
  const auto terms = kernels::terms_of<Element>(SameTerm(), kernels::Elements<Element>{x.data()}, none, none);
  kernels::column_sums(execution(), terms, x.extent(0), x.extent(1), out.data(), work.data(), add);
}

/// Largest difference of all elements; NaN if exactly one of two elements is NaN.
template <class A, class B> double largest_difference(const A& a, const B& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a.data()[i]);
    const double y = static_cast<double>(b.data()[i]);
    if (std::isnan(x) != std::isnan(y))
      return std::numeric_limits<double>::quiet_NaN();
    if (!std::isnan(x))
      largest = std::max(largest, std::abs(x - y));
  }
  return largest;
}

/// Sum of weight * value over all elements: a scalar objective whose gradient is `weight`.
template <class A, class B> double weighted_sum(const A& weight, const B& value) {
  double sum = 0.0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    sum += static_cast<double>(weight.data()[i]) * static_cast<double>(value.data()[i]);
  }
  return sum;
}

/// Checks `gradient` of the objective against central differences at every `stride`-th element of `variable`.
template <class View, class Gradient, class Objective>
void require_gradient(const View& variable, const Gradient& gradient, Objective objective,
                      std::size_t stride = 1) {
  const double step = 1e-5;
  double largest = 0.0;
  for (std::size_t i = 0; i < variable.size(); i += stride) {
    const double saved = variable.data()[i];
    variable.data()[i] = saved + step;
    const double above = objective();
    variable.data()[i] = saved - step;
    const double below = objective();
    variable.data()[i] = saved;
    const double expected = (above - below) / (2 * step);
    largest = std::max(largest, std::abs(expected - gradient.data()[i]) / (1.0 + std::abs(expected)));
  }
  REQUIRE(largest < 1e-7);
}

template <class Element> constexpr double tolerance = std::is_same_v<Element, float> ? 2e-5 : 1e-12;

} // namespace kernels_test
