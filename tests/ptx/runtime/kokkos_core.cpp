// SPDX-License-Identifier: Apache-2.0
// What device programs need of Kokkos' own library, for a Kokkos of which only the headers are there:
// instances on streams, memory with its records, initialisation. It is compiled with nvcc and calls CUDA's
// runtime library, whose stand-in is linked. Where KOKKOS_CUDA_ROOT has a libkokkoscore whose kernels are
// text, that one is linked instead (programs.cmake).
//
// Signatures are those of the headers of Kokkos 5.2.

#define KOKKOS_IMPL_PUBLIC_INCLUDE // as Kokkos' own sources say
#include <Kokkos_Core.hpp>
#include <impl/Kokkos_SharedAlloc_timpl.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" void ptx_name_memory(const char* label);

namespace {

bool begun = false, ended = false;

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess)
    throw std::runtime_error(std::string("Kokkos: ") + what + " must succeed, but CUDA says " +
                             cudaGetErrorName(result));
}

constexpr std::size_t scratch_grain = 32 * sizeof(Kokkos::Cuda::size_type);

/// Memory of an instance that grows and is never given back: a new one begins with zeros.
Kokkos::Cuda::size_type* grown(Kokkos::Cuda::size_type*& memory, std::size_t& held, std::size_t bytes) {
  const std::size_t needed = (bytes + scratch_grain - 1) / scratch_grain * scratch_grain;
  if (held >= needed)
    return memory;
  check(cudaFree(memory), "freeing the scratch memory");
  void* data = nullptr;
  check(cudaMalloc(&data, needed), "allocating scratch memory");
  check(cudaMemset(data, 0, needed), "clearing scratch memory");
  held = needed;
  return memory = static_cast<Kokkos::Cuda::size_type*>(data);
}

} // namespace

namespace desul::Impl {
int32_t* CUDA_SPACE_ATOMIC_LOCKS_DEVICE_h = nullptr;
int32_t* CUDA_SPACE_ATOMIC_LOCKS_NODE_h = nullptr;
} // namespace desul::Impl

namespace Kokkos {

// Tools: none is ever loaded.

namespace Tools {
bool profileLibraryLoaded() { return false; }
void beginParallelFor(const std::string&, uint32_t, uint64_t*) {}
void endParallelFor(uint64_t) {}
void beginParallelReduce(const std::string&, uint32_t, uint64_t*) {}
void endParallelReduce(uint64_t) {}
void beginParallelScan(const std::string&, uint32_t, uint64_t*) {}
void endParallelScan(uint64_t) {}
void beginFence(const std::string&, uint32_t, uint64_t*) {}
void endFence(uint64_t) {}
void beginDeepCopy(SpaceHandle, const std::string&, const void*, SpaceHandle, const std::string&, const void*,
                   uint64_t) {}
void endDeepCopy() {}
SpaceHandle make_space_handle(const char* name) {
  SpaceHandle handle{};
  std::strncpy(handle.name, name, sizeof handle.name - 1);
  return handle;
}
namespace Experimental {
EventSet get_callbacks() { return {}; }
} // namespace Experimental
} // namespace Tools

namespace Impl {

void host_abort(const char* sentence) {
  std::fprintf(stderr, "Kokkos: %s\n", sentence);
  std::abort();
}
void throw_runtime_exception(const std::string& sentence) { throw std::runtime_error(sentence); }
void throw_bad_alloc(std::string_view space, std::size_t size, std::string_view label) {
  throw std::runtime_error("Kokkos: no memory of " + std::to_string(size) + " bytes in " +
                           std::string(space) + " for " + std::string(label));
}
void cuda_internal_error_throw(cudaError result, const char* what, const char*, int) {
  throw std::runtime_error(std::string("Kokkos: ") + what + " failed: " + cudaGetErrorName(result));
}
void cuda_internal_error_abort(cudaError result, const char* what, const char*, int) {
  host_abort((std::string(what) + ": " + cudaGetErrorName(result)).c_str());
}

// Records of allocations.

SharedAllocationRecord<void, void>::SharedAllocationRecord(SharedAllocationHeader* memory, std::size_t size,
                                                           function_type end, const std::string& label)
    : m_alloc_ptr(memory), m_alloc_size(size), m_dealloc(end), m_count(0), m_label(label) {}
void SharedAllocationRecord<void, void>::increment(SharedAllocationRecord<void, void>* record) {
  Kokkos::atomic_add(&record->m_count, 1);
}
SharedAllocationRecord<void, void>*
SharedAllocationRecord<void, void>::decrement(SharedAllocationRecord<void, void>* record) {
  if (Kokkos::atomic_fetch_sub(&record->m_count, 1) != 1)
    return record;
  if (record->m_dealloc != nullptr && !ended)
    record->m_dealloc(record);
  return nullptr;
}
void fill_host_accessible_header_info(SharedAllocationRecord<void, void>* record,
                                      SharedAllocationHeader& header, const std::string& label) {
  header.m_record = record;
  std::memset(header.m_label, 0, sizeof header.m_label);
  label.copy(header.m_label, sizeof header.m_label - 1);
}

// Copies.

void hostspace_parallel_deepcopy(void* to, const void* from, std::ptrdiff_t bytes) {
  std::memmove(to, from, static_cast<std::size_t>(bytes));
}
void hostspace_parallel_deepcopy_async(void* to, const void* from, std::ptrdiff_t bytes) {
  hostspace_parallel_deepcopy(to, from, bytes);
}
void DeepCopyAsyncCuda(const Cuda& instance, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, instance.cuda_stream()), "a copy");
}
void DeepCopyAsyncCuda(void* to, const void* from, std::size_t bytes) {
  DeepCopyAsyncCuda(Cuda(), to, from, bytes);
  Cuda().fence();
}
void DeepCopyCuda(void* to, const void* from, std::size_t bytes) { DeepCopyAsyncCuda(to, from, bytes); }

