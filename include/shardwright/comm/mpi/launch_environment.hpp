// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The environment variables of launchers, checked against one another.

#include <shardwright/comm/launch_options.hpp>
#include <shardwright/core/error.hpp>

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

/// The value of a variable, if it is set. @throws ConfigurationMismatch unless it is a number of at least
/// `least`.
[[nodiscard]] inline std::optional<LaunchVariable> launch_variable(const char* name, int least) {
  const char* const text = std::getenv(name);
  if (text == nullptr)
    return std::nullopt;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > std::numeric_limits<int>::max())
    throw ConfigurationMismatch("launch: " + std::string(name) + " must be a whole number of at least " +
                                std::to_string(least) + ", but it is \"" + text +
                                "\" (unset it, or start the program only by mpirun)");
  return LaunchVariable{name, static_cast<int>(value)};
}

/// Checks what launchers have set: ranks lie in their worlds, and those who set RANK and WORLD_SIZE agree
/// with mpirun.
/// @throws ConfigurationMismatch with the names and values of the variables.
inline void check_launch_environment(const LaunchOptions& options) {
  const auto size = launch_variable("OMPI_COMM_WORLD_SIZE", 1);
  const auto rank = launch_variable("OMPI_COMM_WORLD_RANK", 0);
  const auto other_size = launch_variable("WORLD_SIZE", 1);
  const auto other_rank = launch_variable("RANK", 0);
  const auto need_inside = [](const auto& one, const auto& world) {
    if (one && world && one->value >= world->value)
      throw ConfigurationMismatch("launch: a rank must be below the number of ranks, but " + one->text() +
                                  " and " + world->text() + " (correct the launcher's variables)");
  };
  const auto need_equal = [](const auto& mpi, const auto& other) {
    if (mpi && other && mpi->value != other->value)
      throw ConfigurationMismatch("launch: the launchers' variables must agree, but " + mpi->text() +
                                  " and " + other->text() + " (unset " + other->name +
                                  ", which mpirun does not need)");
  };
  need_inside(rank, size);
  need_inside(other_rank, other_size);
  need_equal(size, other_size);
  need_equal(rank, other_rank);
  if (size && options.ranks != 0 && options.ranks != size->value)
    throw ConfigurationMismatch(
        "launch: the program must run on as many ranks as it asks for, but it asks for " +
        std::to_string(options.ranks) + " and mpirun started " + size->text() + " (use mpirun -n " +
        std::to_string(options.ranks) + ", or leave LaunchOptions::ranks at 0)");
}

/// Ranks that share a board of last calls: all of a node, or fewer where a test plays several nodes on one
/// machine.
[[nodiscard]] inline int ranks_per_board() {
  const auto ranks = launch_variable("SHARDWRIGHT_MPI_RANKS_PER_BOARD", 1);
  return ranks ? ranks->value : 0;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
