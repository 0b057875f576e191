// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The checks and defaults of train_gpt's options that need more than one of them.

#include "option_checks.hpp"

#include <command_line/words.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/named_schedule.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace train_gpt {

using namespace command_line;

namespace {

/// The divisor of `number` closest to `wanted`.
int nearest_divisor(int number, int wanted) {
  int best = 1;
  for (int d = 1; d <= number; ++d)
    if (number % d == 0 && std::abs(d - wanted) < std::abs(best - wanted))
      best = d;
  return best;
}

/// The multiples of `step` on either side of `value`, which is not one itself.
std::string multiples_near(int value, int step) {
  const std::int64_t below = std::int64_t{value} / step * step;
  const std::string above = text(below + step);
  return below == 0 ? above : text(below) + " or " + above;
}

void need_divisible(const std::string& option, int value, int tp) {
  if (value % tp == 0)
    return;
  const int other = nearest_divisor(value, tp);
  throw UsageError(option + " " + text(value) + " must be divisible by tp=" + text(tp) + " (give " + option +
                   " " + multiples_near(value, tp) + (other == 1 ? "" : ", or tp=" + text(other)) + ")");
}

/// Returns whether a path is a directory, or will be inside it.
bool is_within(const std::filesystem::path& path, const std::filesystem::path& directory) {
  const auto whole = [](const std::filesystem::path& some) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(some));
  };
  const std::filesystem::path from = whole(path).lexically_relative(whole(directory));
  return !from.empty() && *from.begin() != "..";
}

} // namespace

void settle_dry_run(Options& options, const IsGiven& given) {
  if (!options.dry_run)
    return;
  constexpr std::array sizes{"--init",     "--model",  "--layers",   "--d-model",   "--heads",
                             "--kv-heads", "--hidden", "--sequence", "--vocabulary"};
  const bool model_given = std::any_of(sizes.begin(), sizes.end(), given);
  const auto fits = [&](const Preset& preset) {
    Options trial = options;
    trial.size = preset.size;
    try {
      check_model(trial);
    } catch (const UsageError&) {
      return false;
    }
    return preset.size.experts == 0 &&
           preset.size.layers >=
               options.extent("pp") *
                   (shardwright::schedule_takes_chunks(options.schedule) ? options.chunks : 1);
  };
  if (const auto current = std::find_if(presets().begin(), presets().end(),
                                        [&](const Preset& preset) { return preset.name == options.model; });
      !model_given && current != presets().end()) {
    if (const auto found = std::find_if(current, presets().end(), fits); found != presets().end()) {
      options.model = found->name;
      options.size = found->size;
    }
  }
  const bool batch_given = given("--batch") || given("--microbatch") || given("--accumulation");
  const std::int64_t passes = std::int64_t{options.data_ranks()} * options.extent("pp");
  if (!batch_given && options.batch % passes != 0 && passes <= std::numeric_limits<int>::max())
    options.batch = static_cast<int>(passes);
}

void settle_experts(Options& options, const IsGiven& given) {
  const ModelSize& size = options.size;
  const std::string model = "--model " + options.model;
  if (size.experts == 0 || size.expert_hidden == 0 || size.chosen == 0) {
    for (const char* name : {"--experts", "--chosen", "--expert-hidden", "--dense-layers", "--capacity",
                             "--balance", "--counting-pass"})
      if (given(name))
        throw UsageError(std::string(name) + " is for a model with experts, but " + model +
                         " has none (give --model moe-small, or leave it out)");
    if (options.extent("ep") > 1)
      throw UsageError("--mesh " + options.mesh_text() + " has ep for experts, but " + model +
                       " has none (give --model moe-small, or dp in place of ep)");
    return;
  }
  if (size.chosen > size.experts)
    throw UsageError("--chosen " + text(size.chosen) + " must not be more than --experts " +
                     text(size.experts) + " (give --chosen " + text(size.experts) + " or less)");
  if (options.counting_pass && options.balance != "global")
    throw UsageError("--counting-pass counts the batch for --balance global (add that, or leave it out)");
  if (size.dense_layers >= size.layers)
    throw UsageError("--dense-layers " + text(size.dense_layers) + " must be fewer than --layers " +
                     text(size.layers) + " (give --dense-layers " + text(size.layers - 1) + " or less)");
  const bool precise = options.precision == Precision::fp32 ||
                       (options.precision == Precision::bf16 && (options.zero == 0 || options.zero == 3));
  if (!precise || options.ring || options.target != Device::host)
    throw UsageError(
        model +
        " has experts, which this program trains with --precision fp32, or bf16 with --zero 0 or 3, and with --context all-to-all and --target host (leave the others out)");
  options.sequence_parallel = options.extent("tp") > 1;
}

