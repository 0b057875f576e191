// SPDX-License-Identifier: Apache-2.0
// expect: DeviceCommunicator: the communicator must carry device memory, but this one carries host

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = HostCommunicator; // it would stage every block through the host without a word
#else
using Given = DeviceCommunicator;
#endif

DeviceCommunicator for_blocks(const Given& ranks) { return ranks; }
