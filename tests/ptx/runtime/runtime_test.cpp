// SPDX-License-Identifier: Apache-2.0
// The stand-ins of CUDA's runtime library and of cuBLAS: kernels from a fat binary, the order of streams,
// graphs, memory, and products against the formula.

#include "ptx/runtime/fat_binary.hpp"
#include "support/catch.hpp"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int);
}

namespace {

// numbers[i] = numbers[i] * factor + step for i < count; the factor is a variable of the module.
constexpr const char* text = R"(
.version 8.0
.target sm_90
.address_size 64

.const .align 4 .f32 factor = 0f3F800000;

.visible .entry scale_and_add(.param .u64 p0, .param .u32 p1, .param .f32 p2)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<5>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p0];
  ld.param.u32 %r1, [p1];
  ld.param.f32 %f1, [p2];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra $L_end;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  ld.const.f32 %f3, [factor];
  fma.rn.f32 %f4, %f2, %f3, %f1;
  st.global.f32 [%rd4], %f4;
$L_end:
  ret;
}
)";

/// A fat binary as in an object of nvcc.
std::vector<std::byte> fat_binary(std::string contents, std::uint16_t kind = 1) {
  contents.resize((contents.size() + 8) / 8 * 8, '\0');
  std::vector<std::byte> out;
  const auto put = [&](auto value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
  };
  put(std::uint32_t{0xba55ed50});
  put(std::uint16_t{1});
  put(std::uint16_t{16});
  put(std::uint64_t{64 + contents.size()});
  put(kind);
  put(std::uint16_t{0x101});
  put(std::uint32_t{64});
  put(std::uint64_t{contents.size()});
  out.resize(16 + 64);
  const auto* const bytes = reinterpret_cast<const std::byte*>(contents.data());
  out.insert(out.end(), bytes, bytes + contents.size());
  return out;
}

struct Wrapper {
  std::uint32_t magic = 0x466243b1, version = 1;
  const std::byte* data = nullptr;
  void* rest = nullptr;
};

char scale_and_add = 0, factor = 0; // their addresses are the host's names

void register_all() {
  static const std::vector<std::byte> binary = fat_binary(text);
  static Wrapper wrapper{.data = binary.data()};
  static const bool once = [] {
    setenv("PTX_UNINITIALIZED", "1", 1); // read when the first module is registered
    void** const module = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(module, &scale_and_add, nullptr, "scale_and_add", -1, nullptr, nullptr, nullptr,
                           nullptr, nullptr);
    __cudaRegisterVar(module, &factor, nullptr, "factor", 0, 4, 1, 0);
    return true;
  }();
  static_cast<void>(once);
}

cudaError_t launch(float* numbers, unsigned count, float step, cudaStream_t stream, unsigned threads = 64,
                   std::size_t shared = 0) {
  register_all();
  void* arguments[] = {&numbers, &count, &step};
  return cudaLaunchKernel(&scale_and_add, dim3((count + 63) / 64), dim3(threads), arguments, shared, stream);
}