// Instances.

int CudaInternal::m_cudaArch = 90;
cudaDeviceProp CudaInternal::m_deviceProp;
std::set<int> CudaInternal::cuda_devices;
std::map<int, unsigned long*> CudaInternal::constantMemHostStagingPerDevice;
std::map<int, cudaEvent_t> CudaInternal::constantMemReusablePerDevice;
std::map<int, std::mutex> CudaInternal::constantMemMutexPerDevice;
HostSharedPtr<CudaInternal> CudaInternal::default_instance;

CudaInternal::CudaInternal(cudaStream_t stream) : m_stream(stream) {
  check(cudaGetDevice(&m_cudaDev), "asking for the device");
  cuda_devices.insert(m_cudaDev);
  if (constantMemHostStagingPerDevice[m_cudaDev] == nullptr) {
    void* staging = nullptr;
    check(cudaMallocHost(&staging, CudaTraits::ConstantMemoryUsage), "allocating pinned memory");
    constantMemHostStagingPerDevice[m_cudaDev] = static_cast<unsigned long*>(staging);
    check(cudaEventCreateWithFlags(&constantMemReusablePerDevice[m_cudaDev], cudaEventDisableTiming),
          "creating an event");
  }
}
CudaInternal::~CudaInternal() {
  for (void* memory : {m_scratchSpace, m_scratchFlags, m_scratchUnified, m_scratchFunctor})
    static_cast<void>(cudaFree(memory));
}
int CudaInternal::concurrency() {
  return m_deviceProp.maxThreadsPerMultiProcessor * m_deviceProp.multiProcessorCount;
}
int CudaInternal::verify_is_initialized(const char* what) const {
  if (m_cudaDev < 0)
    host_abort(what);
  return 1;
}
std::uint32_t CudaInternal::impl_get_instance_id() const { return m_instance_id; }
void CudaInternal::fence(const std::string&) const { check(cudaStreamSynchronize(m_stream), "a fence"); }
void CudaInternal::fence() const { fence(""); }
CudaInternal::size_type* CudaInternal::scratch_space(std::size_t bytes) const {
  return grown(m_scratchSpace, m_scratchSpaceCount, bytes);
}
CudaInternal::size_type* CudaInternal::scratch_flags(std::size_t bytes) const {
  return grown(m_scratchFlags, m_scratchFlagsCount, bytes);
}
CudaInternal::size_type* CudaInternal::scratch_unified(std::size_t bytes) const {
  return grown(m_scratchUnified, m_scratchUnifiedCount, bytes);
}
CudaInternal::size_type* CudaInternal::scratch_functor(std::size_t bytes) const {
  return grown(m_scratchFunctor, m_scratchFunctorSize, bytes);
}
CudaInternal::size_type* cuda_internal_scratch_space(const Cuda& instance, std::size_t bytes) {
  return instance.impl_internal_space_instance()->scratch_space(bytes);
}
CudaInternal::size_type* cuda_internal_scratch_flags(const Cuda& instance, std::size_t bytes) {
  return instance.impl_internal_space_instance()->scratch_flags(bytes);
}
CudaInternal::size_type* cuda_internal_scratch_unified(const Cuda& instance, std::size_t bytes) {
  return instance.impl_internal_space_instance()->scratch_unified(bytes);
}

HostSharedPtr<SerialInternal> SerialInternal::default_instance;
std::vector<SerialInternal*> SerialInternal::all_instances;
std::mutex SerialInternal::all_instances_mutex;
SerialInternal::SerialInternal() = default;
SerialInternal::~SerialInternal() = default;
void SerialInternal::fence(const std::string&) {}

} // namespace Impl

namespace {
Impl::HostSharedPtr<Impl::CudaInternal> instance_on(cudaStream_t stream, Impl::ManageStream manage) {
  return {new Impl::CudaInternal(stream), [manage](Impl::CudaInternal* instance) {
            const cudaStream_t own = instance->m_stream;
            static_cast<void>(cudaStreamSynchronize(own));
            delete instance;
            if (manage == Impl::ManageStream::yes)
              static_cast<void>(cudaStreamDestroy(own));
          }};
}
} // namespace

