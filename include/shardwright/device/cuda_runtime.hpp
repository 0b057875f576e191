// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The CUDA runtime for the peer transport: streams, events, launches, and CUDA errors as typed
/// exceptions.

#include <shardwright/core/error.hpp>
#include <shardwright/device/kernels.hpp>
#include <shardwright/device/runtime.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Throws a typed error unless the CUDA result is success. `what` names the failed operation.
inline void check_cuda(
    cudaError_t result, const char* what,
    const char* advice = "an error in an earlier kernel shows up here too: run under compute-sanitizer") {
  if (result != cudaSuccess)
    throw TransportError(static_cast<int>(result), std::string("CUDA: ") + what +
                                                       " failed: " + cudaGetErrorName(result) + ", " +
                                                       cudaGetErrorString(result) + " (" + advice + ")");
}

/// Distributes the tiles of a block over the available thread blocks.
template <class Kernel>
__global__ void __launch_bounds__(peer_lanes)
    run_peer_kernel(const __grid_constant__ Kernel kernel, std::uint64_t tiles, unsigned groups) {
  const unsigned block = blockIdx.x / groups;
  for (std::uint64_t tile = blockIdx.x % groups; tile < tiles; tile += groups)
    kernel(block, tile, threadIdx.x);
}

struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
struct FreeOnDevice {
  void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
};
struct FreeInOrder {
  cudaStream_t stream;
  void operator()(std::byte* memory) const noexcept { cudaFreeAsync(memory, stream); }
};
struct FreeOnHost {
  void operator()(std::byte* memory) const noexcept { cudaFreeHost(memory); }
};

} // namespace detail

/// @brief A PeerRuntime on one CUDA device. Streams do not wait for the default one and have the highest
/// priority, so that communication runs next to a rank's kernels; most events do not measure time. A device
/// has CUDA_DEVICE_MAX_CONNECTIONS hardware queues for streams, 8 by default: more streams than that give the
/// same results with less overlap. With NCCL, whose kernels wait for one another, set it to 32.
///
/// @throws TransportError with the CUDA error's number, name and text.
class CudaRuntime {
public:
  static constexpr unsigned lanes = detail::peer_lanes;

