// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of checkpoint, their help, and their error messages.

#include "options.hpp"

#include <command_line/checks.hpp>
#include <command_line/words.hpp>

#include <CLI/CLI.hpp>

#include <utility>
#include <vector>

namespace checkpoint_tool {

using namespace command_line;

ParseResult parse(int argc, const char* const* argv) {
  Options options;
  CLI::App app{"Inspects, verifies, compares and reshards checkpoints, without a mesh.", "checkpoint"};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  std::string path, other;
  const std::vector<std::string> commands{"inspect", "verify", "diff", "reshard"};
  app.add_option("command", options.command,
                 "inspect prints what a checkpoint holds. verify compares all bytes with their hashes. "
                 "diff compares two, tensor by tensor, and exits with code 1 if they differ. "
                 "reshard writes whole tensors into one safetensors file.")
      ->check(one_of(commands))
      ->type_name("COMMAND");
  app.add_option("path", path, "A checkpoint, or a directory of checkpoints: its newest, or all for verify.")
      ->type_name("PATH");
  app.add_option("other", other, "The second checkpoint of diff; the file of reshard.")->type_name("PATH");
  app.add_flag("--weights", options.weights, "Ignore the optimizer state.");
  app.set_help_flag("-h,--help", "Print this help and exit.");
  app.footer("Examples:\n"
             "  checkpoint inspect run/step-200\n"
             "  checkpoint verify run\n"
             "  checkpoint diff run/step-100 run/step-200 --weights\n"
             "  checkpoint reshard run model.safetensors --weights");
  try {
    if (auto help = help_or_parse(app, argc, argv, "checkpoints are named by their paths"))
      return {std::nullopt, *std::move(help), 0};
    if (path.empty())
      throw UsageError("a command and a path must be given (write checkpoint inspect DIR)");
    const bool takes_two = options.command == "diff" || options.command == "reshard";
    if (takes_two == other.empty())
      throw UsageError(options.command + " takes " + (takes_two ? "two paths" : "one path") +
                       (takes_two ? options.command == "diff" ? " (write checkpoint diff DIR DIR)"
                                                              : " (write checkpoint reshard DIR FILE)"
                                  : " (leave the second one out)"));
    options.path = path;
    options.other = other;
  } catch (const UsageError& error) {
    return {std::nullopt, std::string("checkpoint: ") + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

} // namespace checkpoint_tool
