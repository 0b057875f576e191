// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of plan, their help, and their error messages.

#include "options.hpp"

#include "report.hpp"
#include "simulation.hpp"
#include "specifications.hpp"

#include <command_line/checks.hpp>
#include <command_line/words.hpp>

#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/spec/recompute_names.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace plan_example {

using namespace command_line;
namespace sw = shardwright;

namespace {

const std::vector<std::pair<std::string, sw::Resource>>& sweep_names() {
  static const std::vector<std::pair<std::string, sw::Resource>> names{
      {"bandwidth", sw::Resource::scale_out_bandwidth},
      {"scale-up", sw::Resource::scale_up_bandwidth},
      {"domain", sw::Resource::domain},
      {"chips", sw::Resource::chips},
      {"tokens", sw::Resource::tokens},
      {"memory", sw::Resource::memory}};
  return names;
}

/// "62.9M" or "4Mi" as a number.
double parse_tokens(const std::string& word) {
  double unit = 1, thousand = 1000;
  std::string digits = word;
  if (digits.ends_with('i')) {
    thousand = 1024;
    digits.pop_back();
  }
  if (!digits.empty())
    if (const std::size_t at = std::string("kMGT").find(digits.back()); at != std::string::npos) {
      unit = std::pow(thousand, static_cast<double>(at + 1));
      digits.pop_back();
    }
  const std::optional<double> number = real_number(digits);
  if (!number || *number <= 0 || *number * unit > 1e15)
    throw UsageError("--tokens must be a number above 0 such as 4194304, 62.9M or 4Mi, but it is '" + word +
                     "'");
  return *number * unit;
}

/// The number of sequences within half a percent that has the most factors of two: what "62.9M" was before
/// rounding.
std::int64_t sequences_for(double tokens, double length) {
  std::int64_t best = std::max<std::int64_t>(1, std::llround(tokens / length));
  for (std::int64_t power = 2; power <= best; power *= 2) {
    const std::int64_t near = power * std::llround(tokens / length / static_cast<double>(power));
    if (near > 0 && std::fabs(static_cast<double>(near) * length / tokens - 1) <= 0.005)
      best = near;
  }
  return best;
}

template <class Kind>
Kind named(const std::string& value, int count, std::string_view (*name_of)(Kind) noexcept) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.emplace_back(name_of(static_cast<Kind>(i)));
    if (names.back() == value)
      return static_cast<Kind>(i);
  }
  const std::string_view near = nearest(value, names);
  throw UsageError("--fix must have one of " + joined(names, " or ") + ", but has '" + value + "'" +
                   (near.empty() ? std::string() : "; did you mean " + std::string(near) + "?"));
}

sw::RecomputedOperations parse_operations(const std::string& list) {
  if (const auto operations = sw::find_operations(list))
    return *operations;
  if (const auto policy = sw::find_policy(list))
    return *policy;
  std::vector<std::string> names;
  for (int i = 0; i < sw::layer_operations; ++i)
    names.emplace_back(sw::name_of(static_cast<sw::LayerOperation>(i)));
  throw UsageError("--recompute must list some of " + joined(names, " and ") +
                   ", such as norm,act, or name a policy such as save_qkv_proj, but has '" + list + "'");
}

std::optional<sw::Resource> parse_sweep(const std::string& word, const sw::ClusterSpec& cluster) {
  if (word.empty())
    return {};
  for (const auto& [name, resource] : sweep_names())
    if (name == word) {
      if (resource == sw::Resource::scale_out_bandwidth && cluster.domain_count < 2)
        throw UsageError("--sweep bandwidth varies the network between domains, but " +
                         std::string(cluster.name) +
                         " is one domain (--sweep scale-up varies the bandwidth inside it)");
      return resource;
    }
  return {}; // the check of the option has ruled it out
}

