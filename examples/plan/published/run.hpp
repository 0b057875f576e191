// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads published training runs from CSV text; errors name line and field.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plan_example {

using namespace shardwright;

/// @brief One row of a table of runs: its cells by column name.
class PublishedRun {
public:
  PublishedRun(int line, std::map<std::string, std::string, std::less<>> cells)
      : line_(line), cells_(std::move(cells)) {}

  /// @brief Line of the file on which the row begins, counted from 1.
  [[nodiscard]] int line() const noexcept { return line_; }
  /// @brief A cell's text; empty if the column is missing or the value was not published.
  [[nodiscard]] std::string_view text(std::string_view field) const {
    const auto found = cells_.find(field);
    return found == cells_.end() ? std::string_view{} : std::string_view(found->second);
  }
  /// @brief A cell as a positive number, or 0 with `zero`; nothing if it is empty.
  /// @throws DataError naming line and field if it is not one.
  [[nodiscard]] std::optional<double> number(std::string_view field, bool zero = false) const {
    const std::string_view cell = text(field);
    if (cell.empty())
      return {};
    double value = 0;
    const auto [end, problem] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (problem != std::errc{} || end != cell.data() + cell.size() || !(zero ? value >= 0 : value > 0) ||
        value > 1e18)
      throw DataError(
          "Runs, line " + std::to_string(line_) + ": " + std::string(field) +
          (zero ? " must be 0 or a positive number, but it is " : " must be a positive number, but it is ") +
          shardwright::detail::quoted_text(cell));
    return value;
  }
  /// @brief A cell as a positive whole number, or 0 with `zero`; nothing if it is empty.
  /// @throws DataError naming line and field if it is not one, or exceeds two billion.
  [[nodiscard]] std::optional<int> integer(std::string_view field, bool zero = false) const {
    const std::optional<double> value = number(field, zero);
    if (!value)
      return {};
    if (*value > 2e9 || *value != static_cast<double>(static_cast<std::int64_t>(*value)))
      throw DataError("Runs, line " + std::to_string(line_) + ": " + std::string(field) +
                      " must be a whole number below 2000000000, but it is " +
                      shardwright::detail::quoted_text(text(field)));
    return static_cast<int>(*value);
  }

private:
  int line_;
  std::map<std::string, std::string, std::less<>> cells_;
};

/// @brief The most columns that a table of runs may have.
inline constexpr std::size_t most_run_columns = 256;

namespace detail {

/// The cells of one record. A line end closes the record, except inside a quoted cell, which may also hold
/// commas and quotes.
[[nodiscard]] inline std::vector<std::string> next_record(std::string_view& rest, int& line) {
  std::vector<std::string> cells(1);
  const int begin = line;
  bool quoted = false;
  std::size_t at = 0;
  for (; at < rest.size(); ++at) {
    const char c = rest[at];
    line += c == '\n' ? 1 : 0;
    if (quoted) {
      if (c != '"')
        cells.back() += c;
      else if (at + 1 < rest.size() && rest[at + 1] == '"')
        cells.back() += rest[++at];
      else
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      if (cells.size() == most_run_columns)
        throw DataError("Runs, line " + std::to_string(begin) + ": there must be at most " +
                        std::to_string(most_run_columns) + " cells (remove columns)");
      cells.emplace_back();
    } else if (c == '\n') {
      break;
    } else if (c != '\r') {
      cells.back() += c;
    } else if (at + 1 == rest.size() || rest[at + 1] != '\n') {
      throw DataError(
          "Runs, line " + std::to_string(begin) +
          ": a carriage return must be part of a line end (remove it, or put its cell in quotes)");
    }
  }
  if (quoted)
    throw DataError("Runs, line " + std::to_string(begin) + ": a quote is not closed (end the cell with \")");
  rest.remove_prefix(at < rest.size() ? at + 1 : at);
  return cells;
}

} // namespace detail

/// @brief Reads the rows of CSV text whose first line names the columns; columns may be in any order.
/// @throws DataError naming line and column if a column that a run needs is missing, a name appears twice, a
/// row has more or fewer cells than there are names, there are more than `most_run_columns`, or a carriage
/// return is neither quoted nor before a line feed.
[[nodiscard]] inline std::vector<PublishedRun> read_published_runs(std::string_view text) {
  int line = 1;
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);
  const std::vector<std::string> names = detail::next_record(text, line);
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (names[i] == names[j])
        throw DataError("Runs, line 1: a column may appear only once, but " +
                        shardwright::detail::quoted_text(names[i]) + " appears twice");
  for (const std::string_view needed : {"id", "source", "model", "chip", "n_chips"}) {
    bool found = false;
    for (const std::string& name : names)
      found = found || name == needed;
    if (!found)
      throw DataError("Runs, line 1: the columns must include '" + std::string(needed) +
                      "' (name it in the first line)");
  }
  std::vector<PublishedRun> runs;
  while (!text.empty()) {
    const int begin = line;
    const std::vector<std::string> cells = detail::next_record(text, line);
    if (cells.size() == 1 && cells[0].empty())
      continue;
    if (cells.size() != names.size())
      throw DataError("Runs, line " + std::to_string(begin) + ": there must be " +
                      std::to_string(names.size()) + " cells, one per column, but there are " +
                      std::to_string(cells.size()));
    std::map<std::string, std::string, std::less<>> row;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (!cells[i].empty())
        row.emplace(names[i], cells[i]);
    runs.emplace_back(begin, std::move(row));
  }
  return runs;
}

} // namespace plan_example
