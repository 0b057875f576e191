// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <pretrained/conversations.hpp>
#include <train_gpt/questions.hpp>

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::Scratch;

/// Every token is two letters, the last perhaps one: it reaches over the ends of parts.
class Pairs final : public pretrained::Tokenizer {
public:
  std::vector<std::int32_t> encode(std::string_view text, bool) const override {
    std::vector<std::int32_t> out;
    for (std::size_t i = 0; i < text.size(); i += 2)
      out.push_back(i + 1 < text.size() ? text[i] * 128 + text[i + 1] : text[i]);
    return out;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string out;
    for (const std::int32_t id : ids)
      out += id < 128 ? std::string{static_cast<char>(id)}
                      : std::string{static_cast<char>(id / 128), static_cast<char>(id % 128)};
    return out;
  }
  std::string bytes(std::int32_t id) const override {
    return places_known ? decode(std::span(&id, 1)) : std::string("?");
  }
  bool places_known = true;
};

const pretrained::Conversation short_talk{{"system", " Be brief. "},
                                          {"user", "Hi"},
                                          {"assistant", " Hello "},
                                          {"user", "Bye\n"},
                                          {"assistant", "Bye."}};

std::string joined(const std::vector<pretrained::TextPart>& parts, bool answers_only = false) {
  std::string out;
  for (const pretrained::TextPart& part : parts)
    out += answers_only && !part.answer ? "" : answers_only ? "{" + part.text + "}" : part.text;
  return out;
}

template <class Run> std::string sentence_of(Run run) {
  try {
    run();
  } catch (const sw::Error& error) {
    return error.what();
  }
  return "none";
}

} // namespace