float* device_numbers(const std::vector<float>& from) {
  register_all();
  void* data = nullptr;
  REQUIRE(cudaMalloc(&data, from.size() * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaMemcpy(data, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess);
  return static_cast<float*>(data);
}

std::vector<float> read(const float* data, std::size_t count) {
  std::vector<float> out(count);
  REQUIRE(cudaMemcpy(out.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
  return out;
}

cudaStream_t made_stream() {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
  return stream;
}

/// What a program writes to its standard error before it ends with the interpreter's status.
template <class Program> std::string end_of(Program program) {
  register_all();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    program();
    _exit(0);
  }
  close(ends[1]);
  std::string out;
  char buffer[256];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 86 ? out : "the program went on";
}

} // namespace

TEST_CASE("a fat binary must hold plain PTX") {
  const auto found = [](const std::vector<std::byte>& binary, std::uint32_t magic = 0x466243b1) {
    const Wrapper wrapper{.magic = magic, .data = binary.data()};
    return std::string(ptx_runtime::ptx_of(&wrapper));
  };
  CHECK(found(fat_binary(text)) == text);
  CHECK_THROWS_WITH(found(fat_binary("\x1f\x8b not a text")),
                    "Fat binary: its PTX must not be compressed (compile with nvcc --no-compress).");
  CHECK_THROWS_WITH(
      found(fat_binary(text, 2)),
      "Fat binary: it must hold PTX (compile with nvcc -gencode arch=compute_90,code=compute_90).");
  CHECK_THROWS_WITH(found(fat_binary(text), 7), "Fat binary: the wrapper must be that of CUDA 11 to 13.");
}

TEST_CASE("a kernel runs on a stream with the variables of its module") {
  float* const data = device_numbers(std::vector<float>(100, 2));
  const cudaStream_t stream = made_stream();
  REQUIRE(launch(data, 99, 1, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const float three = 3, one = 1;
  REQUIRE(cudaMemcpyToSymbol(&factor, &three, sizeof three, 0, cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(launch(data, 98, 1, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  REQUIRE(cudaMemcpyToSymbol(&factor, &one, sizeof one, 0, cudaMemcpyHostToDevice) == cudaSuccess);
  std::vector<float> wanted(100, 10);
  wanted[98] = 3;
  wanted[99] = 2;
  CHECK(read(data, 100) == wanted);
  CHECK(cudaMemcpyToSymbol(&factor, &one, sizeof one, 1, cudaMemcpyHostToDevice) == cudaErrorInvalidSymbol);
}

TEST_CASE("launches that do not fit the device are errors") {
  float* const data = device_numbers({1});
  const cudaStream_t stream = made_stream();
  CHECK(launch(data, 1, 0, stream, 1025) == cudaErrorInvalidConfiguration);
  CHECK(launch(data, 0, 0, stream) == cudaErrorInvalidConfiguration); // an empty grid
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(launch(data, 1, 0, stream, 64, 48 << 10) == cudaSuccess);
  CHECK(launch(data, 1, 0, stream, 64, 100 << 10) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(&scale_and_add, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) ==
        cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(&scale_and_add, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10) ==
        cudaSuccess);
  CHECK(launch(data, 1, 0, stream, 64, 100 << 10) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("a faulty kernel ends the program and says where") {
  const std::string beyond = end_of([] {
    float* const data = device_numbers({1, 2, 3});
    static_cast<void>(launch(data, 4, 0, nullptr));
  });
  CHECK(beyond.find("scale_and_add") != std::string::npos);
  CHECK(beyond.find("ld.global.f32") != std::string::npos);
  const std::string freed = end_of([] {
    float* const data = device_numbers({1, 2, 3});
    static_cast<void>(cudaFree(data));
    static_cast<void>(device_numbers({1, 2, 3})); // not where the other was
    static_cast<void>(launch(data, 3, 0, nullptr));
  });
  CHECK(freed.find("ld.global.f32") != std::string::npos);
}

TEST_CASE("bytes that nothing has written stay so in a copy") {
  const auto with_copy = [](std::size_t written) {
    return end_of([written] {
      void *from = nullptr, *to = nullptr;
      static_cast<void>(cudaMalloc(&from, 4 * sizeof(float)));
      static_cast<void>(cudaMalloc(&to, 4 * sizeof(float)));
      static_cast<void>(cudaMemset(from, 0, written * sizeof(float)));
      static_cast<void>(cudaMemcpy(to, from, 4 * sizeof(float), cudaMemcpyDeviceToDevice));
      static_cast<void>(launch(static_cast<float*>(to), 4, 1, nullptr));
    });
  };
  CHECK(with_copy(3).find("loads bytes of memory of 16 bytes that nothing has written") != std::string::npos);
  CHECK(with_copy(4) == "the program went on");
}

TEST_CASE("a graph that knows a block which was given back is a fault when it runs") {
  const auto replayed = [](bool early) {
    return end_of([early] {
      const cudaStream_t stream = made_stream();
      float* const data = device_numbers({1, 2, 3});
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t replay = nullptr;
      static_cast<void>(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      static_cast<void>(launch(data, 3, 1, stream));
      static_cast<void>(cudaStreamEndCapture(stream, &graph));
      static_cast<void>(cudaGraphInstantiate(&replay, graph, 0));
      static_cast<void>(cudaGraphLaunch(replay, stream));
      static_cast<void>(cudaStreamSynchronize(stream));
      if (early)
        static_cast<void>(cudaFree(data));
      static_cast<void>(cudaGraphLaunch(replay, stream));
      static_cast<void>(cudaStreamSynchronize(stream));
    });
  };
  CHECK(replayed(true).find("scale_and_add") != std::string::npos);
  CHECK(replayed(false) == "the program went on");
}

namespace {

/// Work of two streams on three numbers, with what orders it.
template <class First, class Between, class Second>
std::string end_of_two(First first, Between between, Second second) {
  return end_of([&] {
    float* const data = device_numbers({1, 2, 3});
    const cudaStream_t one = made_stream(), two = made_stream();
    first(data, one);
    between(one, two);
    second(data, two);
    static_cast<void>(cudaDeviceSynchronize());
  });
}

void add_five(float* data, cudaStream_t stream) { static_cast<void>(launch(data, 3, 5, stream)); }

} // namespace

TEST_CASE("work of two streams that touches the same bytes without an order is reported") {
  const auto nothing = [](cudaStream_t, cudaStream_t) {};
  const auto event = [](cudaStream_t one, cudaStream_t two) {
    cudaEvent_t made = nullptr;
    static_cast<void>(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    static_cast<void>(cudaEventRecord(made, one));
    static_cast<void>(cudaStreamWaitEvent(two, made, 0));
  };
  const auto wait = [](cudaStream_t one, cudaStream_t) { static_cast<void>(cudaStreamSynchronize(one)); };
  const auto copy_beside = [](float* data, cudaStream_t stream) {
    static_cast<void>(cudaMemcpyAsync(data + 2, data, sizeof(float), cudaMemcpyDefault, stream));
  };
  const auto in_order = [&](auto between) { return end_of_two(add_five, between, add_five); };
  CHECK(in_order(event) == "the program went on");
  CHECK(in_order(wait) == "the program went on");
  const std::string twice = in_order(nothing);
  CHECK(twice.find("writes memory at") != std::string::npos);
  CHECK(twice.find("and nothing orders the two") != std::string::npos);
  CHECK(twice.find("kernel: scale_and_add") != twice.rfind("kernel: scale_and_add"));
  CHECK(end_of_two(copy_beside, event, add_five) == "the program went on");
  CHECK(end_of_two(copy_beside, nothing, add_five).find("which a copy") != std::string::npos);
}
namespace {

/// One product, column-major, on random numbers.
template <class Number> struct Case {
  std::int64_t m, n, k;
  bool ta, tb;
  double alpha, beta;

  [[nodiscard]] std::int64_t lda() const { return (ta ? k : m) + 2; }
  [[nodiscard]] std::int64_t ldb() const { return (tb ? n : k) + 1; }
  [[nodiscard]] std::int64_t ldc() const { return m + 3; }

  std::vector<Number> a{}, b{}, c{};
  void fill(std::mt19937& engine) {
    std::normal_distribution<float> normal;
    const auto random = [&](std::int64_t count) {
      std::vector<Number> out;
      for (std::int64_t i = 0; i < count; ++i)
        out.push_back(Number(normal(engine)));
      return out;
    };
    a = random(lda() * (ta ? m : k));
    b = random(ldb() * (tb ? k : n));
    c = random(ldc() * n);
  }
  /// alpha op(A) op(B) + beta C, element by element.
  [[nodiscard]] std::vector<double> formula() const {
    std::vector<double> out;
    for (const Number& number : c)
      out.push_back(static_cast<double>(static_cast<float>(number)));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const Number x = a[static_cast<std::size_t>(ta ? l + i * lda() : i + l * lda())];
          const Number y = b[static_cast<std::size_t>(tb ? j + l * ldb() : l + j * ldb())];
          sum += static_cast<double>(static_cast<float>(x)) * static_cast<double>(static_cast<float>(y));
        }
        double& at = out[static_cast<std::size_t>(i + j * ldc())];
        at = alpha * sum + (beta == 0 ? 0 : beta * at);
      }
    return out;
  }
};

template <class Number> Number* on_device(const std::vector<Number>& numbers) {
  register_all();
  void* data = nullptr;
  REQUIRE(cudaMalloc(&data, numbers.size() * sizeof(Number)) == cudaSuccess);
  REQUIRE(cudaMemcpy(data, numbers.data(), numbers.size() * sizeof(Number), cudaMemcpyHostToDevice) ==
          cudaSuccess);
  return static_cast<Number*>(data);
}

template <class Number> double difference(const Number* device, const std::vector<double>& wanted) {
  std::vector<Number> got(wanted.size());
  REQUIRE(cudaMemcpy(got.data(), device, got.size() * sizeof(Number), cudaMemcpyDeviceToHost) == cudaSuccess);
  double largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(static_cast<float>(got[i])) - wanted[i]));
  return largest;
}

struct Matmul {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t choice;

  template <class Number>
  cublasStatus_t plan(const Case<Number>& of, cudaDataType_t type, cublasComputeType_t compute) {
    const cublasOperation_t ta = of.ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = of.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescInit(&product, compute, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cublasLtMatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    const auto size = [](std::int64_t extent) { return static_cast<std::uint64_t>(extent); };
    cublasLtMatrixLayoutInit(&a, type, size(of.ta ? of.k : of.m), size(of.ta ? of.m : of.k), of.lda());
    cublasLtMatrixLayoutInit(&b, type, size(of.tb ? of.n : of.k), size(of.tb ? of.k : of.n), of.ldb());
    cublasLtMatrixLayoutInit(&c, type, size(of.m), size(of.n), of.ldc());
    cublasLtMatmulPreferenceInit(&preference);
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(nullptr, &product, &a, &b, &c, &c, &preference, 1, &choice, &found);
  }
  /// As many as the stand-in has.
  [[nodiscard]] std::vector<cublasLtMatmulHeuristicResult_t> choices() {
    std::vector<cublasLtMatmulHeuristicResult_t> out(8);
    int found = 0;
    REQUIRE(cublasLtMatmulAlgoGetHeuristic(nullptr, &product, &a, &b, &c, &c, &preference, 8, out.data(),
                                           &found) == CUBLAS_STATUS_SUCCESS);
    out.resize(static_cast<std::size_t>(found));
    return out;
  }
  template <class Number>
  cublasStatus_t run(const Case<Number>& of, const Number* x, const Number* y, Number* z,
                     cudaStream_t stream) {
    const auto alpha = static_cast<float>(of.alpha), beta = static_cast<float>(of.beta);
    return cublasLtMatmul(nullptr, &product, &alpha, x, &a, y, &b, &beta, z, &c, z, &c, &choice.algo, nullptr,
                          0, stream);
  }
};

template <class Number> std::vector<Case<Number>> cases(std::mt19937& engine) {
  std::vector<Case<Number>> all;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const double beta : {0.0, 1.0, -0.5})
        all.push_back({.m = 5, .n = 7, .k = 11, .ta = ta, .tb = tb, .alpha = 1.5, .beta = beta});
  for (Case<Number>& each : all)
    each.fill(engine);
  return all;
}

} // namespace

TEST_CASE("products by cublasLt follow the formula") {
  std::mt19937 engine(3);
  const cudaStream_t stream = made_stream();
  const auto largest = [&]<class Number>(Number, cudaDataType_t type, cublasComputeType_t compute) {
    double out = 0;
    for (const Case<Number>& of : cases<Number>(engine)) {
      Matmul matmul{};
      REQUIRE(matmul.plan(of, type, compute) == CUBLAS_STATUS_SUCCESS);
      Number* const z = on_device(of.c);
      REQUIRE(matmul.run(of, on_device(of.a), on_device(of.b), z, stream) == CUBLAS_STATUS_SUCCESS);
      REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
      out = std::max(out, difference(z, of.formula()));
    }
    return out;
  };
  CHECK(largest(float(), CUDA_R_32F, CUBLAS_COMPUTE_32F) < 1e-5);
  CHECK(largest(__nv_bfloat16(), CUDA_R_16BF, CUBLAS_COMPUTE_32F) < 0.1);
  const double rounded = largest(float(), CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  CHECK(rounded < 0.02);
  CHECK(rounded > 1e-4); // the factors have 11 bits
}

TEST_CASE("what cublasLt refuses is refused") {
  std::mt19937 engine(4);
  Case<float> of{.m = 4, .n = 5, .k = 6, .ta = false, .tb = true, .alpha = 1, .beta = 0};
  of.fill(engine);
  Matmul matmul{}, other{};
  CHECK(matmul.plan(of, CUDA_R_64F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_NOT_SUPPORTED);
  REQUIRE(matmul.plan(of, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS);
  Case<float> longer = of;
  longer.k = 7;
  longer.fill(engine);
  REQUIRE(other.plan(longer, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS);
  float* const z = on_device(of.c);
  std::swap(matmul.choice, other.choice); // the algorithm of another problem
  CHECK(matmul.run(of, on_device(of.a), on_device(of.b), z, made_stream()) == CUBLAS_STATUS_INVALID_VALUE);
  std::swap(matmul.b, other.b); // factors that do not match
  CHECK(matmul.run(of, on_device(of.a), on_device(of.b), z, made_stream()) == CUBLAS_STATUS_INVALID_VALUE);
  const std::string outside = end_of([&] {
    Matmul again{};
    static_cast<void>(again.plan(of, CUDA_R_32F, CUBLAS_COMPUTE_32F));
    std::vector<float> shorter(of.a.begin(), of.a.end() - 8);
    static_cast<void>(again.run(of, on_device(shorter), on_device(of.b), on_device(of.c), nullptr));
  });
  CHECK(outside.find("a matrix is not in one block of the device's memory") != std::string::npos);
  const std::string unaligned = end_of([&] {
    Matmul again{};
    static_cast<void>(again.plan(of, CUDA_R_32F, CUBLAS_COMPUTE_32F));
    static_cast<void>(again.run(of, on_device(of.a) + 1, on_device(of.b), on_device(of.c), nullptr));
  });
  CHECK(unaligned.find("an operand is less aligned than the plan was told") != std::string::npos);
}

TEST_CASE("of several algorithms that cublasLt proposes, neither the first nor the last runs") {
  std::mt19937 engine(6);
  Case<float> of{.m = 4, .n = 5, .k = 6, .ta = false, .tb = true, .alpha = 1, .beta = 0};
  of.fill(engine);
  float* const z = on_device(of.c);
  Matmul matmul{};
  REQUIRE(matmul.plan(of, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS);
  std::vector<cublasStatus_t> status;
  for (const cublasLtMatmulHeuristicResult_t& choice : matmul.choices()) {
    CHECK(choice.state == CUBLAS_STATUS_SUCCESS);
    matmul.choice = choice;
    status.push_back(matmul.run(of, on_device(of.a), on_device(of.b), z, nullptr));
  }
  CHECK(status ==
        std::vector{CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(difference(z, of.formula()) < 1e-5);
}

TEST_CASE("a product of bytes that nothing has written ends the program") {
  std::mt19937 engine(7);
  Case<float> of{.m = 4, .n = 5, .k = 6, .ta = true, .tb = false, .alpha = 1, .beta = 1};
  of.fill(engine);
  // Operand `which` is written but for the element at the end.
  const auto without = [&](int which) {
    return end_of([&of, which] {
      const auto operand = [which](const std::vector<float>& numbers, int index, std::int64_t padding) {
        void* data = nullptr;
        static_cast<void>(cudaMalloc(&data, numbers.size() * sizeof(float)));
        const auto missing = static_cast<std::size_t>(index == which ? padding + 1 : padding);
        static_cast<void>(cudaMemcpy(data, numbers.data(), (numbers.size() - missing) * sizeof(float),
                                     cudaMemcpyHostToDevice));
        return static_cast<float*>(data);
      };
      float* const x = operand(of.a, 0, of.lda() - of.k);
      float* const y = operand(of.b, 1, of.ldb() - of.k);
      float* const z = operand(of.c, 2, of.ldc() - of.m);
      Matmul matmul{};
      static_cast<void>(matmul.plan(of, CUDA_R_32F, CUBLAS_COMPUTE_32F));
      static_cast<void>(matmul.run(of, x, y, z, nullptr));
      static_cast<void>(cudaDeviceSynchronize());
    });
  };
  CHECK(without(0).find(
            "cublasLtMatmul: column 3 of a matrix of 6 rows and 4 columns has bytes of memory of 128 "
            "bytes that nothing has written.") != std::string::npos);
  CHECK(without(1).find("column 4 of a matrix of 6 rows and 5 columns") != std::string::npos);
  CHECK(without(2).find("column 4 of a matrix of 4 rows and 5 columns") != std::string::npos);
  CHECK(without(3) == "the program went on");
}

TEST_CASE("grouped products of cuBLAS follow the formula") {
  std::mt19937 engine(5);
  cublasHandle_t handle = nullptr;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  const cudaStream_t stream = made_stream();
  REQUIRE(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  const std::vector<Case<float>> all = cases<float>(engine);
  std::vector<cublasOperation_t> ta, tb;
  std::vector<std::int64_t> m, n, k, lda, ldb, ldc, ones(all.size(), 1);
  std::vector<float> alphas, betas;
  std::vector<const void*> a, b;
  std::vector<float*> c;
  for (const Case<float>& of : all) {
    ta.push_back(of.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    tb.push_back(of.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    m.push_back(of.m);
    n.push_back(of.n);
    k.push_back(of.k);
    lda.push_back(of.lda());
    ldb.push_back(of.ldb());
    ldc.push_back(of.ldc());
    alphas.push_back(static_cast<float>(of.alpha));
    betas.push_back(static_cast<float>(of.beta));
    a.push_back(on_device(of.a));
    b.push_back(on_device(of.b));
    c.push_back(on_device(of.c));
  }
  const auto grouped = [&](cudaDataType_t result) {
    return cublasGemmGroupedBatchedEx_64(
        handle, ta.data(), tb.data(), m.data(), n.data(), k.data(), alphas.data(), on_device(a), CUDA_R_32F,
        lda.data(), on_device(b), CUDA_R_32F, ldb.data(), betas.data(),
        reinterpret_cast<void**>(on_device(c)), result, ldc.data(), static_cast<std::int64_t>(all.size()),
        ones.data(), CUBLAS_COMPUTE_32F);
  };
  CHECK(grouped(CUDA_R_16BF) == CUBLAS_STATUS_NOT_SUPPORTED);
  REQUIRE(grouped(CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  for (std::size_t i = 0; i < all.size(); ++i)
    CHECK(difference(c[i], all[i].formula()) < 1e-5);
  CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}
