// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The CSV format of schedules: a row per rank, cells such as `0F7` and `(0F7;7B3)OVERLAP_F_B`.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/stage_placement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Text of an action: stage, letter, microbatch.
[[nodiscard]] std::string text_of(const Action& action);

/// @brief Text of a step: an action, or an overlapped pair.
[[nodiscard]] std::string text_of(const Step& step);

/// @brief The content of one cell of the text.
struct CsvCell {
  enum class Kind : std::uint8_t {
    step,
    idle,
    ignored, ///< An action of PyTorch's runtime that is not a pass, such as 0UNSHARD or 3SEND_F1.
    malformed
  };
  Kind kind = Kind::malformed;
  Step step{};
};

namespace detail {

/// Parses "12F34" at the front of a text; the stage is -1 if there is no action.
[[nodiscard]] constexpr Action take_action(std::string_view& text) {
  const auto number = [&text] {
    int value = -1;
    while (!text.empty() && text.front() >= '0' && text.front() <= '9' && value < 100'000'000) {
      value = (value < 0 ? 0 : 10 * value) + (text.front() - '0');
      text.remove_prefix(1);
    }
    return value;
  };
  const int stage = number();
  const char letter = text.empty() ? ' ' : text.front();
  if (stage < 0 || (letter != 'F' && letter != 'B' && letter != 'I' && letter != 'W'))
    return {Pass::forward, -1, 0};
  text.remove_prefix(1);
  const int microbatch = number();
  return {letter == 'F'   ? Pass::forward
          : letter == 'B' ? Pass::backward
          : letter == 'I' ? Pass::input_gradient
                          : Pass::weight_gradient,
          microbatch < 0 ? -1 : stage, microbatch};
}

/// Returns whether a cell is a communication or a wait in an export of PyTorch's runtime: a stage, a word,
/// and for most words a microbatch.
[[nodiscard]] constexpr bool is_runtime_action(std::string_view cell) {
  constexpr std::string_view digits = "0123456789";
  const std::size_t begin = cell.find_first_not_of(digits);
  const std::size_t end = cell.find_last_not_of(digits);
  if (begin == 0 || begin == std::string_view::npos)
    return false;
  const std::string_view word = cell.substr(begin, end + 1 - begin);
  for (const std::string_view known : {"UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD", "SEND_F",
                                       "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B"})
    if (word == known)
      return true;
  return false;
}

/// Removes a prefix from a text; false if the text does not begin with it.
constexpr bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front))
    return false;
  text.remove_prefix(front.size());
  return true;
}

} // namespace detail

/// @brief Reads one cell; surrounding spaces are ignored.
[[nodiscard]] constexpr CsvCell csv_cell(std::string_view cell) {
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t'))
    cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t' || cell.back() == '\r'))
    cell.remove_suffix(1);
  if (cell.empty())
    return {CsvCell::Kind::idle, {}};
  if (detail::is_runtime_action(cell))
    return {CsvCell::Kind::ignored, {}};
  const bool overlapped = detail::take(cell, "(");
  const Action first = detail::take_action(cell);
  if (first.stage < 0)
    return {};
  if (!overlapped)
    return {cell.empty() ? CsvCell::Kind::step : CsvCell::Kind::malformed, {first, {}, false}};
  if (!detail::take(cell, ";"))
    return {};
  const Action second = detail::take_action(cell);
  const char letters[] = {
      ')', 'O', 'V', 'E', 'R', 'L', 'A', 'P', '_', letter_of(first.pass), '_', letter_of(second.pass)};
  const bool well = second.stage >= 0 && cell == std::string_view(letters, sizeof letters);
  return {well ? CsvCell::Kind::step : CsvCell::Kind::malformed, {first, second, true}};
}

namespace detail {

/// Reads a text cell by cell, and tracks its position.
class CsvReader {
public:
  constexpr explicit CsvReader(std::string_view text) : rest_(text) {
    while (!rest_.empty() && (rest_.back() == '\n' || rest_.back() == '\r'))
      rest_.remove_suffix(1);
  }

  /// Goes to the next cell; false at the end.
  constexpr bool next() {
    if (at_end_ || rest_.empty())
      return false;
    const std::size_t length = std::min(rest_.find_first_of(",\n"), rest_.size());
    line_ += begins_line_ ? 1 : 0;
    column_ = begins_line_ ? 1 : column_ + 1;
    spelling_ = rest_.substr(0, length);
    cell_ = csv_cell(spelling_);
    at_end_ = length == rest_.size();
    begins_line_ = !at_end_ && rest_[length] == '\n';
    rest_.remove_prefix(at_end_ ? length : length + 1);
    return true;
  }

