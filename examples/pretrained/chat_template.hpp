// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The text that a published model expects of a conversation.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

/// @brief What one side says.
struct Message {
  std::string role; ///< "system", "user" or "assistant".
  std::string content;
  friend bool operator==(const Message&, const Message&) = default;
};
using Conversation = std::vector<Message>;

/// @brief A part of the text of a conversation.
struct TextPart {
  std::string text;
  bool answer = false; ///< Said by the assistant, with the token that ends its turn.
};

/// @brief One of the templates that this program knows, with the texts that a model fills in.
class ChatTemplate {
public:
  /// @brief The names of the known ones: "chatml", "llama-3", "llama-3.1", "mistral-v1", "mistral-v3",
  /// "mistral-tekken", "qwen-2.5" and "qwen-3".
  [[nodiscard]] static const std::vector<std::string>& names();

  /// @brief The template of this name, with the first and last token of a tokenizer_config.json.
  /// @throws sw::InvalidArgument for another name. @throws sw::DataError without a token that it writes.
  [[nodiscard]] static ChatTemplate named(std::string_view name, const std::filesystem::path& directory);

  /// @brief Finds the template that `directory` has in its chat_template.jinja or tokenizer_config.json, by
  /// the marks in its text; with a name, as named().
  /// @throws sw::DataError if there is none, or for one that is not known.
  [[nodiscard]] static ChatTemplate read(const std::filesystem::path& directory, std::string_view name = {});

  /// @brief The text of a conversation, in order.
  /// @throws sw::DataError for roles that the template does not allow, for contents that hold one of its
  /// marks, and where it would lose a message.
  [[nodiscard]] std::vector<TextPart> parts(const Conversation& conversation) const;

  /// @brief The text of a conversation that ends with a question, up to where the answer begins.
  /// @throws sw::DataError as parts().
  [[nodiscard]] std::string prompt(const Conversation& conversation) const;

  /// @brief The mark at the end of each answer.
  [[nodiscard]] std::string_view answer_end() const;

  /// @brief Its name, and the system message that it adds to a conversation without one.
  [[nodiscard]] std::string description() const;
  [[nodiscard]] std::string_view name() const;

private:
  enum class Style : std::uint8_t {
    chatml,
    llama_3,
    llama_3_1,
    mistral_v1,
    mistral_v3,
    mistral_tekken,
    qwen_2_5,
    qwen_3
  };

  [[nodiscard]] static Style style_of(const std::string& text, const std::string& subject);
  [[nodiscard]] bool is_llama() const { return style_ == Style::llama_3 || style_ == Style::llama_3_1; }
  [[nodiscard]] bool is_mistral() const {
    return style_ == Style::mistral_v1 || style_ == Style::mistral_v3 || style_ == Style::mistral_tekken;
  }
  void check(const Conversation& conversation) const;
  void check_turns(const Conversation& conversation, std::size_t first) const;
  [[nodiscard]] std::vector<TextPart> chatml(const Conversation& conversation) const;
  [[nodiscard]] std::vector<TextPart> llama(const Conversation& conversation) const;
  [[nodiscard]] std::vector<TextPart> mistral(const Conversation& conversation) const;

  Style style_ = Style::chatml;
  std::string begin_, end_;    // of a text, where the template names them
  std::string default_system_; // empty: none
};

} // namespace pretrained
