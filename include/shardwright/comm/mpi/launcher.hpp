// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Facts about the ranks before MPI starts, from the launcher's variables and from /proc.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/launch_options.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/core/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// This process as its launcher numbers it; -1 where the launcher sets no variable that is known here.
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

/// The state of the ranks that were started beside this one on its node, from /proc: "rank 1 is stopped; of
/// rank 2 there is no process". Empty where it tells nothing: other launchers, other systems, all well.
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
    const std::string stat = content("/proc/" + pid + "/stat");
    const std::size_t command_end = stat.rfind(')');
    if (at == std::string::npos || command_end == std::string::npos || command_end + 2 >= stat.size())
      continue;
    here.push_back(std::atoi(environment.c_str() + at + name.size()));
    if (stat[command_end + 2] == 'T' || stat[command_end + 2] == 't')
      stopped.push_back(here.back());
  }
  std::vector<int> missing;
  // Only where the node has all ranks are their numbers known.
  for (int rank = 0; !here.empty() && own.ranks_here == own.size && rank < own.size; ++rank)
    if (std::find(here.begin(), here.end(), rank) == here.end())
      missing.push_back(rank);
  std::sort(stopped.begin(), stopped.end());
  const auto are = [](const std::vector<int>& ranks) { return ranks.size() == 1 ? " is " : " are "; };
  std::string out;
  if (!missing.empty())
    out = "of " + ranks_text(missing) + " there is no process any more";
  if (!stopped.empty())
    out += (out.empty() ? "" : "; ") + ranks_text(stopped) + are(stopped) + "stopped";
  return out;
}

/// Why a process ends that waits in vain for MPI's start.
[[nodiscard]] inline std::string late_start_sentence(std::chrono::nanoseconds deadline) {
  const LauncherRanks own;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string siblings = siblings_text(own);
  const std::string who =
      own.rank < 0 ? "this process" : "rank " + std::to_string(own.rank) + " of " + std::to_string(own.size);
  return "launch: every rank must come to MPI_Init_thread within " + time_text(deadline) + ", but " + who +
         " (" + own.launcher + ", process " + std::to_string(::getpid()) + " on " + host +
         ") still waits there" + (siblings.empty() ? "" : ": " + siblings) +
         " (look for a rank that has exited, is stopped, or is busy before launch(): ps -o pid,stat,wchan,args on every node; raise LaunchOptions::start_deadline if the job starts slowly)";
}

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

/// Ranks that share the memory of a node: all of it, or fewer where a test plays several nodes on one
/// machine.
[[nodiscard]] inline int ranks_per_node() {
  const auto ranks = launch_variable("SHARDWRIGHT_MPI_RANKS_PER_NODE", 1);
  return ranks ? ranks->value : 0;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
