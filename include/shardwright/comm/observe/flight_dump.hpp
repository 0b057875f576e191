// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Dumps the last calls of a rank to a file of JSON.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/observe/flight_recorder.hpp>
#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The directory that SHARDWRIGHT_FLIGHT_RECORDER names; null for none. Without it no files are written: the
/// report on stderr is for everyone, files are for those who ask.
[[nodiscard]] inline const char* flight_directory() noexcept {
  const char* const directory = std::getenv("SHARDWRIGHT_FLIGHT_RECORDER");
  return directory != nullptr && *directory != '\0' ? directory : nullptr;
}

/// A group in a dump, with a name that is unique on the rank.
struct FlightGroup {
  std::uint64_t id = 0;
  std::string name;
  std::vector<int> members; ///< World ranks, as far as known.
};
struct FlightCall {
  std::uint64_t number = 0; ///< Among the calls of its rank.
  std::size_t group = 0;    ///< In FlightDump::groups.
  Operation operation = Operation::barrier;
  std::uint64_t sequence = 0;
  int peer = -1;
  int tag = 0;
  std::string file;
  int line = 0;
  bool inside = false;
};
/// A rank at the first failure of its world.
struct FlightDump {
  int rank = 0;
  int ranks = 1;
  std::string doing;        ///< In words.
  std::vector<int> awaited; ///< World ranks for which it waits in its call.
  std::vector<FlightGroup> groups;
  std::vector<FlightCall> calls; ///< The oldest first.
};

/// The index of a group in a dump, added if it is new; the second group of the same name is "name.2".
inline std::size_t add_group(FlightDump& to, const void* id, FlightGroup group) {
  group.id = reinterpret_cast<std::uintptr_t>(id);
  int alike = 1;
  for (std::size_t i = 0; i < to.groups.size(); ++i) {
    if (to.groups[i].id == group.id)
      return i;
    const std::string& known = to.groups[i].name;
    alike += known == group.name || known.starts_with(group.name + ".") ? 1 : 0;
  }
  if (alike > 1)
    group.name += "." + std::to_string(alike);
  to.groups.push_back(std::move(group));
  return to.groups.size() - 1;
}

[[nodiscard]] inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    char code[8];
    if (letter == '"' || letter == '\\')
      (out += '\\') += letter;
    else if (static_cast<unsigned char>(letter) >= 0x20 && static_cast<unsigned char>(letter) < 0x7f)
      out += letter;
    else
      out.append(code, static_cast<std::size_t>(
                           std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(letter))));
  }
  return out + '"';
}
[[nodiscard]] inline std::string json_text(const std::vector<int>& numbers) {
  std::string out = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return out + "]";
}

[[nodiscard]] inline std::string flight_json(const FlightDump& dump, const Failure& failure) {
  constexpr const char* kinds[] = {"failed", "left", "abandoned", "deadline", "mismatch", "aborted"};
  std::string out =
      "{\"version\": 1, \"rank\": " + std::to_string(dump.rank) +
      ", \"ranks\": " + std::to_string(dump.ranks) +
      ",\n \"failure\": {\"kind\": " + json_text(kinds[static_cast<std::size_t>(failure.kind)]) +
      ", \"rank\": " + std::to_string(failure.rank) + ", \"sentence\": " + json_text(failure.sentence) +
      "},\n \"doing\": " + json_text(dump.doing) + ",\n \"waits_for\": " + json_text(dump.awaited) +
      ",\n \"groups\": {";
  for (std::size_t i = 0; i < dump.groups.size(); ++i)
    out += (i == 0 ? "" : ", ") + json_text(dump.groups[i].name) + ": " + json_text(dump.groups[i].members);
  out += "},\n \"calls\": [";
  for (std::size_t i = 0; i < dump.calls.size(); ++i) {
    const FlightCall& call = dump.calls[i];
    out += (i == 0 ? "\n  {\"number\": " : ",\n  {\"number\": ") + std::to_string(call.number) +
           ", \"operation\": " + json_text(name_of(call.operation)) +
           ", \"group\": " + json_text(dump.groups[call.group].name) +
           ", \"sequence\": " + std::to_string(call.sequence) + ", \"peer\": " + std::to_string(call.peer) +
           ", \"tag\": " + std::to_string(call.tag) +
           ", \"state\": " + (call.inside ? "\"inside\"" : "\"ended\"") +
           ", \"file\": " + json_text(call.file) + ", \"line\": " + std::to_string(call.line) + "}";
  }
  return out + "]}\n";
}

/// Writes `rank-N.json`, whole or not at all. @return whether it was written
inline bool write_flight(const std::string& directory, const FlightDump& dump, const Failure& failure) {
  const std::string path = directory + "/rank-" + std::to_string(dump.rank) + ".json";
  const std::string unfinished = path + ".part", bytes = flight_json(dump, failure);
  std::FILE* const file = std::fopen(unfinished.c_str(), "we");
  const bool wrote = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  return wrote && closed && std::rename(unfinished.c_str(), path.c_str()) == 0;
}

/// Writes all, or says once that it cannot.
inline void write_flights_of(const std::vector<FlightDump>& dumps, const std::string& directory,
                             const Failure& failure) {
  for (const FlightDump& dump : dumps)
    if (!write_flight(directory, dump, failure))
      return write_stderr_line(
          "flight recorder: " + printable(directory) +
          " must be writable, but it is not (let SHARDWRIGHT_FLIGHT_RECORDER name a directory that exists)");
}

/// Fills in the members of groups, for a transport that does not record them: ranks in a call of a group, and
/// the ranks for which they wait. The world contains all ranks.
inline void gather_members(std::vector<FlightDump>& dumps) {
  for (FlightDump& to : dumps)
    for (FlightGroup& group : to.groups) {
      std::vector<int> members;
      for (int rank = 0; rank < to.ranks && group.name == "world"; ++rank)
        members.push_back(rank);
      for (const FlightDump& from : dumps)
        if (from.groups.front().id == group.id) {
          members.push_back(from.rank);
          members.insert(members.end(), from.awaited.begin(), from.awaited.end());
        }
      std::sort(members.begin(), members.end());
      members.erase(std::unique(members.begin(), members.end()), members.end());
      group.members = std::move(members);
    }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
