// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The command line of train_gpt: its options, their help, and their error messages.

#include "options.hpp"
#include "option_checks.hpp"
#include "published.hpp"
#include "schedules.hpp"

#include <command_line/checks.hpp>
#include <command_line/words.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/named_schedule.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <locale>
#include <sstream>
#include <utility>

namespace train_gpt {

using namespace command_line;

namespace {

std::string preset_table() {
  std::string out;
  for (const Preset& preset : presets()) {
    std::string name(preset.name);
    name.resize(9, ' ');
    out += "\n  " + name + " " + text(preset.size.layers) + " layers, d_model " + text(preset.size.d_model) +
           ", " + text(preset.size.heads) + " heads over " + text(preset.size.kv_heads) +
           " kv heads, hidden " + text(preset.size.hidden) + ", sequence " + text(preset.size.sequence);
    if (preset.size.experts > 0)
      out += ", " + text(preset.size.chosen) + " of " + text(preset.size.experts) + " experts of " +
             text(preset.size.expert_hidden);
  }
  return out;
}

} // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> table{
      {"tiny", {2, 64, 4, 2, 192, 64, 256}},
      {"small", {4, 192, 6, 2, 512, 128, 256}},
      {"base", {6, 512, 8, 4, 1408, 256, 256}},
      {"large", {12, 768, 12, 4, 2048, 512, 256}},
      {"gpt2", {12, 768, 12, 12, 2048, 1024, 50304}},      // 124 million parameters with --tied
      {"405b", {126, 16384, 128, 8, 53248, 8192, 128256}}, // Llama 3.1 (arXiv 2407.21783)
      {"moe-tiny", {2, 64, 4, 2, 192, 64, 256, 4, 2, 64, 1}},
      {"moe-small", {4, 192, 6, 2, 512, 128, 256, 8, 2, 192, 1}},
  };
  return table;
}

int Options::extent(std::string_view axis) const noexcept {
  for (const MeshAxis& entry : mesh)
    if (entry.name == axis)
      return entry.extent;
  return 1;
}

std::string Options::mesh_text() const {
  std::string out;
  for (const MeshAxis& axis : mesh)
    out.append(out.empty() ? "" : ",").append(axis.name).append("=").append(text(axis.extent));
  return out;
}

std::string Options::recompute_text() const {
  const bool all = recompute.layers >= size.layers;
  return std::string(name_of(recompute.kind)) + (all ? std::string() : ":" + text(recompute.layers));
}

std::string Options::wide_axes() const {
  std::string out;
  for (const char* name : {"pp", "dpr", "dp", "ep", "cp", "tp"})
    if (extent(name) > 1)
      out.append(out.empty() ? "" : ",").append(name);
  return out;
}

std::string Options::configuration_text() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << "--mesh " << mesh_text() << "\n--ranks " << ranks << "\n--layers " << size.layers << "\n--d-model "
      << size.d_model << "\n--heads " << size.heads << "\n--kv-heads " << size.kv_heads << "\n--hidden "
      << size.hidden << "\n--experts " << size.experts << "\n--chosen " << size.chosen << "\n--expert-hidden "
      << size.expert_hidden << "\n--dense-layers " << size.dense_layers << "\n--capacity " << capacity
      << "\n--balance " << balance << "\n--counting-pass " << counting_pass << "\n--sequence "
      << size.sequence << "\n--vocabulary " << size.vocabulary << "\n--target " << name_of(target)
      << "\n--gpus " << gpus << "\n--cuda-graph " << cuda_graph << "\n--tied " << tied << "\n--precision "
      << name_of(precision) << "\n--sequence-parallel " << sequence_parallel << "\n--context "
      << (ring ? "ring" : "all-to-all") << "\n--zero " << zero << "\n--batch " << batch << "\n--microbatch "
      << microbatch << "\n--accumulation " << accumulation << "\n--schedule " << schedule << "\n--chunks "
      << chunks << "\n--steps " << steps << "\n--seed " << seed << "\n--lr " << learning_rate << "\n--min-lr "
      << least_learning_rate << "\n--warmup " << warmup << "\n--weight-decay " << weight_decay << "\n--clip "
      << clip << "\n--validate-every " << validate_every << "\n--validation-batches " << validation_batches
      << "\n--sample " << sample << "\n--temperature " << temperature << "\n--prompt " << prompt
      << "\n--non-finite " << static_cast<int>(non_finite) << "\n--empty-batch "
      << static_cast<int>(empty_batch) << "\n--check-replicas " << check_replicas << "\n--link-latency "
      << link.latency_seconds << "\n--link-bandwidth " << link.bytes_per_second << "\n--timeline "
      << records() << "\n--verify " << verify << "\n--checkpoint " << checkpoint.directory.string()
      << "\n--save-every " << checkpoint.every << "\n--keep " << checkpoint.keep << "\n--resume "
      << checkpoint.resume << "\n--stop-after " << checkpoint.stop_after << "\n--init " << init.string()
      << "\n--export " << export_to.string() << "\n";
  return out.str();
}

