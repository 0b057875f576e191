// SPDX-License-Identifier: Apache-2.0
#include "nn/same_on_every_mesh.hpp"
#include "nn/zero_training.hpp"
#include "support/catch.hpp"

#include <cstddef>
#include <vector>

// What does not depend on how the model state is shared out, to the bit.

namespace {

namespace sw = shardwright;
using nn_test::PipelineWay;
using nn_test::Problem;
using nn_test::Sharding;
using nn_test::train_zero_on_threads;
using nn_test::Way;

} // namespace

nn_test::PipelineOutcome nn_test::train_zero3(Sharding sharding, const sw::HostCommunicator& world,
                                              const Problem& problem, const PipelineWay& way,
                                              const sw::Schedule& schedule, const AtStep& at_step) {
  if (sharding == Sharding::zero3)
    return train_pipeline_with<sw::DecoderLayouts<true, sw::Zero3>, float>(world, problem, way, schedule,
                                                                           at_step);
  return train_pipeline_with<sw::DecoderLayouts<true, sw::ReduceOncePerStep<sw::Zero3>>, float>(
      world, problem, way, schedule, at_step);
}

TEST_CASE("what reduces equally often gives the same bits on one mesh, whatever is shared out") {
  const Problem problem = nn_test::zero_problem();
  for (const PipelineWay& way :
       {PipelineWay{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true}},
        PipelineWay{.pp = 1, .inside = {.dp = 3, .sequence_parallel = true}},
        PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4}},
        PipelineWay{.pp = 1, .inside = {.dp = 2, .sequence_parallel = true, .cp = 2, .dpr = 2}},
        PipelineWay{.pp = 2, .inside = {.dp = 2, .sequence_parallel = true, .accumulation = 4}},
        PipelineWay{.pp = 2,
        .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4, .dpr = 2}}}) {
    INFO(way.text());
    const auto plain = train_zero_on_threads(Sharding::none, problem, way);
    CHECK(nn_test::same_bits(train_zero_on_threads(Sharding::zero1, problem, way), plain));
    CHECK(nn_test::same_bits(train_zero_on_threads(Sharding::zero3_once, problem, way), plain));
    const auto each = train_zero_on_threads(Sharding::zero2, problem, way);
    CHECK(nn_test::same_bits(train_zero_on_threads(Sharding::zero3, problem, way), each));
    if (way.inside.accumulation == 1)
      CHECK(nn_test::same_bits(each, plain));
  }
}

TEST_CASE("the size of the buckets changes no bit") {
  const Problem problem = nn_test::zero_problem();
  for (const Way& inside : {Way{.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 4},
                            Way{.dp = 3, .sequence_parallel = true, .accumulation = 2},
                            Way{.dp = 2, .sequence_parallel = true, .accumulation = 2, .cp = 2, .dpr = 2}})
    for (const Sharding sharding : nn_test::every_sharding) {
      INFO(inside.text() << " sharding " << static_cast<int>(sharding));
      PipelineWay way{.pp = 1, .inside = inside};
      const auto usual = train_zero_on_threads(sharding, problem, way);
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1000}, std::size_t{9000}}) {
        way.bucket_bytes = bytes;
        INFO("buckets of " << bytes << " bytes");
        CHECK(nn_test::same_bits(train_zero_on_threads(sharding, problem, way), usual));
      }
    }
}
