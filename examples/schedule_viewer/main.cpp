// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Shows any pipeline schedule: as a drawing to scale, as a table, or as CSV.

#include "options.hpp"

#include <command_line/limits.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/io/write_text.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>
#include <shardwright/schedule/text/timetable.hpp>
#include <shardwright/schedule/timetable.hpp>

#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>

namespace {

namespace sw = shardwright;

sw::Schedule read_schedule(const std::filesystem::path& path) {
  std::string text;
  try {
    text = sw::read_text(path, command_line::most_schedule_bytes);
  } catch (const sw::DataError& error) {
    throw sw::DataError("--csv " + std::string(error.what()));
  }
  if (const std::string ignored = sw::ignored_cells_text(text); !ignored.empty())
    std::cerr << "schedule_viewer: " << path.string() << ": " << ignored << "\n";
  return sw::schedule_from_csv(text, path.stem().string());
}

/// ZB-H2 needs many microbatches to be worth its memory.
void compare_with_zbh1(const sw::Schedule& schedule, const sw::Timetable& table, const sw::PassCosts& costs) {
  if (schedule.name() != "zbh2")
    return;
  const sw::Timetable plain =
      sw::planned_timetable(sw::make_schedule("zbh1", schedule.ranks(), schedule.microbatches()), costs);
  if (plain.makespan() < table.makespan())
    std::cout << "ZB-H1 takes less: " << sw::figures_text(plain) << " (with fewer than "
              << 2 * schedule.ranks() - 1 << " microbatches on " << schedule.ranks()
              << " ranks, ZB-H2 runs its weight gradients too late)\n";
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  sw::write_text(path, text);
  std::cout << "wrote " << path.string() << "\n";
}

//! [view]
void show(const sw::Schedule& schedule, const schedule_viewer::Options& options) {
  const sw::Timetable table = sw::planned_timetable(schedule, options.costs); // proves it, or throws
  const std::string title = sw::title_text(schedule);
  const std::string figures = sw::figures_text(table) + ", at " + sw::costs_text(options.costs);
  std::cout << title << "\n" << figures << "\n";
  compare_with_zbh1(schedule, table, options.costs);
  if (options.text)
    std::cout << "\n" << sw::timetable_text(table, static_cast<std::size_t>(options.columns));
  if (!options.svg.empty())
    write_file(options.svg, sw::draw_svg(std::span(&table, 1), {title, figures}));
  if (!options.to_csv.empty())
    write_file(options.to_csv, sw::to_csv(schedule));
}
//! [view]

} // namespace

int main(int argc, char** argv) {
  try {
    const schedule_viewer::ParseResult parsed = schedule_viewer::parse(argc, argv);
    if (!parsed.options) {
      (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
      return sw::checked_output("schedule_viewer", parsed.exit_code);
    }
    const schedule_viewer::Options& options = *parsed.options;
    show(options.csv.empty()
             ? sw::make_schedule(options.schedule, options.ranks, options.microbatches, options.chunks)
             : read_schedule(options.csv),
         options);
    return sw::checked_output("schedule_viewer", 0);
  } catch (const std::exception& error) {
    std::cerr << "schedule_viewer: " << error.what() << std::endl;
    return 1;
  }
}
