// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Writes the file of --record-hashes.

#include "hash_file.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/hash_record.hpp>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace trainer {

namespace {

/// The bytes of the lines up to a step; a line that a killed run has cut is not one.
std::uintmax_t bytes_of_steps(const std::filesystem::path& file, std::int64_t steps) {
  std::ifstream in(file, std::ios::binary);
  std::uintmax_t bytes = 0;
  std::string line;
  while (std::getline(in, line) && !in.eof()) {
    std::int64_t step = 0;
    if (std::istringstream(line) >> step && step > steps)
      break;
    bytes += line.size() + 1;
  }
  return bytes;
}

void require_written(bool good, const std::filesystem::path& file) {
  if (!good)
    throw shardwright::DataError("--record-hashes: " + file.string() +
                                 " must be writable, but writing failed (give another file)");
}

} // namespace

void begin_hashes(const std::filesystem::path& file, std::int64_t steps) {
  require_written(!!std::ofstream(file, steps == 0 ? std::ios::trunc : std::ios::app), file);
  if (steps == 0)
    return;
  std::error_code failed;
  std::filesystem::resize_file(file, bytes_of_steps(file, steps), failed);
  require_written(!failed, file);
}

void append_hashes(const std::filesystem::path& file, std::int64_t step,
                   const std::vector<shardwright::HashedValue>& values) {
  std::ofstream out(file, std::ios::app);
  shardwright::write_hashes(out, step, values);
  require_written(!!out, file);
}

} // namespace trainer