void check_model(const Options& options) {
  const ModelSize& size = options.size;
  if (!options.published && size.d_model % size.heads != 0)
    throw UsageError("--d-model " + text(size.d_model) + " must be divisible by --heads " + text(size.heads) +
                     " (give --d-model " + multiples_near(size.d_model, size.heads) + ", or --heads " +
                     text(nearest_divisor(size.d_model, size.heads)) + ")");
  if (!options.published && size.d_model / size.heads % 2 != 0)
    throw UsageError("--d-model " + text(size.d_model) + " over --heads " + text(size.heads) +
                     " gives heads of " + text(size.d_model / size.heads) +
                     ", but rotary positions need an even size (give --d-model " +
                     text(size.d_model + size.heads) + ")");
  if (size.heads % size.kv_heads != 0)
    throw UsageError("--heads " + text(size.heads) + " must be divisible by --kv-heads " +
                     text(size.kv_heads) + " (give --kv-heads " +
                     text(nearest_divisor(size.heads, size.kv_heads)) + ")");
  const int tp = options.extent("tp");
  if (options.published) // no other sizes can be given
    for (const auto& [name, value] :
         {std::pair{"num_attention_heads", size.heads}, {"num_key_value_heads", size.kv_heads}})
      if (value % tp != 0)
        throw UsageError("--init " + options.init.string() + ": " + name + " " + text(value) +
                         " must be divisible by tp=" + text(tp) +
                         " (give tp=" + text(nearest_divisor(value, tp)) + ")");
  need_divisible("--heads", size.heads, tp);
  need_divisible("--kv-heads", size.kv_heads, tp);
  const int cp = options.extent("cp");
  const int chunks = options.ring && cp > 1 ? 2 * cp : cp;
  if (size.sequence % chunks != 0)
    throw UsageError("--sequence " + text(size.sequence) + " must be divisible by " +
                     (chunks == cp ? "cp=" + text(cp) : "2 x cp=" + text(chunks)) + " (give --sequence " +
                     multiples_near(size.sequence, chunks) + ")");
  if (!options.ring && size.kv_heads % (tp * cp) != 0)
    throw UsageError("--kv-heads " + text(size.kv_heads) + " must be divisible by tp x cp=" + text(tp * cp) +
                     " (give --kv-heads " + multiples_near(size.kv_heads, tp * cp) + ", or --context ring)");
  if (!options.sequence_parallel)
    return;
  if (tp == 1)
    throw UsageError("--sequence-parallel splits sequences over tp, but the mesh " + options.mesh_text() +
                     " has tp=1 (leave it out, or give a mesh with tp such as --mesh dp=1,tp=" +
                     text(std::max(2, options.ranks)) + ")");
  if (cp == 1)
    return need_divisible("--sequence", size.sequence, tp);
  if (size.sequence % (tp * chunks) != 0)
    throw UsageError("--sequence " + text(size.sequence) + " must be divisible by tp x " +
                     (chunks == cp ? "cp=" : "2 x cp=") + text(tp * chunks) +
                     " under --sequence-parallel (give --sequence " +
                     multiples_near(size.sequence, tp * chunks) + ")");
}

shardwright::Recomputation parse_recompute(const std::string& word, int layers) {
  using shardwright::Recompute;
  const std::size_t colon = word.find(':');
  const std::string kind = word.substr(0, colon);
  const std::vector<std::string> kinds{"none", "selective", "full"};
  const auto found = std::find(kinds.begin(), kinds.end(), kind);
  if (found == kinds.end()) {
    const std::string_view near = nearest(kind, kinds);
    throw UsageError("--recompute must be none, selective or full, but it is '" + kind + "'" +
                     (near.empty() ? std::string() : "; did you mean " + std::string(near) + "?") +
                     " (--help explains the options)");
  }
  shardwright::Recomputation out{static_cast<Recompute>(found - kinds.begin())};
  if (colon == std::string::npos)
    return out;
  const std::string number = word.substr(colon + 1);
  const std::optional<int> first = whole_number<int>(number);
  if (out.kind == Recompute::none || !first || *first < 1 || *first > layers)
    throw UsageError("--recompute " + word + " must name a number of the model's " + text(layers) +
                     " layers after selective: or full: (give --recompute " +
                     (out.kind == Recompute::none ? "none" : kind + ":" + text(std::max(1, layers / 2))) +
                     ")");
  if (*first < layers)
    out.layers = *first;
  return out;
}

