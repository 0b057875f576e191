// SPDX-License-Identifier: Apache-2.0
// expect: HostCommunicator: the communicator must carry host memory, but this one carries device

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = DeviceCommunicator; // its calls take memory that host code does not reach
#else
using Given = HostCommunicator;
#endif

HostCommunicator for_messages(const Given& ranks) { return ranks; }
