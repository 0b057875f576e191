// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Other programs that compete for the cores.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

namespace collectives {

/// @brief Processes that compute all the time and end with this one, however it ends.
class BusyProcesses {
public:
  /// @brief Call it on the main thread, before others start: children end with the thread that makes them.
  explicit BusyProcesses(int count) {
    const pid_t parent = getpid();
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child < 0)
        throw std::runtime_error("collectives: a busy process must start (raise the limit of processes)");
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent) {
          volatile unsigned work = 0;
          while (work < 1'000'000)
            work = work + 1;
        }
        _exit(0);
      }
      children_.push_back(child);
    }
  }
  ~BusyProcesses() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

private:
  std::vector<pid_t> children_;
};

} // namespace collectives
