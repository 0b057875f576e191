// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Matrix products on NVIDIA GPUs by cuBLASLt: one handle, workspace and set of plans per stream.
///
/// No epilogue is fused beyond alpha and beta. beta = 1 into a float C is the one that pays off here:
/// gradients of weights are accumulated inside the product. The decoder has no biases, SwiGLU combines two
/// columns of one product, which no epilogue does, and residual sums are fused with the norm that follows.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/kernels/device/cuda_streams.hpp>
#include <shardwright/tensor/kernels/product/gemm_problem.hpp>

#include <Kokkos_Core.hpp>
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <limits>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

inline void check_cublas(cublasStatus_t status, const char* call, const char* operation = "matmul") {
  if (status == CUBLAS_STATUS_SUCCESS)
    return;
  ErrorContext context;
  context.operation = operation;
  throw DeviceError(static_cast<int>(status),
                    std::string(operation) + ": " + call + " must succeed, but cuBLAS says " +
                        cublasLtGetStatusName(status) + ", " + cublasLtGetStatusString(status) +
                        " (look for an earlier error of the device, or for exhausted memory).",
                    context);
}

[[nodiscard]] inline cudaDataType_t cublas_type(ElementType type) {
  return type == ElementType::float64    ? CUDA_R_64F
         : type == ElementType::bfloat16 ? CUDA_R_16BF
         : type == ElementType::float16  ? CUDA_R_16F
                                         : CUDA_R_32F;
}
[[nodiscard]] inline cublasComputeType_t cublas_compute(GemmCompute compute) {
  return compute == GemmCompute::float64 ? CUBLAS_COMPUTE_64F
         : compute == GemmCompute::tf32  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                         : CUBLAS_COMPUTE_32F;
}

/// The size of a workspace that NVIDIA recommends for Hopper (cuBLAS documentation, cublasSetWorkspace).
inline constexpr std::size_t cublas_workspace_bytes = std::size_t{32} << 20;

/// cuBLASLt on one stream. The workspace is its own, so that products allocate nothing, run the same way
/// every time (cuBLAS documentation, "Results Reproducibility") and can be captured in a graph.
class CublasLt {
public:
  static constexpr std::size_t workspace_bytes = cublas_workspace_bytes;

  struct Plan {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a;
    cublasLtMatrixLayoutOpaque_t b;
    cublasLtMatrixLayoutOpaque_t c;
    cublasLtMatmulAlgo_t algorithm;
    bool available; // false: no kernel for this problem
  };

  /// On the calling thread's device, which is the stream's.
  explicit CublasLt(cudaStream_t stream) : stream_(stream) {
    cublasLtHandle_t handle = nullptr;
    check_cublas(cublasLtCreate(&handle), "cublasLtCreate");
    handle_.reset(handle);
    workspace_ = workspace_of_stream(workspace_bytes, "matmul");
  }

