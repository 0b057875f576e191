// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The command-line options of a run, which every program has, by their groups in the help.

#include "options.hpp"

#include <command_line/checks.hpp>

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

namespace trainer {

/// @brief Options given as words or in other units, until settle_words() interprets them.
struct RunWords {
  std::string mesh;
  std::string transport = "auto";
  std::string precision = "fp32";
  std::string non_finite = "stop";
  std::string empty_batch = "skip";
  std::string metrics, tensorboard, timeline, timeline_svg, dry_run_json, checkpoint; ///< Paths.
  std::string dry_run_ranks;
  double link_microseconds = 0;
  double link_gigabytes = 0;
};

/// @brief Adds options to one group of the help. A help text that does not name its default gets the one that
/// the option holds.
class OptionGroup {
public:
  OptionGroup(CLI::App& app, const char* name) : app_(app), name_(name) {}

  template <class Value> CLI::Option* add(const char* option, Value& value, const std::string& help) {
    return app_.add_option(option, value, help)->group(name_);
  }
  CLI::Option* flag(const char* option, bool& value, const std::string& help) {
    return app_.add_flag(option, value, help)->group(name_);
  }
  CLI::Option* whole(const char* option, int& value, int least, const std::string& help,
                     int most_value = most) {
    return add(option, value, with_default(help, value))
        ->check(command_line::whole_from<int>(least, most_value))
        ->type_name("N");
  }
  CLI::Option* count(const char* option, std::int64_t& value, std::int64_t least, const std::string& help) {
    return add(option, value, with_default(help, value))
        ->check(command_line::whole_from<std::int64_t>(least, 1'000'000'000'000))
        ->type_name("N");
  }
  CLI::Option* real(const char* option, double& value, double least, bool least_allowed,
                    const std::string& help, double most_value = 1e30) {
    return add(option, value, with_default(help, value))
        ->check(command_line::real_from(least, least_allowed, most_value))
        ->type_name("X");
  }

  static constexpr int most = 1 << 20;

private:
  template <class Value> static std::string with_default(const std::string& help, Value value) {
    return help.find("Default:") == std::string::npos ? help + " Default: " + command_line::text(value) + "."
                                                      : help;
  }

  CLI::App& app_;
  const char* name_;
};

/// @brief The defaults of the learning rate, which differ between programs, for the help.
struct RateHelp {
  std::string rate, warmup, least;
};

/// @brief Mesh, ranks, schedule, transport and simulated link.
void add_rank_options(CLI::App& app, RunOptions& options, RunWords& words);
/// @brief Steps, seed, optimizer, and what to do with bad steps.
void add_step_options(OptionGroup& in, RunOptions& options, RunWords& words, const RateHelp& help);
/// @brief Validation, files about the run, and --verify.
void add_output_options(OptionGroup& in, RunOptions& options, RunWords& words);
/// @brief Saves and --resume.
void add_checkpoint_options(OptionGroup& in, RunOptions& options, RunWords& words);
/// @brief --dry-run, and its ranks and file; `more` ends the first help text.
void add_dry_run_options(CLI::App& app, RunOptions& options, RunWords& words, const std::string& more);

/// @brief Interprets the words; the rest of the command line has been read into `options` already.
void settle_words(RunOptions& options, const RunWords& words, const IsGiven& given);

} // namespace trainer
