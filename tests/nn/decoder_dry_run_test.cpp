// SPDX-License-Identifier: Apache-2.0
#include "nn/dry_run_check.hpp"
#include "nn/zero_training.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <string>

// The predictions of a dry run, which allocates nothing, compared with the training itself.

namespace {

namespace sw = shardwright;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Sharding;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

template <class Layouts>
[[nodiscard]] sw::DryRun predicted_with(const Problem& problem, const PipelineWay& way,
                                        const sw::Schedule& schedule, int rank) {
  return sw::dry_run(way.ranks(), rank, [&](const sw::HostCommunicator& world) {
    static_cast<void>(
        nn_test::train_pipeline_with<Layouts, float, nn_test::Counting>(world, problem, way, schedule, {}));
  });
}

[[nodiscard]] sw::DryRun predicted(Sharding sharding, const Problem& problem, const PipelineWay& way,
                                   const sw::Schedule& schedule, int rank) {
  switch (sharding) {
  case Sharding::zero1:
    return predicted_with<sw::DecoderLayouts<true, sw::Zero1>>(problem, way, schedule, rank);
  case Sharding::zero2:
    return predicted_with<sw::DecoderLayouts<true, sw::Zero2>>(problem, way, schedule, rank);
  case Sharding::zero3:
    return predicted_with<sw::DecoderLayouts<true, sw::Zero3>>(problem, way, schedule, rank);
  default:
    return way.inside.sequence_parallel
               ? predicted_with<sw::DecoderLayouts<true>>(problem, way, schedule, rank)
               : predicted_with<sw::DecoderLayouts<false>>(problem, way, schedule, rank);
  }
}

void check(Sharding sharding, const Problem& problem, const PipelineWay& way, const sw::Schedule& schedule) {
  CHECK(on_ranks(way.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
          nn_test::expect_predicted(
              predicted(sharding, problem, way, schedule, world.rank()), world,
              [&](const sw::HostCommunicator& logged, const nn_test::AtStep& at_step) {
                static_cast<void>(nn_test::train_zero(sharding, logged, problem, way, schedule, at_step));
              },
              schedule.name() + " " + way.text() + " sharding " + std::to_string(static_cast<int>(sharding)),
              findings);
        }) == "");
}

} // namespace

TEST_CASE("memory and calls of a training are as predicted under every schedule and recomputation") {
  Problem problem = nn_test::pipeline_problem(false);
  problem.steps = 3;
  for (const auto kind : {sw::Recompute::none, sw::Recompute::selective, sw::Recompute::full})
    for (const PipelineWay& way :
         {PipelineWay{}, PipelineWay{.pp = 1, .inside = {.dp = 3, .tp = 2}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .cp = 2}},
          PipelineWay{.pp = 2, .inside = {.dp = 2, .tp = 1}}, PipelineWay{.pp = 4, .inside = {}}})
      for (const char* name : {"1f1b", "interleaved", "zbh1", "zbv", "dualpipe"}) {
        if (way.pp == 1 && name != std::string("1f1b"))
          continue;
        problem.config.recompute.kind = kind;
        problem.config.tied_embedding = kind == sw::Recompute::full;
        check(Sharding::none, problem, way, sw::make_schedule(name, way.pp, 8));
      }
}

TEST_CASE("a step's kernels move the bytes of their arguments, counted by hand") {
  Problem problem = nn_test::pipeline_problem(false);
  constexpr double n = 8, layers = 6, width = 16, hidden = 12, heads = 4, kv_heads = 2,
                   head = 4; // n microbatches
  const auto positions = static_cast<double>(problem.config.sequence);
  const auto vocabulary = static_cast<double>(problem.config.vocabulary);
  const double tokens = 16 * positions,
               matrices = layers * (16 * 32 + 16 * 16 + 16 * 24 + 12 * 16) + 16 * vocabulary;
  const double edges =
      layers * (16 + 32 + 16 + 16 + 16 + 24 + 12 + 16) + 16 + vocabulary; // rows plus columns
  const double norms = 2 * layers + 1, parameters = matrices + norms * width + vocabulary * width;
  const auto steps = [&](int count) {
    problem.steps = count;
    return predicted(Sharding::none, problem, {}, sw::make_schedule("1f1b", 1, 8), 0).kernel_bytes;
  };
  const sw::KernelBytes one = steps(1), two = steps(2);
  // Elements of 4 bytes. A product reads two matrices and stores one; weights are read in each microbatch,
  // and the sums of their gradients in all but the first. All norms but the first add a branch to their
  // input.
  const sw::KernelBytes expected{
      {"sw::embedding", tokens * (1 + 2 * width)},
      {"sw::rms_norm", tokens * (norms * (2 * width + 1) + 2 * layers * 2 * width) + n * norms * width},
      {"sw::matmul", 3 * tokens * edges + (4 * n - 1) * matrices},
      {"sw::rotary", 2 * layers * (tokens * 2 * (heads + kv_heads) * head + n * positions * head)},
      {"sw::attention", layers * tokens * ((2 * heads + 2 * kv_heads) * head + heads)},
      {"sw::swiglu", layers * tokens * 3 * hidden},
      {"sw::row_stats", tokens * (vocabulary + 4)},
      {"sw::rebase", tokens * 4},
      {"sw::token_loss", tokens * 5},
      {"sw::sum_losses", tokens * 2 + n * 4},
      {"sw::d_logits", tokens * (2 * vocabulary + 3)},
      {"sw::d_swiglu", layers * tokens * 5 * hidden},
      {"sw::d_attention", layers * tokens * ((4 * heads + 4 * kv_heads) * head + heads)},
      {"sw::d_rms_norm", tokens * (norms * (3 * width + 1) + 2 * layers * width) + n * norms * width},
      {"sw::sum_blocks", norms * width * (2 * n - 1)},
      {"sw::fill", vocabulary * width},
      {"sw::d_embedding", tokens * (1 + width) + (n - 1) * 2 * vocabulary * width},
      {"sum_of_squares", parameters},
      {"sw::adamw", 7 * parameters}};
  for (const auto& [kernel, bytes] : two) {
    INFO(kernel);
    CHECK(bytes > 0); // all of them state what they move
    const auto before = one.find(kernel);
    const double in_a_step = bytes - (before == one.end() ? 0 : before->second);
    const auto wanted = expected.find(kernel);
    if (wanted != expected.end())
      CHECK(in_a_step == 4 * wanted->second);
    else
      CHECK(in_a_step < 1000); // the last sums of a reduction
  }
  for (const auto& [kernel, bytes] : expected)
    CHECK(two.contains(kernel));
}

TEST_CASE("they are as predicted for every sharding, with weights gathered ahead and gradients in flight") {
  Problem problem = nn_test::zero_problem();
  problem.steps = 3;
  int number = 0;
  for (const auto sharding : {Sharding::zero1, Sharding::zero2, Sharding::zero3})
    for (const PipelineWay& way :
         {PipelineWay{.pp = 1, .inside = {.dp = 3, .sequence_parallel = true}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true, .dpr = 2}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .cp = 2}},
          PipelineWay{.pp = 2, .inside = {.dp = 2, .sequence_parallel = true}}})
      for (const int microbatches : {1, 4}) {
        problem.config.recompute.kind = ++number % 2 == 0 ? sw::Recompute::full : sw::Recompute::selective;
        check(sharding, problem, way, sw::make_schedule("1f1b", way.pp, microbatches));
      }
}
