// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime library for programs whose kernels are interpreted, linked in its place: what nvcc's
// objects, Kokkos, CUB and this project call. A function that is missing shows as an undefined symbol when a
// program is linked.

#include "ptx/runtime/runtime.hpp"

#include "support/fake_cuda_calls.hpp"
#include "support/fake_cuda_library.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using ptx_runtime::Function;
using ptx_runtime::Runtime;

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};

thread_local std::vector<Configuration> configurations;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t noted(cudaError_t result) {
  if (result != cudaSuccess)
    last_error = result;
  return result;
}

[[noreturn]] void refuse(const char* call) {
  Runtime::get().end(std::string(call) + ": the stand-in of CUDA's runtime library does not have it.");
}

ptx::Module* module_of(void** handle) { return reinterpret_cast<ptx::Module*>(handle); }

int attribute(cudaDeviceAttr which) {
  switch (which) {
  case cudaDevAttrMultiProcessorCount:
    return Runtime::processors;
  case cudaDevAttrComputeCapabilityMajor:
    return 9;
  case cudaDevAttrMaxSharedMemoryPerBlock:
    return Runtime::shared_bytes;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    return Runtime::most_shared_bytes;
  case cudaDevAttrMaxThreadsPerBlock:
    return Runtime::most_threads;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    return 2 * Runtime::most_threads;
  case cudaDevAttrMaxGridDimX:
    return 0x7fffffff;
  case cudaDevAttrWarpSize:
    return 32;
  default:
    return 0;
  }
}

} // namespace

extern "C" {

// What nvcc's objects call.

void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(Runtime::get().add_module(wrapper));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Runtime::get().add_function(module_of(handle), host, name);
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, std::size_t, int, int) {
  Runtime::get().add_variable(module_of(handle), host, name);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  const Configuration of = configurations.back();
  configurations.pop_back();
  *grid = of.grid;
  *block = of.block;
  *shared = of.shared;
  *static_cast<cudaStream_t*>(stream) = of.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t stream) {
  return noted(
      Runtime::get().launch(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream));
}
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  return noted(Runtime::get().launch(host, grid, block, arguments, shared, stream));
}
/// Attributes that only allow work to overlap are ignored.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* with, const void* host, void** arguments) {
  for (unsigned i = 0; i < with->numAttrs; ++i)
    if (with->attrs[i].id == cudaLaunchAttributeClusterDimension)
      Runtime::get().end("cudaLaunchKernelExC: the interpreter has no clusters of blocks.");
  return noted(Runtime::get().launch(host, with->gridDim, with->blockDim, arguments, with->dynamicSmemBytes,
                                     with->stream));
}

// Errors.

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  static thread_local char name[32];
  std::snprintf(name, sizeof name, "cudaError %d", static_cast<int>(error)); // as in driver_types.h
  return name;
}
const char* cudaGetErrorString(cudaError_t) { return "see the complaints of the interpreter"; }

// The device.

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  *value = attribute(which);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "interpreter of PTX");
  properties->major = attribute(cudaDevAttrComputeCapabilityMajor);
  properties->multiProcessorCount = Runtime::processors;
  properties->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  properties->maxThreadsPerBlock = Runtime::most_threads;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->warpSize = 32;
  properties->sharedMemPerBlock = Runtime::shared_bytes;
  properties->sharedMemPerBlockOptin = Runtime::most_shared_bytes;
  properties->sharedMemPerMultiprocessor = Runtime::most_shared_bytes + 1024;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 1 << 16;
  properties->totalGlobalMem = std::size_t{4} << 30;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 0xffff;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->unifiedAddressing = properties->concurrentKernels = 1;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{4} << 30;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

// Kokkos' library asks for the device of a stream by the driver's library.

CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  *context = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

// Kernels.

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  const Function* const function = Runtime::get().find(host);
  if (function == nullptr)
    return noted(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = static_cast<int>(function->kernel->maximum_threads);
  attributes->sharedSizeBytes = function->kernel->shared_bytes;
  attributes->localSizeBytes = function->kernel->local_bytes;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(function->most_dynamic_shared);
  attributes->numRegs = 32; // PTX does not say
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute which, int value) {
  Function* const function = Runtime::get().find(host);
  if (function == nullptr)
    return noted(cudaErrorInvalidDeviceFunction);
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return cudaSuccess;
  if (value < 0 ||
      static_cast<std::size_t>(value) + function->kernel->shared_bytes > Runtime::most_shared_bytes)
    return noted(cudaErrorInvalidValue);
  function->most_dynamic_shared = static_cast<std::size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int threads,
                                                                   std::size_t shared, unsigned) {
  const Function* const function = Runtime::get().find(host);
  if (function == nullptr || threads <= 0)
    return noted(cudaErrorInvalidValue);
  const std::size_t bytes = std::max<std::size_t>(1, shared + function->kernel->shared_bytes);
  *blocks = static_cast<int>(std::min<std::size_t>(
      2 * Runtime::most_threads / static_cast<std::size_t>(threads), Runtime::most_shared_bytes / bytes));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads,
                                                          std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}

// Copies that the host waits for, and variables.

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  const ptx::Variable* const variable = Runtime::get().variable(symbol);
  if (variable == nullptr || offset > variable->bytes || bytes > variable->bytes - offset)
    return noted(cudaErrorInvalidSymbol);
  return cudaMemcpyAsync(variable->address + offset, from, bytes, kind, stream);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind kind) {
  return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr);
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) { return cudaMallocHost(data, bytes); }

// Kokkos' library refers to these for memory that this project does not use.

cudaError_t cudaMallocManaged(void**, std::size_t, unsigned) { refuse("cudaMallocManaged"); }
cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, cudaMemLocation, unsigned, cudaStream_t) {
  refuse("cudaMemPrefetchAsync");
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*) {
  refuse("cudaPointerGetAttributes");
}

// Streams and events.

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

} // extern "C"
