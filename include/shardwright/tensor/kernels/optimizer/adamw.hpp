// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW with the clipping factor applied in the same pass.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/optimizer/update.hpp>

#include <cmath>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief See adamw_of().
template <class Element> struct AdamWUpdate {
  using element = Element;
  Element* parameter;
  const Element* gradient;
  Element* first;
  Element* second;
  Element scale;
  Element keep1;  // beta1
  Element take1;  // 1 - beta1
  Element keep2;  // beta2
  Element take2;  // 1 - beta2
  Element rate;   // learning rate / (1 - beta1^step)
  Element spread; // 1 / sqrt(1 - beta2^step)
  Element epsilon;
  Element decay; // 1 - learning rate * weight decay

  /// Gives the updated parameter.
  template <class Chunk> SHARDWRIGHT_FUNCTION Lanes<Element> operator()(Chunk chunk, std::size_t i) const {
    // All loads come first: compilers do not move a load before a store that may alias it.
    const Lanes<Element> old = chunk.load(parameter + i);
    const Lanes<Element> g = scale * chunk.load(gradient + i);
    const Lanes<Element> m = keep1 * chunk.load(first + i) + take1 * g;
    const Lanes<Element> v = keep2 * chunk.load(second + i) + take2 * (g * g);
    chunk.store(first + i, m);
    chunk.store(second + i, v);
    const Lanes<Element> update = m / (detail::sqrt_of<Element>(v) * spread + epsilon);
    const Lanes<Element> p = old * decay - rate * update;
    chunk.store(parameter + i, p);
    return p;
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    use(parameter, gradient, first, second);
  }
  /// Sets what changes from step to step.
  SHARDWRIGHT_FUNCTION void set_step(const OptimizerStep& step, double learning_rate, double weight_decay) {
    scale = static_cast<Element>(step.scale);
    rate = static_cast<Element>(learning_rate / step.bias);
    spread = static_cast<Element>(step.spread);
    decay = static_cast<Element>(1.0 - learning_rate * weight_decay);
  }
};

/// @brief Begins the next step, or leaves everything unchanged.
struct OpenAdamWStep {
  OptimizerStep* to;
  double beta1;
  double beta2;

  SHARDWRIGHT_FUNCTION void open(bool take, double gradient_scale) const {
    OpenOptimizerStep{to}.open(take, gradient_scale);
    if (!take)
      return;
    const double t = static_cast<double>(to->step);
    to->bias = 1.0 - std::pow(beta1, t);
    to->spread = 1.0 / std::sqrt(1.0 - std::pow(beta2, t));
  }
};

/// @brief The elementwise kernel of one AdamW update with decoupled weight decay and bias correction
/// (Loshchilov and Hutter 2019, algorithm 2).
///
/// p = p (1 - lr wd) - lr m' / (sqrt(v') + eps), with m' = m / (1 - beta1^t), v' = v / (1 - beta2^t), once
/// set_step() has set the step. All four views are contiguous and of one size. Cost: 4 reads and 3 writes per
/// element.
template <KernelView Parameter, KernelView Gradient, KernelView Moment>
[[nodiscard]] auto adamw_of(const Parameter& parameter, const Gradient& gradient, const Moment& first_moment,
                            const Moment& second_moment, double beta1, double beta2, double epsilon) {
  using Element = typename Parameter::value_type;
  const auto p = flat_span_of(parameter, "adamw");
  AdamWUpdate<Element> update{};
  update.parameter = p.data;
  update.gradient = detail::related<const Element>("adamw", gradient, p.size);
  update.first = detail::related<Element>("adamw", first_moment, p.size);
  update.second = detail::related<Element>("adamw", second_moment, p.size);
  update.keep1 = static_cast<Element>(beta1);
  update.take1 = static_cast<Element>(1.0 - beta1);
  update.keep2 = static_cast<Element>(beta2);
  update.take2 = static_cast<Element>(1.0 - beta2);
  update.epsilon = static_cast<Element>(epsilon);
  return update;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
