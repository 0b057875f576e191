// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Starts from a published model.

#include "published.hpp"

#include <command_line/words.hpp>
#include <pretrained/conversations.hpp>
#include <pretrained/tensor_files.hpp>
#include <pretrained/tokenizer.hpp>
#include <pretrained/training_source.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/byte_dataset.hpp>
#include <shardwright/io/document_dataset.hpp>
#include <shardwright/io/text_files.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace train_gpt {

namespace sw = shardwright;

using namespace command_line;

namespace {

using Fail = std::function<void(const std::string&)>;

/// Checks the settings of which a MoeDecoder supports only one form.
void check_deepseek(const pretrained::Settings& settings, const Fail& fail) {
  const pretrained::ExpertSettings& experts = settings.experts;
  if (settings.latent->query_rank == 0)
    fail("field 'q_lora_rank' must be a number (this program trains only compressed queries)");
  if (experts.sums_to_one != (experts.chosen > 1))
    fail("field 'norm_topk_prob' must be true with several experts per token and false with one, but it is " +
         std::string(experts.sums_to_one ? "true" : "false") + " with " + text(experts.chosen) +
         " (this program trains no other gates)");
  if (experts.dense_layers >= settings.layers)
    fail("field 'first_k_dense_replace' must be below num_hidden_layers, " + text(settings.layers) +
         ", but it is " + text(experts.dense_layers) +
         " (this program trains latent attention with experts)");
}

/// Checks that a decoder supports the model's settings.
void check_trainable(const Options& options, const pretrained::Settings& settings) {
  const Fail fail = [&](const std::string& sentence) {
    throw sw::DataError((options.init / "config.json").string() + ": " + sentence);
  };
  if (settings.latent)
    check_deepseek(settings, fail);
  if (settings.out_bias)
    fail("field 'attention_bias' must be false (this program trains no bias after attention)");
  if (settings.window && *settings.window < options.size.sequence)
    fail("field 'sliding_window' must not be less than --sequence " + text(options.size.sequence) +
         ", but it is " + text(*settings.window) + " (give --sequence " + text(*settings.window) + ")");
  if (settings.positions < options.size.sequence)
    fail("field 'max_position_embeddings' must not be less than --sequence " + text(options.size.sequence) +
         ", but it is " + text(settings.positions) + " (give --sequence " + text(settings.positions) + ")");
}

/// Checks what is said of conversations.
void settle_conversations(const Options& options, const IsGiven& given) {
  if (!options.has_conversations()) {
    for (const char* name : {"--chat-template", "--longer", "--sample-every"})
      if (given(name))
        throw UsageError(
            std::string(name) +
            " is for conversations (give --init and, as --data, a file that ends with .jsonl, or leave it out)");
    return;
  }
  if (!std::all_of(options.data.begin(), options.data.end(), pretrained::is_conversation_file))
    throw UsageError("--data must name either files of conversations, which end with .jsonl, or texts (name "
                     "only the ones or the others)");
}

} // namespace

void settle_adapters(Options& options, const std::string& sizes, const std::vector<std::string>& targets) {
  if (!options.adapter.empty() && !(sizes.empty() && targets.empty()))
    throw UsageError("--adapter has sizes and layers of its own (leave out --lora and --lora-targets)");
  if (sizes.empty()) {
    if (!targets.empty())
      throw UsageError("--lora-targets is for adapters (give --lora r=16, or leave it out)");
    return;
  }
  pretrained::AdapterSettings& out = options.lora.emplace();
  const std::string help = " (write sizes such as --lora r=16,alpha=32,dropout=0.05)";
  bool alpha = false;
  std::istringstream parts(sizes);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string number = equals == part.npos ? std::string() : part.substr(equals + 1);
    const std::optional<double> value = real_number(number);
    if (!value || *value < 0)
      throw UsageError("--lora needs a number of at least 0 after " + name + "=, but has '" + number + "'" +
                       help);
    if (name == "r") {
      const auto rank = whole_number<std::int64_t>(number);
      if (!rank || *rank < 1 || *rank > pretrained::AdapterSettings::most_rank)
        throw UsageError("--lora r must be a whole number from 1 to " +
                         text(pretrained::AdapterSettings::most_rank) + ", but it is " + number + help);
      out.rank = *rank;
    } else if (name == "alpha") {
      out.alpha = *value;
      alpha = true;
    } else if (name == "dropout" && *value < 1) {
      out.dropout = *value;
    } else if (name == "rslora" && (*value == 0 || *value == 1)) {
      out.rank_stabilized = *value == 1;
    } else if (name == "kaiming" && (*value == 0 || *value == 1)) {
      out.kaiming = *value == 1;
    } else {
      throw UsageError("--lora knows r, alpha, dropout below 1, and rslora and kaiming of 0 or 1, but has '" +
                       part + "'" + help);
    }
  }
  if (!alpha)
    out.alpha = 2 * static_cast<double>(out.rank);
  out.targets = targets;
}

