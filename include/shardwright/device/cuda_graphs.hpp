// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief CUDA graphs of the stream of one rank, for StepGraph.

#include <shardwright/device/cuda_runtime.hpp>

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Captures what one thread enqueues on a stream, and on streams joined to it by events, and replays it
/// there. During a capture, no thread of the process may use the default stream, as making a mesh does: that
/// would invalidate the capture. Kernels and copies in pinned memory can be captured. Collectives of several
/// ranks cannot: thread ranks meet on the host in each call, and calls of NCCL are made and watched there.
class CudaGraphs {
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
  };
  struct DestroyExecutable {
    void operator()(cudaGraphExec_t graph) const noexcept { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };

public:
  using Captured = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;
  using Replayable = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyExecutable>;

  CudaGraphs(CudaRuntime::Stream stream, int device) : stream_(std::move(stream)), device_(device) {}
  /// @param resources of a CUDA target, whose stream it keeps
  template <class Resources>
  explicit CudaGraphs(const Resources& resources)
      : CudaGraphs(CudaRuntime::Stream(resources.execution().cuda_stream(),
                                       std::make_shared<std::decay_t<decltype(resources.execution())>>(
                                           resources.execution())),
                   resources.execution().cuda_device()) {}

  void begin() {
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "beginning a capture");
  }
  [[nodiscard]] std::optional<Captured> end() {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream(), &graph) != cudaSuccess || graph == nullptr) {
      static_cast<void>(cudaGetLastError()); // the missing graph says so
      return std::nullopt;
    }
    return Captured(graph);
  }
  void discard() { static_cast<void>(end()); }
  [[nodiscard]] Replayable instantiate(Captured captured) {
    cudaGraphExec_t graph = nullptr;
    check(cudaGraphInstantiate(&graph, captured.get(), 0), "instantiating a graph");
    return Replayable(graph);
  }
  void launch(Replayable& replayable) {
    check(cudaGraphLaunch(replayable.get(), stream()), "launching a graph");
  }

private:
  /// The stream; its GPU becomes the calling thread's, since Kokkos or a collective may have left another one
  /// selected.
  [[nodiscard]] cudaStream_t stream() const {
    check(cudaSetDevice(device_), "choosing the device");
    return stream_.get();
  }
  static void check(cudaError_t code, const char* what) { check_cuda(code, what, "run without capture"); }

  CudaRuntime::Stream stream_;
  int device_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
