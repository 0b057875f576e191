// SPDX-License-Identifier: Apache-2.0
#include "operand.hpp"

#include <algorithm>

#include "scanner.hpp"

namespace ptx {

Words::Words(std::string_view text) : words_(split(text, '.')), taken_(words_.size(), false) {
  taken_[0] = true;
}

bool Words::take(std::string_view word) {
  for (std::size_t i = 1; i < words_.size(); ++i) {
    if (taken_[i] || words_[i] != word)
      continue;
    taken_[i] = true;
    return true;
  }
  return false;
}

std::string_view Words::take_one_of(std::initializer_list<std::string_view> words) {
  for (std::string_view word : words)
    if (take(word))
      return word;
  return {};
}

std::optional<Type> Words::take_type() {
  for (std::size_t i = 1; i < words_.size(); ++i) {
    const std::optional<Type> type = taken_[i] ? std::nullopt : type_of(words_[i]);
    if (!type)
      continue;
    taken_[i] = true;
    return type;
  }
  return std::nullopt;
}

std::optional<Type> Words::next_type() const { return Words(*this).take_type(); }

std::string_view Words::left() const {
  const auto found = std::find(taken_.begin(), taken_.end(), false);
  return found == taken_.end() ? std::string_view{}
                               : words_[static_cast<std::size_t>(found - taken_.begin())];
}

namespace {

/// `name`, `name+8` or `name+-8`.
void read_sum(Operand& operand, std::string_view text) {
  const std::size_t sign = text.find_first_of("+-", 1);
  operand.name = trim(text.substr(0, sign));
  if (sign == std::string_view::npos)
    return;
  std::string_view rest = trim(text.substr(text[sign] == '+' ? sign + 1 : sign));
  if (const auto number = read_number(rest))
    operand.offset = static_cast<std::int64_t>(number->integer);
  else
    operand.name = text; // no name of anything, so that looking it up fails with all of it
}

std::vector<Operand> read_operands(std::string_view text, char separator) {
  std::vector<Operand> out;
  for (std::string_view part : split(text, separator))
    out.push_back(read_operand(part));
  return out;
}

} // namespace

Operand read_operand(std::string_view text) {
  Operand operand;
  text = trim(text);
  if (text.empty())
    return operand;
  const std::string_view inside = text.size() > 1 ? text.substr(1, text.size() - 2) : text;
  if (text.front() == '{' || text.front() == '(') {
    operand.kind = Operand::Kind::list;
    operand.items = read_operands(inside, ',');
  } else if (text.front() == '[') {
    operand.kind = Operand::Kind::address;
    const std::string_view sum = trim(inside);
    if (const auto number = read_number(sum)) {
      operand.offset = static_cast<std::int64_t>(number->integer);
    } else {
      read_sum(operand, sum);
    }
  } else if (text.find('|') != std::string_view::npos) {
    operand.kind = Operand::Kind::pair;
    operand.items = read_operands(text, '|');
  } else if (const auto number = read_number(text)) {
    operand.kind = Operand::Kind::number;
    operand.number = *number;
  } else {
    operand.negated = text.front() == '!';
    read_sum(operand, trim(operand.negated ? text.substr(1) : text));
  }
  return operand;
}

} // namespace ptx
