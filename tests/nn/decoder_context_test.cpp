// SPDX-License-Identifier: Apache-2.0
#include "nn/dry_run_check.hpp"
#include "nn/same_on_every_mesh.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <string>
#include <vector>

// Ring attention inside whole trainings; same_on_every_mesh.hpp has all-to-all among its meshes.

namespace {

namespace sw = shardwright;
using nn_test::Outcome;
using nn_test::Problem;
using nn_test::Way;
using Ring = sw::DecoderLayouts<true, sw::DataParallel, sw::RingContext>;

Problem problem_of(const Way& way) {
  Problem problem = nn_test::problem_of(way, true);
  // Fewer heads than tp x cp needs for all-to-all.
  problem.config.heads = problem.config.kv_heads = way.ranks() == 3 ? 3 : 2;
  return problem;
}

/// The outcome of all ranks; empty if they differ.
template <class Train> Outcome on_threads(int ranks, Train train) {
  std::vector<Outcome> all(static_cast<std::size_t>(ranks));
  sw::LaunchOptions options;
  options.ranks = ranks;
  options.deadline = std::chrono::minutes(1);
  shardwright_test::launch_thread_ranks(options, [&](sw::HostCommunicator world) {
    all[static_cast<std::size_t>(world.rank())] = train(world);
  });
  for (const Outcome& each : all)
    if (!(each == all.front()))
      return {};
  return all.front();
}

Outcome train_ring(const Problem& problem, const Way& way) {
  return on_threads(way.ranks(), [&](const sw::HostCommunicator& world) {
    return nn_test::train_with<Ring, float>(world, problem, way, {});
  });
}

} // namespace

TEST_CASE("a decoder with ring attention trains as on one rank, with or without sequence parallelism") {
  for (const Way& way :
       {Way{.cp = 2}, Way{.dp = 2, .accumulation = 3, .cp = 2}, Way{.tp = 2, .cp = 2}, Way{.cp = 3}}) {
    INFO(way.text());
    Problem problem = problem_of(way);
    problem.config.dropout = way.tp == 2 ? 0.1 : 0; // whose masks depend on the position
    const Outcome one = on_threads(
        1, [&](const sw::HostCommunicator& world) { return nn_test::train_single(world, problem, {}, {}); });
    const Outcome run = train_ring(problem, way);
    CHECK(run.tokens == one.tokens);
    CHECK(nn_test::largest_difference(run.losses, one.losses) <= 1e-5);
    CHECK(nn_test::largest_difference(run.norms, one.norms) <= 1e-3);
    CHECK(nn_test::largest_parameter_difference(run, one) <= 1e-2);
    CHECK(train_ring(problem, way) == run);
  }
}

TEST_CASE("on one context rank a ring is bitwise plain attention") {
  const Way way{.tp = 2, .sequence_parallel = true};
  const Problem problem = problem_of(way);
  CHECK(train_ring(problem, way) == on_threads(2, [&](const sw::HostCommunicator& world) {
          return nn_test::train_single(world, problem, way, {});
        }));
}

TEST_CASE("a ring names the sequence lengths that it can split") {
  CHECK(
      shardwright_test::on_ranks(2, [](sw::HostCommunicator world, shardwright_test::Findings& findings) {
        Problem problem = problem_of({.cp = 2});
        problem.config.sequence = 10;
        std::string said = "no error";
        try {
          static_cast<void>(nn_test::train_with<Ring, float>(world, problem, {.cp = 2}, {}));
        } catch (const sw::InvalidArgument& error) {
          said = error.what();
        }
        findings.expect(
            said.find(
                "sequence 10 must be a multiple of twice the context-parallel ranks, two chunks for each, 2 cp = 4 (change the sequence length)") !=
                std::string::npos,
            said);
      }) == "");
}

TEST_CASE("memory and calls of a decoder with ring attention are as predicted") {
  for (const Way& way : {Way{.cp = 3}, Way{.dp = 2, .tp = 2, .sequence_parallel = true, .cp = 2}})
    CHECK(shardwright_test::on_ranks(
              way.ranks(), [&](sw::HostCommunicator world, shardwright_test::Findings& findings) {
                nn_test::check_prediction<Ring, float>(world, findings, problem_of(way), way);
              }) == "");
}
