// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Facts about the ranks before MPI starts, from the launcher's variables and from /proc.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/launch_variables.hpp>
#include <shardwright/comm/mpi/process.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// This process as its launcher numbers it; -1 if the launcher sets no variable that is known here.
struct LauncherRanks {
  const char* launcher = "unknown launcher";
  const char* rank_variable = nullptr;
  int rank = -1;
  int size = -1;
  int ranks_here = -1; ///< On this node.

  LauncherRanks() {
    struct Variables {
      const char *launcher, *rank, *size, *ranks_here;
    };
    for (const Variables& one :
         {Variables{"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_SIZE"},
          Variables{"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
          Variables{"srun of Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"}})
      if (std::getenv(one.rank) != nullptr) {
        launcher = one.launcher;
        rank_variable = one.rank;
        rank = number(one.rank);
        size = number(one.size);
        ranks_here = number(one.ranks_here);
        return;
      }
  }

private:
  static int number(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? -1 : std::atoi(text);
  }
};

/// The state of the other ranks that were started on this node, from /proc: "rank 1 is stopped; of rank 2
/// there is no longer a process". Empty if unknown (other launchers, other systems) or if all is well.
[[nodiscard]] inline std::string siblings_text(const LauncherRanks& own) {
  const auto content = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string parent = std::to_string(::getppid());
  std::ifstream children("/proc/" + parent + "/task/" + parent + "/children");
  std::vector<int> here;
  std::vector<int> stopped;
  for (std::string pid; own.rank_variable != nullptr && children >> pid;) {
    // The variable may be the first of the environment.
    const std::string environment = std::string(1, '\0') + content("/proc/" + pid + "/environ");
    const std::string name = std::string(1, '\0') + own.rank_variable + "=";
    const std::size_t at = environment.find(name);
    const char letter = state_letter(content("/proc/" + pid + "/stat"));
    if (at == std::string::npos || letter == '?')
      continue;
    here.push_back(std::atoi(environment.c_str() + at + name.size()));
    if (is_stopped(letter))
      stopped.push_back(here.back());
  }
  std::vector<int> missing;
  // Only if the node has all ranks are their numbers known.
  for (int rank = 0; !here.empty() && own.ranks_here == own.size && rank < own.size; ++rank)
    if (std::find(here.begin(), here.end(), rank) == here.end())
      missing.push_back(rank);
  std::sort(stopped.begin(), stopped.end());
  const auto are = [](const std::vector<int>& ranks) { return ranks.size() == 1 ? " is " : " are "; };
  std::string out;
  if (!missing.empty())
    out = "of " + ranks_text(missing) + " there is no longer a process";
  if (!stopped.empty())
    out += (out.empty() ? "" : "; ") + ranks_text(stopped) + are(stopped) + "stopped";
  return out;
}

/// The message with which a process gives up waiting for MPI's startup.
[[nodiscard]] inline std::string late_start_sentence(std::chrono::nanoseconds deadline) {
  const LauncherRanks own;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string siblings = siblings_text(own);
  const std::string who =
      own.rank < 0 ? "this process" : "rank " + std::to_string(own.rank) + " of " + std::to_string(own.size);
  return "launch: every rank must reach MPI_Init_thread within " + time_text(deadline) + ", but " + who +
         " (" + own.launcher + ", process " + std::to_string(::getpid()) + " on " + host +
         ") still waits there" + (siblings.empty() ? "" : ": " + siblings) +
         " (look for a rank that has exited, is stopped, or is busy before launch(): ps -o pid,stat,wchan,args on every node; raise LaunchOptions::start_deadline if the job starts slowly)";
}

/// Checks the launchers' variables: ranks are below the number of ranks, and all sets agree, as do RANK and
/// WORLD_SIZE.
/// @throws ConfigurationMismatch with the names and values of the variables.
inline void check_launch_environment(const LaunchOptions& options) {
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
  std::optional<LaunchVariable> rank, size;
  const auto compare = [&](const auto& other_rank, const auto& other_size) {
    need_inside(other_rank, other_size);
    need_equal(size, other_size);
    need_equal(rank, other_rank);
    if (!rank)
      rank = other_rank;
    if (!size)
      size = other_size;
  };
  for (const LauncherSet& one : launcher_sets)
    if (one.complete())
      compare(one.rank_value(), one.size_value());
  need_inside(rank, size);
  const auto mpi_size = size;
  compare(launch_variable("RANK", 0), launch_variable("WORLD_SIZE", 1));
  if (mpi_size && options.ranks != 0 && options.ranks != mpi_size->value)
    throw ConfigurationMismatch(
        "launch: the program must run on as many ranks as it asks for, but it asks for " +
        std::to_string(options.ranks) + " and mpirun started " + mpi_size->text() + " (use mpirun -n " +
        std::to_string(options.ranks) + ", or leave LaunchOptions::ranks at 0)");
}

/// Compares the launcher's variables with MPI's ranks: they differ, and each process is alone, if the
/// launcher belongs to another MPI or the variables were left over in a shell.
/// @throws ConfigurationMismatch with the variable and both numbers.
inline void check_started(int rank, int size) {
  const LauncherSet* const one = launcher_set();
  if (one == nullptr)
    return;
  const auto differ = [&](const std::optional<LaunchVariable>& variable, const char* what, int actual) {
    if (variable && variable->value != actual)
      throw ConfigurationMismatch(
          "launch: MPI and its launcher must agree, but " + variable->text() + " and MPI's " + what + " is " +
          std::to_string(actual) +
          " (start the program by the mpirun of the MPI that it was built with, or unset " + one->rank +
          " and " + one->other + ")");
  };
  differ(one->size_value(), "number of ranks", size);
  differ(one->rank_value(), "rank", rank);
}

/// Ranks that share memory as on one node: all of the node's, or fewer if a test simulates several nodes on
/// one machine.
[[nodiscard]] inline int ranks_per_node() {
  const auto ranks = launch_variable("SHARDWRIGHT_MPI_RANKS_PER_NODE", 1);
  return ranks ? ranks->value : 0;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
