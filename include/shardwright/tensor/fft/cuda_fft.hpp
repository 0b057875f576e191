// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Fourier transforms in the memory of NVIDIA GPUs by cuFFT: a set of plans per stream.

#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/device/cuda_runtime.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/fft/strided_transform.hpp>
#include <shardwright/tensor/kernels/device/cuda_streams.hpp>

#include <Kokkos_Core.hpp>
#include <cuda_runtime_api.h>
#include <cufft.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

inline void check_cufft(cufftResult status, const char* call) {
  if (status != CUFFT_SUCCESS)
    throw DeviceError(static_cast<int>(status),
                      std::string("fft: ") + call + " must succeed, but cuFFT says " +
                          std::to_string(static_cast<int>(status)) +
                          " (look for an earlier error of the device, or for exhausted memory).");
}

/// A plan of cuFFT: lines of `count` elements, `stride` apart, of which `batch` begin `distance` apart, each
/// for both sides.
struct CufftLines {
  cufftType type;
  long long count;
  long long batch;
  std::array<long long, 2> stride;
  std::array<long long, 2> distance;
  auto operator<=>(const CufftLines&) const = default;
};

/// The plans of one stream, each with a workspace of its own.
class CufftPlans {
public:
  explicit CufftPlans(cudaStream_t stream) : stream_(stream) {}
  CufftPlans(CufftPlans&& other) noexcept : stream_(other.stream_), plans_(std::move(other.plans_)) {
    other.plans_.clear();
  }
  CufftPlans(const CufftPlans&) = delete;
  CufftPlans& operator=(const CufftPlans&) = delete;
  ~CufftPlans() {
    for (const auto& [lines, plan] : plans_)
      cufftDestroy(plan);
  }

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] cufftHandle of(const CufftLines& lines) {
    const auto found = plans_.find(lines);
    if (found != plans_.end())
      return found->second;
    cufftHandle plan{};
    check_cufft(cufftCreate(&plan), "cufftCreate");
    std::size_t workspace = 0;
    std::array<long long, 1> count{
        lines.count}; // embedded in lines of their own length: strides say the rest
    const cufftResult made = cufftMakePlanMany64(plan, 1, count.data(), count.data(), lines.stride[0],
                                                 lines.distance[0], count.data(), lines.stride[1],
                                                 lines.distance[1], lines.type, lines.batch, &workspace);
    if (made != CUFFT_SUCCESS)
      cufftDestroy(plan);
    check_cufft(made, "cufftMakePlanMany64");
    check_cufft(cufftSetStream(plan, stream_), "cufftSetStream");
    plans_.emplace(lines, plan);
    return plan;
  }

private:
  cudaStream_t stream_;
  std::map<CufftLines, cufftHandle> plans_;
};

/// Elements where cuFFT takes them, at an address aligned as a complex element (cuFFT documentation,
/// cufftExecR2C): there, or if theirs is another, in memory of the stream.
template <class Element> class AlignedElements {
public:
  AlignedElements(Element* elements, std::int64_t count, cudaStream_t stream)
      : elements_(elements), data_(elements), bytes_(static_cast<std::size_t>(count) * sizeof(Element)),
        stream_(stream) {
    if (reinterpret_cast<std::uintptr_t>(elements) % (2 * sizeof(RealPart<Element>)) != 0) {
      void* memory = nullptr;
      check_cuda(cudaMallocAsync(&memory, bytes_, stream_), "allocating device memory");
      data_ = static_cast<Element*>(memory);
    }
  }
  AlignedElements(const AlignedElements&) = delete;
  AlignedElements& operator=(const AlignedElements&) = delete;
  ~AlignedElements() {
    if (moved())
      cudaFreeAsync(data_, stream_);
  }

  [[nodiscard]] auto* parts() const { return as_parts(data_); }
  void fetch() const { copy(data_, elements_); }
  void give_back() const { copy(elements_, data_); }

private:
  [[nodiscard]] bool moved() const { return data_ != elements_; }
  void copy(Element* to, const Element* from) const {
    if (moved())
      check_cuda(cudaMemcpyAsync(to, from, bytes_, cudaMemcpyDeviceToDevice, stream_),
                 "copying device memory");
  }

  Element* elements_;
  Element* data_;
  std::size_t bytes_;
  cudaStream_t stream_;
};

