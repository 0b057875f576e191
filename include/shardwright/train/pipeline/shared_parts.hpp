// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Objects that parts of a model on one rank share: tied parameters, and constants such as rotary
/// tables.

#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/train/parameter.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A parameter that several parts of a model share under one name, such as an input table that is also
/// the output table.
///
/// Its gradient is the sum over all uses. If two stages of a rank hold it, it is one object, whose gradient
/// is reduced when all passes of a step are over; if two ranks of a pipeline do, their copies start equal and
/// their gradients are summed.
template <class P> class TiedParameter {
public:
  using tape_operand = TiedParameter;
  TiedParameter(std::shared_ptr<P> parameter, std::string name, bool owns)
      : parameter_(std::move(parameter)), name_(std::move(name)), owns_(owns) {}

  [[nodiscard]] P& operator*() const noexcept { return *parameter_; }
  [[nodiscard]] P* operator->() const noexcept { return parameter_.get(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// @brief Returns whether this is the use on its rank that counts.
  [[nodiscard]] bool owns() const noexcept { return owns_; }

private:
  std::shared_ptr<P> parameter_;
  std::string name_;
  bool owns_;
};

/// @brief The shared objects of one rank, by type and name.
class SharedParts {
public:
  /// @brief The object with this name; `make()` creates it at the first request.
  template <class Type, class Make>
  [[nodiscard]] std::shared_ptr<Type> get(std::string_view name, Make make) {
    return find<Type>(name, make).first;
  }
  /// @brief The tied parameter with this name. All uses must have the same type: equal layouts.
  /// @throws InvalidArgument if another use has a different type.
  template <class P, class Make> [[nodiscard]] TiedParameter<P> tied(std::string_view name, Make make) {
    for (const Entry& entry : entries_)
      if (entry.name == name && entry.type != &detail::type_identity<P>)
        throw InvalidArgument(
            "SharedParts: all uses of the tied parameter " + std::string(name) +
            " must have the same type, but there are two (name its layout in one place, such as TiedLayouts, and use that in both parts)");
    auto [parameter, made] = find<P>(name, make);
    return TiedParameter<P>(std::move(parameter), std::string(name), made);
  }

private:
  struct Entry {
    const char* type;
    std::string name;
    std::shared_ptr<void> object;
  };

  template <class Type, class Make>
  [[nodiscard]] std::pair<std::shared_ptr<Type>, bool> find(std::string_view name, Make make) {
    for (const Entry& entry : entries_)
      if (entry.type == &detail::type_identity<Type> && entry.name == name)
        return {std::static_pointer_cast<Type>(entry.object), false};
    auto object = std::make_shared<Type>(make());
    entries_.push_back({&detail::type_identity<Type>, std::string(name), object});
    return {std::move(object), true};
  }

  std::vector<Entry> entries_;
};

namespace detail {

template <class Type> inline constexpr bool is_tied = false;
template <class P> inline constexpr bool is_tied<TiedParameter<P>> = true;

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
