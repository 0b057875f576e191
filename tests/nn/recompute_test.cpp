// SPDX-License-Identifier: Apache-2.0
#include "nn/pipeline_training.hpp"
#include "nn/same_on_every_mesh.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <utility>
#include <vector>

// The choice of what layers recompute changes work and memory, but no bit of losses, norms and parameters.

namespace {

namespace sw = shardwright;
using nn_test::Outcome;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Way;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr sw::Recomputation choices[] = {{sw::Recompute::selective},
                                         {sw::Recompute::full},
                                         {sw::Recompute::full, 1},
                                         {sw::Recompute::selective, 1, sw::Recompute::full}};

/// Runs `train(world, problem)` on threads with every choice, and compares the outcomes of each rank.
template <class Train> void check_same_bits(int ranks, Problem problem, Train train) {
  CHECK(on_ranks(ranks, [&](sw::HostCommunicator world, Findings& findings) {
          Problem varied = problem;
          const Outcome kept = train(world, varied);
          for (const sw::Recomputation& choice : choices) {
            varied.config.recompute = choice;
            findings.expect(train(world, varied) == kept, "rank ", world.rank(), ": choice ",
                            &choice - choices, " changes a bit");
          }
          varied.config.recompute = {};
          varied.config.dropout = problem.config.dropout + 0.1;
          findings.expect(train(world, varied).losses != kept.losses, "dropout changes the losses");
        }) == "");
}

} // namespace

TEST_CASE("recomputation changes no bit of a training, with and without dropout") {
  for (const double dropout : {0.0, 0.2})
    for (const Way& way : {Way{.accumulation = 3}, Way{.dp = 1, .tp = 2},
                           Way{.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 3},
                           Way{.tp = 2, .sequence_parallel = true, .cp = 2}}) {
      INFO(way.text() << " dropout " << dropout);
      Problem problem = nn_test::problem_of(way, true);
      problem.config.dropout = dropout;
      problem.steps = 4;
      check_same_bits(way.ranks(), problem, [&](const sw::HostCommunicator& world, const Problem& varied) {
        return nn_test::train_single(world, varied, way, {});
      });
    }
}

TEST_CASE("nor does it in a pipeline, whose weight gradients may wait for later passes") {
  Problem problem = nn_test::pipeline_problem(true);
  problem.config.dropout = 0.1;
  problem.steps = 3;
  for (const PipelineWay& way :
       {PipelineWay{.pp = 2, .inside = {.dp = 1, .tp = 2, .sequence_parallel = true}},
        PipelineWay{.pp = 4, .inside = {}}})
    for (const char* name : {"1f1b", "zbh1", "zbv"}) {
      INFO(name << " " << way.text());
      const sw::Schedule schedule = sw::make_schedule(name, way.pp, 8);
      check_same_bits(way.ranks(), problem, [&](const sw::HostCommunicator& world, const Problem& varied) {
        return nn_test::train_pipeline_single(world, varied, way, schedule, {}).training;
      });
    }
}

TEST_CASE("dropout masks do not depend on the mesh or on how the batch is split") {
  for (const Way& way : nn_test::ways()) {
    INFO(way.text());
    Problem problem = nn_test::problem_of(way, true);
    problem.config.dropout = 0.2;
    problem.steps = 6;
    const auto losses_of = [&](const Way& chosen) {
      std::vector<double> losses;
      CHECK(on_ranks(chosen.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
              Outcome outcome = nn_test::train_single(world, problem, chosen, {});
              findings.expect(outcome.losses.size() == 6, "all steps");
              if (world.rank() == 0)
                losses = std::move(outcome.losses);
            }) == "");
      return losses;
    };
    CHECK(nn_test::largest_difference(losses_of(way), losses_of({})) <= 1e-5);
  }
}