void settle_batch(Options& options, const IsGiven& given) {
  const bool batch_given = given("--batch");
  const bool microbatch_given = given("--microbatch");
  const bool accumulation_given = given("--accumulation");
  const int dp = options.data_ranks();
  const std::string dp_text = std::string(options.extent("dpr") > 1 ? "dpr x dp" : "dp") +
                              (options.extent("ep") > 1 ? " x ep=" : "=") + text(dp);
  constexpr std::int64_t limit = std::numeric_limits<int>::max();
  if (std::int64_t{dp} * options.accumulation > limit ||
      std::int64_t{dp} * options.accumulation * std::max(1, options.microbatch) > limit)
    throw UsageError("dp x --microbatch x --accumulation must not be more than " + text(limit) +
                     " sequences (give smaller numbers)");
  if (!microbatch_given && !accumulation_given && options.extent("pp") > 1 && options.batch % dp == 0)
    options.accumulation = options.batch / dp; // as many as possible, to keep the stages busy
  if (microbatch_given && !batch_given) {
    options.batch = dp * options.microbatch * options.accumulation;
    return;
  }
  if (microbatch_given && !accumulation_given && options.batch % (dp * options.microbatch) == 0)
    options.accumulation = options.batch / (dp * options.microbatch);
  if (!microbatch_given && options.batch % (dp * options.accumulation) == 0)
    options.microbatch = options.batch / (dp * options.accumulation);
  if (options.batch == std::int64_t{dp} * options.microbatch * options.accumulation)
    return;
  const int part = dp * (microbatch_given ? options.microbatch : 1) *
                   (accumulation_given || !microbatch_given ? options.accumulation : 1);
  std::string factors = dp_text;
  if (microbatch_given)
    factors += " x --microbatch " + text(options.microbatch);
  if (accumulation_given)
    factors += " x --accumulation " + text(options.accumulation);
  const bool all_given = microbatch_given && accumulation_given;
  throw UsageError("--batch " + text(options.batch) + (batch_given ? "" : ", the default,") + " must " +
                   (all_given ? "be " : "be divisible by ") + factors +
                   (factors == dp_text ? "" : " = " + text(part)) + " (give --batch " +
                   (all_given ? text(part) : multiples_near(options.batch, part)) + ")");
}

/// Fewer trainings are compiled for a device.
static void check_target(const Options& options) {
  if (options.target == Device::host) {
    if (options.cuda_graph)
      throw UsageError(
          "--cuda-graph needs --target cuda, but the target is host (add --target cuda, or leave --cuda-graph out)");
    if (options.gpus > 1)
      throw UsageError(
          "--gpus needs --target cuda, but the target is host (add --target cuda, or leave --gpus out)");
    return;
  }
  const bool compiled =
      !options.ring && ((options.precision == Precision::fp32 && options.zero == 0) ||
                        (options.precision == Precision::bf16 && (options.zero == 0 || options.zero == 3)));
  if (!compiled)
    throw UsageError(
        "--target cuda is for --precision fp32 with --zero 0, or bf16 with --zero 0 or 3, and for --context all-to-all in this program (leave the others out)");
  if (options.extent("tp") > 1 && !options.sequence_parallel)
    throw UsageError("--target cuda needs --sequence-parallel with tp=" + text(options.extent("tp")) +
                     " in this program (add it, or leave tp out)");
  if (options.cuda_graph && options.dropout > 0)
    throw UsageError("--cuda-graph replays one step, but --dropout " + text(options.dropout) +
                     " needs different random numbers in each (leave one of them out)");
}

