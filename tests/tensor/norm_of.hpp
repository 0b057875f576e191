// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The arguments of a norm from views.

#include <shardwright/tensor/kernels/norm.hpp>

#include "tensor/kernels_support.hpp"

namespace kernels_test {

using kernels::span_of;

/// What both passes use; an empty mean is that of an RMSNorm.
template <class Element, class Number = sw::AccumulationElement<Element>>
kernels::Norm<Element> norm_of(const Matrix<Element>& x, const Vector<Element>& gain,
                               const Vector<Number>& inverse, const Vector<Number>& mean = {}) {
  return {.x = span_of(x),
          .gain = span_of(gain),
          .epsilon = 1e-5,
          .mean = span_of(mean),
          .inverse = span_of(inverse)};
}

/// The forward pass.
template <bool centred, class Element> void run_norm(kernels::Norm<Element> norm, const Matrix<Element>& y) {
  norm.y = span_of(y);
  kernels::norm_forward<centred>(execution(), norm);
}
/// The same of the sum with a branch.
template <bool centred, class Element>
void run_norm(kernels::Norm<Element> norm, const Matrix<Element>& branch, const Matrix<Element>& sum,
              const Matrix<Element>& y) {
  norm.branch = span_of(branch);
  norm.sum = span_of(sum);
  run_norm<centred>(norm, y);
}

/// The backward pass, with the arguments for the gradients of weights in `norm`.
template <bool centred, class Element>
void run_norm_gradient(kernels::Norm<Element> norm, const Matrix<Element>& dy, const Matrix<Element>& dx,
                       const Matrix<Element>& d_residual = {}) {
  norm.dy = span_of(dy);
  norm.dx = span_of(dx);
  norm.d_residual = span_of(d_residual);
  kernels::norm_backward<centred>(execution(), norm);
}

} // namespace kernels_test