/// cuFFT repeats a transform along one stride, so that the lines before a dimension take a call each.
template <> struct TransformLibrary<Kokkos::Cuda> {
  static constexpr bool available = true;
  /// Transforms to real elements may use their input as scratch (pytorch/pytorch#34551).
  static constexpr bool writes_spectra = true;

  template <class In, class Out>
  static void transform(const Kokkos::Cuda& execution, const TransformProblem& problem, const In* in,
                        Out* out) {
    auto& plans = kernels::detail::of_stream<CufftPlans>(execution);
    lines(plans, problem.kind, problem.lines(0), in, out);
    for (int i = 1; i < problem.transformed.count; ++i) // complex, and in place
      lines(plans, problem.kind, problem.lines(i), out, out);
  }

private:
  /// All lines along a dimension.
  template <class In, class Out>
  static void lines(CufftPlans& plans, TransformKind kind, const TransformLines& along, const In* in,
                    Out* out) {
    const std::int64_t half = along.count / 2 + 1, inner = along.inner;
    const std::int64_t in_length = kind == TransformKind::to_real ? half : along.count;
    const std::int64_t out_length = kind == TransformKind::from_real ? half : along.count;
    const bool contiguous = inner == 1;
    const CufftLines key{type_of<In, Out>(),
                         along.count,
                         contiguous ? along.outer : inner,
                         {inner, inner},
                         {contiguous ? in_length : 1, contiguous ? out_length : 1}};
    const cufftHandle plan = plans.of(key);
    const std::int64_t groups = contiguous ? 1 : along.outer,
                       lines_in_group = contiguous ? along.outer : inner;
    for (std::int64_t at = 0; at < groups; ++at) {
      const std::int64_t in_count = in_length * lines_in_group, out_count = out_length * lines_in_group;
      const AlignedElements<In> from(const_cast<In*>(in) + at * in_count, in_count, plans.stream());
      const AlignedElements<Out> to(out + at * out_count, out_count, plans.stream());
      from.fetch();
      run(plan, kind, from.parts(), to.parts());
      to.give_back();
    }
  }
  template <class In, class Out> [[nodiscard]] static constexpr cufftType type_of() {
    constexpr bool wide = std::is_same_v<RealPart<Out>, double>;
    if constexpr (!ComplexElement<In>)
      return wide ? CUFFT_D2Z : CUFFT_R2C;
    else if constexpr (!ComplexElement<Out>)
      return wide ? CUFFT_Z2D : CUFFT_C2R;
    else
      return wide ? CUFFT_Z2Z : CUFFT_C2C;
  }
  static void run(cufftHandle plan, TransformKind kind, double* in, double* out) {
    auto* const from = reinterpret_cast<cufftDoubleComplex*>(in);
    auto* const to = reinterpret_cast<cufftDoubleComplex*>(out);
    if (kind == TransformKind::from_real)
      check_cufft(cufftExecD2Z(plan, in, to), "cufftExecD2Z");
    else if (kind == TransformKind::to_real)
      check_cufft(cufftExecZ2D(plan, from, out), "cufftExecZ2D");
    else
      check_cufft(cufftExecZ2Z(plan, from, to, sign_of(kind)), "cufftExecZ2Z");
  }
  static void run(cufftHandle plan, TransformKind kind, float* in, float* out) {
    auto* const from = reinterpret_cast<cufftComplex*>(in);
    auto* const to = reinterpret_cast<cufftComplex*>(out);
    if (kind == TransformKind::from_real)
      check_cufft(cufftExecR2C(plan, in, to), "cufftExecR2C");
    else if (kind == TransformKind::to_real)
      check_cufft(cufftExecC2R(plan, from, out), "cufftExecC2R");
    else
      check_cufft(cufftExecC2C(plan, from, to, sign_of(kind)), "cufftExecC2C");
  }
  [[nodiscard]] static int sign_of(TransformKind kind) {
    return kind == TransformKind::forward ? CUFFT_FORWARD : CUFFT_INVERSE;
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
