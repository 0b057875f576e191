// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The formats of conversations that published models are trained on.

#include "chat_template.hpp"
#include "json_text.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/read_text.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace pretrained {
namespace {

namespace sw = shardwright;
using Json = nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{1} << 26;
constexpr std::string_view spaces = " \t\n\r\f\v"; // of Jinja's trim

std::string trimmed(std::string_view text, std::string_view characters = spaces) {
  const std::size_t begin = text.find_first_not_of(characters);
  if (begin == text.npos)
    return {};
  return std::string(text.substr(begin, text.find_last_not_of(characters) - begin + 1));
}

std::string without_leading_lines(std::string_view text) {
  return std::string(text.substr(std::min(text.find_first_not_of('\n'), text.size())));
}

bool holds(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

Json tokenizer_settings(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(path))
    return Json::object();
  return parse_object(sw::read_text(path, most_bytes), path.string());
}

/// The text of a special token, which is written as a string or as an object with its content.
std::string token_text(const Json& settings, const char* name) {
  const Json& token = field_of(settings, name);
  const Json& text = token.is_object() ? field_of(token, "content") : token;
  return text.is_string() ? text.get<std::string>() : std::string();
}

/// The template in the settings: a string, or that of several which is named "default".
std::string template_text(const Json& settings) {
  const Json& found = field_of(settings, "chat_template");
  if (found.is_string())
    return found.get<std::string>();
  if (found.is_array())
    for (const Json& each : found)
      if (field_of(each, "name") == "default" && field_of(each, "template").is_string())
        return field_of(each, "template").get<std::string>();
  return {};
}

/// The system message in the text of a ChatML template: what stands between its marks, unless a quote or a
/// brace ends the literal at once.
std::string default_system(const std::string& text) {
  constexpr std::string_view mark = "<|im_start|>system";
  for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
    std::size_t begin = at + mark.size();
    if (text.compare(begin, 2, "\\n") == 0)
      begin += 2;
    else if (text.compare(begin, 1, "\n") == 0)
      begin += 1;
    else
      continue;
    const std::size_t end = text.find("<|im_end|>", begin);
    if (end == text.npos || end == begin || holds("'\"{", std::string_view(text).substr(begin, 1)))
      continue;
    return text.substr(begin, end - begin);
  }
  return {};
}

/// Whether a line ends after the end of a message.
bool ends_lines(std::string_view text) {
  constexpr std::string_view mark = "<|im_end|>";
  for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
    const std::size_t next = text.find_first_not_of("'\" +", at + mark.size());
    if (next != text.npos && (text[next] == '\n' || text.substr(next, 2) == "\\n"))
      return true;
  }
  return false;
}

const std::vector<std::string>& list_of_names() {
  static const std::vector<std::string> out{"chatml",     "llama-3",        "llama-3.1", "mistral-v1",
                                            "mistral-v3", "mistral-tekken", "qwen-2.5",  "qwen-3"};
  return out;
}

std::string all_names() {
  std::string out;
  for (const std::string& name : list_of_names())
    out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string llama_header(std::string_view role) {
  return "<|start_header_id|>" + std::string(role) + "<|end_header_id|>\n\n";
}

[[noreturn]] void refuse(const std::string& sentence) { throw sw::DataError(sentence); }

} // namespace

const std::vector<std::string>& ChatTemplate::names() { return list_of_names(); }

std::string_view ChatTemplate::name() const { return names()[static_cast<std::size_t>(style_)]; }

std::string ChatTemplate::description() const {
  return std::string(name()) +
         (default_system_.empty() ? "" : ", with the system message \"" + default_system_ + "\"");
}

ChatTemplate ChatTemplate::named(std::string_view name, const std::filesystem::path& directory) {
  const auto found = std::find(names().begin(), names().end(), name);
  if (found == names().end())
    throw sw::InvalidArgument("a chat template must be one of " + all_names() + ", but is " +
                              std::string(name));
  const Json settings = tokenizer_settings(directory);
  ChatTemplate out;
  out.style_ = static_cast<Style>(found - names().begin());
  out.begin_ = token_text(settings, "bos_token");
  out.end_ = token_text(settings, "eos_token");
  if (out.style_ == Style::chatml)
    out.begin_.clear();
  const auto require = [&](const std::string& token, const char* field) {
    if (token.empty())
      refuse((directory / "tokenizer_config.json").string() + ": field '" + field +
             "' must be the text of a token, which the template " + std::string(name) +
             " writes (fetch the file with the model)");
  };
  if (out.is_mistral() || out.is_llama())
    require(out.begin_, "bos_token");
  if (out.is_mistral())
    require(out.end_, "eos_token");
  if (out.style_ == Style::qwen_2_5)
    out.default_system_ = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  return out;
}

