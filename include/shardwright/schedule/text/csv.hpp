// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads and writes schedules as CSV.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/smallest_window.hpp>
#include <shardwright/schedule/text/csv_text.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A schedule as CSV: one line per rank, and no idle cells; a rank without steps is a single comma, so
/// that readers count its line.
[[nodiscard]] inline std::string to_csv(const Schedule& schedule) {
  std::string out;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::string_view separator;
    for (const Step& step : schedule.steps(rank)) {
      out.append(separator).append(text_of(step));
      separator = ",";
    }
    out += separator.empty() ? ",\n" : "\n";
  }
  return out;
}

namespace detail {

[[noreturn]] inline void fail_csv_cell(std::string_view text, const CsvShape& shape) {
  CsvReader reader(text);
  while (reader.next() && (reader.line() != shape.bad_line || reader.column() != shape.bad_column)) {
  }
  throw DataError(
      "schedule CSV: line " + std::to_string(shape.bad_line) + ", cell " + std::to_string(shape.bad_column) +
      " is " + quoted_text(reader.spelling()) +
      ", but a cell must be empty, an action such as 0F7 (stage; F, B, I or W; microbatch), a pair such as (0F7;7B3)OVERLAP_F_B, or one of PyTorch's other actions, such as 0UNSHARD");
}

[[noreturn]] inline void fail_csv_placement(std::string_view text, const CsvShape& shape) {
  const CsvPlacements placements = csv_placements(shape);
  std::string why;
  for (int i = 0; i < placements.count; ++i) {
    const StagePlacement& placement = placements.candidates[i];
    const CsvPosition at = csv_misfit(text, placement);
    why += (why.empty() ? "" : "; ") + std::string("line ") + std::to_string(at.line) + ", cell " +
           std::to_string(at.column) + " has " + text_of(at.action) + ", which a " +
           std::string(name_of(placement.order)) + " placement has on line " +
           std::to_string(placement.rank_of(at.action.stage, at.action.microbatch) + 1);
  }
  if (why.empty())
    why = "a loop has a multiple of that many stages, a V twice as many, and both directions the same number";
  throw DataError("schedule CSV: no placement holds the " + std::to_string(shape.stages) + " stages of the " +
                  std::to_string(shape.ranks) + " lines (" + why + ")");
}

/// In PyTorch's older notation a B is the input gradient if the microbatch's stage also has a W. Texts with
/// an I use the current notation, in which a B in addition to a W is an error that the proof reports.
inline void read_older_spelling(std::vector<std::vector<Step>>& steps, int microbatches, std::int64_t cells) {
  std::vector<bool> has_weight_gradient(static_cast<std::size_t>(cells));
  const auto cell = [microbatches](const Action& action) {
    return static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(microbatches) +
           static_cast<std::size_t>(action.microbatch);
  };
  const auto for_each = [&steps](const auto& visit) {
    for (std::vector<Step>& line : steps)
      for (Step& step : line) {
        visit(step.first);
        if (step.overlapped)
          visit(step.second);
      }
  };
  bool todays = false;
  for_each([&](const Action& action) {
    todays = todays || action.pass == Pass::input_gradient;
    if (action.pass == Pass::weight_gradient)
      has_weight_gradient[cell(action)] = true;
  });
  if (todays)
    return;
  for_each([&](Action& action) {
    if (action.pass == Pass::backward && has_weight_gradient[cell(action)])
      action.pass = Pass::input_gradient;
  });
}

} // namespace detail

/// @brief Says how many cells of a text `schedule_from_csv` ignores; empty if it reads every cell.
[[nodiscard]] inline std::string ignored_cells_text(std::string_view text) {
  const detail::CsvShape shape = detail::csv_shape(text);
  return shape.ignored == 0
             ? ""
             : std::to_string(shape.ignored) +
                   (shape.ignored == 1 ? " cell that is not a pass" : " cells that are not passes") +
                   ", the first " + detail::quoted_text(shape.first_ignored) + " on line " +
                   std::to_string(shape.ignored_line) + ", ignored: the runner plans communication itself";
}

/// @brief Reads a schedule: line r holds the steps of rank r, and empty cells do not count.
///
/// Cells of PyTorch's exports that are not passes, such as 0UNSHARD or 1SEND_F0, do not count either
/// (`ignored_cells_text`). The window is the `smallest_window`, which the text does not name. The numbers of
/// stages and microbatches follow from the highest indices; the placement is the first of loop, V and
/// bidirectional that fits. Use `prove` to check the schedule. PyTorch's older notation, where B and W are
/// the two gradients of a microbatch, is read as I and W.
/// @throws DataError naming line and cell if the text is malformed or fits no placement.
/// @throws InvalidArgument if it names more than `most_forward_passes`.
[[nodiscard]] inline Schedule schedule_from_csv(std::string_view text, std::string name = "csv") {
  const detail::CsvShape shape = detail::csv_shape(text);
  if (shape.bad_line > 0)
    detail::fail_csv_cell(text, shape);
  if (shape.stages == 0)
    throw DataError("schedule CSV: the text must hold at least one action, such as 0F0");
  if (shape.stages > most_forward_passes / shape.microbatches)
    detail::fail_schedule_size("schedule CSV", shape.stages, shape.microbatches);
  const StagePlacement placement = detail::csv_placement(text, shape);
  if (placement.ranks == 0)
    detail::fail_csv_placement(text, shape);
  std::vector<std::vector<Step>> steps(static_cast<std::size_t>(shape.ranks));
  for (detail::CsvReader reader(text); reader.next();)
    if (reader.cell().kind == CsvCell::Kind::step)
      steps[static_cast<std::size_t>(reader.line() - 1)].push_back(reader.cell().step);
  detail::read_older_spelling(steps, shape.microbatches, std::int64_t{shape.stages} * shape.microbatches);
  Schedule schedule(std::move(name), placement, shape.microbatches, std::move(steps));
  const MessageWindow window = smallest_window(schedule);
  return {std::move(schedule), window};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
