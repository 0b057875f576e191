// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The functions of CUDA's runtime library for streams, events, memory and graphs, over the fake, for
/// one unit of a program.

#include "support/fake_cuda_library.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

extern "C" {

inline cudaError_t fake_cuda_allocate(void** data, std::size_t bytes) {
  return fake_cuda::library().call([&] { return fake_cuda::library().allocate(data, bytes); });
}
inline cudaError_t fake_cuda_free(void* data) {
  return fake_cuda::library().call([&] { return fake_cuda::library().free(data); });
}

cudaError_t cudaSetDevice(int device) {
  return fake_cuda::library().call([&] { return fake_cuda::library().set_device(device); });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) { return fake_cuda_allocate(data, bytes); }
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return fake_cuda::library().call([&] { return fake_cuda::library().allocate(data, bytes, true); });
}
cudaError_t cudaFree(void* data) { return fake_cuda_free(data); }
cudaError_t cudaFreeHost(void* data) { return fake_cuda_free(data); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return fake_cuda::library().call([&] { return fake_cuda::library().make_stream(stream); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().synchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().query(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return fake_cuda::library().call([&] { return fake_cuda::library().wait(stream, event); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return fake_cuda::library().call([&] { return fake_cuda::library().make_event(event, flags); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().record(event, stream); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return fake_cuda::library().call([&] { return fake_cuda::library().query(event); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return fake_cuda::library().call([&] { return fake_cuda::library().synchronize(event); });
}
cudaError_t cudaDeviceSynchronize() {
  return fake_cuda::library().call([] { return fake_cuda::library().synchronize_all(); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return fake_cuda::library().call([&] { return fake_cuda::library().elapsed(milliseconds, from, to); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().copy(to, from, bytes, stream); });
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().fill(data, value, bytes, stream); });
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  return fake_cuda_allocate(data, bytes);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().free_later(data, stream); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* of) {
  return fake_cuda::library().call([&] {
    return fake_cuda::library().enqueue(
        stream, [=] { function(of); }, nullptr, 0, false);
  });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return fake_cuda::library().call([&] { return fake_cuda::library().begin_capture(stream); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return fake_cuda::library().call([&] { return fake_cuda::library().end_capture(stream, graph); });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return fake_cuda::library().call([&] { return fake_cuda::library().instantiate(made, graph); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().launch(graph, stream); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy_graph(graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy_graph(graph); });
}

} // extern "C"
