// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief CUDA graphs of the stream of one rank, for StepGraph.

#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/mesh/target.hpp>

#include <Kokkos_Core.hpp>

#if defined(KOKKOS_ENABLE_CUDA)

#include <shardwright/device/cuda_graphs.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Kernels and copies in pinned memory can be captured. Collectives of several ranks cannot: thread ranks
/// meet on the host in each call, and calls of NCCL are made and watched there.
class CudaGraphs : public CudaStreamGraphs {
public:
  /// @param resources of a CUDA target
  template <class Target>
  explicit CudaGraphs(const TargetResources<Target>& resources)
      : CudaStreamGraphs(resources.execution().cuda_stream(), resources.execution().cuda_device()),
        execution_(resources.execution()) {}

private:
  CudaTarget::execution_space execution_; ///< Holds the stream.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail

#endif