namespace {

/// Options given as words or in other units, until parse() interprets them.
struct Words {
  std::vector<std::string> data;
  std::string mesh;
  std::string transport = "auto";
  std::string target = "host";
  std::string precision = "fp32";
  std::string recompute = "none";
  std::string context = "all-to-all";
  std::string non_finite = "stop";
  std::string empty_batch = "skip";
  std::string metrics, tensorboard, timeline, timeline_svg, dry_run_json, checkpoint, init,
      export_to;     ///< Paths.
  std::string ranks; ///< Of a dry run.
  double link_microseconds = 0;
  double link_gigabytes = 0;
  ModelSize size; ///< Only the given members count.
};

/// Adds options to one group of the help. A help text that does not name its default gets the one that the
/// option holds.
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
        ->check(whole_from<int>(least, most_value))
        ->type_name("N");
  }
  CLI::Option* count(const char* option, std::int64_t& value, std::int64_t least, const std::string& help) {
    return add(option, value, with_default(help, value))
        ->check(whole_from<std::int64_t>(least, 1'000'000'000'000))
        ->type_name("N");
  }
  CLI::Option* real(const char* option, double& value, double least, bool least_allowed,
                    const std::string& help, double most_value = 1e30) {
    return add(option, value, with_default(help, value))
        ->check(real_from(least, least_allowed, most_value))
        ->type_name("X");
  }

  static constexpr int most = 1 << 20;

private:
  template <class Value> static std::string with_default(const std::string& help, Value value) {
    return help.find("Default:") == std::string::npos ? help + " Default: " + text(value) + "." : help;
  }

  CLI::App& app_;
  const char* name_;
};

void add_rank_options(CLI::App& app, Options& options, Words& words) {
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
  in.add(
        "--target", words.target,
        "host or cuda: where tensors are stored and kernels run. cuda needs a build with the preset cuda, and supports --precision fp32, or bf16 with --zero 0 or 3. "
        "Default: host.")
      ->check(one_of({"host", "cuda"}))
      ->type_name("NAME");
  in.whole(
      "--gpus", options.gpus, 1,
      "GPUs that the ranks use in turn. NCCL connects threads on several. 1 means the GPU that Kokkos uses.");
  in.flag("--cuda-graph", options.cuda_graph,
          "Capture the third step on the GPU as a CUDA graph and replay it. One rank, without dropout.");
  in.real("--deadline", options.deadline_seconds, 0, false,
          "Seconds that a rank waits for the others before it ends with an error that names who is missing.",
          1e8);

  in.real("--link-latency", words.link_microseconds, 0, true,
          "Microseconds of a simulated link between the ranks; 0 for none.", 1e9);
  in.real("--link-bandwidth", words.link_gigabytes, 0, true,
          "Gigabytes per second of that link, per rank and direction; 0 for no limit.", 1e9);
}

