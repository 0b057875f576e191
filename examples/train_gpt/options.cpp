// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The command line of train_gpt: its options, their help, and their error messages.

#include "options.hpp"
#include "option_checks.hpp"
#include "published.hpp"

#include <command_line/words.hpp>
#include <trainer/command_line.hpp>

#include <algorithm>
#include <array>
#include <locale>
#include <sstream>
#include <utility>

namespace train_gpt {

using namespace command_line;
using trainer::OptionGroup;

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

std::string Options::configuration_text() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << run_text() << "--layers " << size.layers << "\n--d-model " << size.d_model << "\n--heads "
      << size.heads << "\n--kv-heads " << size.kv_heads << "\n--hidden " << size.hidden << "\n--experts "
      << size.experts << "\n--chosen " << size.chosen << "\n--expert-hidden " << size.expert_hidden
      << "\n--dense-layers " << size.dense_layers << "\n--capacity " << capacity << "\n--sequence "
      << size.sequence << "\n--vocabulary " << size.vocabulary << "\n--target " << name_of(target)
      << "\n--gpus " << gpus << "\n--tied " << tied << "\n--dropout " << dropout << "\n--sequence-parallel "
      << sequence_parallel << "\n--context " << (ring ? "ring" : "all-to-all") << "\n--microbatch "
      << microbatch << "\n--sample " << sample << "\n--sample-every " << sample_every << "\n--temperature "
      << temperature << "\n--prompt " << prompt << "\n--init " << init.string() << "\n"
      << lora_text() << "--merge " << merge << "\n--chat-template " << chat_template << "\n--longer "
      << (drop_longer ? "drop" : "cut") << "\n--pack " << pack << "\n--export " << export_to.string() << "\n";
  return out.str();
}

std::string Options::lora_text() const {
  if (!lora)
    return {};
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << "--lora r=" << lora->rank << ",alpha=" << lora->alpha << ",dropout=" << lora->dropout
      << ",rslora=" << lora->rank_stabilized << (lora->kaiming ? ",kaiming=1" : "") << "\n--lora-targets "
      << joined(lora->targets, ",") << "\n--adapter " << adapter.string() << "\n";
  if (base != Base::whole) // a checkpoint from before there was this option belongs to its default
    out << "--quantize-base " << name_of(base) << "\n";
  return out.str();
}

std::string Options::continued_text(std::uint64_t data_hash) const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << "--layers " << size.layers << "\n--d-model " << size.d_model << "\n--heads " << size.heads
      << "\n--kv-heads " << size.kv_heads << "\n--hidden " << size.hidden << "\n--sequence " << size.sequence
      << "\n--vocabulary " << size.vocabulary << "\n--tied " << tied << "\n--precision " << name_of(precision)
      << "\n--dropout " << dropout << "\n--batch " << batch << "\n--steps " << steps << "\n--seed " << seed
      << "\n--lr " << learning_rate << "\n--min-lr " << least_learning_rate << "\n--warmup " << warmup
      << "\n--weight-decay " << weight_decay << "\n--clip " << clip << "\ndata hash " << data_hash << "\n";
  if (!init.empty())
    out << "--init " << init.string() << "\n";
  out << lora_text();
  if (pack)
    out << "--pack\n";
  if (size.experts > 0)
    out << "--experts " << size.experts << "\n--chosen " << size.chosen << "\n--expert-hidden "
        << size.expert_hidden << "\n--dense-layers " << size.dense_layers << "\n--capacity " << capacity
        << "\n";
  if (reproducible) // a checkpoint from before there was this option belongs to its default
    out << "--reproducible\n";
  if (!balance.empty()) // a checkpoint from before there was this option belongs to its default
    out << "--balance " << balance << "\n";
  return out.str();
}

