// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The buffers of one attention problem on random data.

#include <shardwright/tensor/kernels/attention.hpp>

#include "tensor/kernels_support.hpp"

#include <cmath>

namespace kernels_test {

template <class Element> struct AttentionProblem {
  using Main = sw::AccumulationElement<Element>;
  kernels::AttentionShape shape;
  double scale;
  Matrix<Element> qkv, out, d_out, d_qkv;
  Vector<Main> log_sum_exp, work;

  explicit AttentionProblem(const kernels::AttentionShape& s)
      : shape(s), scale(1 / std::sqrt(static_cast<double>(s.head_dim))),
        qkv(random_matrix<Element>(s.tokens(), s.qkv_width(), 1)), out("out", s.tokens(), s.output_width()),
        d_out(random_matrix<Element>(s.tokens(), s.output_width(), 2)),
        d_qkv("d_qkv", s.tokens(), s.qkv_width()), log_sum_exp("lse", s.tokens() * s.heads()),
        work("work", kernels::attention_backward_workspace<Element>(execution(), s)) {}
};

} // namespace kernels_test
