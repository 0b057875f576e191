// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of schedule_viewer, their help, and their error messages.

#include "options.hpp"

#include <command_line/checks.hpp>
#include <command_line/words.hpp>

#include <shardwright/schedule/named_schedule.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

namespace schedule_viewer {

using namespace command_line;

namespace {

shardwright::PassCosts parse_costs(const std::string& word) {
  const std::string help =
      " (write --costs F=1,I=1,W=1,send=0; what is left out keeps these values, and overlapped=T sets the time of a pair)";
  const std::vector<std::pair<std::string, double shardwright::PassCosts::*>> known{
      {"F", &shardwright::PassCosts::forward},
      {"I", &shardwright::PassCosts::input_gradient},
      {"W", &shardwright::PassCosts::weight_gradient},
      {"send", &shardwright::PassCosts::send},
      {"overlapped", &shardwright::PassCosts::overlapped}};
  shardwright::PassCosts costs;
  std::istringstream parts(word);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string number = equals == std::string::npos ? std::string() : part.substr(equals + 1);
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.first == name; });
    if (found == known.end())
      throw UsageError("--costs has the unknown part '" + part + "'" +
                       (name == "B" ? "; a B is an I and a W together" : "") + help);
    const std::optional<double> value = real_number(number);
    constexpr double most = 1e9;
    if (!value || *value < 0 || *value > most)
      throw UsageError("--costs needs a number from 0 to " + text(most) + " after " + name + "=, but has '" +
                       clipped(number) + "'" + help);
    costs.*found->second = *value;
  }
  if (costs.forward <= 0 || costs.input_gradient + costs.weight_gradient <= 0)
    throw UsageError("--costs must give passes some time, but has '" + word + "'" + help);
  return costs;
}

constexpr const char* footer =
    "Schedules:\n"
    "  gpipe          all forwards, then all backwards; any loss, most memory\n"
    "  1f1b           one forward, one backward; memory bounded by the ranks\n"
    "  interleaved    1f1b over several chunks of the model per rank, which divide the bubble\n"
    "  zbh1, zbh2     weight gradients (W) apart from input gradients (I), later, where a rank would idle;\n"
    "                 zbh2 needs 2p - 1 microbatches on p ranks\n"
    "  interleavedzb  the same over several chunks of the model per rank, with their shorter bubble\n"
    "  zbv            two chunks in a V; no idle time inside a rank's span where F = I = W\n"
    "  dualpipe       microbatches enter at both ends, forwards overlapped with backwards\n"
    "  dualpipev      the same in a V, with every stage once\n"
    "\nExamples:\n"
    "  schedule_viewer --schedule zbv --ranks 4 --microbatches 8 --svg zbv.svg\n"
    "  schedule_viewer --schedule dualpipe --ranks 8 --microbatches 20 --costs F=1,I=1.2,W=0.8,overlapped=2.5\n"
    "  schedule_viewer --schedule 1f1b --to-csv mine.csv    edit it, then:\n"
    "  schedule_viewer --csv mine.csv --text --svg mine.svg";

} // namespace

ParseResult parse(int argc, const char* const* argv) {
  Options options;
  CLI::App app{
      "Shows a pipeline schedule as a drawing, a table or CSV, after proving it: every pass of every microbatch on every rank, the idle time, and how many microbatches each rank keeps.",
      "schedule_viewer"};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  constexpr int most = 1 << 20;
  std::string csv, costs, svg, to_csv;

  const auto whole = [&app](const char* name, int& target, int least, const std::string& help,
                            const char* group) {
    app.add_option(name, target, help + " Default: " + text(target) + ".")
        ->check(whole_from<int>(least, most))
        ->type_name("N")
        ->group(group);
  };
  const auto file = [&app](const char* name, std::string& target, const std::string& help,
                           const char* group) {
    app.add_option(name, target, help)->type_name("FILE")->group(group);
  };
  app.add_option("--schedule", options.schedule,
                 "One of those listed below. Default: " + options.schedule + ".")
      ->check(one_of(shardwright::schedule_names()))
      ->type_name("NAME")
      ->group("Schedule");
  whole("--ranks", options.ranks, 1, "Ranks of the pipeline.", "Schedule");
  whole("--microbatches", options.microbatches, 1, "Microbatches of a step.", "Schedule");
  whole("--chunks", options.chunks, 1, "Stages that each rank of an interleaved schedule holds, 2 to 20.",
        "Schedule");
  file(
      "--csv", csv,
      "Show the schedule of this file: a line per rank, cells such as 0F7, 3I2, 3W2, 1B4 (stage, pass, microbatch) or (0F7;7B3)OVERLAP_F_B.",
      "Schedule");
  app.add_option("--costs", costs,
                 "Time of each pass of one stage, and of a send. Default: F=1,I=1,W=1,send=0. "
                 "A B takes I + W; an overlapped pair takes the sum unless overlapped=T is given.")
      ->type_name("LIST")
      ->group("Schedule");

  file("--svg", svg, "Write a drawing to scale, for any browser.", "Output");
  file("--to-csv", to_csv, "Write the order of every rank in the format of --csv.", "Output");
  app.add_flag("--text", options.text, "Print a table. Default if no file is requested.")->group("Output");
  whole("--columns", options.columns, 20, "Characters of a line of the table.", "Output");
  app.set_help_flag("-h,--help", "Print this help and exit.")->group("Output");
  app.footer(footer);

  try {
    if (auto help = help_or_parse(app, argc, argv, "a file to show is named by --csv"))
      return {std::nullopt, *std::move(help), 0};
    const auto given = [&app](const char* name) { return app.count(name) > 0; };
    options.csv = csv;
    options.svg = svg;
    options.to_csv = to_csv;
    options.text = options.text || (svg.empty() && to_csv.empty());
    if (given("--costs"))
      options.costs = parse_costs(costs);
    if (given("--csv"))
      for (const char* name : {"--schedule", "--ranks", "--microbatches", "--chunks"})
        if (given(name))
          throw UsageError(std::string(name) +
                           " is determined by the file of --csv (leave one of the two out)");
    if (given("--chunks") && !shardwright::schedule_takes_chunks(options.schedule))
      throw UsageError("--chunks belongs to the interleaved schedules, but --schedule is " +
                       options.schedule +
                       " (give --schedule interleaved or interleavedzb, or leave --chunks out)");
  } catch (const UsageError& error) {
    return {std::nullopt, std::string("schedule_viewer: ") + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

} // namespace schedule_viewer
