// SPDX-License-Identifier: Apache-2.0
// A pipeline under mpirun whose last rank fails in mid-run in the way that the argument names; tests check
// how the job ends.
#include "train/toy_stage.hpp"

#include <shardwright/launch.hpp>

#include <Kokkos_Core.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace sw = shardwright;

namespace {

void fail(const std::string& fault) {
  if (fault == "throws")
    throw std::runtime_error("the stage is on fire");
  if (fault == "killed")
    std::raise(SIGKILL);
  if (fault == "freezes")
    std::raise(SIGSTOP);
}

void run(const sw::HostCommunicator& world, const std::string& fault) {
  std::printf("pid %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  const sw::Schedule schedule = sw::make_schedule("zbv", world.size(), 6);
  train_test::ToyPipeline pipeline(world, schedule.placement());
  sw::PipelineRunner<train_test::ToyStage> runner(world, schedule, pipeline.chunks());
  const std::vector<train_test::ToyStage::Batch> batches(6, {1.0});
  static_cast<void>(runner.run(batches));
  int passes = 0;
  if (world.rank() == world.size() - 1)
    for (train_test::ToyStage& stage : pipeline.stages)
      stage.before = [&](sw::Pass) {
        if (++passes == 9)
          fail(fault);
      };
  try {
    static_cast<void>(runner.run(batches));
  } catch (const sw::PeerFailed& error) {
    std::printf("rank %d woke by rank %d\n", world.rank(), error.peer());
    std::fflush(stdout);
    throw;
  } catch (const sw::DeadlineExceeded& error) {
    std::printf("rank %d missed rank %d\n", world.rank(), error.missing().at(0));
    std::fflush(stdout);
    throw;
  }
  std::printf("rank %d is done\n", world.rank());
}

} // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  const Kokkos::ScopeGuard kokkos;
  const sw::LaunchOptions options{.ranks = 0, .deadline = std::chrono::milliseconds(1500), .check = true};
  return sw::launch(options, [&](sw::HostCommunicator world) { run(world, fault); });
}
