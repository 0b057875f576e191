// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Numbers and lists of the command line, as words and back.

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <locale>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace train_gpt {

/// A mistake on the command line; parse() turns it into a message.
class UsageError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

template <std::integral Number>
std::string text(Number number) {
  return std::to_string(number);
}

inline std::string text(double number) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << number;
  return out.str();
}

/// The words with commas, and `last` before the last one.
inline std::string joined(const std::vector<std::string>& words, const std::string& last) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? last : ", ") + words[i];
  return out;
}

/// The whole of `word` as a number of type T; nothing where it is none or out of T's range.
template <class T>
std::optional<T> whole_number(std::string_view word) {
  T value{};
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (code != std::errc() || end != word.data() + word.size())
    return std::nullopt;
  return value;
}

/// The whole of `word` as a finite number; nothing where it is none.
inline std::optional<double> real_number(const std::string& word) {
  std::istringstream in(word);
  in.imbue(std::locale::classic());
  double value = 0;
  if (word.empty() || !(in >> value) || in.peek() != std::istringstream::traits_type::eof() ||
      !std::isfinite(value))
    return std::nullopt;
  return value;
}

} // namespace train_gpt