void add_model_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Model");
  std::vector<std::string> preset_names;
  for (const Preset& preset : presets())
    preset_names.emplace_back(preset.name);
  in.add("--model", options.model,
         "Size: " + joined(preset_names, " or ") + ". Default: " + options.model + ".")
      ->check(one_of(preset_names))
      ->type_name("NAME");
  in.whole("--layers", words.size.layers, 1, "Decoder layers. Default: the model's.", 4096);
  in.whole("--d-model", words.size.d_model, 1, "Width of the residual stream. Default: the model's.");
  in.whole("--heads", words.size.heads, 1, "Query heads. Default: the model's.");
  in.whole("--kv-heads", words.size.kv_heads, 1,
           "Key and value heads, a divisor of the query heads. Default: the model's.");
  in.whole("--hidden", words.size.hidden, 1, "Width of the feed-forward block. Default: the model's.");
  in.whole("--sequence", words.size.sequence, 2, "Tokens of a sample. Default: the model's.");
  in.whole(
      "--vocabulary", words.size.vocabulary, 256,
      "Tokens; 256 for bytes, and more only for divisibility by tp or for the size. Default: the model's.");
  in.whole("--experts", words.size.experts, 1,
           "Experts of each layer after the dense ones, for a model that has some. Default: the model's.",
           4096);
  in.whole("--chosen", words.size.chosen, 1, "Experts that each token goes to. Default: the model's.", 4096);
  in.whole("--expert-hidden", words.size.expert_hidden, 1,
           "Width of each expert and of the shared expert. Default: the model's.");
  in.whole("--dense-layers", words.size.dense_layers, 0,
           "Number of first layers with a feed-forward block instead of experts. Default: the model's.",
           4096);
  in.real("--capacity", options.capacity, 0, true,
          "Capacity of an expert in a microbatch, relative to an even share, such as 1.25; 0 drops nothing.",
          1e6);
  in.add(
        "--balance", options.balance,
        "Balances the load of experts: by a loss of each sequence, of each microbatch, of the global batch, or with the counts of the previous step, or by a bias alone. "
        "Default: the bias and a small loss of each sequence, as in DeepSeek-V3.")
      ->check(one_of({"sequence", "microbatch", "global", "previous", "bias"}))
      ->type_name("NAME");
  in.flag(
      "--counting-pass", options.counting_pass,
      "Run one more forward pass that counts the global batch, so that any schedule can carry --balance global.");
  in.flag("--tied", options.tied, "Use one table for the embedding and the output head.");
  in.add(
        "--precision", words.precision,
        "fp32 or fp64: element type of everything. bf16 or fp16: that of parameters and activations; master weights, gradients, optimizer state and loss stay in fp32, and fp16 scales the loss. "
        "Default: fp32.")
      ->check(one_of({"fp32", "fp64", "bf16", "fp16"}))
      ->type_name("NAME");
  in.flag("--sequence-parallel", options.sequence_parallel,
          "Split norms and residuals over tp as well: less memory, the same losses. Needs tp of 2 or more.");
  in.add(
        "--context", words.context,
        "How attention splits sequences over cp: all-to-all (each rank has whole sequences for some of the heads) or ring (keys and values travel; any number of heads).")
      ->check(one_of({"all-to-all", "ring"}))
      ->type_name("WAY");

  in.add(
        "--zero", options.zero,
        "What data and context ranks shard: 0 nothing, 1 the optimizer state, 2 gradients too, 3 parameters too. "
        "Ranks of dpr hold replicas of it. Default: 0.")
      ->check(one_of({"0", "1", "2", "3"}))
      ->type_name("STAGE");
}

void add_training_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Training");
  in.add(
        "--recompute", words.recompute,
        "Results that layers recompute in the backward pass instead of keeping them: none, selective (attention) or full (all but the layer's input); full:4 is the first four layers. "
        "The losses are bitwise the same. Default: none.")
      ->type_name("KIND");
  in.add("--dropout", options.dropout,
         "Dropout rate of the outputs of attention and MLP in training, from 0 to below 1. "
         "Default: 0.")
      ->check(real_from(0, true))
      ->type_name("X");

  in.whole("--batch", options.batch, 1,
           "Sequences of a step, over all ranks: dp x microbatch x accumulation.");
  in.whole("--microbatch", options.microbatch, 1,
           "Sequences per microbatch and data rank. Default: batch / (dp x accumulation).");
  in.whole("--accumulation,--microbatches", options.accumulation, 1,
           "Microbatches whose gradients are accumulated in a step; a pipeline has them in flight. "
           "Default: batch / (dp x microbatch), or 1; with a pipeline batch / dp.");
  in.count("--steps", options.steps, 0, "Optimizer steps.");
  in.add("--seed", options.seed,
         "Chooses initial weights and batches; equal seeds give equal runs. Default: " + text(options.seed) +
             ".")
      ->check(whole_from<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()))
      ->type_name("N");
  in.real("--lr", options.learning_rate, 0, false,
          "Peak learning rate of AdamW. Default: 0.016 / sqrt(d_model), and 1e-5 with --init.");
  in.count("--warmup", options.warmup, 0,
           "Steps in which the rate rises from 0. Default: a tenth, at most 100.");
  in.real("--min-lr", options.least_learning_rate, 0, true,
          "Rate at the end of the cosine. Default: lr / 10.");
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