/// Trainings that have ordered sums.
static void check_reproducible(const Options& options) {
  if (!options.reproducible) {
    if (!options.record_hashes.empty())
      throw UsageError(
          "--record-hashes compares runs that have the same bits, but this one is not reproducible (add --reproducible, or leave it out)");
    return;
  }
  const bool plain = options.precision == Precision::fp32 && options.zero == 0;
  const bool ordered = (options.precision == Precision::fp32 || options.precision == Precision::bf16) &&
                       options.target == Device::host &&
                       (plain || !options.lora || options.size.experts == 0);
  if (!ordered)
    throw UsageError(
        "--reproducible is for --precision fp32 or bf16 and --target host, and for adapters beside experts with fp32 and --zero 0, in this program (leave one of them out)");
  if (options.capacity > 0 || options.balance == "microbatch")
    throw UsageError("--reproducible gives the same bits for every --microbatch, but " +
                     std::string(options.capacity > 0 ? "--capacity" : "--balance microbatch") +
                     " counts the tokens of each microbatch (leave one of them out)");
}

void settle_training(Options& options, const IsGiven& given) {
  const std::string precision(name_of(options.precision));
  const bool compiled = options.zero == 0 || options.precision == Precision::fp32 ||
                        (options.zero == 3 && options.precision == Precision::bf16);
  if (!compiled)
    throw UsageError("--zero " + text(options.zero) + " is for --precision fp32" +
                     (options.zero == 3 ? " or bf16" : "") + " in this program, but " + precision +
                     " was given (leave one of them out)");
  const bool adapts = (options.precision == Precision::fp32 || options.precision == Precision::bf16) &&
                      (options.zero == 0 || options.zero == 3) && !options.ring &&
                      options.target == Device::host;
  if (options.lora && !adapts)
    throw UsageError(
        "--lora is for --precision fp32 or bf16 with --zero 0 or 3, and for --context all-to-all and --target host in this program (leave the others out)");
  if (options.lora && options.size.experts > 0 && options.precision == Precision::bf16 && options.zero == 3)
    throw UsageError(
        "--lora of a model with experts is for --precision fp32, or --zero 0, in this program (leave one of --precision bf16 and --zero 3 out)");
  if (options.base != Base::whole && options.size.experts > 0)
    throw UsageError(
        "--quantize-base is for models without experts in this program (leave it out, or name another model by --init)");
  if (is_narrow(options.precision) && options.extent("tp") > 1 && !options.sequence_parallel)
    throw UsageError("--precision " + precision + " needs --sequence-parallel with tp=" +
                     text(options.extent("tp")) + " in this program (add it, or leave tp out)");
  check_target(options);
  check_reproducible(options);
  if (options.ring && options.extent("cp") == 1)
    throw UsageError("--context ring is attention over the ranks of cp, but the mesh " + options.mesh_text() +
                     " has cp=1 (leave it out, or give a mesh with cp such as --mesh cp=2)");
  if (options.ring && (options.zero > 0 || options.precision != Precision::fp32))
    throw UsageError(
        "--context ring is for --zero 0 and --precision fp32 in this program (leave one of them out, or give --context all-to-all)");
  if (options.ring && options.extent("tp") > 1 && !options.sequence_parallel)
    throw UsageError("--context ring needs --sequence-parallel with tp=" + text(options.extent("tp")) +
                     " in this program (add it, or leave tp out)");
  if (!given("--lr"))
    options.learning_rate = options.lora ? 2e-4
                            : options.published
                                ? 1e-5
                                : 0.016 / std::sqrt(static_cast<double>(options.size.d_model));
  if (!given("--min-lr"))
    options.least_learning_rate = options.learning_rate / 10;
  if (!given("--warmup"))
    options.warmup = options.epochs > 0 ? -1 : std::min<std::int64_t>(100, options.steps / 10);
  if (options.dropout >= 1)
    throw UsageError("--dropout " + text(options.dropout) +
                     " must be below 1, or nothing would be left (give --dropout 0.1)");
  if (options.epochs == 0) // else the data say how many steps there are
    check_rate(options);
  check_validation(options);
  if (options.sample == 0)
    for (const char* name : {"--prompt", "--temperature"})
      if (given(name))
        throw UsageError(std::string(name) +
                         " is only used where text is generated (add --sample 200, or leave it out)");
}

void check_outputs_outside_data(const Options& options, const IsGiven& given) {
  if (!given("--data"))
    return;
  for (const auto& [name, output] :
       {std::pair<std::string, std::filesystem::path>{"--checkpoint", options.checkpoint.directory},
        {"--export", options.export_to}})
    for (const std::filesystem::path& data : options.data)
      if (!output.empty() && is_within(output, data))
        throw UsageError(name + " " + output.string() + " must not be inside --data " + data.string() +
                         ", whose files the run reads again when it resumes (give " + name +
                         " a directory outside it)");
}

} // namespace train_gpt
