// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sections of a page, in order.

#include "text.hpp"

#include <string>

namespace plan_page {

[[nodiscard]] std::string head_section(const Document& study);
[[nodiscard]] std::string memory_section(const Document& study);
[[nodiscard]] std::string time_section(const Document& study);
[[nodiscard]] std::string binding_section(const Document& study);
[[nodiscard]] std::string plans_section(const Document& study);
[[nodiscard]] std::string choice_section(const Document& study);
[[nodiscard]] std::string sweeps_section(const Document& study);
[[nodiscard]] std::string source_section(const Document& study);

/// @brief A chart with a readout line for the item under the pointer, and text below it.
[[nodiscard]] std::string chart_figure(const std::string& chart, const std::string& caption);

} // namespace plan_page
