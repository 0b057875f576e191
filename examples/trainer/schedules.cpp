// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Maps words of the command line to the policies of schedules.

#include "schedules.hpp"

#include <command_line/limits.hpp>
#include <command_line/words.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/text/explain.hpp>
#include <shardwright/schedule/whole_batch_loss.hpp>

#include <string>
#include <utility>

namespace trainer {

using namespace command_line;

namespace {

namespace sw = shardwright;

std::string read_file(const std::string& path) {
  try {
    return sw::read_text(path, command_line::most_schedule_bytes);
  } catch (const sw::DataError& error) {
    throw sw::InvalidArgument(
        std::string(error.what()) +
        "; the file must be readable and hold a line for each rank (write one with schedule_viewer, or name a schedule)");
  }
}

} // namespace

bool is_schedule_file(const std::string& word) { return word.ends_with(".csv"); }

std::string ignored_in_schedule(const RunOptions& options) {
  return is_schedule_file(options.schedule) ? sw::ignored_cells_text(read_file(options.schedule))
                                            : std::string();
}

sw::Schedule schedule_of(const RunOptions& options) {
  const int ranks = options.extent("pp");
  const int microbatches = options.accumulation;
  sw::Schedule schedule = is_schedule_file(options.schedule)
                              ? sw::schedule_from_csv(read_file(options.schedule), options.schedule)
                              : sw::make_schedule(options.schedule, ranks, microbatches, options.chunks);
  if (schedule.ranks() != ranks || schedule.microbatches() != microbatches)
    throw sw::InvalidArgument(options.schedule + ": it is for pp=" + text(schedule.ranks()) + " and " +
                              text(schedule.microbatches()) +
                              " microbatches, but the run has pp=" + text(ranks) + " and " +
                              text(microbatches) + " (give --mesh and --microbatches to fit)");
  static_cast<void>(sw::require_proof(schedule));
  if (options.balance == "global" && !options.counting_pass && !sw::forwards_first(schedule))
    throw sw::InvalidArgument(
        options.schedule +
        " must run all forward passes first, as --balance global counts the whole batch (give gpipe, or --counting-pass for one more forward pass)");
  return options.counting_pass ? sw::CountingFirst(std::move(schedule)) : std::move(schedule);
}

} // namespace trainer
