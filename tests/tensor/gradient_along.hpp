// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The gradient of a squared norm on a tape along a direction, against a difference: for real and for
/// complex operands.

#include <shardwright/tensor/axpy.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/tape.hpp>

#include <cmath>
#include <complex>
#include <utility>

namespace tensor_test {

namespace sw = shardwright;

/// @brief |derivative of norm(f(x))^2 along `way` by the tape - by a central difference|, relative to 1 + its
/// size. `function` takes a tensor and a value on a tape.
template <class X, class Function>
[[nodiscard]] double gradient_error(const X& x, const X& way, Function function) {
  using sw::redistribute;
  sw::Tape tape;
  const auto variable = tape.variable(x);
  {
    const auto squares = squared_norm(function(variable));
    using L = sw::Gradient<typename std::remove_cvref_t<decltype(squares)>::layout>;
    sw::ShardedTensor<L, double> one(x.resources(), {});
    sw::fill(one, 1);
    tape.seed(squares, std::move(one));
  }
  tape.backward();
  const auto slope = sw::item(redistribute<sw::Layout<0>>(sw::dot(tape.gradient(variable), way)));
  const auto number = [&](double step) {
    auto moved = x.clone();
    sw::axpy(step, way, moved);
    return sw::item(redistribute<sw::Layout<0>>(sw::squared_norm(function(moved))));
  };
  constexpr double step = 1e-5;
  const double by_difference = (number(step) - number(-step)) / (2 * step);
  return std::fabs(std::real(slope) - by_difference) / (1 + std::fabs(by_difference));
}

} // namespace tensor_test
