// SPDX-License-Identifier: Apache-2.0

// 16 ranks and 64 microbatches are proven within the default limits of g++ 12 and clang 14.

#include "support/catch.hpp"

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>

using namespace shardwright;

namespace {

template <class Policy> constexpr Proof large = PipelineSchedule<Policy>::prove(16, 64);

} // namespace

TEST_CASE("a policy is proven for static numbers by name", "[proof]") {
  static_assert(proven<ZBV, 2, 4>);
  static_assert(proven<DualPipe, 4, 8>);
}

TEST_CASE("every policy is proven by the compiler for 16 ranks and 64 microbatches", "[proof]") {
  STATIC_REQUIRE((large<GPipe>.holds() && large<GPipe>.peak_in_flight == 64));
  STATIC_REQUIRE((large<OneFOneB>.holds() && large<OneFOneB>.peak_in_flight == 16));
  STATIC_REQUIRE((large<Interleaved<2>>.holds() && large<Interleaved<2>>.peak_in_flight == 47));
  STATIC_REQUIRE((large<Interleaved<3>>.holds() && large<Interleaved<3>>.peak_in_flight == 63));
  STATIC_REQUIRE((large<Interleaved<4>>.holds() && large<Interleaved<4>>.peak_in_flight == 79));
  STATIC_REQUIRE((large<InterleavedZB<2>>.holds() && large<InterleavedZB<2>>.peak_in_flight == 32));
  STATIC_REQUIRE((large<ZBH1>.holds() && large<ZBH1>.bubble == 15));
  STATIC_REQUIRE((large<ZBH2>.holds() && large<ZBH2>.stall == 0));
  STATIC_REQUIRE((large<ZBV>.holds() && large<ZBV>.stall == 0));
  STATIC_REQUIRE((large<DualPipe>.holds() && large<DualPipe>.peak_in_flight == 17));
  STATIC_REQUIRE((large<DualPipeV>.holds() && large<DualPipeV>.peak_in_flight == 33));
}
