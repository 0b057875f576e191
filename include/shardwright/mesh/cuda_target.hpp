// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the streams of an NVIDIA GPU as a target, and the choice of its communicator.

#include <shardwright/comm/cuda_runtime.hpp>
#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/peer_transport.hpp>
#include <shardwright/core/error.hpp>

#include <Kokkos_Core.hpp>

#include <memory>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The memory of an NVIDIA GPU, with kernels on a stream of the rank's own.
struct CudaTarget {
  using execution_space = Kokkos::Cuda;
  using memory_space = Kokkos::CudaSpace;
  static constexpr bool host_accessible = false;

  /// @brief An instance with a new stream; copies share it, and the last one destroys it.
  [[nodiscard]] static execution_space make_execution_space() {
    return Kokkos::Experimental::partition_space(Kokkos::Cuda(), 1)[0];
  }

  /// @brief The communicator of a host group for device memory, ordered with `execution`. Collective.
  ///
  /// Ranks that are threads of this process share the GPU of Kokkos and use peer kernels.
  /// @throws ConfigurationMismatch where the ranks are processes and there is no NCCL.
  [[nodiscard]] static DeviceCommunicator connect(const HostCommunicator& group,
                                                  const execution_space& execution) {
    if (group.size() > 1 && !group.thread_world())
      throw ConfigurationMismatch(
          "CudaTarget: the ranks of a group on GPUs must be threads of one process, which share a GPU, or be "
          "connected by NCCL, but they are processes and this program is built without NCCL (configure with "
          "SHARDWRIGHT_WITH_NCCL, or start it without mpirun)",
          {group.world_rank(), group.name(), "connect", 0, {}, {}});
    return DeviceCommunicator(PeerTransport<CudaRuntime>::connect(
        group, CudaRuntime(execution.cuda_device()),
        CudaRuntime::Stream(execution.cuda_stream(), std::make_shared<execution_space>(execution))));
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