sw::SearchSpace parse_fixed(const std::string& word) {
  const std::vector<std::pair<std::string, std::optional<int> sw::SearchSpace::*>> known{
      {"tp", &sw::SearchSpace::tp},
      {"cp", &sw::SearchSpace::cp},
      {"pp", &sw::SearchSpace::pp},
      {"ep", &sw::SearchSpace::ep},
      {"dp", &sw::SearchSpace::dp},
      {"chunks", &sw::SearchSpace::chunks},
      {"microbatch", &sw::SearchSpace::microbatch},
      {"zero", &sw::SearchSpace::zero_stage},
      {"shard_ranks", &sw::SearchSpace::shard_ranks}};
  sw::SearchSpace space;
  std::set<std::string> named_before;
  std::istringstream parts(word);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? std::string() : part.substr(equals + 1);
    if (!named_before.insert(name).second)
      throw UsageError("--fix has " + name + " twice (name each value once)");
    if (name == "schedule") {
      space.schedule = named<sw::PlanSchedule>(value, sw::plan_schedule_count, sw::schedule_name);
      continue;
    }
    if (name == "recomputation") {
      if (const auto operations = sw::find_operations(value)) {
        space.recomputation = sw::Recompute::selective;
        space.recomputed = *operations;
      } else {
        try {
          space.recomputation = named<sw::Recompute>(value, 3, sw::name_of);
        } catch (const UsageError& error) {
          throw UsageError(std::string(error.what()) + " (or a list of operations such as norm+act)");
        }
      }
      continue;
    }
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.first == name; });
    if (found == known.end())
      throw UsageError(
          "--fix has the unknown part '" + part +
          "' (write --fix tp=8,pp=16; there are tp, cp, pp, ep, dp, chunks, microbatch, zero, shard_ranks, schedule and recomputation)");
    const std::optional<int> number = whole_number<int>(value);
    const int least = name == "zero" ? 0 : 1;
    if (!number || *number < least || (name == "zero" && *number > 3))
      throw UsageError("--fix needs a whole number from " + std::to_string(least) +
                       (name == "zero" ? " to 3" : " up") + " after " + name + "=, but has '" + value + "'");
    space.*found->second = number;
  }
  return space;
}

/// Checks a fixed number of stages per rank, which only interleaved schedules have.
void check_chunks(const Options& options) {
  const sw::SearchSpace& fixed = options.space;
  if (!fixed.chunks)
    return;
  const auto fail = [&](const std::string& must) {
    throw UsageError("--fix chunks=" + std::to_string(*fixed.chunks) + ": " + must);
  };
  if (*fixed.chunks > sw::most_chunks)
    fail("chunks must be at most " + std::to_string(sw::most_chunks));
  if (*fixed.chunks == 1 && fixed.schedule && sw::takes_chunks(*fixed.schedule))
    fail("an interleaved schedule has at least two (leave chunks out)");
  if (*fixed.chunks == 1)
    return;
  if (fixed.schedule && !sw::takes_chunks(*fixed.schedule))
    fail("only interleaved schedules have several, but schedule is " +
         std::string(sw::schedule_name(*fixed.schedule)) + " (take interleaved or interleavedzb)");
  if (fixed.pp == 1)
    fail("only a pipeline has several, but pp is 1");
  const int layers = options.model.stacked_layers();
  if (const int pp = fixed.pp.value_or(2);
      !sw::has_layers_for(sw::PlanSchedule::interleaved, pp, *fixed.chunks, layers))
    fail("pp x chunks must be at most the " + std::to_string(layers) + " layers of " +
         std::string(options.model.name) + ", its embedding and its output matrix together");
}

