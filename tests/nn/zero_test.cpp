// SPDX-License-Identifier: Apache-2.0
#include "nn/same_on_every_mesh.hpp"
#include "nn/zero_training.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

// A decoder whose model state is sharded, on every kind of mesh, compared with one rank.

namespace {

namespace sw = shardwright;
using nn_test::Outcome;
using nn_test::PipelineOutcome;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Sharding;
using nn_test::Way;

/// Every mesh of pp, tp, cp of 1 or 2 over two data ranks, and some with replicas and uneven parts.
std::vector<PipelineWay> ways_of_zero() {
  std::vector<PipelineWay> out;
  const auto add = [&out](int pp, const Way& inside) { out.push_back({.pp = pp, .inside = inside}); };
  for (const int accumulation : {1, 4}) {
    for (const int pp : {1, 2})
      for (const int cp : {1, 2})
        for (const int tp : {1, 2})
          if (!nn_test::slow || pp * cp * tp == 4)
            add(pp, {.dp = 2, .tp = tp, .sequence_parallel = true, .accumulation = accumulation, .cp = cp});
    add(1, {.dp = 2, .sequence_parallel = true, .accumulation = accumulation, .dpr = 2});
    add(1, {.dp = 3, .sequence_parallel = true, .accumulation = accumulation});
  }
  add(2, {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4, .dpr = 2});
  return out;
}

/// A training compared with that of one rank: losses, norms and parameters, which are the same on every rank.
void check_training(Sharding sharding, const Problem& problem, const PipelineWay& way, const Outcome& one) {
  const std::vector<PipelineOutcome> all = nn_test::train_zero_on_threads(sharding, problem, way);
  const Outcome& first = all.front().training;
  const double losses = nn_test::largest_difference(first.losses, one.losses);
  const double norms = nn_test::largest_difference(first.norms, one.norms);
  INFO(way.text() << " sharding " << static_cast<int>(sharding) << ": losses differ by " << losses
                  << ", norms by " << norms);
  CHECK(first.tokens == one.tokens);
  CHECK(losses <= 1e-5);
  CHECK(norms <= 1e-3);
  for (const PipelineOutcome& rank : all) {
    CHECK(rank.training.losses == first.losses);
    CHECK(rank.training.norms == first.norms);
    Outcome same;
    for (const std::string& name : rank.training.names) {
      const auto found = std::find(one.names.begin(), one.names.end(), name);
      REQUIRE(found != one.names.end());
      same.names.push_back(name);
      same.parameters.push_back(one.parameters[static_cast<std::size_t>(found - one.names.begin())]);
    }
    CHECK(nn_test::largest_parameter_difference(rank.training, same) <= 1e-2);
  }
}

} // namespace

nn_test::PipelineOutcome nn_test::train_zero(Sharding sharding, const sw::HostCommunicator& world,
                                             const Problem& problem, const PipelineWay& way,
                                             const sw::Schedule& schedule, const AtStep& at_step) {
  switch (sharding) {
  case Sharding::none:
    return train_pipeline_single(world, problem, way, schedule, at_step);
  case Sharding::zero1:
    return train_pipeline_with<sw::DecoderLayouts<true, sw::Zero1>, float>(world, problem, way, schedule,
                                                                           at_step);
  case Sharding::zero2:
    return train_pipeline_with<sw::DecoderLayouts<true, sw::Zero2>, float>(world, problem, way, schedule,
                                                                           at_step);
  default:
    return train_zero3(sharding, world, problem, way, schedule, at_step);
  }
}

TEST_CASE("a decoder with sharded model state trains as on one rank, on every mesh") {
  Problem problem = nn_test::zero_problem();
  if (nn_test::slow)
    problem.steps = 2;
  const Outcome one = nn_test::train_on_threads<float>(problem, {}).front();
  CHECK(one.losses.back() < (nn_test::slow ? 1.1 : 0.8) * one.losses.front());
  int number = 0;
  for (const PipelineWay& way : ways_of_zero())
    for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3}) {
      // Recomputation changes no bit, so its kinds alternate.
      problem.config.recompute.kind = ++number % 2 == 0 ? sw::Recompute::full : sw::Recompute::none;
      check_training(sharding, problem, way, one);
    }
}

// All combinations take minutes: `nn_test "[combinations]"` runs it.
TEST_CASE("every sharding, with and without replicas, on every mesh, with and without recomputation",
          "[.][combinations]") {
  Problem problem = nn_test::zero_problem();
  const Outcome one = nn_test::train_on_threads<float>(problem, {}).front();
  for (const int dpr : {1, 2})
    for (const int accumulation : {1, 4})
      for (const int pp : {1, 2})
        for (const int cp : {1, 2})
          for (const int tp : {1, 2})
            for (const Sharding sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3})
              for (const sw::Recompute recompute : {sw::Recompute::none, sw::Recompute::full}) {
                problem.config.recompute.kind = recompute;
                check_training(sharding, problem,
                               {.pp = pp,
                                .inside = {.dp = 2,
                                           .tp = tp,
                                           .sequence_parallel = true,
                                           .accumulation = accumulation,
                                           .cp = cp,
                                           .dpr = dpr}},
                               one);
              }
}
