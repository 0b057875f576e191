// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of a run on the command line, and their help.

#include "command_line.hpp"
#include "schedules.hpp"

#include <shardwright/schedule/named_schedule.hpp>

#include <limits>

namespace trainer {

using namespace command_line;

void add_rank_options(CLI::App& app, RunOptions& options, RunWords& words) {
  OptionGroup in(app, "Ranks");
  in.add(
        "--mesh", words.mesh,
        "Ranks along each axis, such as pp=2,dp=2,tp=2. "
        "Default: all ranks on dp. dpr are replicas of dp, which --zero does not shard over; ep splits the batch like dp and owns experts; cp splits sequences.")
      ->type_name("AXES");
  in.add("--ranks", options.ranks, "Number of ranks. Default: as many as the mesh has, or 1.")
      ->check(whole_from<int>(1, OptionGroup::most))
      ->type_name("N");
  in.add(
        "--schedule", options.schedule,
        "Order of the pipeline's passes: " + joined(shardwright::schedule_names(), " or ") +
            ", or a file whose name ends in .csv: a line for each rank, cells such as 0F7 (stage, pass, microbatch). "
            "Default: " +
            options.schedule + ".")
      ->check(CLI::Validator(
          [](std::string& word) {
            return is_schedule_file(word) ? std::string() : one_of(shardwright::schedule_names())(word);
          },
          std::string()))
      ->type_name("NAME");
  in.whole("--chunks", options.chunks, 1, "Stages that each rank of an interleaved schedule holds.");
  in.add(
        "--transport", words.transport,
        "auto, threads or mpi: ranks are threads of this process, or the processes that an MPI launcher started. "
        "Default: auto, as it was started.")
      ->check(one_of({"auto", "threads", "mpi"}))
      ->type_name("NAME");
  in.real("--deadline", options.deadline_seconds, 0, false,
          "Seconds that a rank waits for the others before it ends with an error that names who is missing.",
          1e8);
  in.real("--link-latency", words.link_microseconds, 0, true,
          "Microseconds of a simulated link between the ranks; 0 for none.", 1e9);
  in.real("--link-bandwidth", words.link_gigabytes, 0, true,
          "Gigabytes per second of that link, per rank and direction; 0 for no limit.", 1e9);
}

void add_step_options(OptionGroup& in, RunOptions& options, RunWords& words, const RateHelp& help) {
  in.count("--steps", options.steps, 0, "Optimizer steps.");
  in.add("--seed", options.seed,
         "Chooses initial weights and batches; equal seeds give equal runs. Default: " + text(options.seed) +
             ".")
      ->check(whole_from<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()))
      ->type_name("N");
  in.real("--lr", options.learning_rate, 0, false,
          "Peak learning rate of AdamW. Default: " + help.rate + ".");
  in.count("--warmup", options.warmup, 0,
           "Steps in which the rate rises from 0. Default: " + help.warmup + ".");
  in.real("--min-lr", options.least_learning_rate, 0, true,
          "Rate at the end of the cosine. Default: " + help.least + ".");
  in.real("--weight-decay", options.weight_decay, 0, true, "Decoupled weight decay of matrices.");
  in.real("--clip", options.clip, 0, true, "Largest norm of the whole gradient; 0 for no limit.");

  in.add("--non-finite", words.non_finite,
         "What to do if loss or gradients are infinite or NaN: stop, or skip the step. "
         "All ranks do the same, and name the place. Default: stop.")
      ->check(one_of({"stop", "skip"}))
      ->type_name("NAME");
  in.add("--empty-batch", words.empty_batch,
         "What to do with a step whose targets are all masked: skip, or stop. Default: skip.")
      ->check(one_of({"skip", "stop"}))
      ->type_name("NAME");
  in.count("--check-replicas", options.check_replicas, 0,
           "Steps between comparisons of all copies of weights and optimizer state; 0 for none.");
}

