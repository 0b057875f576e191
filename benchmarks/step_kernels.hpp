// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Every local kernel of one training step on one rank, ready to run, with the bytes that it must move
/// and its operations.

#include "step_sizes.hpp"

#include <shardwright/core/element.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/norm.hpp>
#include <shardwright/tensor/kernels/optimizer/adamw.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace step_kernels {

namespace sw = shardwright;
namespace kernels = sw::kernels;

/// @brief One kernel of the step, on its own data or on that of its neighbours.
struct StepKernel {
  std::string name;
  std::string group; ///< "linear": products of the layers' matrices.
  double calls;      ///< Per step.
  double flops;      ///< Per call; 0 if bytes are the measure.
  double bytes;      ///< Per call: every input once and every output once.
  std::function<void()> run;
};

/// @brief The kernels in the order of a step, with parameters and activations of `Element`; gradients of
/// parameters, statistics and optimizer state have its main element.
template <sw::Target Where, class Element> class StepKernels {
  using Main = sw::AccumulationElement<Element>;
  template <class Value>
  using Matrix = Kokkos::View<Value**, Kokkos::LayoutRight, typename Where::memory_space>;
  template <class Value>
  using Vector = Kokkos::View<Value*, Kokkos::LayoutRight, typename Where::memory_space>;
  using Ids = Vector<std::int32_t>;

public:
  explicit StepKernels(const Sizes& s)
      : s_(s), shape_{s.batch, s.sequence, s.kv_heads, s.heads / s.kv_heads, s.width / s.heads},
        tokens_(shape_.tokens()), execution_(Where::make_execution_space()) {
    const double t = static_cast<double>(tokens_);
    const double d = static_cast<double>(s.width);
    const double f = sizeof(Element);
    const double main = sizeof(Main);
    const double layers = static_cast<double>(s.layers);
    const double norms = 2 * layers + 1;
    const double qkv = static_cast<double>(shape_.qkv_width());
    const double hidden = static_cast<double>(s.hidden);
    const double vocabulary = static_cast<double>(s.vocabulary);

    const Matrix<Element> x = random(tokens_, s.width), y = random(tokens_, s.width),
                          sum = random(tokens_, s.width);
    const Matrix<Element> d_x = random(tokens_, s.width), d_y = random(tokens_, s.width);
    const Matrix<Element> fused = random(tokens_, shape_.qkv_width()),
                          d_fused = random(tokens_, shape_.qkv_width());
    const Matrix<Element> gate_up = random(tokens_, 2 * s.hidden), d_gate_up = random(tokens_, 2 * s.hidden);
    const Matrix<Element> h = random(tokens_, s.hidden), d_h = random(tokens_, s.hidden);
    const Matrix<Element> logits = random(tokens_, s.vocabulary); // as linear_cross_entropy has them
    const Matrix<Element> table = random(s.vocabulary, s.width);
    const Matrix<Main> d_table = random<Main>(s.vocabulary, s.width);
    const Matrix<Main> cosines("cosines", s.sequence, shape_.head_dim / 2),
        sines("sines", s.sequence, shape_.head_dim / 2);
    kernels::fill_rotary_tables(execution_, cosines, sines);
    const Vector<Element> gain("gain", s.width);
    const Vector<Main> d_gain("d_gain", s.width), rms("rms", tokens_), lse("lse", tokens_ * s.heads);
    kernels::fill(execution_, gain, Element(1));
    const Vector<Main> row_max("row_max", tokens_), row_sum("row_sum", tokens_), target("target", tokens_);
    const Vector<Main> loss("loss", tokens_);
    const Vector<Main> norm_work("work", kernels::norm_workspace(tokens_, s.width, false));
    const Vector<Main> attention_work(
        "work", std::max(kernels::attention_forward_workspace<Element>(execution_, shape_),
                         kernels::attention_backward_workspace<Element>(execution_, shape_)));
    const Ids ids = random_ids(2), targets = random_ids(3);
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim));
    const auto shape = shape_;
    const auto whole = kernels::AttentionBlock::whole(shape.sequence);
    const auto e = execution_;

    add("embedding", "embedding", 1, 0, 2 * t * d * f,
        [=] { kernels::embedding_forward(e, ids, table, 0, x); });
    add("add + rms_norm", "norm", norms, 0, 4 * t * d * f, [=] {
      kernels::norm_forward<false>(e, kernels::Norm<Element>{.x = kernels::span_of(x),
                                                             .branch = kernels::span_of(y),
                                                             .gain = kernels::span_of(gain),
                                                             .epsilon = 1e-5,
                                                             .sum = kernels::span_of(sum),
                                                             .y = kernels::span_of(d_y),
                                                             .inverse = kernels::span_of(rms)});
    });
    linear_forward("qkv", sum, fused);
    add("rotary", "rotary", layers, 0, 2 * t * qkv * f * 2 / 3, [=] {
      kernels::rotary_forward(e, fused, cosines, sines, shape, sw::TokenRuns::one(shape.sequence));
    });
    const double scores = static_cast<double>(s.batch * s.heads * s.sequence * s.sequence) *
                          static_cast<double>(shape_.head_dim);
    add("attention", "attention", layers, 2 * scores, t * (qkv + d) * f,
        [=] { kernels::attention_forward(e, fused, x, lse, shape, whole, scale, attention_work); });
    linear_forward("out", x, y);
    linear_forward("gate_up", y, gate_up);
    add("swiglu", "swiglu", layers, 0, 3 * t * hidden * f, [=] { kernels::swiglu_forward(e, gate_up, h); });
    linear_forward("down", h, y);
    product("head", "head", y, false, table, true, logits);
    add("statistics, loss", "cross entropy", 1, 0, t * vocabulary * f, [=] {
      kernels::cross_entropy_statistics(e, logits, targets, 0, row_max, row_sum, target);
      kernels::cross_entropy_loss(e, row_max, row_sum, target, targets, loss);
    });
    add("d_logits", "cross entropy", 1, 0, 2 * t * vocabulary * f,
        [=] { kernels::cross_entropy_backward(e, logits, row_max, row_sum, targets, 0, 1e-3, logits); });
    product("d_head weight", "head", logits, true, y, false, d_table);
    product("d_head input", "head", logits, false, table, false, d_y);
    linear_backward("down", h, d_y, d_h);
    add("d_swiglu", "swiglu", layers, 0, 5 * t * hidden * f,
        [=] { kernels::swiglu_backward(e, gate_up, d_h, d_gate_up); });
    linear_backward("gate_up", y, d_gate_up, d_x);
    add("d_norm + residual", "norm", norms, 0, 4 * t * d * f, [=] {
      kernels::norm_backward<false>(e, kernels::Norm<Element>{.x = kernels::span_of(sum),
                                                              .gain = kernels::span_of(gain),
                                                              .inverse = kernels::span_of(rms),
                                                              .dy = kernels::span_of(d_x),
                                                              .d_residual = kernels::span_of(d_y),
                                                              .dx = kernels::span_of(d_y),
                                                              .d_gain = kernels::span_of(d_gain),
                                                              .workspace = kernels::span_of(norm_work)});
    });
    linear_backward("out", x, d_y, d_x);
    const kernels::Rotation<Main> undone{kernels::span_of(cosines), kernels::span_of(sines),
                                         sw::TokenRuns::one(shape.sequence)};
    add("d_attention, d_rotary", "attention", layers, 5 * scores, t * (2 * qkv + 2 * d) * f, [=] {
      kernels::attention_backward(e, fused, x, lse, d_x, d_fused, shape, whole, scale, attention_work,
                                  undone);
    });
    linear_backward("qkv", sum, d_fused, d_x);
    add("d_embedding", "embedding", 1, 0, t * d * f + vocabulary * d * main,
        [=] { kernels::embedding_backward(e, ids, d_x, 0, d_table); });

    std::size_t parameters = 2 * s.vocabulary * s.width + (2 * s.layers + 1) * s.width;
    for (const auto& [name, weight] : weights_)
      parameters += s.layers * weight.size();
    const double p = static_cast<double>(parameters);
    const Vector<Main> parameter("parameter", parameters), gradient("gradient", parameters);
    const Vector<Main> first("first", parameters), second("second", parameters);
    const Vector<double> norm("norm", 1), norm_partials("partials", kernels::reduce_workspace(parameters));
    kernels::fill(execution_, gradient, Main(0.01));
    add("gradient norm", "optimizer", 1, 0, p * main, [=] {
      kernels::SquareSum squares(e, norm_partials.data());
      squares.add(gradient);
      squares.finish(norm);
    });
    add("clip + AdamW", "optimizer", 1, 0, 7 * p * main, [=] {
      kernels::OptimizerStep step;
      kernels::OpenAdamWStep{&step, 0.9, 0.95}.open(true, 1);
      auto update = kernels::adamw_of(parameter, gradient, first, second, 0.9, 0.95, 1e-8);
      update.set_step(step, 3e-4, 0.1);
      kernels::run_elementwise<Main>("sw::adamw", e, parameter.size(), update);
    });
  }

  [[nodiscard]] const std::vector<StepKernel>& list() const { return kernels_; }
  [[nodiscard]] const typename Where::execution_space& execution() const { return execution_; }