void add_output_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Output");
  in.count("--validate-every", options.validate_every, 0,
           "Steps between held-out losses; 0 for one at the end.");
  in.whole("--validation-batches", options.validation_batches, 1,
           "Maximum number of batches for a held-out loss.");
  in.whole("--sample", options.sample, 0, "Bytes of text to generate at the end; 0 for none.");
  in.add("--prompt", options.prompt, "Text that the generated text continues. Default: 'The '.")
      ->type_name("TEXT");
  in.real("--temperature", options.temperature, 0, true,
          "Spread of the generated text; 0 always chooses the most likely byte.");
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

void add_checkpoint_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Checkpoints");
  CheckpointOptions& checkpoint = options.checkpoint;
  in.add("--checkpoint", words.checkpoint,
         "Directory in which the run is saved: after its last step, and on SIGTERM or SIGINT, which end it.")
      ->type_name("DIR");
  in.count("--save-every", checkpoint.every, 0, "Steps between saves as well; 0 for none.");
  in.whole("--keep", checkpoint.keep, 1,
           "Checkpoints to keep; older ones are removed when a newer one is durable.");
  in.flag("--resume", checkpoint.resume,
          "Resume from the newest complete checkpoint there, on any mesh, schedule and --zero.");
  in.count("--stop-after", checkpoint.stop_after, 0, "Step after which to save and end; 0 for none.");
  in.add("--init", words.init,
         "Directory of a published model to start from: its sizes, weights and tokenizer.")
      ->type_name("DIR");
  in.flag("--widen-fp8", options.widen_fp8,
          "Read weights of --init that are FP8 with a scale per block, as in DeepSeek-V3.");
  in.add("--accept-field", options.accepted_fields,
         "Field of config.json in --init that is not known and changes nothing; may be given more than once.")
      ->type_name("NAME")
      ->allow_extra_args(false);
  in.add(
        "--export", words.export_to,
        "Directory for the trained model, such that transformers and generate load it; with --init --steps may be 0.")
      ->type_name("DIR");
  in.real("--save-progress", checkpoint.progress_seconds, 0, true,
          "Seconds between lines that give the bytes and the rate of a save.", 1e6);
  in.real("--stop-limit", checkpoint.stop_limit_seconds, 1, true,
          "Seconds from a signal to the end of the run, after which it ends with code 1.", 1e6);
}

void add_dry_run_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Dry run");
  in.flag(
      "--dry-run", options.dry_run,
      "Train nothing, read no data, start no ranks: print memory by kind, calls and operations of two steps on --rank. "
      "If the default model or batch does not fit the mesh, the next larger one that does is used.");
  in.add(
        "--rank", words.ranks,
        "Ranks of the mesh to count, such as 17 or 0,17,8192; the calls of several are compared. Default: 0.")
      ->type_name("RANKS");
  in.add("--dry-run-json", words.dry_run_json, "File for the same as JSON, with every call in order.")
      ->type_name("FILE");
}

/// Interprets the words; the rest of the command line has been read into `options` already.
void settle_words(Options& options, const Words& words, const IsGiven& given,
                  const Environment& environment) {
  if (given("--mesh"))
    options.mesh = parse_mesh(words.mesh);
  options.transport = words.transport == "mpi"       ? Transport::mpi
                      : words.transport == "threads" ? Transport::threads
                                                     : Transport::automatic;
  for (const Precision each : {Precision::fp32, Precision::fp64, Precision::bf16, Precision::fp16})
    if (words.precision == name_of(each))
      options.precision = each;
  options.target = words.target == "cuda" ? Device::cuda : Device::host;
  options.metrics = words.metrics;
  options.tensorboard = words.tensorboard;
  options.checkpoint.directory = words.checkpoint;
  options.init = words.init;
  options.export_to = words.export_to;
  options.non_finite =
      words.non_finite == "skip" ? shardwright::NonFinite::skip : shardwright::NonFinite::stop;
  options.empty_batch =
      words.empty_batch == "stop" ? shardwright::EmptyBatch::stop : shardwright::EmptyBatch::skip;
  options.link = {words.link_microseconds * 1e-6, words.link_gigabytes * 1e9};
  options.timeline = words.timeline;
  options.timeline_svg = words.timeline_svg;
  options.dry_run_json = words.dry_run_json;
  for (const std::string& path : words.data)
    options.data.emplace_back(path);
  if (options.data.empty())
    options.data.push_back(environment.source_directory);

  options.size = std::find_if(presets().begin(), presets().end(), [&](const Preset& preset) {
                   return preset.name == options.model;
                 })->size;
  constexpr std::array<std::pair<const char*, int ModelSize::*>, 11> sizes{
      {{"--layers", &ModelSize::layers},
       {"--d-model", &ModelSize::d_model},
       {"--heads", &ModelSize::heads},
       {"--kv-heads", &ModelSize::kv_heads},
       {"--hidden", &ModelSize::hidden},
       {"--sequence", &ModelSize::sequence},
       {"--vocabulary", &ModelSize::vocabulary},
       {"--experts", &ModelSize::experts},
       {"--chosen", &ModelSize::chosen},
       {"--expert-hidden", &ModelSize::expert_hidden},
       {"--dense-layers", &ModelSize::dense_layers}}};
  for (const auto& [name, member] : sizes)
    if (given(name))
      options.size.*member = words.size.*member;

  options.ring = words.context == "ring";
  settle_published(options, given);
}

} // namespace

