// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Converts numbers and lists of the command line from and to words.

#include <algorithm>
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

namespace command_line {

/// A mistake on the command line; parse() turns it into a message.
class UsageError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

template <std::integral Number> std::string text(Number number) { return std::to_string(number); }

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

/// The whole of `word` as a number of type T; nothing if it is not a number or out of T's range.
template <class T> std::optional<T> whole_number(std::string_view word) {
  T value{};
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (code != std::errc() || end != word.data() + word.size())
    return std::nullopt;
  return value;
}

/// The whole of `word` as a finite number; nothing if it is not one.
inline std::optional<double> real_number(const std::string& word) {
  std::istringstream in(word);
  in.imbue(std::locale::classic());
  double value = 0;
  if (word.empty() || !(in >> value) || in.peek() != std::istringstream::traits_type::eof() ||
      !std::isfinite(value))
    return std::nullopt;
  return value;
}

/// A word as shown in a message: truncated if it is long.
inline std::string clipped(const std::string& word) {
  constexpr std::size_t most = 80;
  return word.size() <= most ? word : word.substr(0, most) + "...";
}

/// The candidate nearest to `word` by edits, or an empty view if none is close.
inline std::string_view nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 80) // no candidate is half as long
    return {};
  // Levenshtein distance that counts a swap of neighbours as one edit, row by row.
  const auto distance = [](std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i)
      cost[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j)
      cost[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i)
      for (std::size_t j = 1; j <= b.size(); ++j) {
        cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                               cost[i - 1][j - 1] + static_cast<std::size_t>(a[i - 1] != b[j - 1])});
        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
          cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    return cost[a.size()][b.size()];
  };
  std::string_view best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3 + 1);
  for (const std::string& candidate : candidates) {
    const std::size_t edits = distance(word, candidate);
    if (edits < least && edits < candidate.size()) {
      least = edits;
      best = candidate;
    }
  }
  return best;
}

} // namespace command_line
