// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Fourier transforms over dimensions that are whole on each rank, with their gradients.
///
/// A tensor that is split over every dimension is transformed in turns: over the whole dimensions, then,
/// after a redistribute() that splits those instead, over the others. Slabs need one all_to_all, pencils two;
/// the result may stay in the last layout.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/transform_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/elementwise/with_number.hpp>
#include <shardwright/tensor/fft/fftw.hpp>
#include <shardwright/tensor/fft/strided_transform.hpp>
#include <shardwright/tensor/kernels/terms.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#if defined(KOKKOS_ENABLE_CUDA) && defined(SHARDWRIGHT_WITH_CUFFT)
#include <shardwright/tensor/fft/cuda_fft.hpp>
#endif

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Element, bool complex>
inline constexpr bool transforms_element =
    complex ? ComplexElement<Element> : std::is_same_v<Element, float> || std::is_same_v<Element, double>;

/// The error sentences of the input of a transform; the trace names it.
template <class X, bool complex> struct TransformInput {
  static constexpr bool of_element = transforms_element<typename X::value_type, complex>;
  static constexpr bool on_target = TransformLibrary<typename X::target::execution_space>::available;
  static_assert(!complex || of_element,
                "Fourier transform: its input must be complex (rfft transforms real elements)");
  static_assert(complex || of_element,
                "rfft: its input must be float or double (fft transforms complex elements; convert others)");
  static_assert(
      !is_reproducible<typename X::target>,
      "Fourier transform: the target must not be Reproducible, because libraries of transforms choose an algorithm by the number of lines on a rank (use the target without Reproducible)");
  static_assert(
      on_target,
      "Fourier transform: a library of transforms must be found when the program is configured (install libfftw3-dev for host memory, or cuFFT for that of a device, and configure again)");
};

/// Whether a transform is defined: of a complex input, or of a real one.
template <class X, bool complex, class L>
inline constexpr bool transforms =
    !any_invalid<L> && transforms_element<typename X::value_type, complex> &&
    !is_reproducible<typename X::target> && TransformLibrary<typename X::target::execution_space>::available;

[[noreturn, gnu::noinline]] inline void reject_empty_transform(std::string_view name, int dimension,
                                                               const MeshCore& core, SourceLocation where) {
  reject_operation(
      std::string(name).c_str(),
      "dimension " + std::to_string(dimension) +
          " must have at least one element to be transformed, but it has none (check its extent)",
      core, where);
}
[[noreturn, gnu::noinline]] inline void reject_real_extent(std::int64_t extent, const MeshCore& core,
                                                           SourceLocation where) {
  reject_operation("irfft",
                   "the extent must be at least 1, but it is " + std::to_string(extent) +
                       " (give the extent that the real tensor had)",
                   core, where);
}
[[noreturn, gnu::noinline]] inline void reject_spectrum(std::int64_t extent, std::int64_t held, int dimension,
                                                        const MeshCore& core, SourceLocation where) {
  reject_operation("irfft",
                   "the spectrum of " + std::to_string(extent) +
                       " real numbers must have n / 2 + 1 = " + std::to_string(extent / 2 + 1) +
                       " elements, but dimension " + std::to_string(dimension) + " has " +
                       std::to_string(held) + " (give the extent that the real tensor had)",
                   core, where);
}

/// out = the transform over the dimensions of a block of the extents `in`.
template <class Dimensions, std::size_t rank, class Element, class Out>
void transform(TransformKind kind, std::string_view name, const std::array<std::int64_t, rank>& in,
               const Element* from, Out& out, SourceLocation where) {
  for (int d = 0; d < Out::tensor_rank; ++d)
    if (Dimensions::has(d) && out.shape()[static_cast<std::size_t>(d)] == 0)
      reject_empty_transform(name, d, out.core(), where);
  if (out.local_size() == 0)
    return;
  using Library = TransformLibrary<typename Out::target::execution_space>;
  kernels::moves("sw::fft", out.execution(), product(in) * sizeof(Element),
                 out.local_size() * sizeof(typename Out::value_type));
  Library::transform(out.execution(), transform_problem(kind, in, out.local_shape(), &Dimensions::has), from,
                     out.mutable_data());
}

/// Every element times a real factor.
template <class Tensor> void scale_parts(Tensor& tensor, double factor) {
  using Real = RealPart<typename Tensor::value_type>;
  Real* const parts = as_parts(tensor.mutable_data());
  kernels::store_formula("sw::fft_scale", tensor.execution(), kernels::MapOf<TimesNumber<double>>{{factor}},
                         kernels::NoElements{}, kernels::Elements<Real>{parts}, kernels::NoElements{}, parts,
                         tensor.local_size() * parts_in<typename Tensor::value_type>);
}