std::string Options::dry_run_text() const {
  return " (" + text(size.layers) + " layers, d_model " + text(size.d_model) + "), " +
         std::string(name_of(precision)) + ", batch " + text(batch) + " = " + text(data_ranks()) + " x " +
         text(microbatch) + " x " + text(accumulation);
}

Options on_one_rank(Options options) {
  options.microbatch *= options.data_ranks();
  put_on_one_rank(options);
  options.sequence_parallel = false;
  if (!options.reproducible) // whose bits do not depend on the sharding: it needs no other training
    options.zero = 0;
  options.ring = options.ring && options.reproducible;
  if (options.target == Device::cuda) {
    // A GPU is compared with the most precise arithmetic of the host.
    options.target = Device::host;
    options.gpus = 1;
    options.cuda_graph = false;
    options.precision = Precision::fp32;
  }
  options.export_to.clear();
  options.merge = false;
  options.sample = 0;
  options.sample_every = 0;
  return options;
}

namespace {

/// Options given as words or in other units, until parse() interprets them.
struct Words : trainer::RunWords {
  std::vector<std::string> data;
  std::string target = "host";
  std::string recompute = "none";
  std::string context = "all-to-all";
  std::string init, export_to, adapter, record_hashes; ///< Paths.
  std::string lora;
  std::string longer = "cut";
  std::string base; // a form
  std::vector<std::string> targets;
  ModelSize size; ///< Only the given members count.
};

void add_target_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Ranks");
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
  in.flag(
      "--reproducible", options.reproducible,
      "Train with the same bits on every mesh, schedule, --zero and microbatches: gradients are summed as "
      "integers, other sums in a fixed order. With --precision fp32 or bf16.");
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

  in.whole(
      "--epochs", options.epochs, 0,
      "Steps as often as each conversation of the training part appears, instead of --steps; 0: --steps.");
  in.whole("--batch", options.batch, 1,
           "Sequences of a step, over all ranks: dp x microbatch x accumulation.");
  in.whole("--microbatch", options.microbatch, 1,
           "Sequences per microbatch and data rank. Default: batch / (dp x accumulation).");
  in.whole("--accumulation,--microbatches", options.accumulation, 1,
           "Microbatches whose gradients are accumulated in a step; a pipeline has them in flight. "
           "Default: batch / (dp x microbatch), or 1; with a pipeline batch / dp.");
  trainer::add_step_options(
      in, options, words,
      {"0.016 / sqrt(d_model), 1e-5 with --init, and 2e-4 with --lora", "a tenth, at most 100", "lr / 10"});
}

void add_output_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Output");
  trainer::add_output_options(in, options, words);
  in.add("--record-hashes", words.record_hashes,
         "File for hashes of the losses, gradients and weights of each step of a --reproducible run; "
         "compare_hashes names the first difference between two.")
      ->type_name("FILE");
  in.whole("--sample", options.sample, 0, "Bytes of text to generate at the end; 0 for none.");
  in.count("--sample-every", options.sample_every, 0,
           "Steps between answers to two held-out questions of conversations, and before the first step and "
           "after the last; 0 for none.");
  in.add("--prompt", options.prompt, "Text that the generated text continues. Default: 'The '.")
      ->type_name("TEXT");
  in.real("--temperature", options.temperature, 0, true,
          "Spread of the generated text; 0 always chooses the most likely byte.");
}

void add_checkpoint_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Checkpoints");
  trainer::add_checkpoint_options(in, options, words);
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
        "Directory for the trained model, such that transformers and generate load it; with --init --steps may be 0. "
        "With --lora for the adapters, such that PEFT and generate --adapter load them.")
      ->type_name("DIR");
}

