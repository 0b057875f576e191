// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief AdamW over a model's parameters, with clipping by the global norm fused into the update.

#include <shardwright/tensor/kernels/optimizer/adamw.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Constants of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double max_norm = 1.0; ///< Clip the gradient to this global norm; 0: do not.
  std::vector<ParameterGroup> groups = decay_matrices();
};

namespace detail {

struct AdamWRule {
  static constexpr std::string_view name = "AdamW";
  static constexpr const char* label = "sw::adamw";
  static constexpr std::array<std::string_view, 2> state_names{"first moment", "second moment"};
  using Options = AdamWOptions;
  template <class Element> using Update = kernels::AdamWUpdate<Element>;

  [[nodiscard]] static std::size_t kept(const Options&) { return 2; }
  [[nodiscard]] static std::array<GivenNumber, 4> numbers(const Options& options) {
    return {GivenNumber("beta1", options.beta1), GivenNumber("beta2", options.beta2),
            GivenNumber("epsilon", options.epsilon), GivenNumber("weight decay", options.weight_decay)};
  }
  template <class Weights, class Gradient, class States>
  [[nodiscard]] static auto update_of(const Options& options, const Weights& weights,
                                      const Gradient& gradient, const States& states) {
    return kernels::adamw_of(weights, gradient, states[0], states[1], options.beta1, options.beta2,
                             options.epsilon);
  }
  [[nodiscard]] static auto open(const Options& options, kernels::OptimizerStep* to) {
    return kernels::OpenAdamWStep{to, options.beta1, options.beta2};
  }
};

} // namespace detail

/// @brief AdamW with decoupled weight decay.
///
/// On a device the learning rate, the number of steps and the clipping factor are in device memory, where the
/// kernels read them: the host never waits, a captured step stays valid when the rate changes, and a step
/// that is not finite, or that a StepGuard rejects, changes nothing. If a model names the `element` of its
/// parameters, one launch updates many of them, and writes the rounded copies in the same pass.
class AdamW : public detail::Optimizer<detail::AdamWRule> {
public:
  using Optimizer::Optimizer;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
