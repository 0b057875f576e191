// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Splits text into words as the field pre_tokenizer of a tokenizer.json says.

#include "json_text.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pretrained {

/// @brief Throws that a field of a tokenizer must be something else.
[[noreturn]] inline void refuse_field(const std::string& subject, const std::string& field,
                                      const std::string& must, const nlohmann::json& found) {
  throw shardwright::DataError(subject + ": field " + shardwright::detail::quoted_text(field) + " must be " +
                               must + ", but it is " + shown(found) + " (this program reads no other)");
}

/// @brief The steps that split a text into words, each applied to the words of the one before.
class WordSplits {
public:
  using Json = nlohmann::json;
  using Words = std::vector<icu::UnicodeString>;

  explicit WordSplits(std::string subject) : subject_(std::move(subject)) {}

  /// @brief Reads the field. @throws shardwright::DataError if it has a step that is not supported.
  void read(const Json& json) {
    const std::string type = type_of(json);
    const Json& pattern = field_of(json, "pattern");
    const Json &regex = field_of(pattern, "Regex"), &text = field_of(pattern, "String");
    if (json.is_null())
      return;
    if (type == "Sequence") {
      for (const Json& each : field_of(json, "pretokenizers"))
        read(each);
    } else if (type == "ByteLevel") {
      byte_level_ = true;
      Step step;
      if (field_of(json, "add_prefix_space") == true)
        step.before = " ";
      if (field_of(json, "use_regex") != false)
        compile(step, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
      steps_.push_back(std::move(step));
    } else if (type == "Digits") {
      Step step;
      compile(step, field_of(json, "individual_digits") == true ? "\\p{N}" : "\\p{N}+");
      steps_.push_back(std::move(step));
    } else if (type == "Metaspace" && field_of(json, "replacement").is_string()) {
      read_metaspace(json);
    } else if (type == "Split" && (regex.is_string() || text.is_string())) {
      Step step{.how = behavior(json), .inverts = field_of(json, "invert") == true};
      compile(step, regex.is_string() ? regex.get<std::string>() : literal(text.get<std::string>()));
      steps_.push_back(std::move(step));
    } else {
      refuse_field(subject_, "pre_tokenizer",
                   "null, ByteLevel, Digits, Metaspace, Split by a Regex or a String, or a Sequence of them",
                   json);
    }
  }

  /// @brief Whether the words are spelled in bytes.
  [[nodiscard]] bool byte_level() const { return byte_level_; }

  /// @brief The words of a text.
  /// @param first whether nothing precedes it
  /// @throws shardwright::DataError if a pattern takes too many steps or too much memory for it.
  [[nodiscard]] Words operator()(const std::string& text, bool first) const {
    Words words{icu::UnicodeString::fromUTF8(text)};
    for (const Step& step : steps_) {
      Words out;
      bool begins = first;
      for (icu::UnicodeString& word : words) {
        if (!step.space.isEmpty())
          word.findAndReplace(u" ", step.space);
        if (!step.before.isEmpty() && (begins || !step.only_first) && !word.startsWith(step.before))
          word.insert(0, step.before);
        begins = false;
        if (step.pattern)
          split(step, word, out);
        else
          out.push_back(std::move(word));
      }
      words = std::move(out);
    }
    return words;
  }

private:
  /// What becomes of the parts of a text that match.
  enum class Behavior { isolated, removed, with_previous, with_next, contiguous };
  struct Step {
    std::unique_ptr<icu::RegexPattern> pattern{}; // null: splits nothing
    std::string source{};
    Behavior how = Behavior::isolated;
    bool inverts = false;
    bool only_first = false;
    icu::UnicodeString before{}; // put in front of a word, unless the word begins with it
    icu::UnicodeString space{};  // in place of each space
  };
  struct Part {
    std::int32_t begin, end;
    bool matches;
  };

  [[nodiscard]] Behavior behavior(const Json& json) const {
    constexpr std::array<const char*, 5> names{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                               "Contiguous"};
    const Json& named = field_of(json, "behavior");
    const auto found = std::find(names.begin(), names.end(), named);
    if (found == names.end())
      refuse_field(subject_, "pre_tokenizer.behavior",
                   "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous", named);
    return static_cast<Behavior>(found - names.begin());
  }

  void read_metaspace(const Json& json) {
    const std::string mark = field_of(json, "replacement").get<std::string>();
    const Json& scheme = field_of(json, "prepend_scheme");
    const bool never = scheme.is_null() ? field_of(json, "add_prefix_space") == false : scheme == "never";
    if (!never && !scheme.is_null() && scheme != "always" && scheme != "first")
      refuse_field(subject_, "pre_tokenizer.prepend_scheme", "always, first or never", scheme);
    Step step{.how = Behavior::with_next, .only_first = scheme == "first"};
    step.space = icu::UnicodeString::fromUTF8(mark);
    if (!never)
      step.before = step.space;
    if (field_of(json, "split") != false)
      compile(step, literal(mark));
    steps_.push_back(std::move(step));
  }

  static std::string literal(const std::string& text) {
    std::string out; // \Q...\E would end within a text that has \E
    for (const char letter : text) {
      const bool plain = static_cast<unsigned char>(letter) >= 0x80 || letter == ' ' ||
                         (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                         (letter >= 'a' && letter <= 'z');
      out += plain ? std::string(1, letter) : std::string("\\") + letter;
    }
    return out;
  }

  /// Whitespace as defined by Unicode; ICU's own class omits two characters.
  static std::string with_unicode_spaces(const std::string& pattern) {
    std::string out;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] != '\\' || i + 1 == pattern.size()) {
        out += pattern[i];
        continue;
      }
      const char escaped = pattern[++i];
      out += escaped == 's'   ? "\\p{White_Space}"
             : escaped == 'S' ? "\\P{White_Space}"
                              : std::string("\\") + escaped;
    }
    return out;
  }

  void compile(Step& step, const std::string& pattern) const {
    UErrorCode code = U_ZERO_ERROR;
    UParseError place;
    step.source = pattern;
    step.pattern.reset(
        icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(with_unicode_spaces(pattern)), place, code));
    if (U_FAILURE(code) != 0)
      refuse_field(subject_, "pre_tokenizer.pattern", "a pattern that ICU knows", pattern);
  }

  /// The parts of a word that match, and those between.
  [[nodiscard]] std::vector<Part> parts_of(const Step& step, const icu::UnicodeString& word) const {
    UErrorCode code = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(step.pattern->matcher(word, code));
    // ICU counts units of 10,000 steps. Published patterns take a few steps for a character; one that takes
    // exponentially many would never end.
    if (U_SUCCESS(code) != 0)
      matcher->setTimeLimit(2000 + word.length() / 100, code);
    std::vector<Part> out;
    std::int32_t done = 0;
    const auto add = [&](std::int32_t end, bool matches) {
      if (end > done)
        out.push_back({done, end, matches != step.inverts});
      done = end;
    };
    while (U_SUCCESS(code) != 0 && matcher->find(code) != 0) {
      add(matcher->start(code), false);
      add(matcher->end(code), true);
    }
    if (U_FAILURE(code) != 0)
      throw shardwright::DataError(
          subject_ + ": pattern " + shardwright::detail::quoted_text(step.source) +
          " must split a text in steps and memory that grow with its length, but from character " +
          std::to_string(done) + " of " + std::to_string(word.length()) +
          " on it exceeds the limit (take the tokenizer that the model was published with)");
    add(word.length(), false);
    return out;
  }

  void split(const Step& step, const icu::UnicodeString& word, Words& to) const {
    std::vector<Part> parts = parts_of(step, word), merged;
    const bool backwards = step.how == Behavior::with_next;
    if (backwards)
      std::reverse(parts.begin(), parts.end());
    bool matched = false; // the part before
    for (const Part& part : parts) {
      const bool joins = step.how == Behavior::contiguous                   ? part.matches == matched
                         : step.how == Behavior::with_previous || backwards ? part.matches && !matched
                                                                            : false;
      if (joins && !merged.empty())
        (backwards ? merged.back().begin : merged.back().end) = backwards ? part.begin : part.end;
      else if (step.how != Behavior::removed || !part.matches)
        merged.push_back(part);
      matched = part.matches;
    }
    if (backwards)
      std::reverse(merged.begin(), merged.end());
    for (const Part& part : merged)
      to.emplace_back(word, part.begin, part.end - part.begin);
  }

  std::string subject_;
  std::vector<Step> steps_;
  bool byte_level_ = false;
};

} // namespace pretrained