/// Checks each fixed value on its own.
void check_fixed(const Options& options) {
  const auto divides = [](const std::optional<int>& value, const char* name, std::int64_t whole,
                          const std::string& of) {
    if (value && whole % *value != 0)
      throw UsageError("--fix " + std::string(name) + "=" + std::to_string(*value) + ": " + name +
                       " must divide the " + std::to_string(whole) + " " + of);
  };
  const sw::SearchSpace& fixed = options.space;
  for (const auto& [name, value] : {std::pair("tp", fixed.tp), std::pair("cp", fixed.cp),
                                    std::pair("pp", fixed.pp), std::pair("dp", fixed.dp)})
    divides(value, name, options.cluster.chips(), "chips of " + std::string(options.cluster.name));
  const std::int64_t together =
      std::int64_t{fixed.tp.value_or(1)} * fixed.cp.value_or(1) * fixed.pp.value_or(1) * fixed.dp.value_or(1);
  if (fixed.tp && fixed.cp && fixed.pp && fixed.dp && together != options.cluster.chips())
    throw UsageError("--fix: tp, cp, pp and dp take " + std::to_string(together) + " chips together, but " +
                     std::string(options.cluster.name) + " has " + std::to_string(options.cluster.chips()) +
                     " (leave one of them out)");
  if (options.cluster.chips() % together != 0)
    throw UsageError("--fix: tp, cp, pp and dp take " + std::to_string(together) +
                     " chips together, which must divide the " + std::to_string(options.cluster.chips()) +
                     " chips of " + std::string(options.cluster.name));
  for (const auto& [name, value] : {std::pair("tp", fixed.tp), std::pair("cp", fixed.cp)})
    if (value && !options.run.allows_extent(*value))
      throw UsageError("--fix " + std::string(name) + "=" + std::to_string(*value) +
                       ": with --reproducible " + name + " must be 1, 2, 4 or 8");
  divides(fixed.tp, "tp", options.model.heads, "heads of " + std::string(options.model.name));
  divides(fixed.cp, "cp", options.run.sequence_length, "tokens of a sequence");
  if (fixed.ep.value_or(1) > 1 && !options.model.experts.used())
    throw UsageError("--fix ep=" + std::to_string(*fixed.ep) + ": " + std::string(options.model.name) +
                     " has no experts (leave ep out)");
  if (fixed.shard_ranks && fixed.zero_stage.value_or(0) == 0)
    throw UsageError("--fix shard_ranks=" + std::to_string(*fixed.shard_ranks) +
                     ": without ZeRO nothing is sharded (fix zero=1, 2 or 3, too)");
  if (fixed.shard_ranks && options.model.experts.used())
    throw UsageError("--fix shard_ranks=" + std::to_string(*fixed.shard_ranks) + ": " +
                     std::string(options.model.name) + " has experts (leave shard_ranks out)");
  divides(fixed.shard_ranks, "shard_ranks",
          fixed.cp && fixed.dp ? std::int64_t{*fixed.cp} * *fixed.dp
                               : options.cluster.chips() / (fixed.tp.value_or(1) * fixed.pp.value_or(1)),
          "ranks that dp and cp can have together");
  divides(fixed.ep, "ep", std::max(1, options.model.experts.count),
          "experts of " + std::string(options.model.name));
  divides(fixed.microbatch, "microbatch", options.run.sequences, "sequences of a step");
  divides(fixed.dp, "dp", options.run.sequences, "sequences of a step");
  if (const std::int64_t at_once = std::int64_t{fixed.dp.value_or(1)} * fixed.microbatch.value_or(1);
      options.run.sequences % at_once != 0)
    throw UsageError("--fix: dp and microbatch take " + std::to_string(at_once) +
                     " sequences at once, which must divide the " + std::to_string(options.run.sequences) +
                     " of a step");
  check_chunks(options);
  if (fixed.pp && *fixed.pp > options.model.layers)
    throw UsageError("--fix pp=" + std::to_string(*fixed.pp) + ": pp must be at most the " +
                     std::to_string(options.model.layers) + " layers of " + std::string(options.model.name));
}

/// Chooses the run's kernels and formats from those that the chip supports.
void settle_run(Options& options, const std::string& precision, const std::string& stack,
                const std::string& experts, const std::string& dispatch, const std::string& attention) {
  const sw::ChipSpec& chip = options.cluster.chip;
  options.run.precision = precision == "fp16"  ? sw::Precision::fp16
                          : precision == "fp8" ? sw::Precision::fp8
                          : precision == "fp4" ? sw::Precision::fp4
                                               : sw::Precision::bf16;
  if ((precision == "fp8" && chip.peak_fp8 <= 0) || (precision == "fp4" && chip.peak_fp4 <= 0))
    throw UsageError("--precision " + precision + ": the chip must have it, but " + std::string(chip.name) +
                     " has none (take bf16)");
  options.run.stack = stack == "plain"      ? sw::KernelStack::plain
                      : stack == "compiled" ? sw::KernelStack::compiled
                                            : sw::KernelStack::tuned;
  options.run.stops_early = stack == "plain";
  options.run.dispatch = dispatch == "all-to-all" ? sw::ExpertDispatch::all_to_all
                         : dispatch == "padded"   ? sw::ExpertDispatch::padded
                                                  : sw::ExpertDispatch::fused;
  options.run.captured_experts = experts == "captured";
  options.run.overlapped_experts = experts == "overlapped";
  options.run.fused_attention = attention != "unfused";
  options.run.flash_2 = attention == "flash2";
}

