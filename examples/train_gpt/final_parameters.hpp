// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Final parameters as bytes, as the ranks of a pipeline send them to the first one.

#include "training.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

/// @brief Appends a parameter of a stage to `bytes`.
void pack(std::vector<std::uint8_t>& bytes, int stage, const std::string& name,
          const std::vector<double>& values);

/// @brief The parameters that the ranks have packed, in the order of the stages.
[[nodiscard]] std::vector<FinalParameter> unpack(const std::vector<std::vector<std::uint8_t>>& ranks);

} // namespace train_gpt
