// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A mixture-of-experts layer: a router, the experts that it chooses, and a shared MLP for all tokens.

#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <tuple>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief y = experts(x) + shared(x) in layout `Layouts::Residual`, that of the stream.
///
/// Both are redistributed to it before they are added, whether they are Partial over tensor parallelism or
/// their tokens are split differently. `router(x)` returns `experts` and `gates` of each token, as needed by
/// dispatch() and combine(); `experts(x, experts, gates)` is an ExpertMlp or the like; both read x in
/// `Layouts::Tokens`. `shared(x)` is any module, such as a SwiGlu, and reads it in `Layouts::Dense`; a layer
/// without one has an empty optional.
template <class Layouts, class Router, class Experts, class Shared> class MoeLayer {
  using Tokens = typename Layouts::Tokens;
  using Residual = typename Layouts::Residual;

public:
  /// @brief Constructed from the constructor arguments of its parts, each a tuple (std::forward_as_tuple).
  template <class ForRouter, class ForExperts, class ForShared = std::tuple<>>
  MoeLayer(const ForRouter& router, const ForExperts& experts, const ForShared& shared = {})
      : router_(std::make_from_tuple<Router>(router)), experts_(std::make_from_tuple<Experts>(experts)),
        shared_(std::make_from_tuple<Shared>(shared)) {}

  /// @brief The tokens may have any layout that can be redistributed to those of `Layouts`.
  template <detail::TapeValue X>
  [[nodiscard]] auto operator()(X&& tokens, SourceLocation where = SourceLocation::current()) {
    const auto x = as_var(std::forward<X>(tokens), where);
    auto chosen = router_(x.template as<Tokens>(where), where);
    auto routed = experts_(x.template as<Tokens>(where), chosen.experts, std::move(chosen.gates), where);
    if constexpr (detail::ModulePointer<Shared>)
      return shared_ ? with_shared(*shared_, std::move(routed), x, where)
                     : as_var(std::move(routed).template as<Residual>(where), where);
    else
      return with_shared(shared_, std::move(routed), x, where);
  }

  [[nodiscard]] Router& router() noexcept { return router_; }
  [[nodiscard]] Experts& experts() noexcept { return experts_; }
  [[nodiscard]] auto members() {
    return shardwright::members("router", router_, "experts", experts_, "shared", shared_);
  }

private:
  template <class Module, class Routed, class X>
  [[nodiscard]] static auto with_shared(Module& shared, Routed&& routed, const X& x, SourceLocation where) {
    return add(std::forward<Routed>(routed).template as<Residual>(where),
               shared(x.template as<typename Layouts::Dense>(where), where).template as<Residual>(where),
               where);
  }

  Router router_;
  Experts experts_;
  Shared shared_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