void add_adapter_options(CLI::App& app, Options& options, Words& words) {
  OptionGroup in(app, "Adapters");
  in.add(
        "--lora", words.lora,
        "Train low-rank adapters of the model of --init, and leave its weights as they are: rank, factor (alpha / r, or with rslora=1 alpha / sqrt(r)) and dropout, such as r=16,alpha=32,dropout=0.05. "
        "alpha is 2 r unless given. A begins as normal numbers, or with kaiming=1 as in PEFT.")
      ->type_name("SIZES");
  in.add(
        "--lora-targets", words.targets,
        "Layers that get an adapter, as files name them, such as q_proj,v_proj. Default: all linear layers of attention, MLP and experts, but not routers; embed_tokens and lm_head can be named, too.")
      ->delimiter(',')
      ->type_name("NAME");
  in.add("--adapter", words.adapter, "Directory of adapters to start from, with their sizes.")
      ->type_name("DIR");
  in.add("--quantize-base", words.base,
         "Keep the weights of the linear layers of --init in 4 bits (nf4) or 8 bits (int8), by blocks of 64.")
      ->check(one_of({"nf4", "int8"}))
      ->type_name("FORM");
  in.flag("--merge", options.merge, "Export the model with its adapters merged into its weights.");
}

/// Interprets the words; the rest of the command line has been read into `options` already.
void settle_words(Options& options, const Words& words, const IsGiven& given,
                  const Environment& environment) {
  trainer::settle_words(options, words, given);
  options.target = words.target == "cuda" ? Device::cuda : Device::host;
  options.init = words.init;
  options.export_to = words.export_to;
  options.record_hashes = words.record_hashes;
  options.drop_longer = words.longer == "drop";
  for (const std::string& path : words.data)
    options.data.emplace_back(path);
  if (options.data.empty())
    options.data.push_back(environment.source_directory);
  if (given("--steps"))
    options.epochs = given("--epochs") ? options.epochs : 0;

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
  options.adapter = words.adapter;
  options.base = words.base == "nf4" ? Base::nf4 : words.base == "int8" ? Base::int8 : Base::whole;
  const bool adapts = options.program == name_of(Program::finetune) && options.adapter.empty();
  settle_adapters(options, adapts && words.lora.empty() ? "r=16" : words.lora, words.targets);
  settle_published(options, given);
}

std::string description_of(Program program) {
  if (program == Program::finetune)
    return "Adapts a published model to conversations: trains low-rank adapters on the answers, on any mesh of pipeline (pp), data (dp), context (cp) and tensor (tp) ranks, and says how the answers change. "
           "The options are those of train_gpt, with other defaults: --lora r=16,alpha=32, one epoch, packed conversations, and a held-out loss and answers every 50 steps.";
  return "Trains a Llama-style language model on the bytes of text files, split over pipeline (pp), data (dp), expert (ep) and tensor (tp) ranks. "
         "The losses do not depend on the mesh.";
}

std::string footer_of(Program program) {
  if (program == Program::finetune)
    return "Examples:\n"
           "  finetune --init SmolLM2-135M-Instruct --data chats.jsonl --mesh dp=2 --export adapters\n"
           "  finetune --init SmolLM2-135M-Instruct --data chats.jsonl --lora r=8,alpha=16,dropout=0.05 --epochs 3 --patience 2 --tensorboard runs --export adapters\n"
           "  finetune --init Llama-3.2-1B --data chats.jsonl --mesh dp=2,tp=2 --precision bf16 --recompute full --checkpoint run --resume --export adapters\n"
           "  finetune --init SmolLM2-135M-Instruct --data chats.jsonl --adapter adapters --steps 0 --merge --export merged";
  return "Models:" + preset_table() +
         "\n\nExamples:\n"
         "  train_gpt --mesh dp=2,tp=2 --steps 300 --sample 400\n"
         "  train_gpt --data notes.txt books/ --model base --batch 24 --microbatch 4\n"
         "  train_gpt --mesh pp=2,dp=2,tp=2 --schedule zbv --batch 16 --microbatches 8\n"
         "  train_gpt --mesh tp=2 --sequence-parallel --steps 20 --verify\n"
         "  train_gpt --model moe-small --mesh dp=2,ep=2,tp=2,pp=2 --verify\n"
         "  mpirun -n 4 train_gpt --mesh dp=2,tp=2 --metrics run.jsonl\n"
         "  train_gpt --mesh dp=2,tp=2 --checkpoint run --save-every 50 --resume\n"
         "  train_gpt --init SmolLM2-135M-Instruct --data chats.jsonl --mesh dp=2 --lr 1e-5 --export tuned\n"
         "  train_gpt --init SmolLM2-135M-Instruct --data chats.jsonl --lora r=16,alpha=32 --mesh dp=2 --epochs 1 --lr 2e-4 --export adapters\n"
         "  train_gpt --init Llama-3.2-1B --data notes/ --mesh dp=2,tp=2 --precision bf16 --sequence-parallel --export tuned\n"
         "  train_gpt --dry-run --mesh dp=256,tp=8,pp=8 --rank 17,9000 --model 405b --precision bf16 --sequence-parallel";
}

} // namespace

