// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Chains of modules: Sequential for different types, Repeat for one type.

#include <shardwright/core/error.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/pipeline/model_parts.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cstddef>
#include <deque>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// "0", "1", ... as names with static lifetime.
template <std::size_t number> struct NumberName {
  static constexpr auto letters = [] {
    std::array<char, 3> out{};
    out[0] = static_cast<char>('0' + number / 10);
    out[1] = static_cast<char>('0' + number % 10);
    return out;
  }();
  static_assert(number < 100,
                "Sequential: it must have at most 100 modules (make some of them a Sequential of their own)");
  static constexpr std::string_view value =
      number < 10 ? std::string_view(letters.data() + 1, 1) : std::string_view(letters.data(), 2);
};

/// Calls a module, or a function of a Var, with the call's location if it accepts one.
template <class Module, class X> [[nodiscard]] auto call_module(Module& module, X&& x, SourceLocation where) {
  if constexpr (requires { module(std::forward<X>(x), where); })
    return module(std::forward<X>(x), where);
  else
    return module(std::forward<X>(x));
}

template <std::size_t number, class... Module> struct ModuleRow {
  template <class X> [[nodiscard]] auto call(X&& x, SourceLocation where) {
    return as_var(std::forward<X>(x), where);
  }
  [[nodiscard]] MemberList<> members() { return {}; }
};
template <std::size_t number, class First, class... Rest> struct ModuleRow<number, First, Rest...> {
  explicit ModuleRow(First module, Rest... others) : first(std::move(module)), rest(std::move(others)...) {}

  template <class X> [[nodiscard]] auto call(X&& x, SourceLocation where) {
    return rest.call(call_module(first, std::forward<X>(x), where), where);
  }
  [[nodiscard]] auto members() {
    if constexpr (HasMembers<First> || std::is_base_of_v<NamedPart, First>)
      return MemberList{NumberName<number>::value, first, rest.members()};
    else
      return rest.members();
  }

  First first;
  ModuleRow<number + 1, Rest...> rest;
};

} // namespace detail

/// @brief Modules and functions, each applied to the result of the previous one. Their paths are their
/// indices.
template <class... Module> class Sequential {
public:
  explicit Sequential(Module... modules) : row_(std::move(modules)...) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    return row_.call(std::forward<X>(x), where);
  }
  [[nodiscard]] auto members() { return row_.members(); }

private:
  detail::ModuleRow<0, Module...> row_;
};

/// @brief Modules of one type, each applied to the result of the previous one.
///
/// Their paths are their indices. In a pipelined model, where stages divide them, the count is a template
/// argument: see Parts.
template <class Module> class Repeat<Module> {
public:
  /// @param make returns module number i
  template <class Make> Repeat(std::size_t count, Make make) {
    if (count == 0)
      throw InvalidArgument("Repeat: it must have at least one module (leave it out)");
    for (std::size_t i = 0; i < count; ++i)
      modules_.push_back(make(i));
  }

  template <detail::TapeValue X>
  [[nodiscard]] auto operator()(X&& tokens, SourceLocation where = SourceLocation::current()) {
    auto x = as_var(std::forward<X>(tokens), where);
    for (Module& module : modules_)
      x = detail::call_module(module, std::move(x), where);
    return x;
  }
  [[nodiscard]] auto members() { return shardwright::members("", modules_); }

private:
  std::deque<Module> modules_; // with stable addresses: a tape refers to their parameters
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