namespace {

/// Checks what is said of adapters; the settings of --init have been read.
void check_adapters(Options& options, const pretrained::Settings& settings) {
  if (!options.adapter.empty())
    options.lora = pretrained::AdapterFiles(options.adapter, settings).settings();
  if (!options.lora)
    return;
  if (options.balance == "bias")
    throw UsageError(
        "--balance bias changes the biases of routers, which adapters leave as they are (leave it "
        "out, or give another --balance)");
  options.sequence_parallel = options.extent("tp") > 1;
  std::vector<std::string> known = pretrained::adaptable_modules(settings);
  const std::vector<std::string> of_experts = pretrained::expert_modules(settings);
  if (options.lora->targets.empty())
    options.lora->targets = known;
  for (std::string& table : pretrained::table_modules(settings))
    known.push_back(std::move(table));
  for (const std::string& target : options.lora->targets) {
    if (options.lora->dropout > 0 &&
        std::find(of_experts.begin(), of_experts.end(), target) != of_experts.end())
      throw UsageError(
          "adapters of experts have no dropout, since the order of their rows depends on the mesh, but " +
          (options.adapter.empty() ? "--lora" : "--adapter " + options.adapter.string()) +
          " asks for it in " + target + " (" +
          (options.adapter.empty() ? "leave dropout out of --lora, or name other --lora-targets)"
                                   : "set lora_dropout in its adapter_config.json to 0)"));
    if (std::find(known.begin(), known.end(), target) != known.end())
      continue;
    if (settings.tied_embedding && (target == "embed_tokens" || target == "lm_head"))
      throw UsageError(
          "--lora-targets has " + target +
          ", but embedding and head of this model are one table, which has no adapters (leave it "
          "out)");
    if (!options.adapter.empty())
      throw UsageError("--adapter " + options.adapter.string() + " adapts " + target +
                       ", but this program trains adapters of " + joined(known, " and ") +
                       " of this model (give others, or use it with generate)");
    const std::string_view near = nearest(target, known);
    throw UsageError("--lora-targets has the unknown layer '" + clipped(target) + "'" +
                     (near.empty() ? std::string() : "; did you mean " + std::string(near) + "?") +
                     " (give some of " + joined(known, " and ") + ")");
  }
}

} // namespace

void settle_epochs(Options& options, const sw::TokenRows& data) {
  if (options.epochs == 0)
    return;
  if (data.epoch_rows() == 0)
    throw UsageError("--epochs is for conversations, which have an order (give --steps, or a file of --data "
                     "that ends with .jsonl)");
  const auto batch = static_cast<std::size_t>(options.batch);
  options.steps = static_cast<std::int64_t>(
      (data.epoch_rows() * static_cast<std::size_t>(options.epochs) + batch - 1) / batch);
  if (options.warmup < 0)
    options.warmup = std::min<std::int64_t>(100, options.steps / 10);
  trainer::check_rate(options);
}

void settle_published(Options& options, const IsGiven& given) {
  if (options.program == name_of(Program::finetune) && !options.has_conversations())
    throw UsageError(
        "this program adapts a published model to conversations (give --init DIR and --data FILE.jsonl, "
        "or use train_gpt)");
  settle_conversations(options, given);
  if (options.epochs > 0 && given("--steps"))
    throw UsageError("--epochs and --steps both say how long to train (leave one of them out)");
  if (options.init.empty() && (options.lora || !options.adapter.empty()))
    throw UsageError(std::string(options.lora ? "--lora" : "--adapter") +
                     " trains adapters of a published model (give --init, or leave it out)");
  if (options.base != Base::whole && !options.lora && options.adapter.empty())
    throw UsageError(
        "--quantize-base is for weights that adapters leave as they are (add --lora, or leave it out)");
  if (options.base != Base::whole && options.merge)
    throw UsageError(
        "--merge adds adapters to the whole weights of --init, but --quantize-base was given (export the adapters, then merge them by --adapter DIR --merge --steps 0 without --quantize-base)");
  if (options.merge && ((!options.lora && options.adapter.empty()) || options.export_to.empty()))
    throw UsageError("--merge writes a model with its adapters (add --lora and --export, or leave it out)");
  if (options.steps == 0 && options.export_to.empty())
    throw UsageError(
        "--steps 0 trains nothing (give steps, or --export DIR to write the model that --init names)");
  if (options.size.experts > 0 && options.init.empty() && !options.export_to.empty())
    throw UsageError(
        "--export writes a model with experts only if --init has started from one (leave it out)");
  if (options.init.empty() && options.widen_fp8)
    throw UsageError("--widen-fp8 is for the weights of --init (give --init, or leave it out)");
  if (options.init.empty() && !options.accepted_fields.empty())
    throw UsageError("--accept-field is for the config.json of --init (give --init, or leave it out)");
  std::error_code none;
  if (!options.init.empty() && std::filesystem::equivalent(options.init, options.export_to, none))
    throw UsageError("--export must name another directory than --init " + options.init.string() +
                     " (name a new one)");
  if (!options.export_to.empty())
    pretrained::require_new_model(options.export_to);
  if (options.init.empty())
    return;
  for (const char* name :
       {"--model", "--layers", "--d-model", "--heads", "--kv-heads", "--hidden", "--vocabulary", "--experts",
        "--chosen", "--expert-hidden", "--dense-layers", "--tied"})
    if (given(name))
      throw UsageError(std::string(name) + " is determined by the model that --init names (leave it out)");
  if (options.sample > 0)
    throw UsageError(
        "--sample is for models of bytes (leave it out, and run generate on what --export writes)");
  const pretrained::Settings settings = pretrained::read_settings(
      options.init, {.fp8 = options.widen_fp8 ? pretrained::Fp8::widened : pretrained::Fp8::refused,
                     .fields = options.accepted_fields});
  const auto number = [](std::int64_t size) { return static_cast<int>(size); };
  constexpr std::int64_t usual_sequence = 512;
  if (!given("--sequence"))
    options.size.sequence =
        number(std::min({usual_sequence, settings.positions, settings.window.value_or(usual_sequence)}));
  check_trainable(options, settings);
  options.size = {number(settings.layers),
                  number(settings.width),
                  number(settings.heads),
                  number(settings.kv_heads),
                  number(settings.hidden),
                  options.size.sequence,
                  number(settings.vocabulary),
                  number(settings.experts.count),
                  number(settings.experts.chosen),
                  number(settings.experts.hidden),
                  number(settings.experts.dense_layers)};
  options.tied = settings.tied_embedding;
  options.model = options.init.string();
  options.validate_first = options.validate_every > 0;
  options.published = settings;
  check_adapters(options, settings);
}

