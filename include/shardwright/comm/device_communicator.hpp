// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The communicator for device memory: any transport that is ordered with the execution instance of
/// its rank.

#include <shardwright/comm/communicator_handle.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A handle to a group of ranks whose calls use device memory; copies refer to the same group and
/// stream.
///
/// Its transport is bound to one execution instance (a stream), and no call waits for the device on the host.
///
/// 1. `run` begins after the work already on the stream, and later work on the stream sees its results. It
///    may wait on the host for other ranks to issue their part, within the deadline.
/// 2. `start` begins after the work already on the stream and runs concurrently with later work;
///    `Pending::wait` makes the stream, not the host, wait for the end; `ready` asks the device.
/// 3. An error surfaces as a typed one, at the latest at the next call or the deadline.
/// 4. Dropping a Pending makes the communicator fail, and the stream wait for the operation in progress.
/// 5. `await_stream` waits on the host until everything on the stream is done. If a call on the stream cannot
///    end because a peer is gone, a fence would not end either; this throws at the deadline of that call.
/// 6. CallTimes are noted by the device when it reaches the call, which may be after `run` and `wait` have
///    returned: they must live until `ended()`.
/// 7. Calls that need the host between the caller's own waits enter DrivenTransports, and `drive` advances
///    them.
class DeviceCommunicator : public CommunicatorHandle<DeviceCommunicator> {
public:
  static constexpr std::string_view handle_name = "DeviceCommunicator";
  static constexpr bool host_memory = false;

  using CommunicatorHandle::CommunicatorHandle;

  /// @brief Never compiles: it explains why the other kind of communicator cannot be converted.
  template <class Other>
  requires(Other::host_memory) DeviceCommunicator(const Other&) { // NOLINT(google-explicit-constructor)
    static_assert(
        !Other::host_memory,
        "DeviceCommunicator: the communicator must carry device memory, but this one carries host memory (make one with connect() of the target, or take the mesh's)");
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