  [[nodiscard]] constexpr const CsvCell& cell() const noexcept { return cell_; }
  [[nodiscard]] constexpr std::string_view spelling() const noexcept { return spelling_; }
  /// Line of the cell, from 1; its rank is one less.
  [[nodiscard]] constexpr int line() const noexcept { return line_; }
  /// Place of the cell in its line, from 1.
  [[nodiscard]] constexpr int column() const noexcept { return column_; }

private:
  std::string_view rest_;
  std::string_view spelling_{};
  CsvCell cell_{};
  int line_ = 0;
  int column_ = 0;
  bool begins_line_ = true;
  bool at_end_ = false;
};

/// The extents of a schedule, from its text.
struct CsvShape {
  int ranks = 0;
  int stages = 0;       ///< One more than the highest stage that is named.
  int microbatches = 0; ///< One more than the highest microbatch that is named.
  int bad_line = 0;     ///< Line of the first malformed cell, from 1; 0 if there is none.
  int bad_column = 0;   ///< Its place in the line, from 1.
  int ignored = 0;      ///< Cells that are not passes.
  int ignored_line = 0; ///< Line of the first of them, from 1.
  std::string_view first_ignored{};
};

/// Goes through a text once.
[[nodiscard]] constexpr CsvShape csv_shape(std::string_view text) {
  CsvShape shape;
  for (CsvReader reader(text); reader.next();) {
    shape.ranks = reader.line();
    if (reader.cell().kind == CsvCell::Kind::malformed && shape.bad_line == 0) {
      shape.bad_line = reader.line();
      shape.bad_column = reader.column();
    }
    if (reader.cell().kind == CsvCell::Kind::ignored && ++shape.ignored == 1) {
      shape.ignored_line = reader.line();
      shape.first_ignored = reader.spelling();
    }
    if (reader.cell().kind == CsvCell::Kind::step)
      for (int i = 0; i < reader.cell().step.size(); ++i) {
        shape.stages = std::max(shape.stages, reader.cell().step[i].stage + 1);
        shape.microbatches = std::max(shape.microbatches, reader.cell().step[i].microbatch + 1);
      }
  }
  return shape;
}

/// A cell of a text, and its action; line 0 means none.
struct CsvPosition {
  int line = 0;
  int column = 0;
  Action action{};
};

/// The first action of a text that a placement puts on another rank.
[[nodiscard]] constexpr CsvPosition csv_misfit(std::string_view text, const StagePlacement& placement) {
  for (CsvReader reader(text); reader.next();)
    if (reader.cell().kind == CsvCell::Kind::step)
      for (int i = 0; i < reader.cell().step.size(); ++i)
        if (const Action& action = reader.cell().step[i];
            placement.rank_of(action.stage, action.microbatch) != reader.line() - 1)
          return {reader.line(), reader.column(), action};
  return {};
}

/// The placements with the number of stages that a text names.
struct CsvPlacements {
  StagePlacement candidates[3] = {};
  int count = 0;
};

[[nodiscard]] constexpr CsvPlacements csv_placements(const CsvShape& shape) {
  CsvPlacements found;
  const int p = shape.ranks;
  for (const StagePlacement& placement :
       {StagePlacement::loop(p, p > 0 ? shape.stages / p : 0), StagePlacement::v_shape(p),
        StagePlacement::bidirectional(p, shape.microbatches)})
    if (p > 0 && shape.stages > 0 && placement.stages() == shape.stages &&
        (placement.order != StageOrder::bidirectional || shape.microbatches > 1))
      found.candidates[found.count++] = placement;
  return found;
}

/// The first of loop, V and bidirectional that puts all actions of a text on the right rank; one without
/// ranks if none does.
[[nodiscard]] constexpr StagePlacement csv_placement(std::string_view text, const CsvShape& shape) {
  const CsvPlacements placements = csv_placements(shape);
  for (int i = 0; i < placements.count; ++i)
    if (csv_misfit(text, placements.candidates[i]).line == 0)
      return placements.candidates[i];
  return {StageOrder::loop, 0, 0, 0};
}

/// The steps of one line of a text, for a text without malformed cells.
class CsvCursor {
public:
  constexpr CsvCursor() : reader_({}) {}
  constexpr explicit CsvCursor(std::string_view line) : reader_(line) {}

  /// The next step; false at the end of the line.
  constexpr bool next(Step& step) {
    while (reader_.next())
      if (reader_.cell().kind == CsvCell::Kind::step) {
        step = reader_.cell().step;
        return true;
      }
    return false;
  }

private:
  CsvReader reader_;
};

} // namespace detail
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::string text_of(const Action& action) {
  return std::to_string(action.stage) + letter_of(action.pass) + std::to_string(action.microbatch);
}

SHARDWRIGHT_INLINE std::string text_of(const Step& step) {
  if (!step.overlapped)
    return text_of(step.first);
  return "(" + text_of(step.first) + ";" + text_of(step.second) + ")OVERLAP_" + letter_of(step.first.pass) +
         "_" + letter_of(step.second.pass);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