std::vector<std::string> names_of_sweeps() {
  std::vector<std::string> out;
  for (const auto& [name, resource] : sweep_names())
    out.push_back(name);
  return out;
}

/// The programs that --program knows, for messages.
const std::vector<std::string>& tuned_programs() {
  static const std::vector<std::string> names{"nemo",        "megatron-bridge", "maxtext",  "torchtitan",
                                              "llm-foundry", "internevo",       "fms-fsdp", "automodel"};
  return names;
}

/// How times differ from those of tuned programs: nothing says that they do, runs were measured, or the
/// program is not known.
std::optional<ProgramFactor> program_of(const std::string& program, const std::string& measured) {
  if (!measured.empty())
    return read_program(measured);
  if (program.empty() || !program_called(program).empty())
    return {};
  std::vector<std::string> names = tuned_programs();
  names.emplace_back("unknown");
  if (const std::string_view near = nearest(program, names); !near.empty() && near != program)
    throw UsageError("--program " + clipped(program) + " is not known; did you mean " + std::string(near) +
                     "? (--program unknown is any that is not)");
  return ProgramFactor{};
}

/// Checks that options agree with each other, and are about the run.
void check_together(const CLI::App& app, const Options& options) {
  const auto given = [&app](const char* name) { return app.count(name) > 0; };
  if (given("--measured") && given("--program"))
    throw UsageError("--measured says how long the program takes: --program must be left out");
  if (given("--reproducible") && given("--reduced-bytes"))
    throw UsageError("--reproducible sums gradients in 8 bytes: --reduced-bytes must be left out");
  for (const char* name :
       {"--straggler", "--oversubscription", "--jitter", "--seed", "--trace", "--timeline-svg"})
    if (given(name) && !options.simulate)
      throw UsageError(std::string(name) + " is about the simulated step: --simulate must be given");
  for (const char* name : {"--model", "--cluster", "--sweep", "--svg", "--measured", "--simulate"})
    if (given("--evaluate") && given(name))
      throw UsageError("--evaluate predicts the runs of a file and cannot be combined with " +
                       std::string(name));
  for (const char* name : {"--simulate", "--svg"})
    if (given("--sweep") && given(name))
      throw UsageError("--sweep prints a table and cannot be combined with " + std::string(name));
}

constexpr const char* footer =
    "A model of your own, in mine.json (more fields are in docs/how_to/plan_a_run.md):\n"
    "  {\"layers\": 32, \"hidden\": 2560, \"heads\": 32, \"key_value_heads\": 8,\n"
    "   \"feed_forward\": 8960, \"vocabulary\": 50304}\n"
    "A cluster of your own, domains from inner to outer, bandwidth in bytes/s one way and per chip;\n"
    "two nodes of 8 that share 100 Gbit/s each:\n"
    "  {\"chip\": \"a100\", \"domains\": [{\"chips\": 8, \"bandwidth\": 300e9},\n"
    "                              {\"chips\": 16, \"bandwidth\": 1.56e9}]}\n"
    "A chip of your own takes the place of its name there, in FLOP/s, bytes and bytes/s:\n"
    "  {\"name\": \"own\", \"peak_bf16\": 200e12, \"memory_bytes\": 64e9, \"memory_bandwidth\": 2e12}\n"
    "Examples:\n"
    "  plan --model deepseek-v3 --cluster h800x2048 --tokens 62.9M\n"
    "  plan --model llama-3.1-405b --cluster h100x16384 --sequences 2048 --sequence 8192\n"
    "  plan --model mine.json --cluster h100x64 --tokens 4M --fix tp=8,pp=4 --json\n"
    "  plan --model kimi-k2 --cluster tpu7x-pod --sequences 18432 --json | plan_page > report.html\n"
    "  plan --model deepseek-v3 --cluster h800x2048 --tokens 62.9M --sweep bandwidth\n"
    "  plan --model kimi-k2 --cluster h800x2048 --tokens 62.9M --simulate --straggler rank=5,factor=2\n"
    "  plan --evaluate data/published_runs.csv";

} // namespace

