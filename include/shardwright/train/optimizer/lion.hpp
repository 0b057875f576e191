// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Lion over a model's parameters.

#include <shardwright/tensor/kernels/optimizer/lion.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Constants of Lion (Chen et al., arXiv 2302.06675, algorithm 2); the paper uses a learning rate
/// three to ten times smaller than AdamW's, and a decay larger by the same factor.
struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.3;
  double max_norm = 1.0; ///< Clip the gradient to this global norm; 0: do not.
  std::vector<ParameterGroup> groups = decay_matrices();
};

namespace detail {

struct LionRule {
  static constexpr std::string_view name = "Lion";
  static constexpr const char* label = "sw::lion";
  static constexpr std::array<std::string_view, 1> state_names{"momentum"};
  using Options = LionOptions;
  template <class Element> using Update = kernels::LionUpdate<Element>;

  [[nodiscard]] static std::size_t kept(const Options&) { return 1; }
  [[nodiscard]] static std::array<GivenNumber, 3> numbers(const Options& options) {
    return {GivenNumber("beta1", options.beta1), GivenNumber("beta2", options.beta2),
            GivenNumber("weight decay", options.weight_decay)};
  }
  template <class Weights, class Gradient, class States>
  [[nodiscard]] static auto update_of(const Options& options, const Weights& weights,
                                      const Gradient& gradient, const States& states) {
    return kernels::lion_of(weights, gradient, states[0], options.beta1, options.beta2);
  }
  [[nodiscard]] static auto open(const Options&, kernels::OptimizerStep* to) {
    return kernels::OpenOptimizerStep{to};
  }
};

} // namespace detail

/// @brief Lion, which moves every element by the learning rate in the direction of a sign; on hosts and
/// devices, and sharded, like AdamW.
///
/// Memory: one tensor in the layout of the optimizer state.
class Lion : public detail::Optimizer<detail::LionRule> {
public:
  using Optimizer::Optimizer;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
