// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Reads conversations.

#include "conversations.hpp"
#include "json_text.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/read_text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace pretrained {
namespace {

namespace sw = shardwright;
using Json = nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{1} << 32;

[[noreturn]] void refuse(const std::string& place, const std::string& sentence) {
  throw sw::DataError(place + ": " + sentence);
}

std::string text_of(const Json& object, const char* name, const std::string& place) {
  const Json& text = field_of(object, name);
  if (!text.is_string())
    refuse(place, std::string("field '") + name + "' must be a string, but is " + shown(text));
  return text.get<std::string>();
}

Message message_of(const Json& json, const std::string& place) {
  if (!json.is_object())
    refuse(place, "a message must be an object of role and content, but is " + shown(json));
  for (const auto& [name, value] : json.items())
    if (name != "role" && name != "content" && !value.is_null())
      refuse(place, "a message must have only a role and a content, but has '" + name +
                        "' (tools, names and weights are not supported: take it out)");
  return {text_of(json, "role", place), text_of(json, "content", place)};
}

Conversation conversation_of(const Json& json, const std::string& place) {
  const Json& messages = field_of(json, "messages");
  if (!messages.is_null() && json.contains("prompt"))
    refuse(place, "it must have either messages or prompt and completion, but has both");
  if (messages.is_null())
    return {{"user", text_of(json, "prompt", place)}, {"assistant", text_of(json, "completion", place)}};
  if (!messages.is_array() || messages.empty())
    refuse(place, "field 'messages' must be a list of messages, but is " + shown(messages));
  Conversation out;
  for (const Json& message : messages)
    out.push_back(message_of(message, place));
  return out;
}

/// Where each token ends in the text; empty if the text was normalized. A tokenizer may put a space before a
/// part of the text that begins without one.
std::vector<std::size_t> ends_of(const std::vector<std::int32_t>& tokens, std::string_view text,
                                 const Tokenizer& tokenizer) {
  std::vector<std::size_t> out;
  std::size_t at = 0;
  for (const std::int32_t token : tokens) {
    std::string bytes = tokenizer.bytes(token);
    if (!text.substr(at).starts_with(bytes) && bytes.starts_with(' '))
      bytes.erase(0, 1);
    if (!text.substr(at).starts_with(bytes))
      return {};
    at += bytes.size();
    out.push_back(at);
  }
  return at == text.size() ? out : std::vector<std::size_t>();
}

/// The number of tokens that `a` and `b` begin with alike.
std::size_t common_tokens(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

} // namespace

bool is_conversation_file(const std::filesystem::path& path) { return path.extension() == ".jsonl"; }

std::vector<ConversationLine> parse_conversations(std::string_view text, const std::string& subject) {
  std::vector<ConversationLine> out;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string place = subject + ":" + std::to_string(++number);
    if (line.find_first_not_of(" \t\r") == line.npos)
      continue;
    out.push_back({conversation_of(parse_object(line, place, "fix the line"), place), place});
  }
  return out;
}

std::vector<ConversationLine> read_conversations(const std::vector<std::filesystem::path>& paths) {
  std::vector<ConversationLine> out;
  for (const std::filesystem::path& path : paths) {
    std::vector<ConversationLine> lines = parse_conversations(sw::read_text(path, most_bytes), path.string());
    if (lines.empty())
      refuse(path.string(), "it must hold a conversation, a line of JSON, but has none");
    std::move(lines.begin(), lines.end(), std::back_inserter(out));
  }
  return out;
}

shardwright::Document tokenized(const ConversationLine& line, const ChatTemplate& chat,
                                const Tokenizer& tokenizer) {
  try {
    const std::vector<TextPart> parts = chat.parts(line.conversation);
    std::string text;
    for (const TextPart& part : parts)
      text += part.text;
    sw::Document out{tokenizer.encode(text, false), {}};
    out.learned.assign(out.tokens.size(), false);
    const std::vector<std::size_t> ends = ends_of(out.tokens, text, tokenizer);
    // The first token that ends after a number of bytes.
    const auto token_after = [&](std::size_t bytes) {
      return ends.empty()
                 ? common_tokens(out.tokens, tokenizer.encode(std::string_view(text).substr(0, bytes), false))
                 : static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), bytes) - ends.begin());
    };
    std::size_t end = 0;
    for (const TextPart& part : parts) {
      const std::size_t begin = end;
      end += part.text.size();
      if (!part.answer || part.text.empty())
        continue;
      const std::size_t last = ends.empty() ? token_after(end) : token_after(end - 1) + 1;
      for (std::size_t token = token_after(begin); token < last; ++token)
        out.learned[token] = true;
    }
    return out;
  } catch (const sw::Error& error) {
    refuse(line.place, error.what());
  }
}

} // namespace pretrained
