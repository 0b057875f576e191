// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Router: the module that scores experts for each token, chooses some, and tracks their load.

#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/experts/load.hpp>
#include <shardwright/nn/experts/route.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The experts of tokens, their gates, and the logits, which losses read.
template <LayoutType L, class Element, class Target> struct RoutedTokens {
  Var<L, Element, Target> logits;  ///< [tokens..., experts]
  ExpertChoice<L, Target> experts; ///< int32 [tokens..., chosen]; -1 for padding
  Var<L, Element, Target> gates;   ///< [tokens..., chosen]
};

/// @brief Logits x W, the choice of experts by them and by the bias of the load, and the gates.
///
/// The product, W, logits and gates are float whatever the element type of the model, because rounding could
/// change the choice. W is replicated; its gradient is Partial over every axis that splits tokens, by type.
/// @tparam In layout of x, [tokens..., width]
template <LayoutType In, class Plan = ModelPlan<>> class Router {
  using Element = AccumulationElement<typename Plan::element>;
  using Target = typename Plan::target;
  using Product = Linear<In, Layout<2>, ModelPlan<Element, typename Plan::zero, Target>>;

public:
  using Logits = typename Product::Out;
  using Out = RoutedTokens<Logits, Element, Target>;
  using Padding = TokenPadding<Logits, Target>;

  /// @throws InvalidArgument for inconsistent options.
  template <class Mesh>
  Router(const Mesh& mesh, std::int64_t width, std::int64_t experts, const RouterOptions& options,
         const Initial& initial, const ExpertBiasOptions& bias = {},
         SourceLocation where = SourceLocation::current())
      : options_(options), biased_(bias.used()), weight_(mesh, {width, experts}, initial, where),
        load_(mesh, experts, bias) {
    static_cast<void>(detail::routing_rule(options, experts));
  }

  /// @brief Routes tokens, and counts them in a first pass.
  /// @param padding [tokens...], negative for tokens that choose nothing
  /// @throws InvalidArgument as choose_experts
  template <detail::TapeValue X>
  [[nodiscard]] Out operator()(X&& x, const Padding& padding = {},
                               SourceLocation where = SourceLocation::current()) {
    auto logits = product(std::forward<X>(x), where);
    if (logits.tape().checks_inputs())
      detail::require_agreement(load_.bias().core(), "Router", load_.options().numbers(), detail::no_axes,
                                where);
    RouteWith<Logits, Target> with{.padding = padding};
    if (biased_)
      with.bias = load_.bias();
    auto routing = route(logits, options_, with, where);
    load_.count(logits.first_pass(), routing.experts);
    return {std::move(logits), std::move(routing.experts), std::move(routing.gates)};
  }

  [[nodiscard]] const RouterOptions& options() const noexcept { return options_; }
  [[nodiscard]] ExpertLoad<Logits, Target>& load() noexcept { return load_; }
  [[nodiscard]] typename Product::Matrix& weight() noexcept { return weight_.weight(); }
  [[nodiscard]] auto members() { return shardwright::members("weight", weight_, "load", load_); }

private:
  template <class X> [[nodiscard]] auto product(X&& x, SourceLocation where) {
    if constexpr (std::is_same_v<typename std::remove_cvref_t<X>::element, Element>)
      return weight_(std::forward<X>(x), where);
    else // a copy of twice the size, which the weights' gradient reads: recomputed rather than kept
      return weight_(recompute([&](auto&& narrow) { return convert<Element>(narrow, where); },
                               Recompute::selective)(std::forward<X>(x)),
                     where);
  }

  RouterOptions options_;
  bool biased_;
  Product weight_;
  ExpertLoad<Logits, Target> load_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
