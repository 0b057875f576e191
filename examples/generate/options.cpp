// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of generate, their help, and their error messages.

#include "options.hpp"

#include <command_line/checks.hpp>
#include <command_line/mesh.hpp>
#include <pretrained/chat_template.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <sstream>
#include <utility>

namespace generate {

using namespace command_line;

std::string Options::text() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << "--model " << model.string() << "\n--adapter " << adapter.string();
  for (const std::string& prompt : prompts)
    out << "\n--prompt " << prompt;
  for (const std::string& question : chats)
    out << "\n--chat " << question;
  out << "\n--system " << system << "\n--chat-template " << chat_template;
  for (const std::vector<std::int32_t>& ids : prompt_ids) {
    out << "\n--prompt-ids";
    for (const std::int32_t id : ids)
      out << " " << id;
  }
  out << "\n--mesh " << extents.pp << " " << extents.ep << " " << extents.tp << "\n--tokens " << tokens
      << "\n--temperature " << sampling.temperature << "\n--top-p " << sampling.top_p << "\n--seed "
      << sampling.seed << "\n--ignore-end " << ignores_end << "\n--widen-fp8 "
      << (accepted.fp8 == pretrained::Fp8::widened) << "\n--dump " << !dump.empty() << "\n--export "
      << !export_to.empty() << "\n";
  return out.str();
}

namespace {

std::vector<std::int32_t> parse_ids(const std::string& word) {
  std::vector<std::int32_t> out;
  std::istringstream parts(word);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto id = whole_number<std::int32_t>(part);
    if (!id || *id < 0)
      throw UsageError("--prompt-ids needs token ids such as 1,2,3, but has '" + clipped(part) +
                       "' (write them with commas)");
    out.push_back(*id);
  }
  return out;
}

Extents parse_extents(const std::string& word) {
  Extents out;
  for (const MeshAxis& axis : parse_mesh(word)) {
    if (axis.name != "pp" && axis.name != "ep" && axis.name != "tp" && axis.extent > 1)
      throw UsageError(
          "--mesh has the axis " + axis.name +
          ", which splits a batch (generate shares every sequence between all ranks: use pp for layers, tp for tensors and ep for experts)");
    if (axis.name == "pp" || axis.name == "ep" || axis.name == "tp")
      (axis.name == "pp" ? out.pp : axis.name == "ep" ? out.ep : out.tp) = axis.extent;
  }
  return out;
}

void check(const Options& options) {
  if (options.model.empty())
    throw UsageError("--model must name the directory of a model (--help explains the options)");
  const std::size_t texts = options.prompts.size(), chats = options.chats.size(),
                    ids = options.prompt_ids.size(), all = texts + chats + ids;
  if (all == 0 || std::max({texts, chats, ids}) < all)
    throw UsageError("one of --prompt, --chat and --prompt-ids must say what to continue (give one of them)");
  if (chats == 0 && !(options.system.empty() && options.chat_template.empty()))
    throw UsageError("--system and --chat-template are for questions (give --chat, or leave them out)");
  if (!options.dump.empty() && all > 1)
    throw UsageError("--dump writes the logits of one prompt (give one, or leave --dump out)");
}

} // namespace

ParseResult parse(int argc, const char* const* argv) {
  Options options;
  std::vector<std::string> ids;
  std::string model, adapter, mesh = "tp=1", dump, export_to;
  bool widens = false;
  CLI::App app{
      "Continues a text with a published model of the Llama, Mistral, Qwen2, Qwen3, Mixtral or DeepSeek-V3 family, split over "
      "pipeline (pp), expert (ep) and tensor (tp) ranks. The text does not depend on the mesh, except for rounding.",
      "generate"};
  app.allow_extras();
  app.get_formatter()->column_width(help_column);
  app.add_option("--model", model,
                 "Directory with config.json, model.safetensors or its parts, and tokenizer.json.")
      ->type_name("DIR");
  app.add_option("--adapter", adapter,
                 "Directory with adapter_config.json and adapter_model.safetensors, added to the model.")
      ->type_name("DIR");
  app.add_option(
         "--prompt", options.prompts,
         "Text to continue; may be given more than once: the texts are read in one pass, and the result is "
         "that of each alone, one after the other.")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--chat", options.chats,
                 "Question to answer, written with the model's chat template; may be given more than once.")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--system", options.system, "System message before each --chat.")->type_name("TEXT");
  app.add_option(
         "--chat-template", options.chat_template,
         "Text around the messages of --chat. Default: the template of the model, if it is one of these.")
      ->check(one_of(pretrained::ChatTemplate::names()))
      ->type_name("NAME");
  app.add_option(
         "--prompt-ids", ids,
         "Token ids to continue, such as 1,2,3; the result is token ids, too. May be given more than once.")
      ->type_name("IDS")
      ->allow_extra_args(false);
  app.add_option("--mesh", mesh, "Ranks along each axis, such as tp=2 or pp=2,tp=2. Default: one rank.")
      ->type_name("AXES");
  app.add_option("--tokens", options.tokens, "Maximum number of new tokens. Default: 100.")
      ->check(whole_from<std::int64_t>(0, 1 << 24))
      ->type_name("N");
  app.add_option("--temperature", options.sampling.temperature,
                 "Divides the logits before sampling; 0 always chooses the most likely token. Default: 0.")
      ->check(real_from(0, true, 1e6))
      ->type_name("X");
  app.add_option("--top-p", options.sampling.top_p,
                 "Samples from the most likely tokens with this total probability. Default: 1, all.")
      ->check(real_from(0, false, 1))
      ->type_name("X");
  app.add_option("--seed", options.sampling.seed, "Seed of the sampling. Default: 1.")
      ->check(whole_from<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()))
      ->type_name("N");
  app.add_flag("--widen-fp8", widens, "Accept FP8 weights with block scales, and convert them to float.");
  app.add_option("--accept-field", options.accepted.fields,
                 "Field of config.json that this program does not know and that changes nothing, such as "
                 "my_note; may be given more than once.")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_flag("--ignore-end", options.ignores_end, "Continue after the model's end-of-text token.");
  app.add_option("--dump", dump, "File for the token ids and logits of the prompt, as safetensors.")
      ->type_name("FILE");
  app.add_option("--export", export_to, "Directory to write the model to, in float.")->type_name("DIR");
  app.footer(
      "Examples:\n"
      "  generate --model Llama-3.2-1B --prompt \"The sea was\"\n"
      "  generate --model SmolLM2-135M-Instruct --adapter tuned --chat \"What is the sea?\"\n"
      "  generate --model Qwen3-0.6B --prompt \"The sea was\" --mesh tp=2 --temperature 0.8 --top-p 0.95\n"
      "  mpirun -n 4 generate --model Mixtral --prompt-ids 1,415,6163 --mesh pp=2,tp=2");
  try {
    if (auto help = help_or_parse(app, argc, argv, "a text is given by --prompt"))
      return {std::nullopt, *std::move(help), 0};
    options.model = model;
    options.adapter = adapter;
    for (const std::string& each : ids)
      options.prompt_ids.push_back(parse_ids(each));
    options.extents = parse_extents(mesh);
    options.accepted.fp8 = widens ? pretrained::Fp8::widened : pretrained::Fp8::refused;
    options.dump = dump;
    options.export_to = export_to;
    check(options);
  } catch (const UsageError& error) {
    return {std::nullopt, std::string("generate: ") + error.what(), 2};
  }
  return {std::move(options), std::string(), 0};
}

} // namespace generate