private:
  void add(std::string name, std::string group, double calls, double flops, double bytes,
           std::function<void()> run) {
    kernels_.push_back({std::move(name), std::move(group), calls, flops, bytes, std::move(run)});
  }

  template <class Value = Element> Matrix<Value> random(std::size_t rows, std::size_t columns) {
    const Matrix<Value> matrix(Kokkos::view_alloc(std::string("matrix"), Kokkos::WithoutInitializing), rows,
                               columns);
    kernels::fill_normal(execution_, matrix, {{0, 0}, {rows, columns}}, {7, ++tensors_}, 0.0, 0.05);
    return matrix;
  }

  Ids random_ids(std::uint64_t stream) const {
    const Ids out("ids", tokens_);
    const auto host = Kokkos::create_mirror_view(out);
    for (std::size_t i = 0; i < tokens_; ++i)
      host(i) = static_cast<std::int32_t>(sw::random_words({1, stream}, i).word[0] % s_.vocabulary);
    Kokkos::deep_copy(out, host);
    return out;
  }

  template <class C>
  void product(const std::string& name, const char* group, const Matrix<Element>& a, bool transpose_a,
               const Matrix<Element>& b, bool transpose_b, const Matrix<C>& c) {
    const double k = static_cast<double>(transpose_a ? a.extent(0) : a.extent(1));
    const double calls = std::string(group) == "linear" ? static_cast<double>(s_.layers) : 1.0;
    const double bytes = sizeof(Element) * static_cast<double>(a.size() + b.size()) +
                         sizeof(C) * static_cast<double>(c.size());
    add(name, group, calls, 2.0 * k * static_cast<double>(c.size()), bytes,
        [e = execution_, a, b, c, transpose_a, transpose_b] {
          kernels::matmul(e, a, kernels::Transpose(transpose_a), b, kernels::Transpose(transpose_b), c);
        });
  }

  void linear_forward(const std::string& name, const Matrix<Element>& x, const Matrix<Element>& y) {
    const Matrix<Element> weight = random(x.extent(1), y.extent(1));
    weights_.emplace(name, weight);
    product(name, "linear", x, false, weight, false, y);
  }

  void linear_backward(const std::string& name, const Matrix<Element>& x, const Matrix<Element>& d_y,
                       const Matrix<Element>& d_x) {
    const Matrix<Element>& weight = weights_.at(name);
    product("d_" + name + " input", "linear", d_y, false, weight, true, d_x);
    product("d_" + name + " weight", "linear", x, true, d_y, false,
            random<Main>(weight.extent(0), weight.extent(1)));
  }

  Sizes s_;
  kernels::AttentionShape shape_;
  std::size_t tokens_;
  typename Where::execution_space execution_;
  std::uint64_t tensors_ = 0;
  std::map<std::string, Matrix<Element>> weights_;
  std::vector<StepKernel> kernels_;
};

} // namespace step_kernels
