// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstdint>
#include <span>
#include <vector>

using namespace shardwright;
using namespace shardwright::axis;

namespace device_communicator_as_host {
// expect: HostCommunicator: the communicator must carry host memory, but this one carries device

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = DeviceCommunicator; // its calls take memory that host code does not reach
#else
using Given = HostCommunicator;
#endif

HostCommunicator for_messages(const Given& ranks) { return ranks; }
} // namespace device_communicator_as_host

namespace host_communicator_as_device {
// expect: DeviceCommunicator: the communicator must carry device memory, but this one carries host

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = HostCommunicator; // it would stage every block through the host without a word
#else
using Given = DeviceCommunicator;
#endif

DeviceCommunicator for_blocks(const Given& ranks) { return ranks; }
} // namespace host_communicator_as_device

namespace host_vector_on_device {
// expect: DeviceCommunicator: the elements must lie in device memory, not in a std::vector or std::array of the host (give a span of the device's memory, or use the host communicator of the group)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Gradients = std::vector<float>;
#else
using Gradients = std::span<float>; // of memory that kernels reach
#endif

void sum(DeviceCommunicator ranks, Gradients& gradients) { ranks.all_reduce_in_place(gradients); }
} // namespace host_vector_on_device

namespace in_place_element {
// expect: In-place collective: the elements must be float, double, bfloat16, float16, bytes, or integers of 4 or 8 bytes, in a span, vector or array (convert them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int16_t;
#else
using Element = std::int32_t;
#endif

void sum_over_ranks(HostCommunicator& world, std::vector<Element>& counts) {
  world.all_reduce_in_place(counts);
}
} // namespace in_place_element

namespace in_place_on_view {
// expect: In-place collective: the elements must be writable, not a read-only view or handle

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = const float; // the view of a handle
#else
using Element = float;
#endif

void sum_over_ranks(HostCommunicator& world, LocalView<Element, 1> view) { world.all_reduce_in_place(view); }
} // namespace in_place_on_view
