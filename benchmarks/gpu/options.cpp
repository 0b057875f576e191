// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The command line of the device benchmarks.

#include "options.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>
#include <variant>

namespace gpu {

namespace {

const char* const usage =
    R"(gpu: what a device reaches, and what this library makes of it
  kernels collectives transitions training   the parts to measure; all of them where none is named
  --small              sizes for trying the program without a GPU
  --ranks 4            thread ranks of the collectives, which share the device
  --least-kib 64       smallest buffer of a rank in the collectives
  --most-mib 256       largest one
  --kernel-batch 64    sequences of the kernel table
  --batch 0            sequences of a training step; 0: as many as fit, 32 at most
  --turns 5            repetitions that a median is taken of
  --steps 5            training steps of one of them
  --python PROGRAM     a Python with torch: train the same model with it, too
  --no-compile         leave torch.compile out
  --json FILE          write the figures
)";

ParseResult rejected(const std::string& sentence) {
  return {std::nullopt, "gpu: " + sentence + "\n" + usage, 2};
}

} // namespace

const std::vector<std::string>& part_names() {
  static const std::vector<std::string> names{"kernels", "collectives", "transitions", "training"};
  return names;
}

Options standard_options() {
  Options options;
  options.model = {.width = 768,
                   .layers = 12,
                   .heads = 12,
                   .kv_heads = 12,
                   .sequence = 1024,
                   .batch = 64,
                   .hidden = 2048,
                   .vocabulary = 50304};
  return options;
}

Options small_options() {
  Options options = standard_options();
  options.model = {.width = 32,
                   .layers = 2,
                   .heads = 4,
                   .kv_heads = 4,
                   .sequence = 16,
                   .batch = 2,
                   .hidden = 48,
                   .vocabulary = 64};
  options.training_batch = 2;
  options.matrix = 64;
  options.copy_bytes = std::size_t{1} << 20;
  options.least_bytes = std::size_t{4} << 10;
  options.most_bytes = std::size_t{64} << 10;
  options.turns = 2;
  options.steps = 1;
  return options;
}

ParseResult parse(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const bool small = std::find(words.begin(), words.end(), "--small") != words.end();
  Options options = small ? small_options() : standard_options();
  using Number = std::pair<std::size_t*, std::size_t>; // destination and factor
  const std::map<std::string, std::variant<int*, Number, std::string*>> with_value{
      {"--ranks", &options.ranks},
      {"--turns", &options.turns},
      {"--steps", &options.steps},
      {"--least-kib", Number{&options.least_bytes, std::size_t{1} << 10}},
      {"--most-mib", Number{&options.most_bytes, std::size_t{1} << 20}},
      {"--kernel-batch", Number{&options.model.batch, 1}},
      {"--batch", Number{&options.training_batch, 1}},
      {"--python", &options.python},
      {"--json", &options.json}};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help")
      return {std::nullopt, usage, 0};
    if (word == "--small")
      continue;
    if (word == "--no-compile") {
      options.compiled = false;
      continue;
    }
    if (std::find(part_names().begin(), part_names().end(), word) != part_names().end()) {
      options.parts.push_back(word);
      continue;
    }
    const auto found = with_value.find(word);
    if (found == with_value.end())
      return rejected("'" + word + "' must be a part or an option of this program.");
    if (i + 1 == words.size())
      return rejected("a value must follow " + word + ".");
    const std::string& value = words[++i];
    if (auto* const* text = std::get_if<std::string*>(&found->second)) {
      **text = value;
      continue;
    }
    char* end = nullptr;
    const unsigned long long number = std::strtoull(value.c_str(), &end, 10);
    const bool zero_means_something = word == "--batch";
    if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos || number > 1'000'000 ||
        (number == 0 && !zero_means_something))
      return rejected("the value of " + word + " must be a positive number, but is '" + value + "'.");
    if (auto* const* whole = std::get_if<int*>(&found->second))
      **whole = static_cast<int>(number);
    else {
      const auto& [to, factor] = std::get<Number>(found->second);
      *to = static_cast<std::size_t>(number) * factor;
    }
  }
  if (options.least_bytes > options.most_bytes)
    return rejected("--least-kib must not be above --most-mib.");
  if (options.parts.empty())
    options.parts = part_names();
  return {std::move(options), {}, 0};
}

} // namespace gpu
