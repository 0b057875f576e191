// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The handles and plans that a library has for each CUDA stream of a thread.

#include <Kokkos_Core.hpp>
#include <cuda_runtime_api.h>

#include <deque>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// The calling thread's object for the stream of `execution`, whose device becomes the thread's: made at the
/// first call, from a `Library(stream, device)`.
///
/// A rank's thread owns the objects of its streams, so nothing is locked; they are destroyed with the thread,
/// and captured graphs must have run by then.
template <class OfStream, class Library = OfStream>
[[nodiscard]] OfStream& of_stream(const Kokkos::Cuda& execution) {
  struct Known {
    Known(cudaStream_t on, int at) : stream(on), device(at), object(Library(on, at)) {}
    cudaStream_t stream;
    int device;
    OfStream object;
  };
  static thread_local std::deque<Known> streams;
  const cudaStream_t stream = execution.cuda_stream();
  const int device = execution.cuda_device();
  cudaSetDevice(device); // collectives and Kokkos may have left another
  for (Known& known : streams)
    if (known.stream == stream && known.device == device)
      return known.object;
  return streams.emplace_back(stream, device).object;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
