// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Lion with the clipping factor applied in the same pass.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/optimizer/update.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Constants of one Lion step.
struct LionStep {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.1;
  double gradient_scale =
      1.0; ///< Factor on the gradient: clipping, and the division by the global token count.
};

/// @brief See lion_of().
template <class Element> struct LionUpdate {
  using element = Element;
  Element* parameter;
  const Element* gradient;
  Element* moment;
  Element scale;
  Element keep1; // beta1
  Element take1; // 1 - beta1
  Element keep2; // beta2
  Element take2; // 1 - beta2
  Element rate;
  Element decay; // 1 - learning rate * weight decay

  /// Gives the updated parameter.
  template <class Chunk> SHARDWRIGHT_FUNCTION Lanes<Element> operator()(Chunk chunk, std::size_t i) const {
    const Lanes<Element> old = chunk.load(parameter + i);
    const Lanes<Element> g = scale * chunk.load(gradient + i);
    const Lanes<Element> m = chunk.load(moment + i);
    const Lanes<Element> direction = keep1 * m + take1 * g;
    const Lanes<Element> zero{};
    const Lanes<Element> one = broadcast(Element(1));
    const Lanes<Element> sign =
        detail::chosen(direction > zero, one, detail::chosen(direction < zero, -one, zero));
    chunk.store(moment + i, keep2 * m + take2 * g);
    const Lanes<Element> p = old * decay - rate * sign;
    chunk.store(parameter + i, p);
    return p;
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    use(parameter, gradient, moment);
  }
  SHARDWRIGHT_FUNCTION void set_step(const OptimizerDeviceStep& step, double learning_rate,
                                     double weight_decay) {
    scale = static_cast<Element>(step.scale);
    rate = static_cast<Element>(learning_rate);
    decay = static_cast<Element>(1.0 - learning_rate * weight_decay);
  }
};

/// @brief The elementwise kernel of one Lion step with decoupled weight decay (Chen et al., arXiv 2302.06675,
/// algorithm 2).
///
/// p = p (1 - lr wd) - lr sign(beta1 m + (1 - beta1) g), then m = beta2 m + (1 - beta2) g; the sign of 0 is
/// 0. All three views are contiguous and of one size. Cost: 3 reads and 2 writes per element.
template <KernelView Parameter, KernelView Gradient, KernelView Moment>
[[nodiscard]] auto lion_of(const Parameter& parameter, const Gradient& gradient, const Moment& moment,
                           const LionStep& step) {
  using Element = typename Parameter::value_type;
  static_assert(std::is_same_v<Element, typename Gradient::non_const_value_type> &&
                    std::is_same_v<Element, typename Moment::value_type>,
                "lion: parameter, gradient and moment must have the same element type (convert one first)");
  const auto p = flat_span_of(parameter, "lion");
  const auto g = flat_span_of(gradient, "lion");
  const auto m = flat_span_of(moment, "lion");
  detail::require_one_size("lion", p.size, g.size, m.size);
  return LionUpdate<Element>{p.data,
                             g.data,
                             m.data,
                             static_cast<Element>(step.gradient_scale),
                             static_cast<Element>(step.beta1),
                             static_cast<Element>(1.0 - step.beta1),
                             static_cast<Element>(step.beta2),
                             static_cast<Element>(1.0 - step.beta2),
                             static_cast<Element>(step.learning_rate),
                             static_cast<Element>(1.0 - step.learning_rate * step.weight_decay)};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