ChatTemplate ChatTemplate::read(const std::filesystem::path& directory, std::string_view name) {
  if (!name.empty())
    return named(name, directory);
  const std::filesystem::path own = directory / "chat_template.jinja";
  const bool has_own = std::filesystem::exists(own);
  const std::string subject = (has_own ? own : directory / "tokenizer_config.json").string();
  const Json settings = tokenizer_settings(directory);
  const std::string text = has_own ? sw::read_text(own, most_bytes) : template_text(settings);
  if (text.empty())
    refuse(subject + ": it must have a chat template (give --chat-template with one of " + all_names() + ")");
  ChatTemplate out = named(names()[static_cast<std::size_t>(style_of(text, subject))], directory);
  if (out.style_ == Style::chatml || out.style_ == Style::qwen_2_5)
    out.default_system_ = default_system(text);
  if (out.style_ == Style::chatml && holds(text, "bos_token"))
    out.begin_ = token_text(settings, "bos_token");
  return out;
}

ChatTemplate::Style ChatTemplate::style_of(const std::string& text, const std::string& subject) {
  const auto has = [&text](std::string_view part) { return holds(text, part); };
  const bool strips = has("trim") || has("strip");
  if (has("<|im_start|>") && ends_lines(text)) {
    if (has("<think>") && has("enable_thinking")) // the later models have no thoughts, or always some
      return Style::qwen_3;
    if (!strips && !has("<think>"))
      return has("tool_calls") ? Style::qwen_2_5 : Style::chatml;
  } else if (has("<|start_header_id|>") && has("<|eot_id|>") && has("['content'] | trim")) {
    return has("Cutting Knowledge Date") ? Style::llama_3_1 : Style::llama_3;
  } else if (has("[INST]") && !has("<<SYS>>") && !has("[SYSTEM_PROMPT]")) {
    const bool spaced = has("' [INST] '") || has("\" [INST] \"");
    if (spaced && has(" [/INST]"))
      return Style::mistral_v1;
    if (!spaced && !has(" [/INST]"))
      return has("[INST] ") ? Style::mistral_v3 : Style::mistral_tekken;
  }
  refuse(subject + ": its chat template must be one that this program knows (if one of " + all_names() +
         " writes the same text, give it with --chat-template)");
}

void ChatTemplate::check(const Conversation& conversation) const {
  if (conversation.empty())
    refuse("a conversation must have a message");
  std::vector<std::string_view> marks{"<|im_start|>", "<|im_end|>"};
  if (is_llama())
    marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  if (is_mistral())
    marks = {"[INST]", "[/INST]"};
  for (const std::string* token : {&begin_, &end_})
    if (!token->empty())
      marks.push_back(*token);
  for (const Message& message : conversation) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant")
      refuse("a role must be system, user or assistant, but is " + message.role);
    for (const std::string_view mark : marks)
      if (holds(message.content, mark))
        refuse("a message must not hold " + std::string(mark) +
               ", which separates messages or texts (take it out, or write it with a space in it)");
  }
}

std::vector<TextPart> ChatTemplate::parts(const Conversation& conversation) const {
  check(conversation);
  return is_llama() ? llama(conversation) : is_mistral() ? mistral(conversation) : chatml(conversation);
}

std::string ChatTemplate::prompt(const Conversation& conversation) const {
  std::string out;
  for (const TextPart& part : parts(conversation))
    out += part.text;
  if (is_mistral()) // its questions end with a mark
    return out;
  return out + (is_llama() ? llama_header("assistant") : "<|im_start|>assistant\n");
}

std::string_view ChatTemplate::answer_end() const {
  if (is_mistral())
    return end_;
  return is_llama() ? "<|eot_id|>" : "<|im_end|>";
}

