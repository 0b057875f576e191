// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A timetable as text: the figures of every rank, and its steps in columns of time.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/number_text.hpp>
#include <shardwright/schedule/timetable.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief "makespan 33, bubble 9 (27.3 % of the makespan), peak 4 microbatches in flight"; times get the
/// unit, if any.
[[nodiscard]] inline std::string figures_text(const Timetable& table, const std::string& unit = {}) {
  const std::string after = unit.empty() ? "" : " " + unit;
  int peak = 0;
  for (int rank = 0; rank < table.placement.ranks; ++rank)
    peak = std::max(peak, table.peak(rank));
  return "makespan " + number_text(table.makespan(), 3) + after + ", bubble " +
         number_text(table.bubble(), 3) + after + " (" + percent_text(table.bubble() / table.makespan()) +
         " of the makespan), peak " + std::to_string(peak) + " " + table.kept_unit() + " in flight";
}

/// @brief "F=1,I=1,W=1,send=0": costs in the format that the programs accept.
[[nodiscard]] inline std::string costs_text(const PassCosts& costs) {
  return "F=" + number_text(costs.forward, 6) + ",I=" + number_text(costs.input_gradient, 6) +
         ",W=" + number_text(costs.weight_gradient, 6) + ",send=" + number_text(costs.send, 6) +
         (costs.overlapped > 0 ? ",overlapped=" + number_text(costs.overlapped, 6) : "");
}

/// @brief "ZB-V: 4 ranks, 2 stages each, 8 microbatches".
[[nodiscard]] inline std::string title_text(const Schedule& schedule) {
  const StagePlacement& placement = schedule.placement();
  return schedule_title(schedule.name()) + ": " + std::to_string(placement.ranks) +
         (placement.ranks == 1 ? " rank, " : " ranks, ") +
         (placement.chunks > 1 ? std::to_string(placement.chunks) + " stages each, " : "") +
         std::to_string(schedule.microbatches()) +
         (schedule.microbatches() == 1 ? " microbatch" : " microbatches");
}

namespace detail {

/// The longest time such that all steps begin and end at a multiple of it; if there is none, a small fraction
/// of a step.
[[nodiscard]] inline double time_of_column(const Timetable& table) {
  double shortest = table.makespan();
  for (const std::vector<TimedStep>& steps : table.ranks)
    for (const TimedStep& timed : steps)
      if (timed.end > timed.start)
        shortest = std::min(shortest, timed.end - timed.start);
  const auto fits = [&table](double column) {
    const auto whole = [column](double time) {
      return std::abs(time / column - std::round(time / column)) < 1e-6;
    };
    return std::all_of(table.ranks.begin(), table.ranks.end(), [&](const std::vector<TimedStep>& steps) {
      return std::all_of(steps.begin(), steps.end(),
                         [&](const TimedStep& timed) { return whole(timed.start) && whole(timed.end); });
    });
  };
  for (int parts = 1; parts <= 10; ++parts)
    if (fits(shortest / parts))
      return shortest / parts;
  return shortest / 2;
}

/// "F3", or with several stages per rank "2F3" as in CSV; pairs are joined by &.
[[nodiscard]] inline std::string step_text(const StagePlacement& placement, const Step& step) {
  std::string out;
  for (int i = 0; i < step.size(); ++i)
    out += (i == 0 ? "" : "&") + (placement.chunks > 1 ? std::to_string(step[i].stage) : std::string()) +
           letter_of(step[i].pass) + std::to_string(step[i].microbatch);
  return out;
}

[[nodiscard]] inline std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

[[nodiscard]] inline std::size_t column_at(double time, double column) {
  return static_cast<std::size_t>(std::lround(time / column));
}

/// Each rank's steps as one line, `cell` characters for each column.
[[nodiscard]] inline std::vector<std::string> lines_of_ranks(const Timetable& table, double column,
                                                             std::size_t columns, std::size_t cell) {
  std::vector<std::string> lines(table.ranks.size());
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    std::string& out = lines[rank];
    for (std::size_t i = 0; i < columns; ++i)
      out += padded(".", cell);
    for (const TimedStep& timed : table.ranks[rank]) {
      const std::size_t length =
          std::max<std::size_t>(column_at(timed.end, column) - column_at(timed.start, column), 1) * cell;
      std::string text = step_text(table.placement, timed.step);
      text.resize(std::max(text.size(), length - 1), '-');
      out.replace(column_at(timed.start, column) * cell, length, padded(text, length));
    }
  }
  return lines;
}