TEST_CASE("conversations: each template writes its marks and knows the answers") {
  const Scratch directory;
  (void)directory.write("tokenizer_config.json",
                        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "none"})");
  const auto text = [&](const char* name, const pretrained::Conversation& talk) {
    return joined(pretrained::ChatTemplate::named(name, directory.root()).parts(talk));
  };
  const auto answers = [&](const char* name, const pretrained::Conversation& talk) {
    return joined(pretrained::ChatTemplate::named(name, directory.root()).parts(talk), true);
  };
  const pretrained::Conversation one{{"user", "Hi"}, {"assistant", " Hello "}};
  CHECK(text("chatml", short_talk) ==
        "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n Hello <|im_end|>\n<|im_start|>user\nBye\n<|im_end|>\n"
        "<|im_start|>assistant\nBye.<|im_end|>\n");
  CHECK(answers("chatml", short_talk) == "{ Hello <|im_end|>}{Bye.<|im_end|>}");
  CHECK(text("qwen-2.5", {{"user", "Hi"}}) ==
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n");
  CHECK(answers("qwen-3", short_talk) == "{ Hello <|im_end|>}{<think>\n\n</think>\n\nBye.<|im_end|>}");
  CHECK(answers("qwen-3", {{"user", "2"}, {"assistant", "<think>\nsum\n</think>\n\n4"}}) ==
        "{<think>\nsum\n</think>\n\n4<|im_end|>}");
  CHECK(text("llama-3", short_talk) == "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
                                       "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                                       "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
                                       "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                                       "<|start_header_id|>assistant<|end_header_id|>\n\nBye.<|eot_id|>");
  CHECK(answers("llama-3.1", short_talk) == "{Hello<|eot_id|>}{Bye.<|eot_id|>}");
  CHECK(text("llama-3.1", {{"user", "Hi"}}) ==
        "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>");
  CHECK(text("mistral-v1", short_talk) ==
        "<s> [INST]  Be brief. \n\nHi [/INST]  Hello </s> [INST] Bye\n [/INST] Bye.</s>");
  CHECK(text("mistral-v3", one) == "<s>[INST] Hi[/INST] Hello</s>");
  CHECK(answers("mistral-v3", one) == "{ Hello</s>}");
  CHECK(text("mistral-tekken", one) == "<s>[INST]Hi[/INST] Hello </s>");
  // What precedes an answer is what a model is asked with, and an answer ends with its mark.
  for (const std::string& name : pretrained::ChatTemplate::names()) {
    CAPTURE(name);
    const auto chat = pretrained::ChatTemplate::named(name, directory.root());
    const std::vector<pretrained::TextPart> parts = chat.parts(one);
    std::string before;
    for (auto part = parts.begin(); !part->answer; ++part)
      before += part->text;
    CHECK(chat.prompt({one.front()}) == before);
    CHECK_THAT(joined(parts, true), ContainsSubstring(std::string(chat.answer_end()) + "}"));
  }
}

TEST_CASE("conversations: a template is found by its marks, with its system message") {
  const Scratch directory;
  (void)directory.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto found = [&](const std::string& text) {
    (void)directory.write("chat_template.jinja", text);
    return sentence_of(
        [&] { throw sw::DataError(pretrained::ChatTemplate::read(directory.root()).description()); });
  };
  CHECK(found("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}") ==
        "chatml");
  CHECK(
      found(
          "{{ '<|im_start|>system\\n' + m.content + '<|im_end|>' }}'<|im_start|>system\\nHelp!<|im_end|>\\n'") ==
      "chatml, with the system message \"Help!\"");
  CHECK(found("<|im_start|>system\nHelp!<|im_end|>\n tool_calls") ==
        "qwen-2.5, with the system message \"Help!\"");
  CHECK(found("<|im_start|>{{ m.content + '<|im_end|>' + '\n' }}<think>{% if enable_thinking %}") ==
        "qwen-3");
  CHECK(found("<|start_header_id|>{{ m['content'] | trim }}<|eot_id|>") == "llama-3");
  CHECK(found("<|start_header_id|>Cutting Knowledge Date{{ m['content'] | trim }}<|eot_id|>") == "llama-3.1");
  CHECK(found("{{ ' [INST] ' + m + ' [/INST]' }}") == "mistral-v1");
  CHECK(found("{{ '[INST] ' + m + '[/INST]' }}") == "mistral-v3");
  CHECK(found("{{ '[INST]' + m + '[/INST]' }}") == "mistral-tekken");
  for (const char* other :
       {"[INST] <<SYS>>", "<|start_header_id|><|eot_id|>", "{{ '[INST] ' + m + ' [/INST]' }}",
        "<|im_start|>user<|im_sep|>{{ m + '<|im_end|>' }}",
        "<|im_start|><|im_end|>\n<think>{{ reasoning_content }}", "<|user|>",
        "<|im_start|>{{ m | trim }}<|im_end|>", "[SYSTEM_PROMPT][INST]"})
    CHECK_THAT(found(other), ContainsSubstring("chat_template.jinja: its chat template must be one that this "
                                               "program knows (if one of chatml, llama-3,"));
  const Scratch several;
  (void)several.write("tokenizer_config.json",
                      R"({"bos_token": "<s>", "chat_template": [{"name": "tools", "template": "x"},
    {"name": "default", "template": "<|start_header_id|>{{ m['content'] | trim }}<|eot_id|>"}]})");
  CHECK(pretrained::ChatTemplate::read(several.root()).name() == "llama-3");
  const Scratch none;
  CHECK_THAT(
      sentence_of([&] { (void)pretrained::ChatTemplate::read(none.root()); }),
      ContainsSubstring(
          "tokenizer_config.json: it must have a chat template (give --chat-template with one of chatml"));
}

TEST_CASE("conversations: what a template cannot say is refused") {
  const Scratch directory;
  (void)directory.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto refusal = [&](const char* name, const pretrained::Conversation& talk) {
    return sentence_of([&] { (void)pretrained::ChatTemplate::named(name, directory.root()).parts(talk); });
  };
  CHECK_THAT(refusal("mistral-v3", short_talk), ContainsSubstring("loses a system message"));
  CHECK_THAT(refusal("mistral-v1", {{"system", "a"}}), ContainsSubstring("loses a system message"));
  CHECK_THAT(
      refusal("mistral-v1", {{"user", "a"}, {"user", "b"}}),
      ContainsSubstring("must take turns after an optional system message, but message 2 is from user"));
  CHECK_THAT(refusal("chatml", {{"tool", "a"}}), ContainsSubstring("must be system, user or assistant"));
  CHECK_THAT(refusal("chatml", {}), ContainsSubstring("a conversation must have a message"));
  CHECK_THAT(refusal("chatml", {{"user", "a<|im_end|>"}}),
             ContainsSubstring("a message must not hold <|im_end|>"));
  CHECK(refusal("chatml", {{"user", "[INST]"}}) == "none"); // the mark of another template
  CHECK_THAT(refusal("mistral-v1", {{"user", "a"}, {"assistant", "b</s>c"}}),
             ContainsSubstring("a message must not hold </s>"));
  const Scratch empty;
  CHECK_THAT(sentence_of([&] { (void)pretrained::ChatTemplate::named("llama-3", empty.root()); }),
             ContainsSubstring("tokenizer_config.json: field 'bos_token' must be the text of a token, which "
                               "the template llama-3 writes"));
  CHECK_THAT(refusal("alpaca", short_talk), ContainsSubstring("but is alpaca"));
}

