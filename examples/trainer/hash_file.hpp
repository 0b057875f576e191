// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The file of --record-hashes.

#include <shardwright/core/hashed_value.hpp>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace trainer {

/// @brief Appends the hashes of a step; those of the first step of a run begin the file.
/// @throws DataError if it cannot be written.
void append_hashes(const std::filesystem::path& file, std::int64_t step,
                   const std::vector<shardwright::HashedValue>& values);

} // namespace trainer
