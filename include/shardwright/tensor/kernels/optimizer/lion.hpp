// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Lion with the clipping factor applied in the same pass.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/optimizer/update.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

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
  /// Sets what changes from step to step.
  SHARDWRIGHT_FUNCTION void set_step(const OptimizerStep& step, double learning_rate, double weight_decay) {
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
                           double beta1, double beta2) {
  using Element = typename Parameter::value_type;
  const auto p = flat_span_of(parameter, "lion");
  LionUpdate<Element> update{};
  update.parameter = p.data;
  update.gradient = detail::related<const Element>("lion", gradient, p.size);
  update.moment = detail::related<Element>("lion", moment, p.size);
  update.keep1 = static_cast<Element>(beta1);
  update.take1 = static_cast<Element>(1.0 - beta1);
  update.keep2 = static_cast<Element>(beta2);
  update.take2 = static_cast<Element>(1.0 - beta2);
  return update;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
