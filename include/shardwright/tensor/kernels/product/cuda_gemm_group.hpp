// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Products of different sizes on NVIDIA GPUs, by one call of cublasGemmGroupedBatchedEx. cuBLASLt
/// only has batches of equal sizes, and experts have different numbers of rows.

#include <shardwright/tensor/kernels/device/cuda_streams.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/product/cuda_gemm.hpp>
#include <shardwright/tensor/kernels/product/gemm_group.hpp>

#include <Kokkos_Core.hpp>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

#if CUBLAS_VERSION >= 120500

/// cuBLAS on one stream, with its own workspace, so that it allocates nothing and its sums are reproducible.
class CublasGroups {
public:
  static constexpr std::size_t workspace_bytes = cublas_workspace_bytes;
  static constexpr std::size_t most_products = 4096; // of one call

  /// On the calling thread's device, which is the stream's.
  explicit CublasGroups(cudaStream_t stream) {
    cublasHandle_t handle = nullptr;
    check(cublasCreate(&handle), "cublasCreate");
    handle_.reset(handle);
    workspace_ = workspace_of_stream(workspace_bytes + 3 * most_products * sizeof(const void*), "grouped");
    check(cublasSetStream(handle, stream), "cublasSetStream");
    check(cublasSetWorkspace(handle, workspace_.get(), workspace_bytes), "cublasSetWorkspace");
    // Split-K parts are summed in the accumulation type.
    check(cublasSetMathMode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode");
  }

  /// False if cuBLAS has no kernel for these types.
  [[nodiscard]] bool multiply(const Kokkos::Cuda& execution, const GemmGroup& group) {
    const GemmProblem& shared = group.shared;
    if (shared.factors != shared.result || group.size() > most_products)
      return false; // 16-bit factors and float sums are not among its types
    auto** const addresses =
        reinterpret_cast<const void**>(static_cast<unsigned char*>(workspace_.get()) + workspace_bytes);
    for (std::size_t first = 0; first < group.size(); first += PlaceAddresses::most) {
      const PlaceAddresses place = PlaceAddresses::of(group, first, addresses);
      run("sw::addresses", execution, place.size(), place);
    }
    const bool twofold = shared.compute == GemmCompute::float64;
    const GemmOperands& any = group.operands.front();
    const std::size_t count = group.size();
    narrow_.assign(count, static_cast<float>(any.alpha));
    narrow_.resize(2 * count, static_cast<float>(any.beta));
    wide_.assign(count, any.alpha);
    wide_.resize(2 * count, any.beta);
    first_.assign(count, shared.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    second_.assign(count, shared.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    ones_.assign(count, 1);
    const void* const scales = twofold ? static_cast<const void*>(wide_.data()) : narrow_.data();
    const auto* const betas =
        static_cast<const unsigned char*>(scales) + count * (twofold ? sizeof(double) : sizeof(float));
    const cudaDataType_t type = cublas_type(shared.factors);
    const cublasStatus_t status = cublasGemmGroupedBatchedEx_64(
        handle_.get(), first_.data(), second_.data(), group.m.data(), group.n.data(), group.k.data(), scales,
        addresses, type, group.lda.data(), addresses + count, type, group.ldb.data(), betas,
        const_cast<void* const*>(addresses + 2 * count), type, group.ldc.data(),
        static_cast<std::int64_t>(count), ones_.data(), cublas_compute(shared.compute));
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
      return false;
    check(status, "cublasGemmGroupedBatchedEx");
    return true;
  }

private:
  static void check(cublasStatus_t status, const char* call) { check_cublas(status, call, "grouped"); }

  Owned<cublasHandle_t, cublasDestroy> handle_;
  Workspace workspace_;
  std::vector<float> narrow_; // alpha of each, then beta
  std::vector<double> wide_;
  std::vector<cublasOperation_t> first_, second_;
  std::vector<std::int64_t> ones_;
};

template <> struct LibraryGemmGroup<Kokkos::Cuda> {
  static constexpr bool available = true;

  [[nodiscard]] static bool multiply(const Kokkos::Cuda& execution, const GemmGroup& group) {
    return of_stream<CublasGroups>(execution).multiply(execution, group);
  }
};

#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
