// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Questions of held-out conversations, and answers to them while they are made.

#include "questions.hpp"

#include <algorithm>
#include <utility>

namespace train_gpt {

namespace {

constexpr std::size_t most_tokens = 64; // of an answer

/// One line of at most 60 characters, without spaces around it; of longer text its end, or its beginning.
std::string clipped_line(std::string text, bool keeps_end) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char letter) { return letter < ' '; }, ' ');
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos)
    return {};
  text = text.substr(first, text.find_last_not_of(' ') + 1 - first);
  constexpr std::size_t most = 60;
  if (text.size() <= most)
    return text;
  const auto inside = [&](std::size_t at) { // a UTF-8 character
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  std::size_t at = keeps_end ? text.size() - most : most;
  while (inside(at))
    ++at;
  return keeps_end ? "..." + text.substr(at) : text.substr(0, at) + "...";
}

} // namespace

std::vector<Question> held_out_questions(const shardwright::TokenRows& data) {
  constexpr std::size_t count = 2;
  std::vector<Question> out;
  const std::size_t rows = data.validation_samples();
  std::vector<std::int32_t> ids(data.sequence()), targets(ids), starts(ids);
  for (std::size_t row = 0; row < rows && out.size() < count; ++row) {
    data.validation(0, 1, rows, {row, row + 1}, ids, targets, starts); // the first document begins at 0
    const auto learned = [](std::int32_t target) { return target >= 0; };
    const auto first = std::find_if(targets.begin(), targets.end(), learned);
    const auto end = std::find_if_not(first, targets.end(), learned);
    if (end != targets.end()) // else the row may end before the answer does
      out.push_back({{ids.begin(), ids.begin() + (first - targets.begin()) + 1}, {first, end}});
  }
  return out;
}

std::size_t sequence_of(const std::vector<Question>& questions, const Options& options) {
  std::size_t needed = 1;
  for (const Question& question : questions)
    needed = std::max(needed, question.prompt.size() + most_tokens);
  const auto whole = static_cast<std::size_t>(options.size.sequence);
  // The ring splits a sequence into two parts for each rank.
  const auto parts = static_cast<std::size_t>(2 * options.extent("cp") * options.extent("tp"));
  return std::min(whole, (needed + parts - 1) / parts * parts);
}

std::vector<std::string> answer_lines(const std::vector<Question>& questions,
                                      const std::vector<std::vector<std::int32_t>>& answers,
                                      const pretrained::Tokenizer& tokenizer) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::vector<std::int32_t>& expected = questions[i].expected;
    const std::vector<std::int32_t>& given = answers[i];
    std::string line = "asked '" + clipped_line(tokenizer.decode(questions[i].prompt), true) +
                       "', answers '" + clipped_line(tokenizer.decode(given), false) + "'";
    // A beginning of the expected answer has reached the limit, else it would have its end.
    if (given.size() > expected.size() || !std::equal(given.begin(), given.end(), expected.begin()))
      line += ", not '" + clipped_line(tokenizer.decode(expected), false) + "'";
    out.push_back(std::move(line));
  }
  return out;
}

Draft::Draft(const Question& question, std::size_t sequence)
    : tokens_(question.prompt), begin_(question.prompt.size()), settled_(begin_),
      most_(std::min(sequence, begin_ + most_tokens)), end_(question.expected.back()),
      ended_(settled_ >= most_) {
  tokens_.insert(tokens_.end(), question.expected.begin(), question.expected.end());
  tokens_.resize(most_, end_);
}

void Draft::revise(const std::vector<std::int32_t>& next) {
  bool agrees = true;
  for (std::size_t place = settled_; place < most_ && !ended_; ++place) {
    const std::int32_t likely = next[place - 1];
    if (agrees) {
      ++settled_;
      ended_ = likely == end_ || settled_ == most_;
      agrees = tokens_[place] == likely;
    }
    tokens_[place] = likely;
  }
}

std::vector<std::int32_t> Draft::answer() const {
  return {tokens_.begin() + static_cast<std::ptrdiff_t>(begin_),
          tokens_.begin() + static_cast<std::ptrdiff_t>(settled_)};
}

} // namespace train_gpt
