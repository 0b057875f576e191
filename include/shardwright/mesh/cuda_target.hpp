// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the streams of an NVIDIA GPU as a target, and the choice of its communicator.

#include <shardwright/comm/cuda_runtime.hpp>
#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/peer_transport.hpp>
#include <shardwright/core/error.hpp>
#if defined(SHARDWRIGHT_WITH_NCCL)
#include <shardwright/comm/nccl_communicator.hpp>
#endif

#include <Kokkos_Core.hpp>

#include <memory>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The memory of an NVIDIA GPU, with kernels on a stream of the rank's own.
///
/// A process uses the GPU that Kokkos was initialized with: thread ranks share it, and a machine with several
/// has a process for each (KOKKOS_MAP_DEVICE_ID_BY=mpi_rank, or CUDA_VISIBLE_DEVICES).
struct CudaTarget {
  using execution_space = Kokkos::Cuda;
  using memory_space = Kokkos::CudaSpace;
  static constexpr bool host_accessible = false;

  /// @brief An instance with a new stream; copies share it, and the last one destroys it.
  ///
  /// Kokkos makes it by cudaStreamCreate: work on the legacy default stream, of another library in the same
  /// process, waits for it and is waited for. A steady step of this library has none there: its kernels and
  /// products are on this stream, and calls on streams that CudaRuntime makes non-blocking.
  [[nodiscard]] static execution_space make_execution_space() {
    return Kokkos::Experimental::partition_space(Kokkos::Cuda(), 1)[0];
  }

  /// @brief Whether everything that the instance's stream holds is done. @throws the device's error.
  [[nodiscard]] static bool idle(const execution_space& execution) {
    const cudaError_t result = cudaStreamQuery(execution.cuda_stream());
    if (result == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError()); // not an error, but kept as the last one
      return false;
    }
    detail::check_cuda(result, "work on the device");
    return true;
  }

  /// @brief The communicator of a host group for device memory, ordered with `execution`. Collective.
  ///
  /// Ranks that are threads of one process, and so share its GPU, use peer kernels, and so does a rank that
  /// is alone; processes use NCCL, with a GPU each.
  /// @throws ConfigurationMismatch where the ranks are processes and there is no NCCL, or two of them have
  /// one GPU; the errors of the group and of the device.
  [[nodiscard]] static DeviceCommunicator connect(const HostCommunicator& group,
                                                  const execution_space& execution) {
    const CudaRuntime runtime(execution.cuda_device());
    CudaRuntime::Stream stream(execution.cuda_stream(), std::make_shared<execution_space>(execution));
    if (group.size() == 1 || group.thread_world())
      return DeviceCommunicator(PeerTransport<CudaRuntime>::connect(group, runtime, std::move(stream)));
#if defined(SHARDWRIGHT_WITH_NCCL)
    return NcclCommunicator::connect(group, runtime, std::move(stream));
#else
    throw ConfigurationMismatch(
        "CudaTarget: the ranks of a group must be threads of one process, which share its GPU, or be "
        "connected by NCCL, but they are processes and this program is built without NCCL (configure with "
        "SHARDWRIGHT_WITH_NCCL, or start it without mpirun)",
        {group.world_rank(), group.name(), "connect", 0, {}, {}});
#endif
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
