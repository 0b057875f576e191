// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dry runs as readable text and as JSON.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/dry_run/memory_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Calls of a rank that are identical except for their position.
struct CallTotal {
  std::string group; ///< The axes of a mesh, such as "dp,tp".
  std::string operation;
  std::string element;
  std::string where; ///< Place in the program; empty if it is not known.
  std::size_t calls = 0;
  std::size_t bytes = 0; ///< Bytes of all of these calls, counting the rank's larger buffer in each.
};

/// @brief A rank's calls, grouped, those with the most bytes first.
[[nodiscard]] inline std::vector<CallTotal> call_totals(const DryRun& run) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>, CallTotal> sums;
  for (const RecordedCall& call : run.calls) {
    const std::string where = call.where.text();
    CallTotal& sum =
        sums[{call.group, std::string(name_of(call.operation)), std::string(name_of(call.element)), where}];
    ++sum.calls;
    sum.bytes += call.bytes;
  }
  std::vector<CallTotal> out;
  for (auto& [key, sum] : sums) {
    std::tie(sum.group, sum.operation, sum.element, sum.where) = key;
    out.push_back(std::move(sum));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const CallTotal& left, const CallTotal& right) { return left.bytes > right.bytes; });
  return out;
}

namespace detail {

/// The kernels of a rank and the bytes that they move, those with the most first.
[[nodiscard]] inline std::vector<std::pair<double, std::string>> kernels_by_bytes(const DryRun& run) {
  std::vector<std::pair<double, std::string>> out;
  for (const auto& [kernel, bytes] : run.kernel_bytes)
    out.emplace_back(bytes, kernel);
  std::sort(out.rbegin(), out.rend());
  return out;
}

} // namespace detail

/// @brief Memory by kind, largest holders, calls, kernels and operations of each rank, as tables.
/// @param holders how many of the largest holders to list
[[nodiscard]] inline std::string dry_run_text(std::span<const DryRun> runs, std::size_t holders = 8) {
  std::vector<NamedMemory> memory;
  for (const DryRun& run : runs)
    memory.push_back({"rank " + std::to_string(run.rank), run.memory});
  std::string out = memory_text(memory);
  const auto padded = [](std::string text, std::size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text;
  };
  const auto before = [](std::string text, std::size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
  };
  for (const DryRun& run : runs) {
    const std::string rank = "rank " + std::to_string(run.rank);
    out += "\nlargest holders of " + rank + "\n";
    for (const MemoryHolder& each : std::span(run.holders).first(std::min(holders, run.holders.size())))
      out += "  " + padded(std::string(name_of(each.kind)), 18) +
             before(bytes_text(static_cast<double>(each.bytes)), 12) + "  " + each.name + "\n";
    out += "\n" + padded("calls of " + rank, 22) + padded("operation", 16) + padded("element", 10) +
           before("calls", 8) + before("bytes", 12) + "  place\n";
    for (const CallTotal& each : call_totals(run))
      out += "  " + padded(each.group, 20) + padded(each.operation, 16) + padded(each.element, 10) +
             before(std::to_string(each.calls), 8) + before(bytes_text(static_cast<double>(each.bytes)), 12) +
             "  " + each.where + "\n";
    out += "\n" + padded("kernels of " + rank, 38) + before("bytes moved", 12) + "\n";
    double moved = 0;
    for (const auto& [bytes, kernel] : detail::kernels_by_bytes(run)) {
      moved += bytes;
      out += "  " + padded(kernel, 36) + before(bytes > 0 ? bytes_text(bytes) : "not stated", 12) + "\n";
    }
    out += "  " + padded("in all", 36) + before(bytes_text(moved), 12) + "\n";
    char line[96];
    std::snprintf(line, sizeof line, "\n%.4g floating-point operations in matrix products and attention of ",
                  run.flops);
    out += line + rank + "\n";
  }
  return out;
}

/// @brief Says which calls of several dry runs `call_differences` compared, and which it could not.
[[nodiscard]] inline std::string comparison_text(std::span<const DryRun> runs) {
  const auto number = [](std::size_t count, bool messages) {
    return std::to_string(count) + (messages ? " message" : " call") + (count == 1 ? "" : "s");
  };
  std::string same;
  std::map<int, std::map<std::pair<std::string, bool>, std::size_t>> alone; // calls by rank and group
  for (const ComparedCalls& each : compared_calls(runs)) {
    if (each.ranks.size() == 1) {
      alone[each.ranks.front()][{each.group, each.messages}] += each.calls;
      continue;
    }
    std::string ranks;
    for (std::size_t i = 0; i < each.ranks.size(); ++i)
      ranks += (i == 0 ? "" : i + 1 == each.ranks.size() ? " and " : ", ") + std::to_string(each.ranks[i]);
    same += "ranks " + ranks;
    if (each.messages)
      same += " agree on " + number(each.calls, true) + " over ";
    else if (each.calls == 1)
      same += " make the same call on ";
    else
      same += " make the same " + number(each.calls, false) + " in the same order on ";
    same += each.group + "\n";
  }
  std::string out = same.empty() ? "no calls were compared: no group has two of these ranks\n" : same;
  for (const auto& [rank, groups] : alone) {
    out += "not compared, as no other rank of the group was run: rank " + std::to_string(rank);
    const char* separator = ", ";
    for (const auto& [group, calls] : groups)
      out += separator + number(calls, group.second) + " on " + group.first;
    out += "\n";
  }
  return out;
}

/// @brief A dry run as an object: `rank`, `memory` (bytes by kind), `holders`, `calls` in order, `kernels`
/// (bytes by label), `flops`.
[[nodiscard]] inline nlohmann::json dry_run_json(const DryRun& run) {
  nlohmann::json memory = nlohmann::json::object();
  for (std::size_t i = 0; i < detail::memory_kinds; ++i)
    memory[std::string(name_of(static_cast<MemoryKind>(i)))] = run.memory.bytes[i];
  memory["rounding"] = run.memory.rounding;
  memory["total"] = run.memory.total();
  nlohmann::json holders = nlohmann::json::array();
  for (const MemoryHolder& each : run.holders)
    holders.push_back({{"kind", name_of(each.kind)}, {"name", each.name}, {"bytes", each.bytes}});
  nlohmann::json calls = nlohmann::json::array();
  for (const RecordedCall& each : run.calls) {
    nlohmann::json call{{"group", each.group},
                        {"operation", name_of(each.operation)},
                        {"element", name_of(each.element)},
                        {"bytes", each.bytes}};
    if (each.peer >= 0)
      call["peer"] = each.peer;
    if (std::string where = each.where.text(); !where.empty())
      call["where"] = std::move(where);
    calls.push_back(std::move(call));
  }
  return {{"rank", run.rank},          {"memory", std::move(memory)}, {"holders", std::move(holders)},
          {"calls", std::move(calls)}, {"kernels", run.kernel_bytes}, {"flops", run.flops}};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
