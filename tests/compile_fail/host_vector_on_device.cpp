// SPDX-License-Identifier: Apache-2.0
// expect: DeviceCommunicator: the elements must lie in device memory, not in a std::vector or std::array of the host (give a span of the device's memory, or use the host communicator of the group)

#include <shardwright/comm/device_communicator.hpp>

#include <span>
#include <vector>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Gradients = std::vector<float>;
#else
using Gradients = std::span<float>; // of memory that kernels reach
#endif

void sum(DeviceCommunicator ranks, Gradients& gradients) { ranks.all_reduce_in_place(gradients); }
