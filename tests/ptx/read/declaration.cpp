// SPDX-License-Identifier: Apache-2.0
#include "declaration.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>

#include "../fault.hpp"
#include "scanner.hpp"

namespace ptx {

namespace {

std::optional<std::uint64_t> read_integer(std::string_view text) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative || (!text.empty() && text.front() == '+'))
    text.remove_prefix(1);
  if (!text.empty() && text.back() == 'U')
    text.remove_suffix(1);
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) == 0)
    return std::nullopt;
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X"))
    base = 16;
  else if (text.starts_with("0b") || text.starts_with("0B"))
    base = 2;
  else if (text.size() > 1 && text.front() == '0')
    base = 8;
  text.remove_prefix(base == 16 || base == 2 ? 2 : 0);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return negative ? 0 - value : value;
}

std::optional<std::uint64_t> read_hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

} // namespace

std::optional<Number> read_number(std::string_view text) {
  if (text == "WARP_SZ")
    return Number{Number::Kind::integer, 32, 0};
  if (text.size() == 10 && (text.starts_with("0f") || text.starts_with("0F")))
    if (const auto hex = read_hexadecimal(text.substr(2)))
      return Number{Number::Kind::single, 0, std::bit_cast<float>(static_cast<std::uint32_t>(*hex))};
  if (text.size() == 18 && (text.starts_with("0d") || text.starts_with("0D")))
    if (const auto hex = read_hexadecimal(text.substr(2)))
      return Number{Number::Kind::full, 0, std::bit_cast<double>(*hex)};
  if (const auto integer = read_integer(text))
    return Number{Number::Kind::integer, *integer, 0};
  const std::string copy(text);
  if (copy.empty() ||
      (std::isdigit(static_cast<unsigned char>(copy[0])) == 0 && copy[0] != '-' && copy[0] != '.'))
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (*end != '\0')
    return std::nullopt;
  return Number{Number::Kind::full, 0, value};
}

std::uint64_t Number::as(Type type) const {
  const bool fraction = kind != Kind::integer;
  if (type == Type::pred)
    return integer != 0;
  if (type == Type::f32 || (fraction && bits(type) == 32))
    return std::bit_cast<std::uint32_t>(
        static_cast<float>(fraction ? value : static_cast<double>(static_cast<std::int64_t>(integer))));
  if (type == Type::f64 || (fraction && bits(type) == 64))
    return std::bit_cast<std::uint64_t>(fraction ? value
                                                 : static_cast<double>(static_cast<std::int64_t>(integer)));
  return bits(type) >= 64 ? integer : integer & ((std::uint64_t{1} << bits(type)) - 1);
}

Declaration read_declaration(std::string_view text, unsigned line) {
  Declaration out;
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos) {
    out.initial = trim(text.substr(equals + 1));
    text = trim(text.substr(0, equals));
  }
  bool typed = false;
  std::size_t vector = 1;
  for (text = trim(text); !text.empty() && text.front() == '.';) {
    const std::string_view word = take_word(text);
    if (word == ".align") {
      out.alignment =
          std::max<std::size_t>(out.alignment, read_number(take_word(text)).value_or(Number{}).integer);
    } else if (const auto type = type_of(word.substr(1))) {
      out.type = *type;
      typed = true;
    } else if (word == ".v2" || word == ".v4") {
      vector = word == ".v2" ? 2 : 4;
    }
  }
  const std::size_t bracket = std::min(text.find('['), text.size());
  out.name = trim(text.substr(0, bracket));
  for (std::size_t at = bracket; at < text.size(); at = std::min(text.find('[', at + 1), text.size())) {
    const std::string_view inside = trim(text.substr(at + 1, text.find(']', at) - at - 1));
    const auto number = read_number(inside);
    out.count *= number ? static_cast<std::size_t>(number->integer) : 0;
  }
  if (!typed || out.name.empty())
    throw Fault(FaultKind::syntax, "a declaration must have a type and a name: " + std::string(text),
                {.line = line});
  const std::size_t element = bits(out.type) / 8 * vector;
  out.bytes = element * out.count;
  out.alignment = std::max(out.alignment, element);
  return out;
}

} // namespace ptx
