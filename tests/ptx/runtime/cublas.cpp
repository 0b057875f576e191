// SPDX-License-Identifier: Apache-2.0
// cuBLASLt and the grouped products of cuBLAS, computed on the host from their arguments, on the stream. What
// cuBLAS would refuse is refused: types that it has no kernel for, extents that do not match, an algorithm of
// another problem, operands that are less aligned than promised. A factor that nothing has written is a
// fault. Products are summed in double and rounded once; factors of TF32 are rounded to its 11 bits first.
//
// Signatures are those of the headers of CUDA 13; cuBLAS documentation, "cublasLtMatmul" and
// "cublasGemmGroupedBatchedEx".

#include "ptx/runtime/runtime.hpp"
#include "support/fake_cuda_library.hpp"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using ptx_runtime::Runtime;

/// A matrix as its layout describes it, column-major.
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t ld;
  friend bool operator==(const Layout&, const Layout&) = default;
};

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a, b;
  friend bool operator==(const Operation&, const Operation&) = default;
};

struct Preference {
  std::uint64_t workspace;
  std::uint32_t reductions, a_alignment, b_alignment, c_alignment, d_alignment;
};

/// What an algorithm was chosen for, as a number, what was promised then, and whether it runs.
struct Choice {
  std::uint64_t problem, workspace;
  std::uint32_t a_alignment, b_alignment, c_alignment, d_alignment;
  bool runs;
};

// The library's opaque types have room for them.
template <class Value, class Opaque> Value read(const Opaque* from) {
  static_assert(sizeof(Value) <=
                sizeof(*from->data) * std::extent_v<std::remove_reference_t<decltype(from->data)>>);
  Value out;
  std::memcpy(&out, from->data, sizeof out);
  return out;
}
template <class Value, class Opaque> void write(Opaque* to, const Value& value) {
  static_assert(sizeof(Value) <= sizeof to->data && std::is_trivially_copyable_v<Value>);
  std::memcpy(to->data, &value, sizeof value);
}

std::size_t size_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 0;
}

double load(const void* data, cudaDataType_t type, std::size_t i) {
  switch (type) {
  case CUDA_R_64F:
    return static_cast<const double*>(data)[i];
  case CUDA_R_16BF:
    return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]));
  case CUDA_R_16F:
    return static_cast<double>(__half2float(static_cast<const __half*>(data)[i]));
  default:
    return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}

