// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW with the clipping factor applied in the same pass.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/optimizer/update.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Constants of one AdamW step.
struct AdamWStep {
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  std::int64_t step = 1; ///< Number of this update, from 1; for the bias correction.
  double gradient_scale =
      1.0; ///< Factor on the gradient: clipping, and the division by the global token count.
};

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
  /// The constants of adamw_of on the host, operation for operation.
  SHARDWRIGHT_FUNCTION void set_step(const OptimizerDeviceStep& step, double learning_rate,
                                     double weight_decay) {
    scale = static_cast<Element>(step.scale);
    rate = static_cast<Element>(learning_rate / step.bias);
    spread = static_cast<Element>(step.spread);
    decay = static_cast<Element>(1.0 - learning_rate * weight_decay);
  }
};

/// @brief Begins the next step, or leaves everything unchanged.
struct OpenAdamWStep {
  OptimizerDeviceStep* to;
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
/// p = p (1 - lr wd) - lr m' / (sqrt(v') + eps), with m' = m / (1 - beta1^t), v' = v / (1 - beta2^t).
/// All four views are contiguous and of one size. Cost: 4 reads and 3 writes per element.
template <KernelView Parameter, KernelView Gradient, KernelView Moment>
[[nodiscard]] auto adamw_of(const Parameter& parameter, const Gradient& gradient, const Moment& first_moment,
                            const Moment& second_moment, const AdamWStep& step) {
  using Element = typename Parameter::value_type;
  require(step.step >= 1, "adamw", "steps are counted from 1.");
  static_assert(std::is_same_v<Element, typename Gradient::non_const_value_type> &&
                    std::is_same_v<Element, typename Moment::value_type>,
                "adamw: parameter, gradient and moments must have the same element type (convert one first)");
  const auto p = flat_span_of(parameter, "adamw");
  const auto g = flat_span_of(gradient, "adamw");
  const auto m = flat_span_of(first_moment, "adamw");
  const auto v = flat_span_of(second_moment, "adamw");
  detail::require_one_size("adamw", p.size, g.size, m.size, v.size);
  AdamWUpdate<Element> update{};
  update.parameter = p.data;
  update.gradient = g.data;
  update.first = m.data;
  update.second = v.data;
  update.keep1 = static_cast<Element>(step.beta1);
  update.take1 = static_cast<Element>(1.0 - step.beta1);
  update.keep2 = static_cast<Element>(step.beta2);
  update.take2 = static_cast<Element>(1.0 - step.beta2);
  update.epsilon = static_cast<Element>(step.epsilon);
  const double t = static_cast<double>(step.step);
  update.scale = static_cast<Element>(step.gradient_scale);
  update.rate = static_cast<Element>(step.learning_rate / (1.0 - std::pow(step.beta1, t)));
  update.spread = static_cast<Element>(1.0 / std::sqrt(1.0 - std::pow(step.beta2, t)));
  update.decay = static_cast<Element>(1.0 - step.learning_rate * step.weight_decay);
  return update;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
