// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Questions of held-out conversations, and answers to them while they are made.

#include "options.hpp"

#include <pretrained/tokenizer.hpp>
#include <shardwright/io/token_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

/// @brief What precedes the first answer of a conversation, and that answer with the token that ends it.
struct Question {
  std::vector<std::int32_t> prompt, expected;
};

/// @brief The questions of the first two held-out rows that hold a whole answer.
[[nodiscard]] std::vector<Question> held_out_questions(const shardwright::TokenRows& data);

/// @brief Tokens of the rows in which questions are answered: no more than are needed, at most --sequence,
/// and divisible as that is.
[[nodiscard]] std::size_t sequence_of(const std::vector<Question>& questions, const Options& options);

/// @brief A line for each question: the end of what was asked, the answer, and the expected one
/// unless the answer is that, or its beginning and as long as answers may be.
[[nodiscard]] std::vector<std::string> answer_lines(const std::vector<Question>& questions,
                                                    const std::vector<std::vector<std::int32_t>>& answers,
                                                    const pretrained::Tokenizer& tokenizer);

/// @brief An answer of which the first tokens are settled, and the others are a guess.
class Draft {
public:
  /// @param sequence tokens of the row, which limit the answer
  Draft(const Question& question, std::size_t sequence);

  /// @brief Compares with the most likely tokens after each one of tokens(): settles those that agree and the
  /// first that does not, and guesses the others anew.
  void revise(const std::vector<std::int32_t>& next);

  [[nodiscard]] const std::vector<std::int32_t>& tokens() const noexcept { return tokens_; } ///< Of the row.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] std::vector<std::int32_t> answer() const; ///< Its settled tokens.

private:
  std::vector<std::int32_t> tokens_;
  std::size_t begin_, settled_, most_; // places of the row
  std::int32_t end_;                   // the token that ends an answer
  bool ended_ = false;
};

} // namespace train_gpt