std::vector<TextPart> ChatTemplate::chatml(const Conversation& conversation) const {
  std::vector<TextPart> out;
  if (!begin_.empty() && style_ == Style::chatml)
    out.push_back({begin_});
  if (conversation.front().role != "system" && !default_system_.empty())
    out.push_back({"<|im_start|>system\n" + default_system_ + "<|im_end|>\n"});
  std::size_t last_question = conversation.size() - 1; // Qwen 3 keeps thoughts only after it
  for (std::size_t i = 0; i < conversation.size(); ++i)
    if (conversation[i].role == "user")
      last_question = i;
  for (std::size_t i = 0; i < conversation.size(); ++i) {
    const Message& message = conversation[i];
    std::string content = message.content;
    if (style_ == Style::qwen_3 && message.role == "assistant") {
      std::string thoughts;
      if (const std::size_t end = content.find("</think>"); end != content.npos) {
        const std::size_t rest = content.rfind("</think>") + 8;
        thoughts = content.substr(0, end);
        thoughts.resize(thoughts.find_last_not_of('\n') + 1);
        if (const std::size_t begin = thoughts.rfind("<think>"); begin != thoughts.npos)
          thoughts.erase(0, begin + 7);
        thoughts = trimmed(thoughts, "\n");
        content = without_leading_lines(content.substr(rest));
      }
      if (i > last_question && (i + 1 == conversation.size() || !thoughts.empty()))
        content = "<think>\n" + thoughts + "\n</think>\n\n" + without_leading_lines(content);
    }
    const bool answer = message.role == "assistant";
    out.push_back({"<|im_start|>" + message.role + "\n"});
    out.push_back({content + "<|im_end|>", answer});
    out.push_back({"\n"});
  }
  return out;
}

std::vector<TextPart> ChatTemplate::llama(const Conversation& conversation) const {
  std::vector<TextPart> out{{begin_}};
  std::size_t first = 0;
  if (style_ == Style::llama_3_1) {
    // The template's date where it knows no other. Later models take today's, by which the data would depend
    // on the day.
    std::string system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
    if (conversation.front().role == "system")
      system += trimmed(conversation[first++].content);
    out.push_back({llama_header("system") + system + "<|eot_id|>"});
  }
  for (std::size_t i = first; i < conversation.size(); ++i) {
    out.push_back({llama_header(conversation[i].role)});
    out.push_back({trimmed(conversation[i].content) + "<|eot_id|>", conversation[i].role == "assistant"});
  }
  return out;
}

void ChatTemplate::check_turns(const Conversation& conversation, std::size_t first) const {
  for (std::size_t i = first; i < conversation.size(); ++i) {
    const std::string_view expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (conversation[i].role != expected)
      refuse("with the template " + std::string(name()) +
             ", user and assistant must take turns after an optional system message, but message " +
             std::to_string(i + 1) + " is from " + conversation[i].role);
  }
}

std::vector<TextPart> ChatTemplate::mistral(const Conversation& conversation) const {
  const std::size_t first = conversation.front().role == "system" ? 1 : 0;
  check_turns(conversation, first);
  const bool spaced = style_ == Style::mistral_v1;
  // The first one puts the system message before the first question; the others before a question at the end,
  // and lose it otherwise.
  const std::size_t place = spaced ? first : conversation.size() - 1;
  if (first == 1 && (place >= conversation.size() || conversation[place].role != "user"))
    refuse(
        "the template " + std::string(name()) +
        " loses a system message unless a question ends the conversation (put it into the first question)");
  std::vector<TextPart> out{{begin_}};
  for (std::size_t i = first; i < conversation.size(); ++i) {
    const Message& message = conversation[i];
    if (message.role == "assistant") {
      const std::string content = style_ == Style::mistral_v3 ? trimmed(message.content) : message.content;
      out.push_back({(style_ == Style::mistral_tekken ? "" : " ") + content + end_, true});
      continue;
    }
    const std::string system = first == 1 && i == place ? conversation.front().content + "\n\n" : "";
    out.push_back({std::string(spaced                        ? " [INST] "
                               : style_ == Style::mistral_v3 ? "[INST] "
                                                             : "[INST]") +
                   system + message.content + (spaced ? " [/INST]" : "[/INST]")});
  }
  return out;
}

} // namespace pretrained
