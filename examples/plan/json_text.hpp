// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The only place where untrusted JSON is checked.

#include <nlohmann/json.hpp>

#include <string>

namespace plan_example {

/// @brief Deepest nesting of objects and lists.
inline constexpr int most_json_depth = 16;

/// @brief Checks a text before anything is built from it; `file` is for messages.
/// @throws shardwright::DataError naming file and line, if the text is not JSON, is nested deeper than
/// `most_json_depth`, has a number that exceeds a double, or an object with a duplicate field.
void check_json(const std::string& text, const std::string& file);

/// @brief The values of a text that `check_json` accepts.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& file);

} // namespace plan_example
