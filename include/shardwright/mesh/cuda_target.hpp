// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A target with the memory and streams of an NVIDIA GPU, and the choice of its communicator.

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/device/cuda_graphs.hpp>
#include <shardwright/device/cuda_runtime.hpp>
#include <shardwright/device/device_clock.hpp>
#include <shardwright/device/peers/transport.hpp>
#include <shardwright/device/stream_objects.hpp>
#include <shardwright/mesh/cuda_devices.hpp>
#if defined(SHARDWRIGHT_WITH_NCCL)
#include <shardwright/device/nccl/communicator.hpp>
#endif

#include <Kokkos_Core.hpp>

// Since 4.3, memory spaces are on the instance's GPU, and since 4.7 the parts of an instance are, too;
// before, they were on Kokkos' own GPU. 4.6.99, the development version of 4.7, does not build with CUDA 13.
#if KOKKOS_VERSION < 40700
#error "shardwright: the CUDA target needs Kokkos 4.7 or newer (name one with Kokkos_ROOT)"
#endif

#include <cstddef>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

#if defined(SHARDWRIGHT_COMPILED_DEVICE) // the target shardwright::compiled has the kernels
extern template bool detail::launch_work<CudaRuntime>(CudaRuntime& runtime, CudaRuntime::Stream& stream,
                                                      detail::PeerWorkList& work, CudaRuntime::Table* table);
#endif

/// @brief The memory of an NVIDIA GPU, with a separate stream for each rank's kernels.
///
/// Ranks use the GPU that Kokkos was initialized with, unless they call use_device(): thread ranks share it,
/// and processes have one each (KOKKOS_MAP_DEVICE_ID_BY=mpi_rank, or CUDA_VISIBLE_DEVICES). GPUs of one
/// process must have one compute capability, because Kokkos knows only the properties of its own.
struct CudaTarget {
  using execution_space = Kokkos::Cuda;
  using memory_space = Kokkos::CudaSpace;
  using step_capture = detail::CudaGraphs;
  static constexpr bool host_accessible = false;

  /// @brief Returns the number of GPUs that this process sees.
  [[nodiscard]] static int device_count() { return detail::cuda_device_count(); }

  /// @brief Makes the calling thread's rank use the GPU `device`, in CUDA's numbering: a mesh's streams and
  /// memory are on that GPU if this call precedes its first tensor.
  /// @throws InvalidArgument if there is no such GPU, or its compute capability is not that of Kokkos' own;
  /// LifecycleError if Kokkos is not initialised.
  static void use_device(int device) {
    if (device < 0 || device >= device_count())
      throw InvalidArgument("CudaTarget: use_device must name one of the " + std::to_string(device_count()) +
                            " GPUs of the process, from 0, but got " + std::to_string(device) +
                            " (see CUDA_VISIBLE_DEVICES)");
    require_kind_of_kokkos(device);
    detail::check_cuda(cudaSetDevice(device), "choosing the device");
    detail::chosen_cuda_device() = device;
  }

  /// @brief An instance with a new stream on the calling thread's GPU; copies share it, and the last one
  /// destroys it.
  ///
  /// Kokkos creates the stream with cudaStreamCreate, so it synchronises with any work that another library
  /// in the process enqueues on the legacy default stream. In steady state this library enqueues nothing
  /// there: its kernels and products run on this stream, and its calls on the non-blocking streams of
  /// CudaRuntime.
  [[nodiscard]] static execution_space make_execution_space() {
    const std::lock_guard lock(detail::kokkos_maps());
    const Kokkos::Cuda own;
    const int device = detail::chosen_cuda_device();
    if (device < 0 || device == own.cuda_device())
      return Kokkos::Experimental::partition_space(own, 1)[0];
    const CudaRuntime::Stream there =
        CudaRuntime(device).make_stream(); // an instance is on the device of its stream
    return Kokkos::Experimental::partition_space(Kokkos::Cuda(there.get()), 1)[0];
  }

