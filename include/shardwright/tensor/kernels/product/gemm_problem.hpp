// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A row-major matrix product as the column-major one that a device library computes, and cached plans
/// for it.

#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/device/graphs.hpp>
#include <shardwright/tensor/kernels/product/portable.hpp>

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

inline std::atomic<bool>& tf32_choice() {
  static std::atomic<bool> chosen{false};
  return chosen;
}
inline std::atomic<bool>& timed_choice() {
  static std::atomic<bool> chosen{false};
  return chosen;
}

} // namespace detail

/// @brief Chooses whether products of floats on an NVIDIA GPU round their factors to the 11 bits of TF32,
/// which is several times faster. Off by default. Holds for the whole process.
inline void use_tf32(bool chosen) { detail::tf32_choice().store(chosen, std::memory_order_relaxed); }

/// @brief Chooses whether the first product of a shape on a stream times up to 8 kernels that cuBLASLt
/// proposes on an NVIDIA GPU, and keeps the fastest; else it keeps cuBLASLt's first. Off by default. Holds
/// for the whole process.
///
/// All later products of the shape use that kernel, so the steps of a run round alike. Two runs, or two
/// ranks, may choose differently and then differ in the last bits: use it with one rank. The first product
/// waits for the device, so in a capture it invalidates the capture.
inline void use_timed_products(bool chosen) {
  detail::timed_choice().store(chosen, std::memory_order_relaxed);
}

namespace detail {

/// The type in which products and sums of a product are computed.
enum class GemmCompute : std::uint8_t { float32, tf32, float64 };

/// C = alpha op(A) op(B) + beta C with column-major matrices: op(A) is [m, k], op(B) [k, n], C [m, n], and
/// element (i, j) of a matrix is data[i + j * ld].
///
/// Contains everything by which a library chooses its kernel, and so is the key of a plan. Alignments are
/// bytes, at most 256.
struct GemmProblem {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t lda;
  std::int64_t ldb;
  std::int64_t ldc;
  bool transpose_a;
  bool transpose_b;
  ElementType factors;
  ElementType result;
  GemmCompute compute;
  std::uint32_t a_alignment;
  std::uint32_t b_alignment;
  std::uint32_t c_alignment;

  friend auto operator<=>(const GemmProblem&, const GemmProblem&) = default;
};

/// The numbers of one product.
struct GemmOperands {
  const void* a;
  const void* b;
  void* c;
  double alpha;
  double beta;
};

/// The largest power of two, up to 256, that the address is a multiple of.
[[nodiscard]] inline std::uint32_t alignment_of(const void* address) {
  const auto bits = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address)) | 256u;
  return bits & (~bits + 1u);
}

template <class Element> [[nodiscard]] GemmCompute gemm_compute(bool tf32) {
  if constexpr (std::is_same_v<Element, double>)
    return GemmCompute::float64;
  else
    return std::is_same_v<Element, float> && tf32 ? GemmCompute::tf32 : GemmCompute::float32;
}

/// Memory that holds a row-major matrix holds its transpose column-major, with the row stride for its ld. So
/// the product is computed as C' = op(B)' op(A)': the factors are swapped and keep their flags.
template <class Element, class Out>
[[nodiscard]] std::pair<GemmProblem, GemmOperands> column_major(const Product<Element, Out>& product,
                                                                bool tf32) {
  const auto size = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  const auto& [m, n, k, alpha, a, b, beta, c, c_stride] = product;
  return {{size(n), size(m), size(k), size(b.stride), size(a.stride), size(c_stride), b.transposed,
           a.transposed, element_type_of<Element>(), element_type_of<Out>(), gemm_compute<Element>(tf32),
           alignment_of(b.data), alignment_of(a.data), alignment_of(c)},
          {b.data, a.data, c, static_cast<double>(alpha), static_cast<double>(beta)}};
}

/// The plans of one stream, each created at the first product of its shape.
///
/// `Library` has a type Plan; `Plan plan(const GemmProblem&, const GemmOperands&)`, which may choose and,
/// with use_timed_products(), measure, for which it may write to C if beta is 0; and `bool multiply(const
/// GemmProblem&, Plan&, const GemmOperands&)`, which only starts the work, and is false if the library has no
/// kernel for the problem.
template <class Library> class GemmPlans {
public:
  explicit GemmPlans(Library library) : library_(std::move(library)) {}

  [[nodiscard]] bool multiply(const GemmProblem& problem, const GemmOperands& operands) {
    auto found = plans_.find(problem);
    if (found == plans_.end()) {
      if (timed_choice() && shardwright::detail::CaptureMark::spoil()) // timing would wait for the device
        return true; // omitted, since the capture is discarded
      try {
        found = plans_.emplace(problem, library_.plan(problem, operands)).first;
      } catch (const DeviceError&) { // planning may do what a capture forbids
        if (!shardwright::detail::CaptureMark::spoil())
          throw;
        return true; // omitted, since the capture is discarded
      }
    }
    return library_.multiply(problem, found->second, operands);
  }
  [[nodiscard]] std::size_t size() const { return plans_.size(); }
  [[nodiscard]] Library& library() { return library_; }

private:
  Library library_;
  std::map<GemmProblem, typename Library::Plan> plans_;
};

/// The library of an execution space; specialized by headers of targets.
template <class Execution> struct LibraryGemm { static constexpr bool available = false; };

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