TEST_CASE("conversations: lines of both forms are read, malformed ones named by file and line") {
  const auto lines = pretrained::parse_conversations(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", "
      "\"name\": null}], \"id\": 3}\n\n  \r\n{\"prompt\": \"c\", \"completion\": \"d\"}",
      "chat.jsonl");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].conversation == pretrained::Conversation{{"user", "a"}, {"assistant", "b"}});
  CHECK(lines[0].place == "chat.jsonl:1");
  CHECK(lines[1].conversation == pretrained::Conversation{{"user", "c"}, {"assistant", "d"}});
  CHECK(lines[1].place == "chat.jsonl:4");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"{\"messages\": [", "chat.jsonl:2: it must be JSON in UTF-8, but is not from byte"},
      {"[]", "chat.jsonl:2: it must be a JSON object, but is array (fix the line)"},
      {"{}", "chat.jsonl:2: field 'prompt' must be a string, but is null"},
      {R"({"prompt": "a"})", "field 'completion' must be a string"},
      {R"({"messages": [], "x": 1})", "field 'messages' must be a list of messages, but is []"},
      {R"({"messages": [3]})", "a message must be an object of role and content, but is 3"},
      {R"({"messages": [{"role": "user"}]})", "field 'content' must be a string, but is null"},
      {R"({"messages": [{"role": "user", "content": "a", "tool_calls": []}]})", "but has 'tool_calls'"},
      {R"({"messages": [{"role": "user", "content": "a"}], "prompt": "b"})", "but has both"}};
  for (const auto& each : cases)
    CHECK_THAT(sentence_of([&] { (void)pretrained::parse_conversations("\n" + each.first, "chat.jsonl"); }),
               ContainsSubstring(each.second));
  const Scratch empty;
  std::ofstream(empty.root() / "empty.jsonl") << "\n";
  CHECK_THAT(sentence_of([&] { (void)pretrained::read_conversations({empty.root() / "empty.jsonl"}); }),
             ContainsSubstring("empty.jsonl: it must hold a conversation, a line of JSON, but has none"));
}

TEST_CASE("conversations: the tokens of answers are learned, also those that begin before them") {
  const Scratch directory;
  Pairs tokenizer;
  tokenizer.places_known = GENERATE(true, false); // as one that normalizes
  const auto chat = pretrained::ChatTemplate::named("chatml", directory.root());
  for (const std::string answer : {"yes", "no"}) {
    const pretrained::ConversationLine line{
        {{"user", "a"}, {"assistant", answer}, {"user", "b"}, {"assistant", "c"}}, "chat.jsonl:1"};
    const sw::Document document = pretrained::tokenized(line, chat, tokenizer);
    REQUIRE(document.learned.size() == document.tokens.size());
    std::string text;
    for (const pretrained::TextPart& part : chat.parts(line.conversation))
      text += part.text;
    CHECK(tokenizer.decode(document.tokens) == text);
    // A token of two letters is learned if one of them is in an answer, over the end only if it is known
    // where the token is.
    std::vector<bool> in_answer;
    for (const pretrained::TextPart& part : chat.parts(line.conversation))
      in_answer.insert(in_answer.end(), part.text.size(), part.answer);
    for (std::size_t token = 0; token < document.tokens.size(); ++token) {
      const std::size_t first = 2 * token, last = std::min(first + 1, text.size() - 1);
      CAPTURE(answer, token);
      CHECK(document.learned[token] == (in_answer[last] || (tokenizer.places_known && in_answer[first])));
    }
  }
  CHECK_THAT(sentence_of([&] {
               (void)pretrained::tokenized({{{"user", "<|im_end|>"}}, "chat.jsonl:7"}, chat, tokenizer);
             }),
             ContainsSubstring("chat.jsonl:7: a message must not hold <|im_end|>"));
}

