// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of train_models, their help, and their error messages.

#include "options.hpp"
#include "training.hpp"

#include <command_line/checks.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/named_schedule.hpp>

#include <CLI/CLI.hpp>

#include <limits>
#include <sstream>
#include <utility>

namespace models {

using namespace command_line;

int Options::extent(std::string_view axis) const noexcept {
  for (const MeshAxis& each : mesh)
    if (each.name == axis)
      return each.extent;
  return 1;
}

int Options::ranks() const noexcept {
  int product = 1;
  for (const MeshAxis& each : mesh)
    product *= each.extent;
  return product;
}

std::string Options::text() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << "--model " << model << "\n--mesh ";
  for (const MeshAxis& each : mesh)
    out << each.name << "=" << each.extent << ",";
  out << "\n--precision " << precision << "\n--zero " << zero << "\n--schedule " << schedule << "\n--chunks "
      << chunks << "\n--recompute " << shardwright::name_of(recompute) << "\n--steps " << steps
      << "\n--batch " << batch << "\n--microbatches " << microbatches << "\n--seed " << seed << "\n--lr "
      << learning_rate << "\n--weight-decay " << weight_decay << "\n--clip " << clip << "\n--dump "
      << !dump.empty() << "\n";
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
  if (options.batch % options.microbatches != 0)
    throw UsageError(
        "--batch " + text(options.batch) + " must be divisible by --microbatches " +
        text(options.microbatches) + " (give --batch " +
        text(options.batch / options.microbatches * options.microbatches + options.microbatches) + ")");
  const int data_ranks = options.extent("dpr") * options.extent("dp") * options.extent("ep");
  if (options.batch / options.microbatches < data_ranks)
    throw UsageError("--batch " + text(options.batch) + " in --microbatches " + text(options.microbatches) +
                     " has fewer rows than there are data ranks, " + text(data_ranks) +
                     " (give a larger batch)");
  try {
    static_cast<void>(shardwright::make_schedule(options.schedule, options.extent("pp"), options.microbatches,
                                                 options.chunks));
  } catch (const shardwright::Error& error) {
    throw UsageError("--schedule " + std::string(error.what()));
  }
}

} // namespace

ParseResult parse(int argc, const char* const* argv) {
  Options options;
  std::string mesh = "dp=1", recompute = "none", dump;
  CLI::App app{
      "Trains one of several models, an MLP, GPT-2, an encoder or Llama-style decoders without and with experts, on "
      "samples from a formula, split over pipeline (pp), data (dp), expert (ep), context (cp) and tensor (tp) ranks. The "
      "losses do not depend on the mesh.",
      "train_models"};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  const auto with_default = [](const std::string& help, const auto& value) {
    std::ostringstream out;
    out << help << " Default: " << value << ".";
    return out.str();
  };
  app.add_option(
         "--model", options.model,
         with_default("What to train: mlp, gpt2, encoder, decoder, moe (experts in the style of DeepSeek-V3) "
                      "or mixtral; with -folded, dp, ep and tp own the experts together, otherwise only ep.",
                      options.model))
      ->check(one_of(compiled_models()))
      ->type_name("NAME");
  app.add_option("--mesh", mesh, with_default("Ranks along each axis, such as dp=2,tp=2.", mesh))
      ->type_name("AXES");
  app.add_option(
         "--precision", options.precision,
         with_default(
             "Element of parameters and activations. bf16 keeps gradients, masters and optimizer state in fp32.",
             options.precision))
      ->check(one_of({"fp32", "fp64", "bf16"}))
      ->type_name("NAME");
  CLI::Option* const zero =
      app.add_option(
             "--zero", options.zero,
             "0: data ranks hold whole parameters. 3: they shard parameters, gradients and optimizer state. Default: "
             "the value built for the precision.")
          ->check(one_of({"0", "3"}))
          ->type_name("STAGE");
  app.add_option("--schedule", options.schedule, with_default("Schedule of the pipeline.", options.schedule))
      ->check(one_of(shardwright::schedule_names()))
      ->type_name("NAME");
  app.add_option("--chunks", options.chunks,
                 with_default("Stages per rank of the interleaved schedule.", options.chunks))
      ->check(whole_from<int>(2, 4))
      ->type_name("N");
  app.add_option(
         "--recompute", recompute,
         with_default(
             "Results that layers recompute in the backward pass instead of keeping them: none, or full (all but "
             "their input).",
             recompute))
      ->check(one_of({"none", "full"}))
      ->type_name("KIND");
  app.add_option("--steps", options.steps, with_default("Optimizer steps.", options.steps))
      ->check(whole_from<std::int64_t>(1, 1'000'000'000'000))
      ->type_name("N");
  app.add_option("--batch", options.batch, with_default("Samples per step, over all ranks.", options.batch))
      ->check(whole_from<std::int64_t>(1, 1 << 20))
      ->type_name("N");
  app.add_option("--microbatches", options.microbatches,
                 with_default("Microbatches per step, which a pipeline has in flight.", options.microbatches))
      ->check(whole_from<int>(1, 1 << 20))
      ->type_name("N");
  app.add_option("--seed", options.seed, with_default("Chooses initial weights and samples.", options.seed))
      ->check(whole_from<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()))
      ->type_name("N");
  app.add_option("--lr", options.learning_rate,
                 with_default("Learning rate of AdamW.", options.learning_rate))
      ->check(real_from(0, false))
      ->type_name("X");
  app.add_option(
         "--dump", dump,
         "Directory for initial and final weights, samples and losses, as raw doubles with an index.json.")
      ->type_name("DIR");
  app.footer(
      "Examples:\n"
      "  train_models --model gpt2 --mesh dp=2,tp=2\n"
      "  train_models --model encoder --mesh cp=2 --precision fp64\n"
      "  train_models --model decoder --mesh pp=2,dp=2 --schedule zbv --microbatches 4 --precision bf16\n"
      "  train_models --model moe --mesh dp=2,ep=2,tp=2\n"
      "  mpirun -n 4 train_models --model mlp --mesh dp=4 --zero 3 --precision fp64");
  try {
    if (auto help = help_or_parse(app, argc, argv, "models are named by --model"))
      return {std::nullopt, *std::move(help), 0};
    options.mesh = parse_mesh(mesh);
    options.recompute = recompute == "full" ? shardwright::Recompute::full : shardwright::Recompute::none;
    options.dump = dump;
    if (zero->count() == 0)
      options.zero = compiled_zero(options.precision);
    check(options);
  } catch (const UsageError& error) {
    return {std::nullopt, std::string("train_models: ") + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

} // namespace models
