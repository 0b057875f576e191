// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Stochastic gradient descent with momentum, with the clipping factor applied in the same pass.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/optimizer/update.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief See sgd_of().
template <class Element> struct SgdUpdate {
  using element = Element;
  Element* parameter;
  const Element* gradient;
  Element* velocity; // null without momentum
  Element scale;
  Element keep; // momentum
  Element rate;
  Element decay;
  bool nesterov;

  /// Gives the updated parameter.
  template <class Chunk> SHARDWRIGHT_FUNCTION Lanes<Element> operator()(Chunk chunk, std::size_t i) const {
    const Lanes<Element> old = chunk.load(parameter + i);
    const Lanes<Element> g = scale * chunk.load(gradient + i) + decay * old;
    Lanes<Element> step = g;
    if (velocity != nullptr) {
      const Lanes<Element> v = keep * chunk.load(velocity + i) + g;
      chunk.store(velocity + i, v);
      step = v;
      if (nesterov)
        step = g + keep * v;
    }
    const Lanes<Element> p = old - rate * step;
    chunk.store(parameter + i, p);
    return p;
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const {
    use(parameter, gradient, velocity == nullptr ? parameter : velocity);
  }
  /// Sets what changes from step to step.
  SHARDWRIGHT_FUNCTION void set_step(const OptimizerStep& step, double learning_rate, double weight_decay) {
    scale = static_cast<Element>(step.scale);
    rate = static_cast<Element>(learning_rate);
    decay = static_cast<Element>(weight_decay);
  }
};

/// @brief The elementwise kernel of one step of gradient descent: p = p - lr v, with g = scale * gradient +
/// wd p and v = momentum v + g; with Nesterov's momentum p = p - lr (g + momentum v) (Sutskever et al.,
/// Proceedings of ICML 2013, in the form of PyTorch's SGD).
///
/// All views are contiguous and have the same size; for a momentum of 0 the velocity may be empty. Cost: 3
/// reads and 2 writes per element.
template <KernelView Parameter, KernelView Gradient, KernelView Velocity>
[[nodiscard]] auto sgd_of(const Parameter& parameter, const Gradient& gradient, const Velocity& velocity,
                          double momentum, bool nesterov) {
  using Element = typename Parameter::value_type;
  const auto p = flat_span_of(parameter, "sgd");
  SgdUpdate<Element> update{};
  update.parameter = p.data;
  update.gradient = detail::related<const Element>("sgd", gradient, p.size);
  update.velocity = detail::related<Element>("sgd", velocity, velocity.data() == nullptr ? 0 : p.size);
  update.keep = static_cast<Element>(momentum);
  update.nesterov = nesterov;
  return update;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