ParseResult parse(int argc, const char* const* argv, const Environment& environment, Program program) {
  Options options(program);
  Words words;
  CLI::App app{description_of(program), std::string(name_of(program))};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  OptionGroup(app, "Data")
      .add(
          "--data", words.data,
          "Text files and directories, several allowed. Directories are read recursively, text only. "
          "Every tenth block is held out for validation. With --init, files that end with .jsonl are conversations, "
          "of which only the answers are learned: lines of {\"messages\": [{\"role\": ..., \"content\": ...}]} or "
          "{\"prompt\": ..., \"completion\": ...}. Every tenth is held out. "
          "Default: this repository's own sources and documents.")
      ->type_name("PATH");
  OptionGroup(app, "Data")
      .add(
          "--chat-template", options.chat_template,
          "Text around the messages of conversations. Default: the template of --init, if it is one of these.")
      ->check(one_of(pretrained::ChatTemplate::names()))
      ->type_name("NAME");
  OptionGroup(app, "Data")
      .add(
          "--longer", words.longer,
          "cut or drop: conversations longer than --sequence lose their ends, or are left out. Default: cut.")
      ->check(one_of({"cut", "drop"}))
      ->type_name("NAME");
  OptionGroup(app, "Data")
      .flag(
          "--pack,!--no-pack", options.pack,
          "Keep documents that share a sequence apart: a token attends to its own only, and predicts no other's. "
          "Short conversations then share sequences, the same ones in every epoch; of texts, each file is a document.");
  trainer::add_rank_options(app, options, words);
  add_target_options(app, options, words);
  add_model_options(app, options, words);
  add_training_options(app, options, words);
  add_output_options(app, options, words);
  add_checkpoint_options(app, options, words);
  add_adapter_options(app, options, words);
  trainer::add_dry_run_options(
      app, options, words,
      " If the default model or batch does not fit the mesh, the next larger one that does is used.");
  app.set_help_flag("-h,--help", "Print this help and exit.")->group("Output");

  app.footer(footer_of(program));

  try {
    if (auto help = help_or_parse(app, argc, argv, "text files are named by --data", "--data"))
      return {std::nullopt, *std::move(help), 0};
    const auto given = [&app](const char* name) { return app.count(name) > 0; };
    settle_words(options, words, given, environment);
    settle_ranks(options, given, options.dry_run ? Environment{} : environment);
    settle_dry_run_ranks(options, words.dry_run_ranks, given);
    settle_dry_run(options, given);
    options.recompute = parse_recompute(words.recompute, options.size.layers);
    settle_experts(options, given);
    check_model(options);
    settle_batch(options, given);
    check_schedule(options, given);
    settle_training(options, given);
    check_checkpoints(options, given);
    check_outputs_outside_data(options, given);
  } catch (const UsageError& error) {
    return {std::nullopt, std::string(name_of(program)) + ": " + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

} // namespace train_gpt
