// SPDX-License-Identifier: Apache-2.0
#include "scanner.hpp"

#include <algorithm>
#include <cctype>

namespace ptx {

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

} // namespace

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    depth += c == '(' || c == '[' || c == '{';
    depth -= c == ')' || c == ']' || c == '}';
    if (c == separator && depth == 0) {
      parts.push_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  const std::string_view last = trim(text.substr(begin));
  if (!last.empty() || !parts.empty())
    parts.push_back(last);
  return parts;
}

std::string_view take_word(std::string_view& text) {
  text = trim(text);
  const auto end = std::find_if(text.begin(), text.end(), is_space);
  const std::string_view word = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text = trim(text.substr(word.size()));
  return word;
}

std::string shortened(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "//")
      i = std::min(text.find('\n', i), text.size() - 1);
    if (!is_space(text[i]))
      out += text[i];
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  return out;
}

void Scanner::skip_space() {
  while (at_ < text_.size()) {
    if (is_space(text_[at_])) {
      line_ += text_[at_] == '\n';
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_, 2) == "/*") {
      const std::size_t end = std::min(text_.find("*/", at_), text_.size() - 2) + 2;
      line_ += static_cast<unsigned>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      at_ = end;
    } else {
      return;
    }
  }
}

std::string_view Scanner::rest_of_line() {
  const std::size_t end = std::min(text_.find('\n', at_), text_.size());
  const std::string_view line = text_.substr(at_, end - at_);
  at_ = end;
  return trim(line);
}

Statement Scanner::next() {
  skip_space();
  const unsigned line = line_;
  if (at_ >= text_.size())
    return {Statement::Kind::end, {}, line};
  if (text_[at_] == '{' || text_[at_] == '}')
    return {text_[at_++] == '{' ? Statement::Kind::open : Statement::Kind::close, {}, line};
  if (text_.substr(at_, 5) == ".loc\t" || text_.substr(at_, 5) == ".loc ") {
    at_ += 5;
    return {Statement::Kind::location, rest_of_line(), line};
  }
  const std::size_t begin = at_;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    line_ += c == '\n';
    if (c == '/' && text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
    } else if (c == ';') {
      return {Statement::Kind::other, trim(text_.substr(begin, at_++ - begin)), line};
    } else if (c == ':' && text_.substr(at_, 2) != "::") {
      const bool plain =
          std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(begin),
                      text_.begin() + static_cast<std::ptrdiff_t>(at_), [](unsigned char letter) {
                        return std::isalnum(letter) || letter == '_' || letter == '$' || letter == '%';
                      });
      if (plain)
        return {Statement::Kind::label, text_.substr(begin, at_++ - begin), line};
    } else if (c == ':') {
      ++at_; // `::` as in .shared::cta
    }
  }
  return {Statement::Kind::other, trim(text_.substr(begin)), line};
}

std::string_view Scanner::skip_body() {
  const std::size_t begin = at_;
  int depth = 1;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    line_ += c == '\n';
    if (c == '/' && text_.substr(at_, 2) == "//")
      at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
    if (c == '/' && text_.substr(at_, 2) == "/*") {
      skip_space();
      --at_;
    }
    depth += c == '{';
    depth -= c == '}';
    if (depth == 0)
      return text_.substr(begin, at_++ - begin);
  }
  return text_.substr(begin);
}

} // namespace ptx
