// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The choice of experts for each token, and its gates on a tape.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/nn/experts/router_options.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/kernels/experts/routing.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class X> struct RouteRank {
  static constexpr bool value = X::tensor_rank >= 2;
  static_assert(
      value,
      "route: logits must be [tokens, experts], or have more dimensions of tokens before the experts (reshape them)");
};

} // namespace detail

/// @brief Layout of one number for each token, from that of the logits.
template <LayoutType Logits>
using TokenLayout = ReductionLayout<Sum, Logits::tensor_rank - 1, RowwiseLayout<operation::route, Logits>>;

/// @brief The experts of each token: int32 [tokens..., chosen] in the layout of the logits, best first, all
/// distinct; -1 for padding.
template <LayoutType Logits, class Target = DefaultTarget>
using ExpertChoice = ShardedTensor<RowwiseLayout<operation::route, Logits>, const std::int32_t, Target>;

namespace detail {

/// The trace shows both tensors.
template <class Given, class Wanted> struct PaddingOfTokens {
  static_assert(
      std::is_same_v<Given, Wanted>,
      "route: padding must be int32, one number for each token, in the layout of the logits' tokens, TokenLayout<Logits>, and on their target (redistribute it)");
};

} // namespace detail

/// @brief int32 [tokens...], negative for padding, as targets may be: such a token chooses nothing,
/// and its gates are 0. Empty if no token is padding.
template <LayoutType Logits, class Target = DefaultTarget>
class TokenPadding : public std::optional<ShardedTensor<TokenLayout<Logits>, const std::int32_t, Target>> {
public:
  using Tensor = ShardedTensor<TokenLayout<Logits>, const std::int32_t, Target>;

  using std::optional<Tensor>::optional;
  /// @brief A handle to a tensor; another layout is rejected with an error sentence.
  template <LayoutType L, class E, class Place> TokenPadding(const ShardedTensor<L, E, Place>& tensor) {
    using Handle = ShardedTensor<L, const E, Place>;
    static_assert(sizeof(detail::PaddingOfTokens<Handle, Tensor>) != 0);
    if constexpr (std::is_same_v<Handle, Tensor>)
      this->emplace(tensor.share());
  }
};

/// @brief Optional inputs of route() in addition to the logits.
template <LayoutType Logits, class Target = DefaultTarget> struct RouteWith {
  /// @brief [experts], added to the scores only for the choice; see ExpertLoad.
  std::optional<ShardedTensor<Layout<1>, const float, Target>> bias{};
  TokenPadding<Logits, Target> padding{};
};

/// @brief The experts of tokens and their gates.
template <LayoutType L, class Element, class Target> struct Routing {
  ExpertChoice<L, Target> experts; ///< int32 [tokens..., chosen]; -1 for padding
  Var<L, Element, Target> gates;   ///< [tokens..., chosen], in float, or in double of double logits
};

namespace detail {

/// "[3, 17]", of a row of a block.
template <class Tensor> [[nodiscard]] std::string token_text(const Tensor& logits, std::size_t row) {
  std::vector<std::int64_t> place(Tensor::tensor_rank - 1);
  auto rest = static_cast<std::int64_t>(row);
  for (std::size_t d = place.size(); d-- > 0;) {
    place[d] = logits.local_offset()[d] + rest % logits.local_shape()[d];
    rest /= logits.local_shape()[d];
  }
  return text_of(place);
}

template <class Tensor>
[[noreturn]] void reject_logits(const Tensor& logits, std::int64_t code, const kernels::RoutingRule& rule,
                                SourceLocation where) {
  const auto fault = kernels::RoutingFault::of(code, logits.local_matrix().extent(0), rule.experts);
  const std::string token = token_text(logits, fault.row);
  if (fault.expert == rule.experts)
    reject_operation("route",
                     "each token must have " + std::to_string(rule.chosen) +
                         " experts whose logits are not minus infinity, but token " + token +
                         " has fewer (mask fewer experts, or make it a padding token)",
                     logits.core(), where);
  reject_operation("route",
                   "every logit must be a number, or minus infinity for an expert that is masked, and every "
                   "bias a number, but token " +
                       token + " has another for expert " + std::to_string(fault.expert) +
                       " (look at the activations and weights that the logits are made of)",
                   logits.core(), where);
}

template <class Logits>
using ChoiceOf = ShardedTensor<RowwiseLayout<operation::route, typename Logits::layout>, std::int32_t,
                               typename Logits::target>;

template <class Logits>
[[nodiscard]] auto chosen_experts(const Logits& logits, const RouterOptions& options,
                                  const RouteWith<typename Logits::layout, typename Logits::target>& with,
                                  SourceLocation where) {
  using Number = typename Logits::value_type;
  using Target = typename Logits::target;
  constexpr std::size_t last = Logits::tensor_rank - 1;
  const kernels::RoutingRule rule = routing_rule(options, logits.shape()[last]);
  ChoiceOf<Logits> out(logits.resources(), with_last(logits.shape(), options.chosen), where);
  if (with.bias) {
    require_one_mesh("route", logits, *with.bias, where);
    require_shape("route", "bias", with.bias->shape(), {logits.shape()[last]}, logits.core(), where);
  }
  if (with.padding) {
    require_one_mesh("route", logits, *with.padding, where);
    require_equal_extents("route", "padding must have the tokens of the logits", with.padding->shape(), 0,
                          logits.shape(), 0, last, logits.core(), where);
  }
  const std::size_t rows = logits.local_size() / rule.experts;
  auto scores = workspace_of<Number>(logits.resources(), rows * (rule.experts + rule.groups));
  const DeviceValue<std::int64_t, Target> fault(logits.resources(), 0);
  kernels::moves("sw::route", logits.execution(), logits.local_size() * sizeof(Number),
                 out.local_size() * sizeof(std::int32_t));
  kernels::run("sw::route", logits.execution(), rows,
               kernels::ChooseExperts<Number>{logits.data(), with.bias ? with.bias->data() : nullptr,
                                              with.padding ? with.padding->data() : nullptr,
                                              scores.mutable_data(), out.mutable_data(), fault.get(), rows,
                                              rule});
  if constexpr (!counts_only<Target>)
    if (const std::int64_t code = fault.read(); code != 0)
      reject_logits(logits, code, rule, where);
  return out;
}

/// Compares what ranks must have in common to choose alike. Collective over the mesh.
template <class With>
void compare_routing(const MeshCore& core, const RouterOptions& options, const With& with,
                     SourceLocation where) {
  require_agreement(core, "route", options.numbers(), no_axes, where);
  constexpr InputSubject bias{"Bias of the experts", "its layout",
                              "update it from the counts of all ranks, as ExpertLoad does"};
  constexpr InputSubject padding{"Padding of the tokens", "its layout", "make it from the batch's token ids"};
  if (with.bias)
    compare_tensor(*with.bias, where, bias);
  if (with.padding)
    compare_tensor(*with.padding, where, padding);
}

} // namespace detail