trainer::InitialWeights published_weights(const Options& options) {
  if (!options.published)
    return {};
  return [&options](std::vector<std::string>& news) {
    auto out =
        std::make_shared<const pretrained::ModelSource>(options.init, *options.published, options.adapter);
    news = out->skipped();
    return out;
  };
}

namespace {

/// The tokens of text files, with the end token after each.
std::unique_ptr<const sw::TokenRows> read_texts(const Options& options, const sw::ByteDatasetOptions& how,
                                                const pretrained::Tokenizer& tokenizer) {
  const sw::TextFiles text = sw::read_text_files(options.data);
  std::vector<std::int32_t> tokens;
  std::vector<sw::TextFiles::File> files; // in tokens
  for (std::size_t i = 0; i < text.files.size(); ++i) {
    const std::size_t begin = text.files[i].begin,
                      end = i + 1 < text.files.size() ? text.files[i + 1].begin : text.bytes.size();
    if (pretrained::is_conversation_file(text.files[i].path))
      throw sw::DataError(text.files[i].path.string() +
                          ": conversations must be named themselves, not by their directory (give the file "
                          "as --data, without texts, or call it .txt to train on it as it is)");
    std::vector<std::int32_t> of_file;
    try {
      of_file = tokenizer.encode(std::string_view(text.bytes).substr(begin, end - begin), false);
    } catch (const sw::InvalidArgument& error) {
      throw sw::DataError(text.files[i].path.string() + ": " + error.what());
    }
    files.push_back({text.files[i].path, tokens.size()});
    tokens.insert(tokens.end(), of_file.begin(), of_file.end());
    if (!options.published->end_tokens.empty())
      tokens.push_back(options.published->end_tokens.front());
  }
  return std::make_unique<const sw::ByteDataset>(std::move(tokens), how, std::move(files));
}

std::unique_ptr<const sw::TokenRows> read_documents(const Options& options,
                                                    const pretrained::Tokenizer& tokenizer) {
  const auto chat = pretrained::ChatTemplate::read(options.init, options.chat_template);
  std::vector<sw::Document> documents;
  for (const pretrained::ConversationLine& line : pretrained::read_conversations(options.data))
    documents.push_back(pretrained::tokenized(line, chat, tokenizer));
  const std::vector<std::int32_t>& ends = options.published->end_tokens;
  return std::make_unique<const sw::DocumentDataset>(
      std::move(documents),
      sw::DocumentDatasetOptions{.sequence = static_cast<std::size_t>(options.size.sequence),
                                 .seed = options.seed,
                                 .batch = static_cast<std::size_t>(options.batch),
                                 .vocabulary = static_cast<std::size_t>(options.size.vocabulary),
                                 .padding = ends.empty() ? 0 : ends.front(),
                                 .longer =
                                     options.drop_longer ? sw::LongDocument::drop : sw::LongDocument::cut,
                                 .pack = options.pack,
                                 .origin = "template " + chat.description()});
}

} // namespace

std::unique_ptr<const sw::TokenRows> read_dataset(const Options& options) {
  const sw::ByteDatasetOptions how{.paths = options.data,
                                   .sequence = static_cast<std::size_t>(options.size.sequence),
                                   .seed = options.seed,
                                   .vocabulary = static_cast<std::size_t>(options.size.vocabulary),
                                   .least_samples = static_cast<std::size_t>(options.data_ranks()),
                                   .separate_files = options.pack};
  if (!options.published)
    return std::make_unique<const sw::ByteDataset>(how);
  const auto tokenizer = pretrained::read_tokenizer(options.init / "tokenizer.json");
  if (options.has_conversations())
    return read_documents(options, *tokenizer);
  return read_texts(options, how, *tokenizer);
}

} // namespace train_gpt
