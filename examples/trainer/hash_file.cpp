// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Writes the file of --record-hashes.

#include "hash_file.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/hash_record.hpp>

#include <fstream>

namespace trainer {

void append_hashes(const std::filesystem::path& file, std::int64_t step,
                   const std::vector<shardwright::HashedValue>& values) {
  std::ofstream out(file, step == 1 ? std::ios::trunc : std::ios::app);
  shardwright::write_hashes(out, step, values);
  if (!out)
    throw shardwright::DataError("--record-hashes: " + file.string() +
                                 " must be writable, but writing failed (give another file)");
}

} // namespace trainer
