// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Continues a text with a published model on any mesh of pipeline, expert and tensor parallel ranks.

#include "generation.hpp"
#include "options.hpp"

#include <pretrained/chat_template.hpp>
#include <pretrained/tensor_files.hpp>
#include <pretrained/tokenizer.hpp>

#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/configuration_hash.hpp>
#include <shardwright/io/safetensors/write.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace sw = shardwright;

/// The prompts, what ends their continuations, and the tokenizer that turns these into text; none if ids were
/// given.
struct Prompts {
  std::vector<std::vector<std::int32_t>> ids, ends;
  std::unique_ptr<pretrained::Tokenizer> tokenizer;
  std::int64_t positions = 0; // of the longest, with its new tokens
};

Prompts read_prompts(const generate::Options& options, const pretrained::Settings& settings) {
  Prompts out{options.prompt_ids, {}, nullptr};
  for (const std::int32_t token : settings.end_tokens)
    out.ends.push_back({token});
  if (options.prompt_ids.empty())
    out.tokenizer = pretrained::read_tokenizer(options.model / "tokenizer.json");
  for (const std::string& prompt : options.prompts)
    out.ids.push_back(out.tokenizer->encode(prompt));
  if (!options.chats.empty()) {
    const auto chat = pretrained::ChatTemplate::read(options.model, options.chat_template);
    for (const std::string& question : options.chats) {
      pretrained::Conversation conversation{{"user", question}};
      if (!options.system.empty())
        conversation.insert(conversation.begin(), {"system", options.system});
      out.ids.push_back(out.tokenizer->encode(chat.prompt(conversation), false));
    }
    out.ends.push_back(out.tokenizer->encode(chat.answer_end(), false));
  }
  if (options.ignores_end)
    out.ends.clear();
  for (const std::vector<std::int32_t>& ids : out.ids) {
    if (ids.empty())
      throw sw::InvalidArgument("--prompt must have at least one token (write a word)");
    for (const std::int32_t id : ids)
      if (id >= settings.vocabulary)
        throw sw::InvalidArgument("the token " + std::to_string(id) +
                                  " of the prompt must be below the vocabulary, " +
                                  std::to_string(settings.vocabulary) + " (use the tokenizer of this model)");
    out.positions = std::max(out.positions, static_cast<std::int64_t>(ids.size()) + options.tokens);
  }
  if (out.positions > settings.positions)
    throw sw::InvalidArgument("prompt and --tokens must be at most max_position_embeddings, " +
                              std::to_string(settings.positions) + ", but they are " +
                              std::to_string(out.positions) + " tokens (ask for fewer)");
  return out;
}

/// Prints the text as it grows, in whole characters.
class Printer {
public:
  explicit Printer(const pretrained::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  void add(std::int32_t token) {
    if (tokenizer_ == nullptr) {
      std::cout << (first_ ? "" : ",") << token << std::flush;
      first_ = false;
      return;
    }
    pending_ += tokenizer_->decode(std::span(&token, 1));
    std::size_t begin = pending_.size(); // of the last character
    while (begin > 0 && (static_cast<unsigned char>(pending_[begin - 1]) & 0xc0) == 0x80)
      --begin;
    if (begin == 0)
      return;
    const auto lead = static_cast<unsigned char>(pending_[--begin]);
    const std::size_t needed = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const std::size_t whole = pending_.size() - begin < needed ? begin : pending_.size();
    std::cout << pending_.substr(0, whole) << std::flush;
    pending_.erase(0, whole);
  }
  void finish() { std::cout << pending_ << std::endl; }

private:
  const pretrained::Tokenizer* tokenizer_;
  std::string pending_;
  bool first_ = true;
};

/// Checks that nothing is written over the model that is read, or mixed with another one.
void check_targets(const generate::Options& options) {
  if (!options.export_to.empty())
    pretrained::require_new_model(options.export_to);
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(options.model, ignored))
    if (std::filesystem::equivalent(file.path(), options.dump, ignored) &&
        (file.path().extension() == ".json" || file.path().filename().string().starts_with("model")))
      throw sw::InvalidArgument("--dump " + options.dump.string() +
                                " must not be a file of the model (name another file)");
}

void dump(const generate::Options& options, const std::vector<std::int32_t>& prompt,
          const generate::Generation& made) {
  const std::uint64_t tokens = prompt.size(), vocabulary = made.prompt_scores.size() / tokens;
  sw::safetensors::write(
      options.dump, {sw::safetensors::source<std::int32_t>("prompt", {tokens}, prompt),
                     sw::safetensors::source<std::int32_t>("tokens", {made.tokens.size()}, made.tokens),
                     sw::safetensors::source<float>("scores", {tokens, vocabulary}, made.prompt_scores)});
}

/// One rank's run.
void run(const sw::HostCommunicator& world, const generate::Options& options,
         const pretrained::Settings& settings, const Prompts& prompts) {
  sw::require_same_configuration(world, options.text());
  const sw::safetensors::Files files(options.model);
  std::optional<pretrained::AdapterFiles> adapters;
  if (!options.adapter.empty())
    adapters.emplace(options.adapter, settings);
  const auto model = generate::load_model(
      world, options.extents, settings, files, prompts.positions,
      [](const std::string& line) { std::cerr << "generate: " << line << std::endl; },
      adapters ? &*adapters : nullptr, static_cast<std::int64_t>(prompts.ids.size()));
  const bool reports = world.rank() == 0;
  if (!options.export_to.empty()) {
    const auto values = [&](const pretrained::Parameter& parameter) { return model->parameter(parameter); };
    if (reports) {
      pretrained::write_model(options.export_to, settings, values);
      pretrained::copy_tokenizer(options.model, options.export_to);
    } else {
      for (const pretrained::Parameter& parameter : pretrained::all_parameters(settings))
        static_cast<void>(values(parameter));
    }
  }
  std::vector<Printer> printers(prompts.ids.size(), Printer(prompts.tokenizer.get()));
  const auto made =
      generate::continue_prompts(*model, prompts.ids, options.tokens, options.sampling, prompts.ends,
                                 !options.dump.empty(), [&](std::size_t prompt, std::int32_t token) {
                                   if (reports && prompt == 0) // the others follow when it is whole
                                     printers.front().add(token);
                                 });
  if (!reports)
    return;
  for (std::size_t prompt = 0; prompt < made.size(); ++prompt) {
    for (std::size_t i = 0; prompt > 0 && i < made[prompt].tokens.size(); ++i)
      printers[prompt].add(made[prompt].tokens[i]);
    printers[prompt].finish();
  }
  if (!options.dump.empty())
    dump(options, prompts.ids.front(), made.front());
}

} // namespace

int main(int argc, char** argv) {
  try {
    const generate::ParseResult parsed = generate::parse(argc, argv);
    if (!parsed.options) {
      (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
      return sw::checked_output("generate", parsed.exit_code);
    }
    const generate::Options& options = *parsed.options;
    sw::kernels::use_single_threaded_blas();
    const Kokkos::ScopeGuard kokkos;
    check_targets(options);
    const pretrained::Settings settings = pretrained::read_settings(options.model, options.accepted);
    const Prompts prompts = read_prompts(options, settings);
    const int code = sw::launch({.ranks = options.extents.ranks()}, [&](const sw::HostCommunicator& world) {
      run(world, options, settings, prompts);
    });
    return sw::checked_output("generate", code);
  } catch (const std::exception& error) {
    std::cerr << "generate: " << error.what() << std::endl;
    return 1;
  }
}