namespace operation {

/// @brief The gates of the chosen experts, with their gradient. A replay reads the same choice.
template <class Choice> struct Gates {
  static constexpr std::string_view name = "route";
  static constexpr bool gradient_reads_input = true;
  static constexpr bool gradient_reads_output = true;
  Choice experts;
  RouterOptions options;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& logits) const {
    using Number = typename X::value_type;
    ShardedTensor<RowwiseLayout<route, typename X::layout>, Number, typename X::target> gates(
        logits.resources(), experts.shape(), where);
    const kernels::RoutingRule rule = detail::routing_rule(options, logits.shape().back());
    kernels::moves("sw::gates", logits.execution(), logits.local_size() * sizeof(Number),
                   gates.local_size() * (sizeof(std::int32_t) + sizeof(Number)));
    kernels::run("sw::gates", logits.execution(), logits.local_size() / rule.experts,
                 kernels::GatesOfExperts<Number>{logits.data(), experts.data(), gates.mutable_data(), rule});
    return gates;
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X& logits, const Y& gates) const {
    using Number = typename X::value_type;
    ShardedTensor<RowwiseLayout<route, typename X::layout>, Number, typename X::target> out(
        logits.resources(), logits.shape());
    const kernels::RoutingRule rule = detail::routing_rule(options, logits.shape().back());
    kernels::moves("sw::d_gates", logits.execution(), 2 * logits.local_size() * sizeof(Number),
                   gates.local_size() * (sizeof(std::int32_t) + 2 * sizeof(Number)));
    kernels::run("sw::d_gates", logits.execution(), logits.local_size() / rule.experts,
                 kernels::GatesBackward<Number>{logits.data(), experts.data(), gates.data(),
                                                y_gradient.data(), out.mutable_data(), rule});
    return out;
  }
};

} // namespace operation

/// @brief The experts that each token chooses, for programs that need no gates: those with the largest
/// scores, biased and limited to groups according to the options.
///
/// Ties go to the lowest index. No communication. Cost: chosen x experts comparisons for each token, and a
/// wait for one number, which says whether a logit was invalid; the workspace is one number for each token
/// and expert.
/// @param logits float or double, [tokens..., experts]; neither Partial nor sharded over experts. Minus
/// infinity masks an expert.
/// @throws InvalidArgument naming the first token of this rank with a logit that is NaN or infinity, or with
/// too few unmasked experts; for inconsistent options, and for a bias or padding of another mesh.
template <AnyShardedTensor Logits>
[[nodiscard]] auto
choose_experts(const Logits& logits, const RouterOptions& options,
               const RouteWith<typename Logits::layout, typename Logits::target>& with = {},
               SourceLocation where = SourceLocation::current()) {
  static_assert(detail::RouteRank<Logits>::value);
  return detail::chosen_experts(logits, options, with, where).share();
}

/// @brief The experts of each token and their gates, which are differentiable; see choose_experts() and
/// RouterScores. Choice and gates are computed in float for 16-bit logits, else in their element type.
///
/// Sigmoid gates are normalised in log space, so they stay accurate even if all scores underflow. The choice
/// is made once: a backward pass that recomputes the gates reads the same choice, even if the bias has
/// changed.
/// @throws InvalidArgument as choose_experts; ConfigurationMismatch if the tape checks inputs and ranks
/// differ in options or bias, or ranks that share tokens in their padding.
template <detail::TapeValue X>
[[nodiscard]] auto route(X&& logits, const RouterOptions& options,
                         const RouteWith<typename std::remove_cvref_t<X>::layout,
                                         typename std::remove_cvref_t<X>::target>& with = {},
                         SourceLocation where = SourceLocation::current()) {
  using Input = std::remove_cvref_t<X>;
  static_assert(detail::RouteRank<Input>::value);
  if constexpr (is_narrow<typename Input::element>) {
    return route(convert<AccumulationElement<typename Input::element>>(std::forward<X>(logits), where),
                 options, with, where);
  } else {
    if (logits.tape().checks_inputs())
      detail::compare_routing(logits.resources().core(), options, with, where);
    const auto experts = [&] {
      const detail::MemoryFor memory(MemoryKind::activations, "route");
      return choose_experts(detail::operand_of(logits, where).read(), options, with, where);
    }();
    auto gates = apply(operation::Gates<std::remove_const_t<decltype(experts)>>{experts, options}, where,
                       std::forward<X>(logits));
    return Routing<typename decltype(gates)::layout, typename decltype(gates)::element,
                   typename Input::target>{experts, std::move(gates)};
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
