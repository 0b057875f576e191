// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The words and operands of an instruction.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "declaration.hpp"
#include "type.hpp"

namespace ptx {

/// @brief The words of an opcode, such as `add`, `rn`, `f32`. Each form takes those that it knows; one that
/// is left is a form that the interpreter does not know.
class Words {
public:
  explicit Words(std::string_view text);

  std::string_view first() const { return words_.front(); }

  /// @brief Takes a word, if it is there.
  bool take(std::string_view word);

  /// @brief Takes the first of these words that is there; an empty one if none is.
  std::string_view take_one_of(std::initializer_list<std::string_view> words);

  /// @brief Takes the next type; nothing if there is none.
  std::optional<Type> take_type();

  /// @brief The next type, without taking it.
  std::optional<Type> next_type() const;

  /// @brief The first word that nothing has taken; empty if all are.
  std::string_view left() const;

private:
  std::vector<std::string_view> words_;
  std::vector<bool> taken_;
};

struct Operand {
  enum class Kind : std::uint8_t {
    name, ///< A register, variable or label, perhaps with an offset: `%r1`, `table+8`.
    number,
    list,    ///< `{a, b}` or `(a, b)`.
    pair,    ///< `a|b`.
    address, ///< `[%rd1+8]`.
  };

  Kind kind = Kind::name;
  bool negated = false; ///< Written with `!`.
  std::string_view name{};
  Number number{};
  std::int64_t offset = 0;
  std::vector<Operand> items{}; ///< Of a list or pair.
};

/// @brief Reads an operand.
Operand read_operand(std::string_view text);

} // namespace ptx
