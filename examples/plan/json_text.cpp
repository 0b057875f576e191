// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Checks a JSON text while parsing it, before anything is built from it.

#include "json_text.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace plan_example {

namespace {

/// Takes the events of the reader, keeps the open objects' fields, and stops at the first mistake.
class Check final : public nlohmann::json_sax<nlohmann::json> {
public:
  [[nodiscard]] const std::string& mistake() const noexcept { return mistake_; }
  /// Bytes that the parser had read by then; 0 if it did not say.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.back().insert(name).second)
      return true;
    return fail("an object must name a field once, but " + shardwright::detail::quoted_text(name) +
                " appears twice");
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    return fail(error.id == 406
                    ? "a number must be within those of a double (give a smaller one)"
                    : "the file must be JSON (a comma, quote or brace is wrong or missing there)");
  }

private:
  bool open() {
    if (open_.size() == most_json_depth)
      return fail("objects and lists must be nested at most " + std::to_string(most_json_depth) +
                  " deep (remove levels)");
    open_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool fail(std::string mistake) {
    mistake_ = std::move(mistake);
    return false;
  }

  std::vector<std::set<std::string>> open_; // names of fields
  std::string mistake_;
  std::size_t position_ = 0;
};

} // namespace

void check_json(const std::string& text, const std::string& file) {
  Check check;
  if (!nlohmann::json::sax_parse(text, &check)) {
    std::string line;
    if (const std::size_t at = std::min(check.position(), text.size()); at > 0)
      line = ", line " + std::to_string(1 + std::count(text.begin(),
                                                       text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    throw shardwright::DataError(file + line + ": " + check.mistake());
  }
}

nlohmann::json parse_json(const std::string& text, const std::string& file) {
  check_json(text, file);
  return nlohmann::json::parse(text);
}

} // namespace plan_example