/// A line per rank: its stages, busy and idle time, and the most microbatches in flight.
[[nodiscard]] inline std::string figures_text(const Timetable& table, std::size_t head) {
  std::string out;
  out += padded("", head) + "  stages        busy        idle    idle %    peak in flight\n";
  for (int rank = 0; rank < table.placement.ranks; ++rank) {
    std::string stages;
    for (int chunk = 0; chunk < table.placement.chunks; ++chunk)
      stages.append(chunk == 0 ? "" : ",").append(std::to_string(table.placement.stage_of(rank, chunk)));
    const double idle = table.makespan() - table.busy(rank);
    const std::array<std::string, 5> cells{stages, number_text(table.busy(rank), 3), number_text(idle, 3),
                                           number_text(100 * idle / table.makespan(), 1),
                                           std::to_string(table.peak(rank))};
    constexpr std::array<std::size_t, 5> widths{8, 12, 12, 10, 18};
    out += padded("rank " + std::to_string(rank), head);
    for (std::size_t i = 0; i < cells.size(); ++i)
      out += std::string(widths[i] - std::min(widths[i] - 1, cells[i].size()), ' ') + cells[i];
    out += "\n";
  }
  return out;
}

} // namespace detail

/// @brief Each rank's steps in columns of equal time, then a line of figures per rank.
///
/// A step is as long as its time, filled up with dashes; a dot is a column of idle time. Lines longer than
/// `width` characters are continued below.
/// @throws InvalidArgument if nothing takes time, or there would be more than 64 MiB of text.
[[nodiscard]] inline std::string timetable_text(const Timetable& table, std::size_t width = 120) {
  using detail::padded;
  if (table.makespan() <= 0)
    throw InvalidArgument("Timetable: it must have steps that take time (give costs above 0)");
  const double column = detail::time_of_column(table);
  constexpr double most_characters = 1 << 26;
  const double characters = 3.0 * (table.makespan() / column) * table.placement.ranks; // at least
  if (!(characters <= most_characters))
    throw InvalidArgument(
        "Timetable: as text it must have at most " + number_text(most_characters, 0) + " characters, but " +
        std::to_string(table.placement.ranks) + " ranks and " + number_text(table.makespan() / column, 0) +
        " columns are more (show fewer ranks or microbatches, or give costs that are nearer "
        "to each other)");
  const auto at = [column](double time) { return detail::column_at(time, column); };
  const std::size_t columns = std::max<std::size_t>(at(table.makespan()), 1);
  std::size_t cell = 3;
  for (const std::vector<TimedStep>& steps : table.ranks)
    for (const TimedStep& timed : steps) {
      const std::size_t cells = std::max<std::size_t>(at(timed.end) - at(timed.start), 1);
      cell = std::max(cell, detail::step_text(table.placement, timed.step).size() / cells + 1);
    }

  const std::string last_rank = std::to_string(table.placement.ranks - 1);
  const std::size_t head = 5 + last_rank.size() + 2;
  const std::size_t most = std::max<std::size_t>(width > head ? (width - head) / cell : 1, 1);
  const std::size_t each = std::max<std::size_t>(most / 5 * 5, std::min<std::size_t>(most, 5));
  const std::vector<std::string> lines = detail::lines_of_ranks(table, column, columns, cell);
  std::string out;
  for (std::size_t begin = 0; begin < columns; begin += each) {
    std::string times;
    for (std::size_t i = begin; i < std::min(begin + each, columns); i += 5)
      times += padded(number_text(static_cast<double>(i) * column, 6), 5 * cell);
    out += padded("time", head) + times.substr(0, times.find_last_not_of(' ') + 1) + "\n";
    for (std::size_t rank = 0; rank < lines.size(); ++rank) {
      const std::string part = lines[rank].substr(begin * cell, each * cell);
      out += padded("rank " + std::to_string(rank), head) + part.substr(0, part.find_last_not_of(' ') + 1) +
             "\n";
    }
    out += "\n";
  }

  return out + detail::figures_text(table, head);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