ParseResult parse(int argc, const char* const* argv) {
  constexpr std::int64_t most_sequences = 1 << 24; // and 64 times as many if tokens are varied
  Options options;
  CLI::App app{"Says which parallelism a training run needs, what it costs, and why.", "plan"};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  std::string model, cluster, tokens, fix, evaluate, measured, program, svg, swept, trace, timeline,
      precision = "bf16";
  std::string stack = "tuned", experts = "launched", dispatch = "fused", attention = "fused", recomputed;
  std::vector<std::string> stragglers;
  std::int64_t sequences = 0, length = 4096, domain = 0;
  app.add_option("--model", model,
                 "A model of the catalogue (a wrong name lists them), or a JSON file, as below.")
      ->type_name("NAME")
      ->group("Run");
  app.add_option(
         "--cluster", cluster,
         "A chip and how many, such as h800x2048 (a wrong name lists the chips), or a JSON file, as below.")
      ->type_name("NAME")
      ->group("Run");
  app.add_option("--domain", domain, "Chips of a scale-up domain, instead of the chip's usual number.")
      ->check(whole_from<std::int64_t>(1, 1LL << 30))
      ->type_name("N")
      ->group("Run");
  app.add_option(
         "--tokens", tokens,
         "Tokens per step, such as 62.9M or 4Mi: rounded, within 0.5 %, to the number of sequences with most factors of two.")
      ->type_name("N")
      ->group("Run");
  app.add_option("--sequences", sequences, "Sequences of a step, instead of --tokens.")
      ->check(whole_from<std::int64_t>(1, most_sequences))
      ->type_name("N")
      ->group("Run");
  app.add_option("--sequence", length, "Tokens of a sequence. Default: 4096.")
      ->check(whole_from<std::int64_t>(1, 1LL << 30))
      ->type_name("N")
      ->group("Run");
  app.add_option("--precision", precision, "Precision of the matrix products. Default: bf16.")
      ->check(one_of({"bf16", "fp16", "fp8", "fp4"}))
      ->type_name("NAME")
      ->group("Run");
  app.add_option(
         "--stack", stack,
         "Kernels between the products: tuned (fused, of the vendor), compiled (torch.compile) or plain (the framework's). Default: tuned.")
      ->check(one_of({"tuned", "compiled", "plain"}))
      ->type_name("NAME")
      ->group("Run");
  app.add_option(
         "--experts", experts,
         "Layers with experts: launched by the host, captured in graphs, or overlapped with other microbatches. Default: launched.")
      ->check(one_of({"launched", "captured", "overlapped"}))
      ->type_name("NAME")
      ->group("Run");
  app.add_option(
         "--dispatch", dispatch,
         "Copies of tokens reach experts through fused kernels, an all-to-all that the host sizes, or a padded one. Default: fused.")
      ->check(one_of({"fused", "all-to-all", "padded"}))
      ->type_name("NAME")
      ->group("Run");
  app.add_option("--optimizer-bytes", options.run.optimizer.state_bytes,
                 "Of optimizer state per parameter. Default: 12 (fp32 parameters and moments).")
      ->check(real_from(0, true, 64))
      ->type_name("N")
      ->group("Run");
  app.add_option("--gathered-bytes", options.run.optimizer.gathered_bytes,
                 "On the wire per gathered parameter, such as 1 in fp8. Default: 2.")
      ->check(real_from(0.25, true, 64))
      ->type_name("N")
      ->group("Run");
  app.add_option("--reduced-bytes", options.run.optimizer.reduced_bytes,
                 "On the wire per reduced gradient. Default: 3, between bf16 and fp32.")
      ->check(real_from(0.25, true, 64))
      ->type_name("N")
      ->group("Run");
  app.add_flag(
         "--reproducible", options.run.reproducible,
         "The same bits on every mesh, as on a Reproducible target: gradients are integers of 8 bytes, in memory and between ranks, tp and cp are 1, 2, 4 or 8, and products take longer, as measured on hosts.")
      ->group("Run");
  app.add_flag("--overlap-tensor", options.run.overlapped_tensor,
               "Tensor-parallel traffic runs beside parts of its products, as with user buffers.")
      ->group("Run");
  app.add_option(
         "--attention", attention,
         "fused, flash2 (FlashAttention-2), or unfused: scores pass through memory. Default: fused, but flash2 with --measured or --program for programs that are not named.")
      ->check(one_of({"fused", "flash2", "unfused"}))
      ->type_name("NAME")
      ->group("Run");
  app.add_option(
         "--recompute", recomputed,
         "What a selective recomputation runs again: a list such as norm,act, of attention, norm, act, mla_up_proj, mlp, shared_experts, moe, qkv_proj, out_proj and up_proj, or a policy of MaxText, such as save_qkv_proj. Default: attention, norms, activations and the projections of latents.")
      ->type_name("LIST")
      ->group("Run");
  app.add_option(
         "--program", program,
         "The program that will run: one whose authors tuned it and publish its times (" +
             joined(tuned_programs(), " or ") +
             "), or any other, such as unknown, which usually takes longer. Default: a tuned one, and a line says how long any other takes.")
      ->type_name("NAME")
      ->group("Run");
  app.add_option(
         "--measured", measured,
         "Measured runs of the program, in a CSV file as for --evaluate: times are scaled by what they took over their predictions.")
      ->type_name("FILE")
      ->group("Run");
  app.add_option("--headroom", options.space.headroom,
                 "Fraction of a chip's memory that a plan leaves free. Default: 0.08.")
      ->check(real_from(0, true, 0.9))
      ->type_name("X")
      ->group("Plan");
  app.add_option(
         "--fix", fix,
         "Fixed values, such as tp=8,pp=16; of tp, cp, pp, ep, dp, chunks (stages per rank), microbatch, zero, shard_ranks (of HSDP), schedule (of a pipeline, if there is one) and recomputation.")
      ->type_name("LIST")
      ->group("Plan");
  app.add_option(
         "--sweep", swept,
         "Vary bandwidth (between domains), scale-up (bandwidth inside them), domain, chips, tokens or memory: the best plan at each, and where it needs no pipeline.")
      ->check(one_of(names_of_sweeps()))
      ->type_name("NAME")
      ->group("Plan");
  app.add_flag("--json", options.json,
               "Print JSON: all figures, for programs and for plan_page, which makes a page with charts.")
      ->group("Output");
  app.add_option("--svg", svg, "Write a drawing of the pipeline's schedule to scale, for any browser.")
      ->type_name("FILE")
      ->group("Output");
  app.add_flag("--simulate", options.simulate, "Simulate a step of the plan, with shared links.")
      ->group("Simulation");
  app.add_option("--straggler", stragglers,
                 "A slow chip such as rank=5,factor=2; link=3 slows its links. May be given several times.")
      ->type_name("LIST")
      ->allow_extra_args(false)
      ->group("Simulation");
  app.add_option("--oversubscription", options.simulation.oversubscription,
                 "Bandwidth of a domain's chips divided by that of its uplinks. Default: 1.")
      ->check(real_from(1, true, 1e6))
      ->type_name("X")
      ->group("Simulation");
  app.add_option("--jitter", options.simulation.jitter,
                 "Mean relative delay of every pass on every chip, such as 0.01. Default: 0.")
      ->check(real_from(0, true, 10))
      ->type_name("X")
      ->group("Simulation");
  app.add_option("--seed", options.simulation.seed, "Seed of the jitter. Default: 0.")
      ->check(whole_from<std::int64_t>(0, 1LL << 62))
      ->type_name("N")
      ->group("Simulation");
  app.add_option("--trace", trace, "Write the simulated step for ui.perfetto.dev.")
      ->type_name("FILE")
      ->group("Simulation");
  app.add_option("--timeline-svg", timeline, "Write a drawing of the simulated step to scale.")
      ->type_name("FILE")
      ->group("Simulation");
  app.add_option("--evaluate", evaluate,
                 "Instead, predict the runs of this CSV file and compare with the measurements.")
      ->type_name("FILE")
      ->group("Published runs");
  app.set_help_flag("-h,--help", "Print this help and exit.")->group("Output");
  app.footer(footer);
  try {
    if (auto help = help_or_parse(app, argc, argv, "a model is named by --model"))
      return {std::nullopt, *std::move(help), 0};
    options.evaluate = evaluate;
    options.svg = svg;
    options.trace = trace;
    options.timeline_svg = timeline;
    for (const std::string& word : stragglers)
      options.simulation.stragglers.push_back(parse_straggler(word));
    check_together(app, options);
    for (int i = 0; i < argc; ++i)
      options.command += (i == 0 ? "plan" : std::string(" ") + argv[i]);
    if (!evaluate.empty())
      return {std::move(options), std::string(), 0};
    for (const auto& [name, value] : {std::pair("--model", &model), std::pair("--cluster", &cluster)})
      if (value->empty())
        throw UsageError(std::string(name) + " must be given (--help has examples)");
    if ((sequences > 0) == !tokens.empty())
      throw UsageError("either --tokens or --sequences must be given, but not both");
    options.model = read_model(model);
    options.cluster = read_cluster(cluster, domain);
    options.run.sequence_length = length;
    if (!tokens.empty() && parse_tokens(tokens) < static_cast<double>(length))
      throw UsageError("--tokens must be at least one sequence of " + std::to_string(length) +
                       " tokens, but it is " + tokens + " (--sequence shortens a sequence)");
    options.run.sequences =
        sequences > 0 ? sequences : sequences_for(parse_tokens(tokens), static_cast<double>(length));
    if (options.run.sequences > most_sequences)
      throw UsageError("--tokens must be at most " + text(most_sequences) + " sequences of " + text(length) +
                       " tokens, but it is " + tokens + " (--sequence lengthens a sequence)");
    for (const char* name : {"--experts", "--dispatch"})
      if (app.count(name) > 0 && !options.model.experts.used())
        throw UsageError(std::string(name) + " is about experts, but " + std::string(options.model.name) +
                         " has none (leave it out)");
    settle_run(options, precision, stack, experts, dispatch, attention);
    if (options.run.reproducible)
      options.run = sw::reproducible(options.run);
    const double headroom = options.space.headroom;
    options.space = parse_fixed(fix);
    options.space.headroom = headroom;
    options.fixes = !fix.empty();
    if (!recomputed.empty())
      options.space.recomputed = parse_operations(recomputed);
    options.run.offloads_layers = sw::is_offloading(recomputed);
    check_fixed(options);
    options.sweep = parse_sweep(swept, options.cluster);
    options.measured = measured;
    options.program = program_of(program, measured);
    if (options.program && options.simulate)
      throw UsageError((measured.empty() ? "--program " + program : std::string("--measured")) +
                       " scales predicted times and cannot be combined with --simulate");
    const bool settled = app.count("--attention") > 0; // else the factor is for the program's kernels
    if (options.program && !settled)
      options.run.flash_2 = options.program->flash_2;
    if (program.empty() && measured.empty()) {
      options.unnamed = options.run;
      options.unnamed->flash_2 = settled ? options.run.flash_2 : ProgramFactor{}.flash_2;
    }
    for (const sw::Straggler& one : options.simulation.stragglers)
      if (one.rank >= options.cluster.chips())
        throw UsageError("--straggler needs a rank below " + std::to_string(options.cluster.chips()) +
                         ", the chips of " + std::string(options.cluster.name) + ", but has " +
                         std::to_string(one.rank));
  } catch (const std::exception& error) {
    return {std::nullopt, std::string("plan: ") + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

} // namespace plan_example
