// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Text of a published model's files as JSON.

#include <shardwright/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace pretrained {

/// @brief Parses a JSON object that is nested at most 32 deep.
/// @param subject the file, for messages
/// @param advice what to do if the text is not one
/// @throws shardwright::DataError naming the byte at which the text is not JSON.
template <class Json = nlohmann::json>
[[nodiscard]] Json parse_object(std::string_view text, const std::string& subject,
                                const std::string& advice = "fetch it again") {
  constexpr int most_deep = 32; // of what walks it by recursion
  const auto refuse = [&](const std::string& sentence) {
    throw shardwright::DataError(subject + ": " + sentence + " (" + advice + ")");
  };
  Json out;
  try {
    out = Json::parse(text.begin(), text.end(), [&](int depth, auto, const Json&) {
      if (depth > most_deep)
        refuse("it must be nested at most " + std::to_string(most_deep) + " deep");
      return true;
    });
  } catch (const typename Json::parse_error& error) {
    refuse("it must be JSON in UTF-8, but is not from byte " + std::to_string(error.byte) + " of " +
           std::to_string(text.size()) + " on");
  } catch (const typename Json::exception&) {
    refuse("its numbers must fit 64 bits");
  }
  if (!out.is_object())
    refuse("it must be a JSON object, but is " + std::string(out.type_name()));
  return out;
}

/// @brief The beginning of a value, for messages.
[[nodiscard]] inline std::string shown(const nlohmann::json& value) {
  constexpr std::size_t most = 80;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > most)
    text.replace(most, text.npos, "...");
  return text;
}

/// @brief The value of a field; null if the field is missing or `object` is none.
[[nodiscard]] inline const nlohmann::json& field_of(const nlohmann::json& object, const char* name) {
  static const nlohmann::json null;
  if (!object.is_object())
    return null;
  const auto at = object.find(name);
  return at == object.end() ? null : *at;
}

/// @brief The field "type"; empty if it is no text.
[[nodiscard]] inline std::string type_of(const nlohmann::json& object) {
  const nlohmann::json& type = field_of(object, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

} // namespace pretrained
