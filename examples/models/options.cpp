// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of train_models, their help, and their error messages.

#include "options.hpp"
#include "training.hpp"

#include <command_line/words.hpp>
#include <trainer/command_line.hpp>

#include <locale>
#include <sstream>
#include <utility>

namespace models {

using namespace command_line;

std::string Options::configuration_text() const {
  return run_text() + "--dump " + (dump.empty() ? "0" : "1") + "\n";
}

std::string Options::continued_text(std::uint64_t) const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << "--model " << model << "\n--precision " << name_of(precision) << "\n--batch " << batch
      << "\n--steps " << steps << "\n--seed " << seed << "\n--lr " << learning_rate << "\n--min-lr "
      << least_learning_rate << "\n--warmup " << warmup << "\n--weight-decay " << weight_decay << "\n--clip "
      << clip << "\n";
  return out.str();
}

namespace {

[[nodiscard]] bool has_experts(const Options& options) {
  return options.model.starts_with("moe") || options.model.starts_with("mixtral");
}

void check(const Options& options) {
  if (!has_experts(options) && options.extent("ep") > 1)
    throw UsageError("--mesh has ep=" + text(options.extent("ep")) + " ranks for experts, but --model " +
                     options.model + " has none (give --model moe, or dp in place of ep)");
  if (options.steps == 0)
    throw UsageError("--steps 0 trains nothing (give at least one)");
  if (options.batch % options.accumulation != 0)
    throw UsageError(
        "--batch " + text(options.batch) + " must be divisible by --microbatches " +
        text(options.accumulation) + " (give --batch " +
        text(options.batch / options.accumulation * options.accumulation + options.accumulation) + ")");
  if (options.rows() < options.data_ranks())
    throw UsageError("--batch " + text(options.batch) + " in --microbatches " + text(options.accumulation) +
                     " has fewer rows than there are data ranks, " + text(options.data_ranks()) +
                     " (give a larger batch)");
  if (options.dump.empty())
    return;
  // The index of a dump has one learning rate and a loss for every step from the initial weights on.
  for (const auto& [given, name] : {std::pair(options.checkpoint.resume, "--resume"),
                                    {options.checkpoint.stop_after > 0, "--stop-after"},
                                    {options.patience > 0, "--patience"},
                                    {options.warmup > 0, "--warmup"},
                                    {options.least_learning_rate != options.learning_rate, "--min-lr"}})
    if (given)
      throw UsageError("--dump writes a whole run at one learning rate, and cannot be combined with " +
                       std::string(name) + " (leave one of them out)");
}

void add_model_options(CLI::App& app, Options& options, trainer::RunWords& words, std::string& recompute) {
  trainer::OptionGroup in(app, "Model");
  in.add(
        "--model", options.model,
        "What to train: mlp, gpt2, encoder, decoder, moe (experts in the style of DeepSeek-V3) or mixtral; with "
        "-folded, dp, ep and tp own the experts together, otherwise only ep. Default: " +
            options.model + ".")
      ->check(one_of(compiled_models()))
      ->type_name("NAME");
  in.add("--precision", words.precision,
         "Element of parameters and activations. bf16 keeps gradients, masters and optimizer state in fp32. "
         "Default: fp32.")
      ->check(one_of({"fp32", "fp64", "bf16"}))
      ->type_name("NAME");
  in.add("--zero", options.zero,
         "0: data ranks hold whole parameters. 3: they shard parameters, gradients and optimizer state. "
         "Default: the value built for the precision.")
      ->check(one_of({"0", "3"}))
      ->type_name("STAGE");
  in.add("--recompute", recompute,
         "Results that layers recompute in the backward pass instead of keeping them: none, or full (all but "
         "their input). Default: none.")
      ->check(one_of({"none", "full"}))
      ->type_name("KIND");
}

} // namespace

ParseResult parse(int argc, const char* const* argv, const trainer::Environment& environment) {
  Options options;
  trainer::RunWords words;
  std::string recompute = "none", dump;
  CLI::App app{
      "Trains one of several models, an MLP, GPT-2, an encoder or Llama-style decoders without and with experts, on "
      "samples from a formula, split over pipeline (pp), data (dp), expert (ep), context (cp) and tensor (tp) ranks. The "
      "losses do not depend on the mesh.",
      "train_models"};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  trainer::add_rank_options(app, options, words);
  add_model_options(app, options, words, recompute);
  trainer::OptionGroup training(app, "Training"), output(app, "Output"), checkpoints(app, "Checkpoints");
  training.whole("--batch", options.batch, 1, "Samples per step, over all ranks.");
  training.whole("--accumulation,--microbatches", options.accumulation, 1,
                 "Microbatches whose gradients are accumulated in a step; a pipeline has them in flight.");
  trainer::add_step_options(training, options, words, {text(options.learning_rate), "0", "lr"});
  trainer::add_output_options(output, options, words);
  output
      .add("--dump", dump,
           "Directory for initial and final weights, samples and losses, as raw doubles with an index.json.")
      ->type_name("DIR");
  trainer::add_checkpoint_options(checkpoints, options, words);
  trainer::add_dry_run_options(app, options, words, "");
  app.set_help_flag("-h,--help", "Print this help and exit.")->group("Output");
  app.footer(
      "Examples:\n"
      "  train_models --model gpt2 --mesh dp=2,tp=2 --verify\n"
      "  train_models --model encoder --mesh cp=2 --precision fp64\n"
      "  train_models --model decoder --mesh pp=2,dp=2 --schedule zbv --microbatches 4 --precision bf16\n"
      "  train_models --model moe --mesh dp=2,ep=2,tp=2 --checkpoint run --save-every 20\n"
      "  mpirun -n 4 train_models --model mlp --mesh dp=4 --zero 3 --precision fp64");
  try {
    if (auto help = help_or_parse(app, argc, argv, "models are named by --model"))
      return {std::nullopt, *std::move(help), 0};
    const auto given = [&app](const char* name) { return app.count(name) > 0; };
    trainer::settle_words(options, words, given);
    trainer::settle_ranks(options, given, options.dry_run ? trainer::Environment{} : environment);
    trainer::settle_dry_run_ranks(options, words.dry_run_ranks, given);
    options.recompute.kind =
        recompute == "full" ? shardwright::Recompute::full : shardwright::Recompute::none;
    options.dump = dump;
    if (!given("--zero"))
      options.zero = compiled_zero(options.precision);
    if (!given("--min-lr"))
      options.least_learning_rate = options.learning_rate;
    check(options);
    trainer::check_schedule(options, given);
    trainer::check_rate(options);
    trainer::check_validation(options);
    trainer::check_checkpoints(options, given);
  } catch (const UsageError& error) {
    return {std::nullopt, std::string("train_models: ") + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

} // namespace models