void add_output_options(OptionGroup& in, RunOptions& options, RunWords& words) {
  in.count("--validate-every", options.validate_every, 0,
           "Steps between held-out losses; 0 for one at the end.");
  in.whole(
      "--patience", options.patience, 0,
      "End after this many validations of --validate-every in a row that are not below the best; 0: never.");
  in.whole("--validation-batches", options.validation_batches, 1,
           "Maximum number of batches for a held-out loss.");
  in.add("--metrics", words.metrics, "File to which each step is appended as a line of JSON.")
      ->type_name("FILE");
  in.add("--tensorboard", words.tensorboard,
         "Directory for the same numbers as event files, which TensorBoard shows.")
      ->type_name("DIR");
  in.add("--timeline", words.timeline,
         "File for a trace of the last step, all ranks, that ui.perfetto.dev opens.")
      ->type_name("FILE");
  in.add("--timeline-svg", words.timeline_svg,
         "File for a drawing of the last step: measured times next to those planned from their means.")
      ->type_name("FILE");
  in.flag("--verify", options.verify,
          "Repeat the run on one rank and print the largest differences of losses and final parameters.");
}

void add_checkpoint_options(OptionGroup& in, RunOptions& options, RunWords& words) {
  CheckpointOptions& checkpoint = options.checkpoint;
  in.add("--checkpoint", words.checkpoint,
         "Directory in which the run is saved: after its last step, and on SIGTERM or SIGINT, which end it.")
      ->type_name("DIR");
  in.count("--save-every", checkpoint.every, 0, "Steps between saves as well; 0 for none.");
  in.whole("--keep", checkpoint.keep, 1,
           "Checkpoints to keep; older ones are removed when a newer one is durable.");
  in.flag("--resume", checkpoint.resume,
          "Resume from the newest complete checkpoint there, on any mesh, schedule and --zero.");
  in.count(
      "--stop-after", checkpoint.stop_after, 0,
      "Step after which to save and end, without the last validation and files of timelines; 0 for none.");
  in.real("--save-progress", checkpoint.progress_seconds, 0, true,
          "Seconds between lines that give the bytes and the rate of a save.", 1e6);
  in.real("--stop-limit", checkpoint.stop_limit_seconds, 1, true,
          "Seconds from a signal to the end of the run, after which it ends with code 1.", 1e6);
}

void add_dry_run_options(CLI::App& app, RunOptions& options, RunWords& words, const std::string& more) {
  OptionGroup in(app, "Dry run");
  in.flag(
      "--dry-run", options.dry_run,
      "Train nothing, read no data, start no ranks: print memory by kind, calls and operations of two steps on --rank." +
          more);
  in.add(
        "--rank", words.dry_run_ranks,
        "Ranks of the mesh to count, such as 17 or 0,17,8192; the calls of several are compared. Default: 0.")
      ->type_name("RANKS");
  in.add("--dry-run-json", words.dry_run_json, "File for the same as JSON, with every call in order.")
      ->type_name("FILE");
}

void settle_words(RunOptions& options, const RunWords& words, const IsGiven& given) {
  if (given("--mesh"))
    options.mesh = parse_mesh(words.mesh);
  options.transport = words.transport == "mpi"       ? Transport::mpi
                      : words.transport == "threads" ? Transport::threads
                                                     : Transport::automatic;
  options.precision = precision_of(words.precision);
  options.non_finite =
      words.non_finite == "skip" ? shardwright::NonFinite::skip : shardwright::NonFinite::stop;
  options.empty_batch =
      words.empty_batch == "stop" ? shardwright::EmptyBatch::stop : shardwright::EmptyBatch::skip;
  options.link = {words.link_microseconds * 1e-6, words.link_gigabytes * 1e9};
  options.metrics = words.metrics;
  options.tensorboard = words.tensorboard;
  options.timeline = words.timeline;
  options.timeline_svg = words.timeline_svg;
  options.checkpoint.directory = words.checkpoint;
  options.dry_run_json = words.dry_run_json;
}

} // namespace trainer
