// SPDX-License-Identifier: Apache-2.0
// expect: In-place collective: the elements must be float, double, bfloat16, float16, bytes, or integers of 4 or 8 bytes, in a span, vector or array (convert them first)

#include <shardwright/comm/host_communicator.hpp>

#include <cstdint>
#include <vector>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int16_t;
#else
using Element = std::int32_t;
#endif

void sum_over_ranks(HostCommunicator& world, std::vector<Element>& counts) {
  world.all_reduce_in_place(counts);
}
