// SPDX-License-Identifier: Apache-2.0
// The kernels of collectives between ranks that share a GPU, compiled once for all units of a build with
// nvcc_wrapper.
#include <shardwright/mesh/cuda_target.hpp>

template bool shardwright::detail::launch_work<shardwright::CudaRuntime>(CudaRuntime& runtime,
                                                                         CudaRuntime::Stream& stream,
                                                                         PeerWorkList& work,
                                                                         CudaRuntime::Table* table);
