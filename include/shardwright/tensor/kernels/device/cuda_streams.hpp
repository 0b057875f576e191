// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The handles, workspaces and plans that a library has for each CUDA stream of a thread.

#include <shardwright/core/error.hpp>
#include <shardwright/device/stream_objects.hpp>

#include <Kokkos_Core.hpp>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

template <auto end> struct EndBy {
  template <class Made> void operator()(Made* made) const noexcept { static_cast<void>(end(made)); }
};

/// A pointer that a C library gave out, such as a handle; `end` is its function that takes it back.
template <class Pointer, auto end> using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, EndBy<end>>;

/// Memory of the calling thread's device. Its end waits for the work in flight.
using Workspace = Owned<void*, cudaFree>;

/// @throws DeviceError, whose sentence begins with `operation`.
[[nodiscard]] inline Workspace workspace_of_stream(std::size_t bytes, const char* operation) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  void* memory = nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, bytes); status != cudaSuccess)
    throw DeviceError(static_cast<int>(status),
                      std::string(operation) + ": the device must have " +
                          std::to_string((bytes + mebibyte - 1) / mebibyte) +
                          " MiB of memory left for the workspace of each stream, but CUDA says " +
                          cudaGetErrorString(status) + " (use a smaller batch).");
  return Workspace(memory);
}

/// The calling thread's object for the stream of `execution`, whose device becomes the thread's: made at the
/// first call, from a `Library(stream)`. It ends with the stream's mesh or the thread, and captured graphs
/// must have run by then.
template <class OfStream, class Library = OfStream>
[[nodiscard]] OfStream& of_stream(const Kokkos::Cuda& execution) {
  struct OnDevice {
    OnDevice(cudaStream_t stream, int at) : device(at), object(Library(stream)) {}
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    ~OnDevice() { cudaSetDevice(device); } // where the object ends
    int device;
    OfStream object;
  };
  const cudaStream_t stream = execution.cuda_stream();
  const int device = execution.cuda_device();
  cudaSetDevice(device); // collectives and Kokkos may have left another
  return shardwright::detail::StreamObjects::own()
      .of<OnDevice>({stream, device}, [&] { return std::make_shared<OnDevice>(stream, device); })
      .object;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