  /// @brief A stream that is owned elsewhere, or by its copies.
  class Stream {
  public:
    explicit Stream(cudaStream_t stream, std::shared_ptr<const void> owner = {})
        : stream_(stream), owner_(std::move(owner)) {}
    [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

  private:
    cudaStream_t stream_;
    std::shared_ptr<const void> owner_;
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, detail::DestroyEvent>;
  /// @brief Device memory for the work of a stream, made and freed in its order: the host need not wait.
  class Memory {
  public:
    Memory(Stream stream, std::size_t bytes) : stream_(std::move(stream)), bytes_(bytes) {
      void* memory = nullptr;
      detail::check_cuda(cudaMallocAsync(&memory, bytes, stream_.get()), "allocating device memory");
      data_ = {static_cast<std::byte*>(memory), {stream_.get()}};
    }
    [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// @brief From now on it is used on, and freed in the order of, another stream, which waits for all uses
    /// so far.
    void follow(const Stream& stream) {
      data_.get_deleter().stream = stream.get();
      stream_ = stream;
    }

  private:
    Stream stream_; // which outlives the memory
    std::size_t bytes_;
    std::unique_ptr<std::byte, detail::FreeInOrder> data_;
  };

  /// @brief Pinned memory of the host and memory of the device.
  class Table {
  public:
    explicit Table(std::size_t bytes) : bytes_(bytes) {
      void* memory = nullptr;
      detail::check_cuda(cudaMallocHost(&memory, bytes), "allocating pinned memory");
      host_.reset(static_cast<std::byte*>(memory));
      detail::check_cuda(cudaMalloc(&memory, bytes), "allocating device memory");
      device_.reset(static_cast<std::byte*>(memory));
    }
    [[nodiscard]] std::byte* host() noexcept { return host_.get(); }
    [[nodiscard]] const std::byte* device() const noexcept { return device_.get(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  private:
    friend CudaRuntime;
    std::size_t bytes_;
    std::unique_ptr<std::byte, detail::FreeOnHost> host_;
    std::unique_ptr<std::byte, detail::FreeOnDevice> device_;
  };

  explicit CudaRuntime(int device) : device_(device) {
    detail::check_cuda(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device),
                       "querying the number of multiprocessors");
  }

  [[nodiscard]] int device() const noexcept { return device_; }

  [[nodiscard]] Stream make_stream() {
    use_device();
    int least = 0;
    int greatest = 0;
    detail::check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "querying stream priorities");
    cudaStream_t stream = nullptr;
    detail::check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
                       "creating a stream");
    return Stream(stream,
                  std::shared_ptr<const void>(stream, [](cudaStream_t own) { cudaStreamDestroy(own); }));
  }
  [[nodiscard]] Event make_event() { return make_event(cudaEventDisableTiming); }
  [[nodiscard]] Event make_timed_event() { return make_event(cudaEventDefault); }
  [[nodiscard]] double seconds(Event& from, Event& to) {
    float milliseconds = 0;
    detail::check_cuda(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "reading a time");
    return 1e-3 * static_cast<double>(milliseconds);
  }
  [[nodiscard]] Table make_table(std::size_t bytes) {
    use_device();
    return Table(bytes);
  }

  [[nodiscard]] Memory make_memory(const Stream& stream, std::size_t bytes) {
    use_device();
    return {stream, bytes};
  }

  void upload(Stream& stream, Table& table, std::size_t bytes) {
    detail::check_cuda(
        cudaMemcpyAsync(table.device_.get(), table.host(), bytes, cudaMemcpyHostToDevice, stream.get()),
        "copying a work list");
  }
  void record(Event& event, Stream& stream) {
    detail::check_cuda(cudaEventRecord(event.get(), stream.get()), "recording an event");
  }
  void wait(Stream& stream, Event& event) {
    detail::check_cuda(cudaStreamWaitEvent(stream.get(), event.get(), 0),
                       "making a stream wait for an event");
  }
  [[nodiscard]] bool done(Event& event) {
    const cudaError_t result = cudaEventQuery(event.get());
    if (result == cudaErrorNotReady) {
      cudaGetLastError(); // not an error, but CUDA remembers it as one
      return false;
    }
    detail::check_cuda(result, "work on the device");
    return true;
  }
  void copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
    detail::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()),
                       "copying a message");
  }
  template <class Kernel>
  void launch(Stream& stream, const Kernel& kernel, unsigned blocks, std::uint64_t tiles) {
    static_assert(sizeof(Kernel) <= 4000,
                  "peer kernels: the arguments must fit into the kernel arguments of any GPU");
    use_device();
    // Enough to fill the GPU twice, so that thread blocks that end early leave no gap.
    const auto most = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(processors_) * 16 / blocks);
    auto groups = static_cast<unsigned>(std::min(tiles, most));
    Kernel copy = kernel;
    void* arguments[] = {&copy, &tiles, &groups};
    detail::check_cuda(cudaLaunchKernel(&detail::run_peer_kernel<Kernel>, dim3(groups * blocks), dim3(lanes),
                                        arguments, 0, stream.get()),
                       "launching a collective");
  }
  void call(Stream& stream, void (*function)(void*), void* of) {
    use_device();
    detail::check_cuda(cudaLaunchHostFunc(stream.get(), function, of), "noting a time");
  }

  /// @brief Makes the device the calling thread's, which starts on device 0.
  void use_device() const { detail::check_cuda(cudaSetDevice(device_), "choosing the device"); }

private:
  [[nodiscard]] Event make_event(unsigned flags) {
    use_device();
    cudaEvent_t event = nullptr;
    detail::check_cuda(cudaEventCreateWithFlags(&event, flags), "creating an event");
    return Event(event);
  }

  int device_;
  int processors_ = 1;
};

static_assert(PeerRuntime<CudaRuntime>);

} // namespace shardwright::inline SHARDWRIGHT_ABI