ParseResult parse(int argc, const char* const* argv, const Environment& environment) {
  Options options;
  Words words;
  CLI::App app{
      "Trains a Llama-style language model on the bytes of text files, split over pipeline (pp), data (dp), expert (ep) and tensor (tp) ranks. "
      "The losses do not depend on the mesh.",
      "train_gpt"};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  OptionGroup(app, "Data")
      .add("--data", words.data,
           "Text files and directories, several allowed. Directories are read recursively, text only. "
           "Every tenth block is held out for validation. "
           "Default: this repository's own sources and documents.")
      ->type_name("PATH");
  add_rank_options(app, options, words);
  add_model_options(app, options, words);
  add_training_options(app, options, words);
  add_output_options(app, options, words);
  add_checkpoint_options(app, options, words);
  add_dry_run_options(app, options, words);
  app.set_help_flag("-h,--help", "Print this help and exit.")->group("Output");

  app.footer(
      "Models:" + preset_table() +
      "\n\nExamples:\n"
      "  train_gpt --mesh dp=2,tp=2 --steps 300 --sample 400\n"
      "  train_gpt --data notes.txt books/ --model base --batch 24 --microbatch 4\n"
      "  train_gpt --mesh pp=2,dp=2,tp=2 --schedule zbv --batch 16 --microbatches 8\n"
      "  train_gpt --mesh tp=2 --sequence-parallel --steps 20 --verify\n"
      "  train_gpt --model moe-small --mesh dp=2,ep=2,tp=2,pp=2 --verify\n"
      "  mpirun -n 4 train_gpt --mesh dp=2,tp=2 --metrics run.jsonl\n"
      "  train_gpt --mesh dp=2,tp=2 --checkpoint run --save-every 50 --resume\n"
      "  train_gpt --init Llama-3.2-1B --data notes/ --mesh dp=2,tp=2 --precision bf16 --sequence-parallel --export tuned\n"
      "  train_gpt --dry-run --mesh dp=256,tp=8,pp=8 --rank 17,9000 --model 405b --precision bf16 --sequence-parallel");

  try {
    if (auto help = help_or_parse(app, argc, argv, "text files are named by --data", "--data"))
      return {std::nullopt, *std::move(help), 0};
    const auto given = [&app](const char* name) { return app.count(name) > 0; };
    settle_words(options, words, given, environment);
    settle_ranks(options, given, options.dry_run ? Environment{} : environment);
    settle_dry_run(options, words.ranks, given);
    options.recompute = parse_recompute(words.recompute, options.size.layers);
    settle_experts(options, given);
    check_model(options);
    settle_batch(options, given);
    settle_schedule(options, given);
    settle_training(options, given);
    settle_checkpoints(options, given);
  } catch (const UsageError& error) {
    return {std::nullopt, std::string("train_gpt: ") + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

Environment current_environment() {
  Environment environment;
#ifdef SHARDWRIGHT_SOURCE_DIR
  environment.source_directory = SHARDWRIGHT_SOURCE_DIR;
#else
  environment.source_directory = ".";
#endif
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr)
      continue;
    const std::optional<int> ranks = whole_number<int>(value);
    if (!ranks || *ranks < 1)
      throw shardwright::InvalidArgument(std::string(name) + " must be a positive whole number, but it is '" +
                                         value + "' (start the program with mpirun, or unset the variable)");
    environment.launched_ranks = ranks;
    break;
  }
  return environment;
}

} // namespace train_gpt
