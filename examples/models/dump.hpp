// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Writes a run to files that other programs can read, and summarizes its parameters in two numbers.

#include "training.hpp"

#include <filesystem>
#include <span>
#include <string>

namespace models {

/// @brief Writes `directory`/index.json, with the options and losses, and each tensor as raw doubles,
/// row-major, in the byte order of the machine, in a file that the index names.
/// @throws DataError if a file cannot be written.
void dump(const std::filesystem::path& directory, const Options& options, const RunResult& result);

/// @brief "12345 parameters, norm 1.234567890123456e+01, hash 0123456789abcdef": of the values as doubles, in
/// the order of the model. Equal hashes mean equal bits.
[[nodiscard]] std::string parameter_text(std::span<const NamedTensor> parameters);

} // namespace models
