// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The file of --record-hashes.

#include <shardwright/core/hashed_value.hpp>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trainer {

/// @brief Begins the file before training, or keeps the steps that a resumed run has made: later ones are
/// repeated.
/// @throws DataError if it cannot be written.
void begin_hashes(const std::filesystem::path& file, std::int64_t steps);

/// @brief Appends the hashes of a step.
/// @throws DataError if it cannot be written.
void append_hashes(const std::filesystem::path& file, std::int64_t step,
                   const std::vector<shardwright::HashedValue>& values);

} // namespace trainer
