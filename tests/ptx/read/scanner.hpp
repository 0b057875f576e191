// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Cuts PTX text into statements.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

/// @brief A statement of a function's body, without its semicolon.
struct Statement {
  enum class Kind { label, open, close, location, other, end };

  Kind kind = Kind::end;
  std::string_view text; ///< Of a label: its name. Of a location: what follows `.loc`.
  unsigned line = 0;
};

/// @brief Goes through text statement by statement. Comments count as white space.
class Scanner {
public:
  /// @param line is the number of the text's first line.
  explicit Scanner(std::string_view text, unsigned line = 1) : text_(text), line_(line) {}

  Statement next();

  /// @brief Moves behind the `}` that closes the brace just passed, and returns the text before it.
  std::string_view skip_body();

  std::size_t position() const { return at_; }
  unsigned line() const { return line_; }

private:
  void skip_space();
  std::string_view rest_of_line();

  std::string_view text_;
  std::size_t at_ = 0;
  unsigned line_;
};

std::string_view trim(std::string_view);

/// @brief The parts of a text between separators that stand in no bracket, trimmed.
std::vector<std::string_view> split(std::string_view, char separator);

/// @brief Takes the first word off a text, which ends at white space.
std::string_view take_word(std::string_view& text);

/// @brief Without comments, and with one space for each stretch of white space.
std::string shortened(std::string_view);

} // namespace ptx
