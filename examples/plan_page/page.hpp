// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A study of the program plan as a self-contained HTML page with charts.

#include <nlohmann/json.hpp>

#include <string>

namespace plan_page {

/// @brief The page. Its figures are those of the study, and each element that shows one has its JSON pointer
/// in `data-path`.
/// @param study what `plan --json` prints
[[nodiscard]] std::string page_of(const nlohmann::ordered_json& study);

} // namespace plan_page