  /// @brief Memory of the instance's GPU; Kokkos' kokkos_malloc knows only its own.
  [[nodiscard]] static void* allocate(const execution_space& execution, const char* label,
                                      std::size_t bytes) {
    return memory_space().allocate(execution, label, bytes);
  }
  static void deallocate(const execution_space& execution, const char* label, void* data,
                         std::size_t bytes) noexcept {
    // If Kokkos uses cudaMallocAsync, it iterates over its devices here.
    std::shared_lock looks(detail::kokkos_maps(), std::defer_lock);
    if (device_count() > 1)
      looks.lock();
    memory_space::impl_create(execution.cuda_device(), execution.cuda_stream())
        .deallocate(label, data, bytes);
  }

  /// @brief Destroys the calling thread's handles and workspaces for the stream, whose work must be done.
  static void end_stream(const execution_space& execution) noexcept {
    detail::StreamObjects::own().end({execution.cuda_stream(), execution.cuda_device()});
  }

  /// @brief Returns whether all work on the instance's stream is done. @throws the device's error.
  [[nodiscard]] static bool idle(const execution_space& execution) {
    const cudaError_t result = cudaStreamQuery(execution.cuda_stream());
    if (result == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError()); // not an error, but CUDA remembers it as one
      return false;
    }
    detail::check_cuda(result, "work on the device");
    return true;
  }

  /// @brief The communicator of a host group for device memory, ordered with `execution`. Collective;
  /// waits for all ranks.
  ///
  /// Threads of one process that share a GPU use peer kernels, and so does a rank that is alone; other ranks
  /// use NCCL, with a GPU each.
  /// @throws ConfigurationMismatch if there is no NCCL, or two of the ranks that need it share a GPU; the
  /// errors of the group and of the device.
  [[nodiscard]] static DeviceCommunicator connect(const HostCommunicator& group,
                                                  const execution_space& execution) {
    const CudaRuntime runtime(execution.cuda_device());
    CudaRuntime::Stream stream(execution.cuda_stream(), std::make_shared<execution_space>(execution));
    if (group.size() == 1 ||
        (detail::ThreadRanks::of(group) != nullptr && detail::share_device(group, runtime.device())))
      return timed_like(group,
                        DeviceCommunicator(PeerTransport<CudaRuntime>::connect(group, runtime, stream)),
                        runtime, stream);
#if defined(SHARDWRIGHT_WITH_NCCL)
    return timed_like(group, nccl_communicator(group, runtime, stream), runtime, stream);
#else
    throw ConfigurationMismatch(
        "CudaTarget: the ranks of a group must be threads of one process that share a GPU, or be connected by NCCL, but they are processes or have several GPUs, and this program is built without NCCL (configure with SHARDWRIGHT_WITH_NCCL, or start it without mpirun on one GPU)",
        {group.world_rank(), group.name(), "connect", 0, {}, {}});
#endif
  }

private:
  static void require_kind_of_kokkos(int device) {
    if (!Kokkos::is_initialized())
      throw LifecycleError(
          "CudaTarget: use_device must be called after Kokkos is initialised, as every GPU must match the one that Kokkos uses (begin main with `const Kokkos::ScopeGuard kokkos(argc, argv);`)");
    const int own = Kokkos::Cuda().cuda_device();
    const auto capability = [](int of) {
      int major = 0;
      int minor = 0;
      detail::check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, of),
                         "querying the compute capability");
      detail::check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, of),
                         "querying the compute capability");
      return std::to_string(major) + "." + std::to_string(minor);
    };
    if (const std::string wanted = capability(own), got = capability(device); got != wanted)
      throw InvalidArgument(
          "CudaTarget: use_device must name a GPU of the kind that Kokkos uses, compute capability " +
          wanted + " as GPU " + std::to_string(own) + ", but GPU " + std::to_string(device) + " has " + got +
          " (leave it out of CUDA_VISIBLE_DEVICES, or use it from separate processes)");
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
