// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The NCCL communicator, for ranks with one GPU each.

#include <shardwright/device/cuda_runtime.hpp>
#include <shardwright/device/nccl/api.hpp>
#include <shardwright/device/nccl/transport.hpp>

#include <memory>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A group of ranks with a GPU each, processes or threads: all operations in device memory, ordered
/// with the rank's stream.
///
/// - Reductions follow an order that NCCL chooses, equal on all ranks: `ReductionOrder` has no effect, sums
///   may differ from the host's in their last bits, 16-bit elements are rounded as NCCL does, and a maximum
///   or minimum may ignore a NaN.
/// - Calls run one after the other in the order in which they are issued, messages included. So two ranks
///   must issue what they exchange in one order: tags do not matter, and messages that cross belong in one
///   `exchange()`. The pipeline takes the order from a simulation of its schedule (MessageTurns).
/// - The host does not wait for the device. `run` and `Pending::wait` wait for the hosts of the other ranks:
///   at a first call, while NCCL connects them.
/// - A call that is not done by the deadline, counted from when it was the oldest on its stream, or an error
///   that NCCL reports, aborts the communicators of the rank and throws a typed error at the next call or
///   wait of the host for its device; the other ranks learn of it through the host group. Kernels that take
///   longer than the deadline between two calls are not an error.
/// - Calls cannot be part of a captured graph: an NCCL thread enqueues those of non-blocking communicators,
///   and the monitoring queries their events. In a step of StepGraph, a call throws LifecycleError.
///
/// Collective over a host group, from which the communicator splits off its own group: the same ranks for
/// device memory, ordered with `stream`, on the device of `runtime`.
/// @throws ConfigurationMismatch if two ranks use one GPU; DeadlineExceeded; PeerFailed; TransportError.
[[nodiscard]] inline DeviceCommunicator nccl_communicator(const HostCommunicator& group, CudaRuntime runtime,
                                                          CudaRuntime::Stream stream,
                                                          NcclOptions options = {}) {
  runtime.use_device(); // NCCL takes the current one
  return DeviceCommunicator(std::make_shared<detail::NcclTransport<NcclApi, CudaRuntime>>(
      group, NcclApi(), std::move(runtime), std::move(stream), options));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
