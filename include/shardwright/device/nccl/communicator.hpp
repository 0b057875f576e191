// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The communicator of ranks with a GPU each, over NCCL.

#include <shardwright/device/cuda_runtime.hpp>
#include <shardwright/device/nccl/api.hpp>
#include <shardwright/device/nccl/transport.hpp>

#include <memory>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A group of ranks with a GPU each, processes or threads: all operations in device memory, ordered
/// with the rank's stream.
///
/// - Reductions follow an order that NCCL chooses, equal on all ranks: `ReductionOrder` has no effect, sums
///   may differ from the host's in their last bits, narrow elements are rounded as NCCL does, and a maximum
///   or minimum may pass over a NaN.
/// - Messages match by tag, in any order. A message whose receive is issued after that of a later one is
///   received into memory of the communicator first and copied from there: issue receives in the order of the
///   sends to spare that. Each direction of a pair has an NCCL communicator of its own, made at its first
///   message.
/// - The host does not wait for the device. `run` and `Pending::wait` wait for the hosts of the other ranks:
///   at a first call, while NCCL connects them, and in a message, until its peer has issued its side.
/// - A call that is not done by the deadline, counted from when it was the oldest on its stream, or an error
///   that NCCL reports, aborts the communicators of the rank and throws a typed error at the next call or
///   wait of the host for its device; the other ranks hear of it through the host group. Kernels that take
///   longer than the deadline between two calls are no error.
/// - Calls cannot be part of a captured graph: a thread of NCCL's enqueues those of non-blocking
///   communicators, and the watch asks for their events.
class NcclCommunicator : public CommunicatorHandle<NcclCommunicator, DeviceTransport> {
public:
  static constexpr std::string_view handle_name = "NcclCommunicator";
  using memory = DeviceMemory;

  using CommunicatorHandle::CommunicatorHandle;

  /// @brief Collective over a host group, of which a group of the communicator's own splits off: the same
  /// ranks in device memory, ordered with `stream`, on the device of `runtime`.
  /// @throws ConfigurationMismatch if two ranks use one GPU; DeadlineExceeded; PeerFailed; TransportError.
  [[nodiscard]] static NcclCommunicator connect(const HostCommunicator& group, CudaRuntime runtime,
                                                CudaRuntime::Stream stream, NcclOptions options = {}) {
    runtime.use_device(); // NCCL takes the current one
    return NcclCommunicator(std::make_shared<detail::NcclTransport<NcclApi, CudaRuntime>>(
        group, NcclApi(), std::move(runtime), std::move(stream), options));
  }

  /// @brief Waits on the host until everything on the rank's stream is done. @throws the error of a call that
  /// cannot end, at its deadline.
  void await_stream(SourceLocation where = SourceLocation::current()) { transport().await_stream(where); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
