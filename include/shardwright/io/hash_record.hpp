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
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
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

/// @brief Reads such lines; a last one without its end, which a killed run leaves, is left out.
/// @throws DataError for another line, naming it.
[[nodiscard]] inline HashRecord read_hashes(std::istream& in, const std::string& file) {
  HashRecord out;
  std::string line;
  for (int number = 1; std::getline(in, line) && !in.eof(); ++number) {
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

/// @brief The result of a comparison of two runs, and how much was compared.
struct HashComparison {
  std::optional<HashDifference> difference; ///< The first; nothing if there is none.
  std::size_t steps = 0, values = 0;        ///< That were compared, up to the difference.
  std::string
      unmatched; ///< The first value that only one run has, but for losses of microbatches; empty: none.

  /// @brief "22 values of 2 steps compared; step 3: loss is in one run only".
  [[nodiscard]] std::string text() const {
    return std::to_string(values) + " values of " + std::to_string(steps) + " steps compared" +
           (unmatched.empty() ? "" : "; " + unmatched + " is in one run only");
  }
};

/// @brief Whether this is the loss of a microbatch, which a run with another number of them does not have.
[[nodiscard]] inline bool of_microbatch(const HashedValue& value) {
  return value.name.starts_with("loss of microbatch ");
}

namespace detail {

/// The first value that only `left` has, given the names of a step of `right`; empty: none.
[[nodiscard]] inline std::string unmatched_in(std::int64_t step, const std::vector<HashedValue>& left,
                                              const std::vector<HashedValue>* right) {
  std::set<std::string_view> names;
  if (right != nullptr)
    for (const HashedValue& value : *right)
      names.insert(value.name);
  for (const HashedValue& value : left)
    if (!of_microbatch(value) && !names.contains(value.name))
      return "step " + std::to_string(step) + ": " + value.name;
  return "";
}

} // namespace detail

/// @brief Compares the values of the same step and name, up to the first step with other hashes. What only
/// one record has is not compared, but named.
/// @throws DataError if the records have no step, or no value of a step, in common.
[[nodiscard]] inline HashComparison compare_hashes(const HashRecord& left, const HashRecord& right) {
  HashComparison out;
  const auto note_unmatched = [&out](const HashRecord& one, const HashRecord& other) {
    for (auto at = one.begin(); at != one.end() && out.unmatched.empty(); ++at) {
      const auto same = other.find(at->first);
      out.unmatched =
          detail::unmatched_in(at->first, at->second, same == other.end() ? nullptr : &same->second);
    }
  };
  note_unmatched(left, right);
  note_unmatched(right, left);
  for (const auto& [step, values] : left) {
    const auto other = right.find(step);
    if (other == right.end())
      continue;
    std::map<std::string_view, std::uint64_t> known;
    for (const HashedValue& value : other->second)
      known.emplace(value.name, value.hash);
    HashDifference found{step, {}};
    ++out.steps;
    for (const HashedValue& value : values)
      if (const auto same = known.find(value.name); same != known.end()) {
        ++out.values;
        if (same->second != value.hash)
          found.names.push_back(value.name);
      }
    if (!found.names.empty()) {
      out.difference = std::move(found);
      return out;
    }
  }
  if (out.values == 0)
    throw DataError(
        "Hashes: the two records must have steps and names in common, but they have none (record two runs of one model with --record-hashes)");
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
