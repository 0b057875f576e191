// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Declarations of variables and parameters, and numbers as PTX writes them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "type.hpp"

namespace ptx {

/// @brief `.align 8 .b8 name[144] = {...}`, without its state space.
struct Declaration {
  std::string_view name;
  Type type = Type::b8;
  std::size_t count = 1; ///< Elements of an array; 0 for `name[]`.
  std::size_t bytes = 0, alignment = 1;
  std::string_view initial; ///< After `=`; empty if there is none.
};

/// @brief Reads a declaration; words that do not concern the layout, such as .ptr, are passed over.
/// @throws Fault (syntax).
Declaration read_declaration(std::string_view text, unsigned line);

/// @brief A number of PTX: an integer, `0f3F800000`, `0d3FF0000000000000`, or a decimal fraction.
struct Number {
  enum class Kind { integer, single, full };

  Kind kind = Kind::integer;
  std::uint64_t integer = 0; ///< Of an integer, in two's complement.
  double value = 0;          ///< Of the others.

  /// @brief The bits of the number as a value of a type.
  std::uint64_t as(Type) const;
};

/// @brief The number that a text is; nothing if it is none.
std::optional<Number> read_number(std::string_view text);

} // namespace ptx
