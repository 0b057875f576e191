// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Hashes of the steps of a run as lines of text, and where those of two runs first differ.

#include <shardwright/core/error.hpp>
#include <shardwright/core/hashed_value.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <istream>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The steps of a run, by number, each in the order in which its values are computed.
using HashRecord = std::map<std::int64_t, std::vector<HashedValue>>;

/// @brief Where two runs first differ.
struct HashDifference {
  std::int64_t step = 0;
  std::vector<std::string> names; ///< Of the values that differ, in the order of the step.

  /// @brief "step 3: gradient of layers.1.down; then 5 more, such as gradient norm".
  [[nodiscard]] std::string text() const {
    std::string out = "step " + std::to_string(step) + ": " + names.front();
    if (names.size() > 1)
      out += "; then " + std::to_string(names.size() - 1) + " more, such as " + names[1];
    return out;
  }
};

/// @brief Writes the values of a step: for each, a line of step, hash in 16 hexadecimal digits, and name.
inline void write_hashes(std::ostream& out, std::int64_t step, std::span<const HashedValue> values) {
  for (const HashedValue& value : values) {
    char line[64];
    std::snprintf(line, sizeof line, "%lld %016llx ", static_cast<long long>(step),
                  static_cast<unsigned long long>(value.hash));
    out << line << value.name << '\n';
  }
  out.flush();
}

/// @brief Reads such lines. @throws DataError for another line, naming it.
[[nodiscard]] inline HashRecord read_hashes(std::istream& in, const std::string& file) {
  HashRecord out;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const char* const end = line.data() + line.size();
    std::int64_t step = 0;
    std::uint64_t hash = 0;
    const auto first = std::from_chars(line.data(), end, step);
    const bool begun = first.ec == std::errc() && first.ptr != end && *first.ptr == ' ';
    const auto second = begun ? std::from_chars(first.ptr + 1, end, hash, 16) : first;
    if (!begun || second.ec != std::errc() || second.ptr + 1 >= end || *second.ptr != ' ')
      throw DataError(file + ": line " + std::to_string(number) +
                      " must be a step, a hash and a name, but it is '" + line +
                      "' (give a file that --record-hashes wrote)");
    out[step].push_back({std::string(second.ptr + 1, end), hash});
  }
  return out;
}

/// @brief The first step of both records in which a value of the same name has different hashes; nothing if
/// there is none. Values that only one record has are not compared, such as the losses of other microbatches.
/// @throws DataError if the records have no step, or no value of a step, in common.
[[nodiscard]] inline std::optional<HashDifference> first_difference(const HashRecord& left,
                                                                    const HashRecord& right) {
  std::size_t compared = 0;
  for (const auto& [step, values] : left) {
    const auto other = right.find(step);
    if (other == right.end())
      continue;
    std::map<std::string_view, std::uint64_t> known;
    for (const HashedValue& value : other->second)
      known.emplace(value.name, value.hash);
    HashDifference found{step, {}};
    for (const HashedValue& value : values)
      if (const auto same = known.find(value.name); same != known.end()) {
        ++compared;
        if (same->second != value.hash)
          found.names.push_back(value.name);
      }
    if (!found.names.empty())
      return found;
  }
  if (compared == 0)
    throw DataError(
        "Hashes: the two records must have steps and names in common, but they have none (record two runs of one model with --record-hashes)");
  return std::nullopt;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