void store(void* data, cudaDataType_t type, std::size_t i, double value) {
  switch (type) {
  case CUDA_R_64F:
    static_cast<double*>(data)[i] = value;
    break;
  case CUDA_R_16BF:
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(static_cast<float>(value));
    break;
  case CUDA_R_16F:
    static_cast<__half*>(data)[i] = __float2half_rn(static_cast<float>(value));
    break;
  default:
    static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

/// With the 11 bits of TF32, to nearest, ties to even.
double as_tf32(double value) {
  auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (std::isfinite(value))
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~std::uint32_t{0x1fff};
  return static_cast<double>(std::bit_cast<float>(bits));
}

/// A product of more terms is not computed: its result is not a number.
constexpr std::uint64_t largest_product = std::uint64_t{1} << 36;

/// The types of factors and results that there are kernels for.
bool has_kernel(cudaDataType_t factors, cudaDataType_t result, cublasComputeType_t compute) {
  if (compute == CUBLAS_COMPUTE_64F)
    return factors == CUDA_R_64F && result == CUDA_R_64F;
  if (compute == CUBLAS_COMPUTE_32F_FAST_TF32)
    return factors == CUDA_R_32F && result == CUDA_R_32F;
  return compute == CUBLAS_COMPUTE_32F &&
         (factors == CUDA_R_32F || factors == CUDA_R_16BF || factors == CUDA_R_16F) &&
         (result == factors || result == CUDA_R_32F);
}

/// D = alpha op(A) op(B) + beta C, [m, k] times [k, n]; C and D have one layout.
struct Product {
  std::uint64_t m = 0, n = 0, k = 0;
  Operation operation;
  Layout a, b, c;
  const void *a_data = nullptr, *b_data = nullptr, *c_data = nullptr;
  void* d_data = nullptr;
  double alpha = 1, beta = 0;
};

void require(bool holds, const char* call, const char* sentence) {
  if (!holds)
    Runtime::get().end(std::string(call) + ": " + sentence);
}

void require_block(const char* call, const void* data, const Layout& layout) {
  const std::size_t last = static_cast<std::size_t>(layout.ld) * (layout.columns - 1) + layout.rows;
  require(Runtime::get().memory().find(reinterpret_cast<std::uintptr_t>(data), last * size_of(layout.type)) !=
              nullptr,
          call, "a matrix is not in one block of the device's memory.");
}

/// Notes that the columns of a matrix are read or written.
void note_access(const char* call, const void* data, const Layout& layout, bool written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::size_t bytes = size_of(layout.type), column = static_cast<std::size_t>(layout.ld) * bytes;
  std::vector<ptx::Touched> ranges;
  for (std::size_t j = 0; j < layout.columns; ++j)
    ranges.push_back({.begin = begin + j * column,
                      .end = begin + j * column + static_cast<std::size_t>(layout.rows) * bytes,
                      .written = written});
  Runtime::get().touched(call, nullptr, std::move(ranges));
}

/// In one block, and written, as `PTX_UNINITIALIZED` asks.
void require_written(const char* call, const void* data, const Layout& layout) {
  require_block(call, data, layout);
  note_access(call, data, layout, false);
  const ptx::Memory& memory = Runtime::get().memory();
  const std::size_t bytes = size_of(layout.type);
  for (std::uint64_t column = 0; column < layout.columns; ++column) {
    const auto* const begin =
        static_cast<const std::byte*>(data) + column * static_cast<std::size_t>(layout.ld) * bytes;
    if (!memory.is_written(begin, layout.rows * bytes))
      Runtime::get().end(std::string(call) + ": column " + std::to_string(column) + " of a matrix of " +
                         std::to_string(layout.rows) + " rows and " + std::to_string(layout.columns) +
                         " columns has bytes of " +
                         memory.find(reinterpret_cast<std::uintptr_t>(begin), 1)->label +
                         " that nothing has written.");
  }
}

/// op(matrix) as rows of `columns` numbers, or, `by_columns`, as columns.
std::vector<double> numbers(const void* data, const Layout& layout, bool transposed, bool by_columns,
                            bool tf32) {
  std::vector<double> out;
  out.reserve(layout.rows * layout.columns);
  const bool outer_is_column = transposed != by_columns;
  const std::uint64_t outer = outer_is_column ? layout.columns : layout.rows;
  const std::uint64_t inner = outer_is_column ? layout.rows : layout.columns;
  const auto ld = static_cast<std::size_t>(layout.ld);
  for (std::uint64_t i = 0; i < outer; ++i)
    for (std::uint64_t j = 0; j < inner; ++j) {
      const double value = load(data, layout.type, outer_is_column ? j + i * ld : i + j * ld);
      out.push_back(tf32 ? as_tf32(value) : value);
    }
  return out;
}

void multiply(const char* call, const Product& of) {
  if (of.m == 0 || of.n == 0)
    return;
  std::vector<double> a, b;
  if (of.k > 0 && of.m * of.n * of.k <= largest_product) {
    require_written(call, of.a_data, of.a);
    require_written(call, of.b_data, of.b);
    const bool tf32 = of.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    a = numbers(of.a_data, of.a, of.operation.a == CUBLAS_OP_T, false, tf32);
    b = numbers(of.b_data, of.b, of.operation.b == CUBLAS_OP_T, true, tf32);
  }
  require_block(call, of.d_data, of.c);
  if (of.beta != 0)
    require_written(call, of.c_data, of.c);
  note_access(call, of.d_data, of.c, true);
  const auto ld = static_cast<std::size_t>(of.c.ld);
  // Measurements of rates, whose results nobody reads, would take minutes here.
  if (of.m * of.n * of.k > largest_product) {
    for (std::uint64_t j = 0; j < of.n; ++j)
      for (std::uint64_t i = 0; i < of.m; ++i)
        store(of.d_data, of.c.type, i + j * ld, std::nan(""));
    return;
  }
  for (std::uint64_t j = 0; j < of.n; ++j) {
    for (std::uint64_t i = 0; i < of.m; ++i) {
      double sum = 0;
      for (std::uint64_t l = 0; l < of.k; ++l)
        sum += a[i * of.k + l] * b[j * of.k + l];
      const std::size_t at = i + j * ld;
      const double old = of.beta == 0 ? 0 : of.beta * load(of.c_data, of.c.type, at);
      store(of.d_data, of.c.type, at, of.alpha * sum + old);
    }
    const std::size_t bytes = size_of(of.c.type);
    Runtime::get().memory().mark_written(static_cast<std::byte*>(of.d_data) + j * ld * bytes, of.m * bytes);
  }
}

/// The extents of a product, if those of its matrices match.
bool fit(Product& of, const Layout& d) {
  const bool ta = of.operation.a == CUBLAS_OP_T, tb = of.operation.b == CUBLAS_OP_T;
  of.m = ta ? of.a.columns : of.a.rows;
  of.k = ta ? of.a.rows : of.a.columns;
  of.n = tb ? of.b.rows : of.b.columns;
  const auto sound = [](const Layout& layout) {
    return size_of(layout.type) != 0 && layout.ld >= static_cast<std::int64_t>(layout.rows);
  };
  return sound(of.a) && sound(of.b) && sound(of.c) && (tb ? of.b.columns : of.b.rows) == of.k &&
         of.c.rows == of.m && of.c.columns == of.n && of.c == d && of.a.type == of.b.type;
}

std::uint64_t hash_of(const Product& of) {
  std::string text;
  for (const Layout* layout : {&of.a, &of.b, &of.c})
    text += std::to_string(layout->type) + ' ' + std::to_string(layout->rows) + ' ' +
            std::to_string(layout->columns) + ' ' + std::to_string(layout->ld) + ' ';
  text += std::to_string(of.operation.compute) + ' ' + std::to_string(of.operation.a) + ' ' +
          std::to_string(of.operation.b);
  return std::hash<std::string>()(text);
}

bool aligned(const void* data, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

double scale_of(const void* value, cudaDataType_t type, std::size_t i = 0) { return load(value, type, i); }

cublasStatus_t put_on(cudaStream_t stream, const std::vector<const void*>& addresses,
                      std::function<void()> work) {
  fake_cuda::Library& library = fake_cuda::library();
  const cudaError_t result = library.call([&] {
    return library.enqueue(stream, std::move(work), addresses.data(), addresses.size() * sizeof(const void*),
                           true);
  });
  return result == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // namespace

struct cublasContext {
  cudaStream_t stream = nullptr;
};
struct cublasLtContext {};

extern "C" {

// cuBLASLt.

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "a status of cuBLAS";
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "see the arguments"; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, std::size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  write(description, Operation{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  auto operation = read<Operation>(description);
  if (bytes != sizeof(cublasOperation_t))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
    std::memcpy(&operation.a, value, bytes);
  else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
    std::memcpy(&operation.b, value, bytes);
  else
    require(false, "cublasLtMatmulDescSetAttribute", "the stand-in does not know the attribute.");
  write(description, operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t,
                                                 cudaDataType type, std::uint64_t rows, std::uint64_t columns,
                                                 std::int64_t ld) {
  write(layout, Layout{type, rows, columns, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, std::size_t) {
  write(preference, Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  auto all = read<Preference>(preference);
  const auto set = [&](auto& field) {
    if (bytes != sizeof field)
      return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    write(preference, all);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    return set(all.workspace);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    return set(all.reductions);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    return set(all.a_alignment);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    return set(all.b_alignment);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    return set(all.c_alignment);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return set(all.d_alignment);
  default:
    require(false, "cublasLtMatmulPreferenceSetAttribute", "the stand-in does not know the attribute.");
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  Product of{.operation = read<Operation>(description),
             .a = read<Layout>(a),
             .b = read<Layout>(b),
             .c = read<Layout>(c)};
  if (wanted < 1 || !fit(of, read<Layout>(d)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const cudaDataType_t scale = of.operation.compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F;
  if (of.m == 0 || of.n == 0 || of.k == 0 || of.operation.scale != scale ||
      !has_kernel(of.a.type, of.c.type, of.operation.compute))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto prefer = read<Preference>(preference);
  // Of several, only the second runs, so that a caller that keeps another one sees an error.
  *found = std::min(wanted, 3);
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    write(&results[i].algo, Choice{hash_of(of), prefer.workspace, prefer.a_alignment, prefer.b_alignment,
                                   prefer.c_alignment, prefer.d_alignment, *found == 1 || i == 1});
    results[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_data,
                              cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  Product of{.operation = read<Operation>(description),
             .a = read<Layout>(a),
             .b = read<Layout>(b),
             .c = read<Layout>(c),
             .a_data = a_data,
             .b_data = b_data,
             .c_data = c_data,
             .d_data = d_data};
  if (!fit(of, read<Layout>(d)))
    return CUBLAS_STATUS_INVALID_VALUE;
  of.alpha = scale_of(alpha, of.operation.scale);
  of.beta = scale_of(beta, of.operation.scale);
  require(algorithm != nullptr, "cublasLtMatmul", "the library must choose its algorithm when it plans.");
  const auto choice = read<Choice>(algorithm);
  if (choice.problem != hash_of(of) || workspace_bytes < choice.workspace || !aligned(workspace, 256))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!choice.runs)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  require(aligned(a_data, choice.a_alignment) && aligned(b_data, choice.b_alignment) &&
              aligned(c_data, choice.c_alignment) && aligned(d_data, choice.d_alignment),
          "cublasLtMatmul", "an operand is less aligned than the plan was told.");
  return put_on(stream, {a_data, b_data, c_data, d_data, workspace},
                [of] { multiply("cublasLtMatmul", of); });
}

// Grouped products of cuBLAS.

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void* workspace, std::size_t) {
  return aligned(workspace, 256) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

/// The numbers are read when it is called, the addresses of the matrices when it runs.
cublasStatus_t cublasGemmGroupedBatchedEx_64(
    cublasHandle_t handle, const cublasOperation_t* transpose_a, const cublasOperation_t* transpose_b,
    const std::int64_t* m, const std::int64_t* n, const std::int64_t* k, const void* alphas,
    const void* const* a_addresses, cudaDataType_t a_type, const std::int64_t* lda,
    const void* const* b_addresses, cudaDataType_t b_type, const std::int64_t* ldb, const void* betas,
    void* const* c_addresses, cudaDataType_t c_type, const std::int64_t* ldc, std::int64_t groups,
    const std::int64_t* sizes, cublasComputeType_t compute) {
  if (a_type != b_type || a_type != c_type || !has_kernel(a_type, c_type, compute))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const cudaDataType_t scale = compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F;
  std::vector<Product> products;
  for (std::int64_t g = 0; g < groups; ++g) {
    const bool ta = transpose_a[g] == CUBLAS_OP_T, tb = transpose_b[g] == CUBLAS_OP_T;
    const auto size = [](std::int64_t extent) { return static_cast<std::uint64_t>(extent); };
    Product of{.operation = {compute, scale, transpose_a[g], transpose_b[g]},
               .a = {a_type, size(ta ? k[g] : m[g]), size(ta ? m[g] : k[g]), lda[g]},
               .b = {b_type, size(tb ? n[g] : k[g]), size(tb ? k[g] : n[g]), ldb[g]},
               .c = {c_type, size(m[g]), size(n[g]), ldc[g]}};
    if (!fit(of, of.c))
      return CUBLAS_STATUS_INVALID_VALUE;
    of.alpha = scale_of(alphas, scale, static_cast<std::size_t>(g));
    of.beta = scale_of(betas, scale, static_cast<std::size_t>(g));
    products.insert(products.end(), static_cast<std::size_t>(sizes[g]), of);
  }
  return put_on(handle->stream, {a_addresses, b_addresses, c_addresses}, [=] {
    for (std::size_t i = 0; i < products.size(); ++i) {
      Product of = products[i];
      of.a_data = a_addresses[i];
      of.b_data = b_addresses[i];
      of.c_data = of.d_data = c_addresses[i];
      multiply("cublasGemmGroupedBatchedEx", of);
    }
  });
}

} // extern "C"
