// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The longest files that the programs read, in bytes; data of train_gpt has its own limits.

#include <cstddef>

namespace command_line {

inline constexpr std::size_t most_schedule_bytes = std::size_t{1} << 26;
inline constexpr std::size_t most_specification_bytes = std::size_t{1} << 20;
inline constexpr std::size_t most_run_bytes = std::size_t{1} << 22;

} // namespace command_line