Cuda::Cuda() : m_space_instance(Impl::CudaInternal::default_instance) {}
Cuda::Cuda(cudaStream_t stream, Impl::ManageStream manage) : m_space_instance(instance_on(stream, manage)) {}
const char* Cuda::name() { return "Cuda"; }
int Cuda::concurrency() const { return Impl::CudaInternal::concurrency(); }
cudaStream_t Cuda::cuda_stream() const { return m_space_instance->m_stream; }
int Cuda::cuda_device() const { return m_space_instance->m_cudaDev; }
const cudaDeviceProp& Cuda::cuda_device_prop() const { return Impl::CudaInternal::m_deviceProp; }
std::uint32_t Cuda::impl_instance_id() const noexcept { return m_space_instance->impl_get_instance_id(); }
void Cuda::fence(const std::string& name) const { m_space_instance->fence(name); }
void Cuda::impl_static_fence(const std::string&) { check(cudaDeviceSynchronize(), "a fence of the device"); }

Serial::Serial() : m_space_instance(Impl::SerialInternal::default_instance) {}
Serial::Serial(NewInstance) : m_space_instance(new Impl::SerialInternal) {}
Serial::~Serial() = default;
const char* Serial::name() { return "Serial"; }

// Memory.

CudaSpace::CudaSpace() : CudaSpace(Cuda().cuda_device(), Cuda().cuda_stream()) {}
CudaSpace::CudaSpace(int device, cudaStream_t stream) : m_device(device), m_stream(stream) {}
void* CudaSpace::allocate(const char* label, std::size_t bytes, std::size_t) const {
  void* data = nullptr;
  check(cudaSetDevice(m_device), "choosing the device");
  ptx_name_memory(label);
  check(cudaMalloc(&data, bytes), "allocating memory");
  return data;
}
void* CudaSpace::allocate(const Cuda& on, const char* label, std::size_t bytes, std::size_t) const {
  return CudaSpace(on.cuda_device(), on.cuda_stream()).allocate(label, bytes);
}
void* CudaSpace::allocate(std::size_t bytes) const { return allocate("", bytes); }
void CudaSpace::deallocate(const char*, void* data, std::size_t, std::size_t) const {
  check(cudaSetDevice(m_device), "choosing the device");
  check(cudaFree(data), "giving memory back");
}
void CudaSpace::deallocate(void* data, std::size_t bytes) const { deallocate("", data, bytes); }

CudaHostPinnedSpace::CudaHostPinnedSpace() : m_device(Cuda().cuda_device()), m_stream(Cuda().cuda_stream()) {}
CudaHostPinnedSpace::CudaHostPinnedSpace(int device, cudaStream_t stream)
    : m_device(device), m_stream(stream) {}
void* CudaHostPinnedSpace::allocate(const char*, std::size_t bytes, std::size_t) const {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "allocating pinned memory");
  return data;
}
void CudaHostPinnedSpace::deallocate(const char*, void* data, std::size_t, std::size_t) const {
  check(cudaFreeHost(data), "giving pinned memory back");
}

void* HostSpace::allocate(const char*, std::size_t bytes, std::size_t) const {
  constexpr std::size_t alignment = 64;
  return bytes == 0 ? nullptr
                    : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void* HostSpace::allocate(std::size_t bytes) const { return allocate("", bytes); }
void HostSpace::deallocate(const char*, void* data, std::size_t, std::size_t) const { std::free(data); }
void HostSpace::deallocate(void* data, std::size_t) const { std::free(data); }

// A whole program.

bool is_initialized() noexcept { return begun && !ended; }
bool is_finalized() noexcept { return ended; }
void initialize(const InitializationSettings&) {
  check(cudaGetDeviceProperties(&Impl::CudaInternal::m_deviceProp, 0), "asking for the device's properties");
  begun = true;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "creating a stream");
  Impl::CudaInternal::default_instance = instance_on(stream, Impl::ManageStream::yes);
  Impl::SerialInternal::default_instance =
      Impl::HostSharedPtr<Impl::SerialInternal>(new Impl::SerialInternal);
}
void initialize(int&, char**) { initialize(InitializationSettings()); }
void finalize() {
  Impl::CudaInternal::default_instance = nullptr;
  Impl::SerialInternal::default_instance = nullptr;
  for (auto& [device, staging] : Impl::CudaInternal::constantMemHostStagingPerDevice)
    static_cast<void>(cudaFreeHost(staging));
  for (auto& [device, event] : Impl::CudaInternal::constantMemReusablePerDevice)
    static_cast<void>(cudaEventDestroy(event));
  ended = true;
}
void fence(const std::string& name) { Cuda::impl_static_fence(name); }

} // namespace Kokkos

KOKKOS_IMPL_SHARED_ALLOCATION_RECORD_EXPLICIT_INSTANTIATION(Kokkos::HostSpace);
KOKKOS_IMPL_SHARED_ALLOCATION_RECORD_EXPLICIT_INSTANTIATION(Kokkos::CudaHostPinnedSpace);
KOKKOS_IMPL_HOST_INACCESSIBLE_SHARED_ALLOCATION_RECORD_EXPLICIT_INSTANTIATION(Kokkos::CudaSpace);
