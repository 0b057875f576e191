// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Stochastic gradient descent with momentum over a model's parameters.

#include <shardwright/tensor/kernels/optimizer/sgd.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Constants of stochastic gradient descent (Sutskever et al., Proceedings of ICML 2013, in the form
/// of PyTorch's SGD).
struct SgdOptions {
  double momentum = 0.9; ///< 0: none, and no memory for it.
  bool nesterov = false; ///< Use Nesterov's momentum.
  double weight_decay =
      0;               ///< Multiplied by the parameter and added to the gradient: not decoupled as in AdamW.
  double max_norm = 0; ///< Clip the gradient to this global norm, before the decay; 0: do not.
  std::vector<ParameterGroup> groups = decay_matrices();
};

namespace detail {

struct SgdRule {
  static constexpr std::string_view name = "Sgd";
  static constexpr const char* label = "sw::sgd";
  static constexpr std::array<std::string_view, 1> state_names{"momentum"};
  using Options = SgdOptions;
  template <class Element> using Update = kernels::SgdUpdate<Element>;

  [[nodiscard]] static std::size_t kept(const Options& options) { return options.momentum > 0 ? 1 : 0; }
  [[nodiscard]] static std::array<GivenNumber, 3> numbers(const Options& options) {
    return {GivenNumber("momentum", options.momentum), GivenNumber("nesterov", options.nesterov),
            GivenNumber("weight decay", options.weight_decay)};
  }
  template <class Weights, class Gradient, class States>
  [[nodiscard]] static auto update_of(const Options& options, const Weights& weights,
                                      const Gradient& gradient, const States& states) {
    using Moments = decltype(states[0]);
    return kernels::sgd_of(weights, gradient, states.size() == 0 ? Moments(nullptr, 0) : states[0],
                           options.momentum, options.nesterov);
  }
  [[nodiscard]] static auto open(const Options&, kernels::OptimizerStep* to) {
    return kernels::OpenOptimizerStep{to};
  }
};

} // namespace detail

/// @brief Stochastic gradient descent with momentum; on hosts and devices, and sharded, like AdamW.
///
/// Memory: one tensor in the layout of the optimizer state, or none without momentum. The learning rate is
/// that of the mean gradient per token.
class Sgd : public detail::Optimizer<detail::SgdRule> {
public:
  using Optimizer::Optimizer;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