/// Multiplies the elements of half a spectrum, [outer, length, inner]: those that are their own mirror images
/// by `edge`, the others by `inside`.
template <class Real> struct WeighHalfSpectrum {
  Real* parts;
  std::size_t length;
  std::size_t columns; ///< Parts of the inner elements.
  bool even;           ///< Whether the real extent is, so that the last element is its own image.
  Real edge;
  Real inside;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t row, std::size_t begin, std::size_t end) const {
    const std::size_t k = row % length;
    const Real factor = k == 0 || (even && k + 1 == length) ? edge : inside;
    for (std::size_t c = begin + kernels::lane_number(); c < end; c += kernels::lane_threads)
      parts[row * columns + c] *= factor;
  }
};
template <int dimension, class Tensor>
void weigh_half_spectrum(Tensor& spectrum, std::int64_t extent, double edge, double inside) {
  using Real = RealPart<typename Tensor::value_type>;
  const auto& local = spectrum.local_shape();
  const auto length = static_cast<std::size_t>(local[static_cast<std::size_t>(dimension)]);
  const std::size_t columns = 2 * product(local, static_cast<std::size_t>(dimension + 1));
  if (spectrum.local_size() == 0)
    return;
  kernels::moves("sw::fft_weigh", spectrum.execution(),
                 2 * spectrum.local_size() * sizeof(typename Tensor::value_type));
  kernels::run_pieces(
      "sw::fft_weigh", spectrum.execution(), 2 * spectrum.local_size() / columns, columns, 4096,
      WeighHalfSpectrum<Real>{as_parts(spectrum.mutable_data()), length, columns, extent % 2 == 0,
                              static_cast<Real>(edge), static_cast<Real>(inside)});
}

/// The shape of a tensor with another extent of one dimension.
template <class Shape> [[nodiscard]] Shape with_extent(Shape shape, int dimension, std::int64_t extent) {
  shape[static_cast<std::size_t>(dimension)] = extent;
  return shape;
}

} // namespace detail

namespace operation {

/// @brief A transform of complex elements with the factors exp(-2 pi i j k / n), or, if `inverse`, their
/// conjugates; `normalised` by 1 / N. Its gradient is the other one with the same factor.
template <bool inverse, bool normalised, int... dimensions> struct Fourier {
  static constexpr std::string_view name = inverse ? "ifft" : "fft";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, X&& x) const {
    using Input = std::remove_cvref_t<X>;
    using L = TransformLayout<typename Input::layout, dimensions...>;
    using Dimensions = detail::TransformedDimensions<Input::tensor_rank, dimensions...>;
    static_assert(sizeof(detail::TransformInput<Input, true>) != 0);
    if constexpr (!detail::transforms<Input, true, L>) {
      return detail::ResultTensor<L, Input>(x.resources(), {}, where);
    } else {
      auto [from, out] = reuse(std::forward<X>(x), where);
      detail::transform<Dimensions>(inverse ? detail::TransformKind::inverse : detail::TransformKind::forward,
                                    name, out.local_shape(), from, out, where);
      if constexpr (normalised) {
        double count = 1;
        for (int d = 0; d < Input::tensor_rank; ++d)
          if (Dimensions::has(d))
            count *= static_cast<double>(out.shape()[static_cast<std::size_t>(d)]);
        detail::scale_parts(out, 1 / count);
      }
      return std::move(out);
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& y_gradient, const X&, const Y&) const {
    return Fourier<!inverse, normalised, dimensions...>{}.forward({}, std::forward<G>(y_gradient));
  }
};

/// @brief The first n / 2 + 1 elements of the transform of n real ones along a dimension; the others are
/// their conjugates.
template <int dimension> struct RealFourier {
  static constexpr std::string_view name = "rfft";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = TransformLayout<typename X::layout, dimension>;
    using Result = ShardedTensor<L, std::complex<typename X::value_type>, typename X::target>;
    static_assert(sizeof(detail::TransformInput<X, false>) != 0);
    if constexpr (!detail::transforms<X, false, L>) {
      return ShardedTensor<L, std::complex<double>, typename X::target>(x.resources(), {}, where);
    } else {
      const std::int64_t extent = x.shape()[static_cast<std::size_t>(dimension)];
      if (extent == 0)
        detail::reject_empty_transform(name, dimension, x.core(), where);
      Result out(x.resources(), detail::with_extent(x.shape(), dimension, extent / 2 + 1), where);
      detail::transform<detail::TransformedDimensions<X::tensor_rank, dimension>>(
          detail::TransformKind::from_real, name, x.local_shape(), x.data(), out, where);
      return out;
    }
  }
  /// @brief That of irfft without its normalisation, of the gradient's elements and half of those that the
  /// inverse counts twice.
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(G&& y_gradient, const X& x, const Y&) const {
    using Slope = std::remove_cvref_t<G>;
    using Result = ShardedTensor<typename Slope::layout, typename X::value_type, typename Slope::target>;
    auto weighed = detail::owned(std::forward<G>(y_gradient));
    detail::weigh_half_spectrum<dimension>(weighed, x.shape()[static_cast<std::size_t>(dimension)], 1, 0.5);
    Result out(weighed.resources(), x.shape());
    detail::transform<detail::TransformedDimensions<X::tensor_rank, dimension>>(
        detail::TransformKind::to_real, name, weighed.local_shape(), weighed.data(), out, {});
    return out;
  }
};

