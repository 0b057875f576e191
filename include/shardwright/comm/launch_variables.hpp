// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The environment variables by which an MPI launcher gives a process its rank, and checks of their
/// values.

#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/core/error.hpp>

#include <array>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A variable of a launcher.
struct LaunchVariable {
  const char* name;
  int value;

  [[nodiscard]] std::string text() const { return std::string(name) + "=" + std::to_string(value); }
};

/// The value of a variable, if it is set.
/// @throws ConfigurationMismatch unless it is a number of at least `least`.
[[nodiscard]] inline std::optional<LaunchVariable> launch_variable(const char* name, int least) {
  const char* const text = std::getenv(name);
  if (text == nullptr)
    return std::nullopt;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > std::numeric_limits<int>::max())
    throw ConfigurationMismatch("launch: " + std::string(name) + " must be a whole number of at least " +
                                std::to_string(least) + ", but it is \"" + printable(text) +
                                "\" (unset it, or start the program only by mpirun)");
  return LaunchVariable{name, static_cast<int>(value)};
}

/// The variables that one kind of launcher sets together; only a complete set shows that it has started this
/// process.
struct LauncherSet {
  const char* launcher;
  const char* rank;
  const char* other;  ///< Set together with the rank: the number of ranks, or a name for the job.
  bool other_is_size; ///< Whether `other` is the number of ranks.

  [[nodiscard]] bool complete() const {
    return std::getenv(rank) != nullptr && std::getenv(other) != nullptr;
  }
  [[nodiscard]] std::optional<LaunchVariable> rank_value() const { return launch_variable(rank, 0); }
  [[nodiscard]] std::optional<LaunchVariable> size_value() const {
    return other_is_size ? launch_variable(other, 1) : std::nullopt;
  }
};

/// The known kinds of launchers; the first complete set applies.
inline constexpr std::array<LauncherSet, 3> launcher_sets{
    LauncherSet{"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
    LauncherSet{"a launcher with PMI", "PMI_RANK", "PMI_SIZE", true},
    LauncherSet{"a launcher with PMIx", "PMIX_RANK", "PMIX_NAMESPACE", false}};

/// The set of the MPI launcher that started this process; null if there is none.
[[nodiscard]] inline const LauncherSet* launcher_set() {
  for (const LauncherSet& one : launcher_sets)
    if (one.complete())
      return &one;
  return nullptr;
}

/// For a process without a complete set: a sentence about variables that only a launcher would set; empty if
/// there are none.
[[nodiscard]] inline std::string stray_variables() {
  for (const LauncherSet& one : launcher_sets)
    for (const char* const name : {one.rank, one.other})
      if (const char* const value = std::getenv(name))
        return "launch: " + std::string(name) + "=" + printable(value) + " is set, but " +
               (name == one.rank ? one.other : one.rank) +
               " is not, so no launcher of MPI has started this process: its ranks are threads (unset " +
               name + ", or start the program by mpirun)";
  return {};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
