// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Device memory that follows a stream, for checks of communicators.

#include <shardwright/device/cuda_runtime.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace cuda_test {

namespace sw = shardwright;
using sw::detail::check_cuda;

/// Device memory that is allocated and freed in stream order.
template <class E> class CudaBuffer {
public:
  CudaBuffer(cudaStream_t stream, const std::vector<E>& numbers) : stream_(stream), size_(numbers.size()) {
    void* memory = nullptr;
    check_cuda(cudaMallocAsync(&memory, bytes() + 1, stream_), "allocating a buffer");
    data_ = static_cast<E*>(memory);
    check_cuda(cudaMemcpyAsync(data_, numbers.data(), bytes(), cudaMemcpyHostToDevice, stream_),
               "filling it");
  }
  CudaBuffer(CudaBuffer&& other) noexcept
      : stream_(other.stream_), size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  CudaBuffer& operator=(CudaBuffer&&) = delete;
  ~CudaBuffer() {
    if (data_ != nullptr)
      cudaFreeAsync(data_, stream_);
  }

  [[nodiscard]] E* data() noexcept { return data_; }
  [[nodiscard]] const E* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Its contents after all work on the stream.
  [[nodiscard]] std::vector<E> read() const {
    std::vector<E> out(size_);
    check_cuda(cudaMemcpyAsync(out.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream_),
               "reading a buffer");
    check_cuda(cudaStreamSynchronize(stream_), "waiting for it");
    return out;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(E); }

private:
  cudaStream_t stream_;
  std::size_t size_;
  E* data_ = nullptr;
};

} // namespace cuda_test
