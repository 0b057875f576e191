// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A custom schedule that the compiler parses and proves.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/schedule_rule.hpp>
#include <shardwright/schedule/smallest_window.hpp>
#include <shardwright/schedule/stage_placement.hpp>
#include <shardwright/schedule/text/csv_text.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <int line, int cell> struct CsvCellOf {
  static_assert(
      line == 0,
      "CsvSchedule: a cell must be empty, an action such as 0F7, or an overlapped pair such as (0F7;7B3)OVERLAP_F_B (CsvCellOf in the trace names line and cell)");
};

template <int stages, int lines, bool placed> struct CsvStagesOf {
  static_assert(
      placed,
      "CsvSchedule: the stages must be placed on the lines in a loop, in a V, or in both directions (move the actions to the lines of their stages)");
};

template <std::size_t lines>
[[nodiscard]] constexpr std::array<std::string_view, lines> csv_lines(std::string_view text) {
  std::array<std::string_view, lines> out{};
  for (std::string_view& line : out) {
    const std::size_t end = text.find('\n');
    line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

} // namespace detail

/// @brief The schedule whose text is `Text::csv`, a static constexpr std::string_view in CSV.
///
/// The numbers of ranks and microbatches follow from the text. PipelineSchedule of it compiles only if the
/// proof holds.
template <class Text> struct CsvSchedule {
  static constexpr std::string_view name = "csv";
  static constexpr detail::CsvShape shape = detail::csv_shape(Text::csv);
  static constexpr int ranks = shape.ranks;
  static constexpr int microbatches = shape.microbatches;
  static constexpr StagePlacement stage_placement = detail::csv_placement(Text::csv, shape);
  static constexpr auto lines = detail::csv_lines<static_cast<std::size_t>(ranks)>(Text::csv);
  static_assert(sizeof(detail::CsvCellOf<shape.bad_line, shape.bad_column>) != 0);
  static_assert(sizeof(detail::CsvStagesOf<shape.stages, ranks, (stage_placement.ranks > 0)>) != 0);

  [[nodiscard]] static constexpr ScheduleRule rule(int wanted_ranks, int wanted_microbatches) {
    if (wanted_ranks != ranks)
      return {"the number of ranks must be the number of lines of its text", ScheduleExtent::ranks};
    if (wanted_microbatches != microbatches)
      return {"the number of microbatches must be that of its text", ScheduleExtent::microbatches};
    return {};
  }
  [[nodiscard]] static constexpr StagePlacement placement(int, int) { return stage_placement; }
  [[nodiscard]] static constexpr detail::CsvCursor cursor(int, int, int rank) {
    return detail::CsvCursor(lines[static_cast<std::size_t>(rank)]);
  }
  /// @brief The `smallest_window`, which the text does not name.
  [[nodiscard]] static constexpr MessageWindow window(int, int) { return own_window; }

private:
  struct Orders {
    [[nodiscard]] constexpr StagePlacement placement() const { return stage_placement; }
    [[nodiscard]] constexpr int microbatches() const { return CsvSchedule::microbatches; }
    [[nodiscard]] constexpr detail::CsvCursor cursor(int rank) const {
      return detail::CsvCursor(lines[static_cast<std::size_t>(rank)]);
    }
  };
  static constexpr MessageWindow own_window = smallest_window(Orders{});
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