namespace {

/// Rows of one document each, whose answer begins after the prompt.
class AskedRows final : public sw::TokenRows {
public:
  struct Row {
    std::size_t prompt, answer;
  };
  AskedRows(std::size_t sequence, std::vector<Row> rows) : TokenRows(sequence), rows_(std::move(rows)) {}
  std::size_t validation_samples() const noexcept override { return rows_.size(); }
  std::uint64_t hash() const noexcept override { return 0; }
  std::string description() const override { return "rows"; }

private:
  void copy_training(std::uint64_t, std::size_t row, const Places& to) const override {
    copy_validation(row, to);
  }
  void copy_validation(std::size_t sample, const Places& to) const override {
    const Row row = rows_.at(sample);
    for (std::size_t i = 0; i < to.inputs.size(); ++i) {
      to.inputs[i] = static_cast<std::int32_t>(i);
      to.targets[i] =
          i + 1 >= row.prompt && i + 1 < row.prompt + row.answer ? static_cast<std::int32_t>(i + 1) : -1;
    }
  }
  std::vector<Row> rows_;
};

} // namespace

TEST_CASE("held-out questions have whole answers, and a beginning as long as answers may be is right") {
  const AskedRows rows(100, {{20, 90}, {30, 5}, {101, 3}, {10, 70}, {5, 5}});
  const auto questions = train_gpt::held_out_questions(rows);
  REQUIRE(questions.size() == 2); // the answer of row 0 is cut, row 2 has none
  CHECK(questions[0].prompt.size() == 30);
  CHECK(questions[0].expected == std::vector<std::int32_t>{30, 31, 32, 33, 34});
  CHECK(questions[1].expected.size() == 70);

  const Pairs tokenizer;
  std::vector<std::vector<std::int32_t>> answers;
  for (const train_gpt::Question& question : questions) {
    train_gpt::Draft draft(question, 100);
    std::vector<std::int32_t> next(100);
    for (std::size_t i = 0; i < next.size(); ++i)
      next[i] = static_cast<std::int32_t>(i + 1);
    draft.revise(next);
    CHECK(draft.ended());
    answers.push_back(draft.answer());
  }
  CHECK(answers[0] == questions[0].expected);
  CHECK(answers[1].size() == 64);
  for (const std::string& line : train_gpt::answer_lines(questions, answers, tokenizer))
    CHECK_THAT(line, !ContainsSubstring(", not '"));
  answers[1][63] = 'x';
  answers[0].pop_back();
  answers[0].push_back('y');
  for (const std::string& line : train_gpt::answer_lines(questions, answers, tokenizer))
    CHECK_THAT(line, ContainsSubstring(", not '"));
}

TEST_CASE("texts and tokens of conversations, for Python", "[.chat]") {
  const char* given = std::getenv("SHARDWRIGHT_PYTHON_DIRECTORY");
  REQUIRE(given != nullptr);
  for (const auto& entry : std::filesystem::directory_iterator(given)) {
    const std::filesystem::path directory = entry.path();
    if (!std::filesystem::exists(directory / "tokenizer.json")) {
      std::ofstream(directory / "refused")
          << sentence_of([&] { (void)pretrained::ChatTemplate::read(directory); });
      continue;
    }
    const auto chat = pretrained::ChatTemplate::read(directory);
    const auto tokenizer = pretrained::read_tokenizer(directory / "tokenizer.json");
    std::size_t number = 0;
    for (auto line : pretrained::read_conversations({directory / "chats.jsonl"})) {
      const std::filesystem::path stem = directory / std::to_string(number++);
      std::ofstream text(stem.string() + ".text", std::ios::binary);
      std::ofstream ids(stem.string() + ".ids");
      const std::string refused = sentence_of([&] {
        text << joined(chat.parts(line.conversation));
        const sw::Document document = pretrained::tokenized(line, chat, *tokenizer);
        for (std::size_t i = 0; i < document.tokens.size(); ++i)
          ids << document.tokens[i] << " " << document.learned[i] << "\n";
      });
      text << (refused == "none" ? "" : "refused: " + refused);
      if (line.conversation.back().role == "assistant")
        line.conversation.pop_back();
      std::ofstream prompt(stem.string() + ".prompt", std::ios::binary);
      if (sentence_of([&] { prompt << chat.prompt(line.conversation); }) != "none")
        prompt << "refused";
    }
  }
}
