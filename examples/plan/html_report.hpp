// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A study as a self-contained HTML page with charts.

#include "options.hpp"
#include "study.hpp"

#include <string>

namespace plan_example {

/// @brief The page. Its figures are those of `study_json`, and each element that shows one has its JSON
/// pointer in `data-path`.
[[nodiscard]] std::string html_report(const Options& options, const Study& study);

} // namespace plan_example
