// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Memory tables as text: a column for each rank, a row for each kind.

#include <shardwright/core/config.hpp>
#include <shardwright/train/dry_run/dry_run_record.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A rank's table with a short name.
struct NamedMemory {
  std::string name;
  MemoryTable table;
};

/// @brief Bytes in the largest binary unit that leaves at least 1, with three or more digits: "1.50 MiB".
[[nodiscard]] inline std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && bytes >= 1024; ++unit)
    bytes /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s",
                unit == 0     ? 0
                : bytes < 10  ? 2
                : bytes < 100 ? 1
                              : 0,
                bytes, units[unit]);
  return text;
}

/// @brief The tables side by side; kinds that no rank has are omitted. Ends with the totals and a newline.
[[nodiscard]] inline std::string memory_text(std::span<const NamedMemory> ranks) {
  std::string out;
  const auto row = [&](const std::string& name, auto value_of) {
    char cell[64];
    std::snprintf(cell, sizeof cell, "  %-22s", name.c_str());
    out += cell;
    for (const NamedMemory& each : ranks) {
      std::snprintf(cell, sizeof cell, " %12s", std::string(value_of(each)).c_str());
      out += cell;
    }
    out += "\n";
  };
  const auto bytes_row = [&](const std::string& name, auto bytes_of) {
    if (std::any_of(ranks.begin(), ranks.end(),
                    [&](const NamedMemory& each) { return bytes_of(each.table) != 0; }))
      row(name,
          [&](const NamedMemory& each) { return bytes_text(static_cast<double>(bytes_of(each.table))); });
  };
  row("memory at its fullest", [](const NamedMemory& each) { return each.name; });
  for (std::size_t i = 0; i < detail::memory_kinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    bytes_row(std::string(name_of(kind)), [kind](const MemoryTable& table) { return table[kind]; });
  }
  bytes_row("rounded up in the pool", [](const MemoryTable& table) { return table.rounding; });
  bytes_row("in all", [](const MemoryTable& table) { return table.total(); });
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
