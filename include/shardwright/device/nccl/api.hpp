// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief NCCL's functions for the transport: all communicators non-blocking, results as NcclResult.

#include <shardwright/core/element.hpp>
#include <shardwright/device/nccl/channel.hpp>
#include <shardwright/device/nccl/eager_loading.hpp>

#include <cuda_runtime.h>
#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1),
              "NCCL: the version must be 2.18 or newer (install it, or set SHARDWRIGHT_WITH_NCCL=OFF)");

namespace detail {

static_assert(static_cast<int>(NcclResult::success) == ncclSuccess &&
              static_cast<int>(NcclResult::unhandled_cuda_error) == ncclUnhandledCudaError &&
              static_cast<int>(NcclResult::system_error) == ncclSystemError &&
              static_cast<int>(NcclResult::internal_error) == ncclInternalError &&
              static_cast<int>(NcclResult::invalid_argument) == ncclInvalidArgument &&
              static_cast<int>(NcclResult::invalid_usage) == ncclInvalidUsage &&
              static_cast<int>(NcclResult::remote_error) == ncclRemoteError &&
              static_cast<int>(NcclResult::in_progress) == ncclInProgress);

/// NCCL's type of an element, or of the parts of a complex one.
[[nodiscard]] constexpr ncclDataType_t nccl_type_of(ElementType type) noexcept {
  switch (type) {
  case ElementType::uint8:
    return ncclUint8;
  case ElementType::int32:
    return ncclInt32;
  case ElementType::int64:
    return ncclInt64;
  case ElementType::uint32:
    return ncclUint32;
  case ElementType::uint64:
    return ncclUint64;
  case ElementType::float32:
  case ElementType::complex64:
    return ncclFloat32;
  case ElementType::float64:
  case ElementType::complex128:
    return ncclFloat64;
  case ElementType::bfloat16:
    return ncclBfloat16;
  case ElementType::float16:
    return ncclFloat16;
  }
  return ncclUint8;
}

[[nodiscard]] constexpr ncclRedOp_t nccl_operation_of(ReduceOp op) noexcept {
  switch (op) {
  case ReduceOp::sum:
  case ReduceOp::ordered_sum:
    return ncclSum;
  case ReduceOp::average:
    return ncclAvg;
  case ReduceOp::product:
    return ncclProd;
  case ReduceOp::maximum:
    return ncclMax;
  case ReduceOp::minimum:
    return ncclMin;
  }
  return ncclSum;
}

} // namespace detail

/// @brief The real NCCL. Stateless; every function wraps NCCL's function of a similar name.
struct NcclApi {
  using Communicator = ncclComm_t;
  using UniqueId = ncclUniqueId;
  using Stream = cudaStream_t;
  using Result = detail::NcclResult;
  /// A unique identity of a GPU.
  using Device = std::array<unsigned char, 16>;

  [[nodiscard]] static Result unique_id(UniqueId& id) noexcept { return result(ncclGetUniqueId(&id)); }
  /// @brief Begins to form a communicator on the current device; `state` says when it has formed.
  [[nodiscard]] static Result init(Communicator& out, int ranks, const UniqueId& id, int rank,
                                   const char* name) noexcept {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = name;
#else
    static_cast<void>(name);
#endif
    return result(ncclCommInitRankConfig(&out, ranks, id, rank, &config));
  }
  /// @brief in_progress while a requested operation is not done yet, else its result.
  [[nodiscard]] static Result state(Communicator comm) noexcept {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    return result(asked == ncclSuccess ? state : asked);
  }
  [[nodiscard]] static Result finalize(Communicator comm) noexcept { return result(ncclCommFinalize(comm)); }
  [[nodiscard]] static Result destroy(Communicator comm) noexcept { return result(ncclCommDestroy(comm)); }
  [[nodiscard]] static Result abort(Communicator comm) noexcept { return result(ncclCommAbort(comm)); }
  [[nodiscard]] static Result group_start() noexcept { return result(ncclGroupStart()); }
  [[nodiscard]] static Result group_end() noexcept { return result(ncclGroupEnd()); }

  [[nodiscard]] static Result all_reduce(const void* in, void* out, std::size_t count, ElementType type,
                                         ReduceOp op, Communicator comm, Stream stream) noexcept {
    return result(ncclAllReduce(in, out, count * detail::parts_of(type), detail::nccl_type_of(type),
                                detail::nccl_operation_of(op), comm, stream));
  }
  [[nodiscard]] static Result reduce(const void* in, void* out, std::size_t count, ElementType type,
                                     ReduceOp op, int root, Communicator comm, Stream stream) noexcept {
    return result(ncclReduce(in, out, count * detail::parts_of(type), detail::nccl_type_of(type),
                             detail::nccl_operation_of(op), root, comm, stream));
  }
  [[nodiscard]] static Result reduce_scatter(const void* in, void* out, std::size_t count, ElementType type,
                                             ReduceOp op, Communicator comm, Stream stream) noexcept {
    return result(ncclReduceScatter(in, out, count * detail::parts_of(type), detail::nccl_type_of(type),
                                    detail::nccl_operation_of(op), comm, stream));
  }
  [[nodiscard]] static Result all_gather(const void* in, void* out, std::size_t count, ElementType type,
                                         Communicator comm, Stream stream) noexcept {
    return result(
        ncclAllGather(in, out, count * detail::parts_of(type), detail::nccl_type_of(type), comm, stream));
  }
  [[nodiscard]] static Result broadcast(const void* in, void* out, std::size_t count, ElementType type,
                                        int root, Communicator comm, Stream stream) noexcept {
    return result(ncclBroadcast(in, out, count * detail::parts_of(type), detail::nccl_type_of(type), root,
                                comm, stream));
  }
  [[nodiscard]] static Result send(const void* in, std::size_t count, ElementType type, int peer,
                                   Communicator comm, Stream stream) noexcept {
    return result(
        ncclSend(in, count * detail::parts_of(type), detail::nccl_type_of(type), peer, comm, stream));
  }
  [[nodiscard]] static Result receive(void* out, std::size_t count, ElementType type, int peer,
                                      Communicator comm, Stream stream) noexcept {
    return result(
        ncclRecv(out, count * detail::parts_of(type), detail::nccl_type_of(type), peer, comm, stream));
  }

  /// @brief NCCL's text for a code, with its last message about this communicator.
  [[nodiscard]] static std::string text(Result code, Communicator comm) {
    std::string out = ncclGetErrorString(static_cast<ncclResult_t>(code));
    const char* const last = ncclGetLastError(comm);
    if (last != nullptr && *last != '\0')
      out.append(": ").append(last);
    return out;
  }
  /// @brief The GPU that the calling thread currently uses; all zero if CUDA does not report it.
  [[nodiscard]] static Device device() noexcept {
    Device out{};
    int number = 0;
    cudaDeviceProp properties{};
    if (cudaGetDevice(&number) == cudaSuccess && cudaGetDeviceProperties(&properties, number) == cudaSuccess)
      std::memcpy(out.data(), properties.uuid.bytes, out.size());
    return out;
  }

private:
  [[nodiscard]] static Result result(ncclResult_t code) noexcept { return static_cast<Result>(code); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