/// @brief The inverse of RealFourier, whose extent must be given: n / 2 + 1 elements are those of two.
template <int dimension> struct InverseRealFourier {
  static constexpr std::string_view name = "irfft";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  std::int64_t extent = 0;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    using L = TransformLayout<typename X::layout, dimension>;
    using Result = ShardedTensor<L, RealPart<typename X::value_type>, typename X::target>;
    static_assert(sizeof(detail::TransformInput<X, true>) != 0);
    if constexpr (!detail::transforms<X, true, L>) {
      return Result(x.resources(), {}, where);
    } else {
      const std::int64_t held = x.shape()[static_cast<std::size_t>(dimension)];
      if (extent < 1)
        detail::reject_real_extent(extent, x.core(), where);
      if (held != extent / 2 + 1)
        detail::reject_spectrum(extent, held, dimension, x.core(), where);
      Result out(x.resources(), detail::with_extent(x.shape(), dimension, extent), where);
      const auto spectrum = [&] {
        if constexpr (detail::TransformLibrary<typename X::target::execution_space>::writes_spectra)
          return x.clone(where);
        else
          return x.share(where);
      }();
      detail::transform<detail::TransformedDimensions<X::tensor_rank, dimension>>(
          detail::TransformKind::to_real, name, x.local_shape(), spectrum.data(), out, where);
      detail::scale_parts(out, 1 / static_cast<double>(extent));
      return out;
    }
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X&, const Y&) const {
    auto out = RealFourier<dimension>{}.forward({}, y_gradient);
    const double factor = 1 / static_cast<double>(extent);
    detail::weigh_half_spectrum<dimension>(out, extent, factor, 2 * factor);
    return out;
  }
  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber("extent", extent)}; }
};

} // namespace operation

/// @name Fourier transforms
/// Of tensors and of values on a tape. The dimensions must be whole on each rank; otherwise the error shows
/// the layout to redistribute to. The layout stays, and a Partial Sum or Avg passes through. In host memory
/// by FFTW, in that of a device by cuFFT, with a plan for each block, element and set of dimensions that is
/// kept until the program ends; making one takes microseconds to milliseconds. No communication; N is the
/// number of elements along the transformed dimensions.
/// @throws InvalidArgument if a transformed dimension has no elements.
/// @{
/// @brief sum_j x_j exp(-2 pi i j k / n) along a dimension, not normalised.
template <int dimension, Operand X>
[[nodiscard]] auto fft(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Fourier<false, false, dimension>{}, where, std::forward<X>(x));
}
/// @brief The inverse of fft, normalised by 1 / n.
template <int dimension, Operand X>
[[nodiscard]] auto ifft(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Fourier<true, true, dimension>{}, where, std::forward<X>(x));
}
/// @brief fft along several dimensions at once, or along all, if none is given.
template <int... dimensions, Operand X>
[[nodiscard]] auto fftn(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Fourier<false, false, dimensions...>{}, where, std::forward<X>(x));
}
/// @brief The inverse of fftn, normalised by 1 / N.
template <int... dimensions, Operand X>
[[nodiscard]] auto ifftn(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Fourier<true, true, dimensions...>{}, where, std::forward<X>(x));
}
/// @brief fft of n real elements along a dimension: the n / 2 + 1 elements that the others follow from.
template <int dimension, Operand X>
[[nodiscard]] auto rfft(X&& x, SourceLocation where = SourceLocation::current()) {
  return apply(operation::RealFourier<dimension>{}, where, std::forward<X>(x));
}
/// @brief The inverse of rfft, normalised by 1 / n. Imaginary parts that a real tensor does not have, of the
/// first element and of the last for an even n, are not read.
/// @param extent n, which the n / 2 + 1 elements do not say
/// @throws InvalidArgument if n is less than 1, or there are not n / 2 + 1 elements.
template <int dimension, Operand X>
[[nodiscard]] auto irfft(X&& x, std::int64_t extent, SourceLocation where = SourceLocation::current()) {
  return apply(operation::InverseRealFourier<dimension>{extent}, where, std::forward<X>(x));
}
/// @brief rfft along the last of several dimensions, and fft along the others, from the last to the first.
template <int dimension, int... others, Operand X>
[[nodiscard]] auto rfftn(X&& x, SourceLocation where = SourceLocation::current()) {
  if constexpr (sizeof...(others) == 0)
    return rfft<dimension>(std::forward<X>(x), where);
  else
    return fft<dimension>(rfftn<others...>(std::forward<X>(x), where), where);
}
/// @brief The inverse of rfftn, normalised by 1 / N.
/// @param extent that of the real tensor along the last of the dimensions
/// @throws InvalidArgument as irfft.
template <int dimension, int... others, Operand X>
[[nodiscard]] auto irfftn(X&& x, std::int64_t extent, SourceLocation where = SourceLocation::current()) {
  if constexpr (sizeof...(others) == 0)
    return irfft<dimension>(std::forward<X>(x), extent, where);
  else
    return irfftn<others...>(ifft<dimension>(std::forward<X>(x), where), extent, where);
}
/// @}

} // namespace shardwright::inline SHARDWRIGHT_ABI
