// SPDX-License-Identifier: Apache-2.0
// Three thread ranks, the last of which does something that ends the process: the process's output and exit
// code are part of the contract.
#include <shardwright/launch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardwright;

namespace {

void fork_child() {
  const pid_t child = ::fork();
  if (child == 0)
    std::exit(0);
  int status = -1;
  ::waitpid(child, &status, 0);
  std::printf("child ended with %d\n", status);
}

/// Without communication, so that nothing in the library can wake it.
void spin() {
  for (std::atomic<bool> ever{false}; !ever.load();)
    std::this_thread::yield();
}

/// Waits in the kernel for a byte that is never written.
void block() {
  int ends[2];
  char byte = 0;
  if (::pipe(ends) == 0)
    static_cast<void>(::read(ends[0], &byte, 1));
}

/// Ranks that have given up or are about to leave.
std::atomic<int> gone{0};

/// Without communication as well, and on a busy machine too.
void await_gone(int ranks) {
  while (gone.load() < ranks)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void program(const std::string& fault, sw::HostCommunicator world) {
  std::vector<float> data(4);
  world.all_reduce_in_place(data);
  const bool last = world.rank() == world.size() - 1;
  if (last && fault == "spins")
    spin();
  if (last && fault == "blocks")
    block();
  if (last && fault == "holds_standard_error") {
    ::flockfile(stderr);
    spin();
  }
  if (last && fault == "ends_late")
    await_gone(world.size() - 1);
  if (last && fault == "exits")
    std::exit(0);
  if (fault == "all_exit") {
    world.barrier();
    std::exit(0);
  }
  if (last && fault == "exits_with_code")
    std::exit(7);
  if (last && fault == "quick_exits")
    std::quick_exit(0);
  if (last && fault == "thread_exits")
    std::thread([] { std::exit(0); }).join();
  if (last && fault == "forks")
    fork_child();
  if (fault == "all_leave_but_one") {
    ++gone;
    if (!last)
      return;
    await_gone(world.size());
    std::this_thread::sleep_for(std::chrono::seconds(1)); // until the others' programs have ended
    std::exit(0);
  }
  try {
    world.barrier();
  } catch (const sw::Error& error) {
    std::printf("rank %d: %s\n", world.rank(), error.what());
    ++gone;
    if (world.rank() == 1)
      throw std::runtime_error("rank 1 has words of its own");
    throw;
  }
}

} // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  sw::LaunchOptions options;
  options.ranks = 3;
  const bool freezes = fault == "spins" || fault == "blocks" || fault == "holds_standard_error";
  // The first collective must pass on a busy machine too.
  options.deadline = std::chrono::seconds(freezes || fault == "ends_late" ? 2 : 60);
  // If the last rank ends after all, the process must not be ended early.
  options.grace = freezes ? std::chrono::milliseconds(500) : std::chrono::seconds(60);
  try {
    // Ranks of an earlier launch are gone: they count neither as running nor as leaving.
    sw::launch(sw::LaunchOptions{.ranks = 2}, [](const sw::HostCommunicator&) {});
    const int code = sw::launch(options, [&](const sw::HostCommunicator& world) { program(fault, world); });
    std::printf("launch returned\n");
    return code;
  } catch (const std::exception& error) {
    std::printf("launch threw: %s\n", error.what());
    return 3;
  }
}
