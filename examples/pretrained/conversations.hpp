// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Conversations from JSON lines, as documents of which the answers are learned.

#include "chat_template.hpp"
#include "tokenizer.hpp"

#include <shardwright/io/document_dataset.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

/// @brief A conversation, and where it stands.
struct ConversationLine {
  Conversation conversation;
  std::string place; ///< File and line, for messages.
};

/// @brief Returns whether a path names a file of conversations: its name ends with ".jsonl".
[[nodiscard]] bool is_conversation_file(const std::filesystem::path& path);

/// @brief Reads lines of {"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ...,
/// "completion": ...}; empty lines and other fields of a line are ignored.
/// @param subject the file, for messages
/// @throws sw::DataError naming file and line.
[[nodiscard]] std::vector<ConversationLine> parse_conversations(std::string_view text,
                                                                const std::string& subject);

/// @brief Reads files of conversations, in this order.
/// @throws sw::DataError as parse_conversations, or if a file cannot be read or has none.
[[nodiscard]] std::vector<ConversationLine>
read_conversations(const std::vector<std::filesystem::path>& paths);

/// @brief The tokens of a conversation. Those that hold a byte of an answer are learned.
///
/// Where a tokenizer normalizes the text, so that the places of its tokens are not known, a token at the end
/// of what precedes an answer may be learned, too.
/// @throws sw::DataError as ChatTemplate::parts, naming the place.
[[nodiscard]] shardwright::Document tokenized(const ConversationLine& line, const ChatTemplate& chat,
                                              const Tokenizer& tokenizer);

} // namespace pretrained
