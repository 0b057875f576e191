// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Names the first step in which two recorded runs differ, and the values that do.

#include <shardwright/core/error.hpp>
#include <shardwright/io/hash_record.hpp>

#include <exception>
#include <fstream>
#include <iostream>
#include <string>

namespace {

namespace sw = shardwright;

sw::HashRecord read(const std::string& file) {
  std::ifstream in(file);
  if (!in)
    throw sw::DataError(file +
                        ": it must be a readable file, but it is not (give one that --record-hashes wrote)");
  return sw::read_hashes(in, file);
}

} // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3 || argv[1][0] == '-') {
      const bool asks = argc == 2 && std::string(argv[1]) == "--help";
      (asks ? std::cout : std::cerr)
          << "Usage: compare_hashes FILE FILE\n"
             "Compares two files that train_gpt or finetune wrote, with --reproducible --record-hashes FILE.\n"
             "Names the first step in which they differ, and in it the microbatches, gradients and weights. Exit\n"
             "code: 0 if all that both have is equal, 1 if not, 2 for bad arguments.\n";
      return asks ? 0 : 2;
    }
    const sw::HashRecord left = read(argv[1]);
    const sw::HashRecord right = read(argv[2]);
    const sw::HashComparison found = sw::compare_hashes(left, right);
    if (const auto& difference = found.difference) {
      std::cout << "the runs first differ in step " << difference->step << ":\n";
      for (const std::string& name : difference->names)
        std::cout << "  " << name << "\n";
      return 1;
    }
    std::cout << "no difference: " << found.text() << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "compare_hashes: " << error.what() << std::endl;
    return 2;
  }
}
