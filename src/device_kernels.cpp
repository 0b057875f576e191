// SPDX-License-Identifier: Apache-2.0
// Kernels that do not depend on the elements of tensors, compiled once for all units of a build with nvcc:
// those of collectives between ranks that share a GPU, and CUB's sort and histogram.
#include <shardwright/mesh/cuda_target.hpp>
#include <shardwright/tensor/kernels/device/cuda_sort.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

template bool detail::launch_work<CudaRuntime>(CudaRuntime& runtime, CudaRuntime::Stream& stream,
                                               detail::PeerWorkList& work, CudaRuntime::Table* table);
template void kernels::detail::LibraryOrder<Kokkos::Cuda>::call<Kokkos::Cuda>(
    const Kokkos::Cuda&, std::size_t, std::size_t, const std::int32_t*, std::int32_t*, const std::int32_t*,
    std::int32_t*, std::int32_t*, void*, std::size_t&, std::size_t&);

} // namespace shardwright::inline SHARDWRIGHT_ABI