  [[nodiscard]] Plan plan(const GemmProblem& problem, const GemmOperands& operands) {
    Plan out{};
    const cudaDataType_t factors = cublas_type(problem.factors);
    const cudaDataType_t result = cublas_type(problem.result);
    const bool twofold = problem.compute == GemmCompute::float64;
    check_cublas(cublasLtMatmulDescInit(&out.product, cublas_compute(problem.compute),
                                        twofold ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescInit");
    set_transpose(out.product, CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_a);
    set_transpose(out.product, CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_b);
    set_layout(out.a, factors, problem.transpose_a, problem.m, problem.k, problem.lda);
    set_layout(out.b, factors, problem.transpose_b, problem.k, problem.n, problem.ldb);
    set_layout(out.c, result, false, problem.m, problem.n, problem.ldc);

    cublasLtMatmulPreferenceOpaque_t preference{};
    check_cublas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
    const auto prefer = [&preference](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    // Split-K parts are summed in the workspace, in the accumulation type.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.a_alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.b_alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.c_alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.c_alignment);
    Choices choices{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), &out.product, &out.a, &out.b, &out.c, &out.c, &preference,
        timed_choice() ? most_choices : 1, choices.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
      check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
    out.available =
        status == CUBLAS_STATUS_SUCCESS && count >= 1 && choices[0].state == CUBLAS_STATUS_SUCCESS;
    out.algorithm = choices[0].algo;
    if (out.available && count > 1)
      choose_fastest(out, problem, operands, choices, count);
    return out;
  }

  [[nodiscard]] bool multiply(const GemmProblem& problem, Plan& plan, const GemmOperands& operands) {
    if (!plan.available)
      return false;
    check_cublas(start(problem, plan, operands), "cublasLtMatmul");
    return true;
  }

private:
  static constexpr int most_choices = 8;
  using Choices = std::array<cublasLtMatmulHeuristicResult_t, most_choices>;
  using Event = Owned<cudaEvent_t, cudaEventDestroy>;

  [[nodiscard]] static Event make_event() {
    cudaEvent_t event = nullptr;
    check_device(cudaEventCreate(&event), "cudaEventCreate");
    return Event(event);
  }
  static void check_device(cudaError_t status, const char* call) {
    check_cublas(status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED, call);
  }

  /// Times a product by each choice, after one that is not timed. They write where the product will, but for
  /// one that adds: it has memory of its own, without which the first choice stays.
  void choose_fastest(Plan& plan, const GemmProblem& problem, GemmOperands operands, const Choices& choices,
                      int count) {
    constexpr int times = 3;
    Workspace apart;
    if (operands.beta != 0) {
      const std::size_t bytes = static_cast<std::size_t>(problem.ldc * problem.n) * size_of(problem.result);
      if (cudaMalloc(&operands.c, bytes) != cudaSuccess) {
        static_cast<void>(cudaGetLastError()); // CUDA remembers it
        return;
      }
      apart.reset(operands.c);
      check_device(cudaMemsetAsync(operands.c, 0, bytes, stream_), "cudaMemsetAsync");
    }
    const Event begin = make_event(), end = make_event();
    float least = std::numeric_limits<float>::infinity();
    Plan tried = plan;
    for (int i = 0; i < count; ++i) {
      tried.algorithm = choices[static_cast<std::size_t>(i)].algo;
      bool runs = start(problem, tried, operands) == CUBLAS_STATUS_SUCCESS;
      check_device(cudaEventRecord(begin.get(), stream_), "cudaEventRecord");
      for (int time = 0; time < times && runs; ++time)
        runs = start(problem, tried, operands) == CUBLAS_STATUS_SUCCESS;
      check_device(cudaEventRecord(end.get(), stream_), "cudaEventRecord");
      check_device(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
      float milliseconds = 0;
      check_device(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
      if (runs && milliseconds < least) {
        least = milliseconds;
        plan.algorithm = tried.algorithm;
      }
    }
  }

  [[nodiscard]] cublasStatus_t start(const GemmProblem& problem, Plan& plan, const GemmOperands& operands) {
    const float narrow[2] = {static_cast<float>(operands.alpha), static_cast<float>(operands.beta)};
    const double wide[2] = {operands.alpha, operands.beta};
    const bool twofold = problem.compute == GemmCompute::float64;
    const void* alpha = twofold ? static_cast<const void*>(wide) : narrow;
    const void* beta = twofold ? static_cast<const void*>(wide + 1) : narrow + 1;
    return cublasLtMatmul(handle_.get(), &plan.product, alpha, operands.a, &plan.a, operands.b, &plan.b, beta,
                          operands.c, &plan.c, operands.c, &plan.c, &plan.algorithm, workspace_.get(),
                          workspace_bytes, stream_);
  }

  static void set_transpose(cublasLtMatmulDescOpaque_t& product, cublasLtMatmulDescAttributes_t attribute,
                            bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_cublas(cublasLtMatmulDescSetAttribute(&product, attribute, &operation, sizeof operation),
                 "cublasLtMatmulDescSetAttribute");
  }
  /// The layout of a matrix as stored, from its extents after transposition.
  static void set_layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, bool transposed,
                         std::int64_t rows, std::int64_t columns, std::int64_t ld) {
    const auto size = [](std::int64_t extent) { return static_cast<std::uint64_t>(extent); };
    check_cublas(cublasLtMatrixLayoutInit(&layout, type, size(transposed ? columns : rows),
                                          size(transposed ? rows : columns), ld),
                 "cublasLtMatrixLayoutInit");
  }

  cudaStream_t stream_;
  Owned<cublasLtHandle_t, cublasLtDestroy> handle_;
  Workspace workspace_;
};

template <> struct LibraryGemm<Kokkos::Cuda> {
  static constexpr bool available = true;

  [[nodiscard]] static bool multiply(const Kokkos::Cuda& execution, const GemmProblem& problem,
                                     const GemmOperands& operands) {
    return of_stream<GemmPlans<CublasLt>, CublasLt>(execution).multiply(problem, operands);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
