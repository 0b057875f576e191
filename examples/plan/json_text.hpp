// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads JSON that somebody else wrote: the one place where it becomes values.

#include <nlohmann/json.hpp>

#include <string>

namespace plan_example {

/// @brief Deepest nesting of objects and lists.
inline constexpr int most_json_depth = 16;

/// @brief The values of a text; `file` is for messages.
/// @throws shardwright::DataError naming file and line, where the text is no JSON, is nested deeper than
/// `most_json_depth`, has a number beyond those of a double, or an object names a field twice.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& file);

} // namespace plan_example
