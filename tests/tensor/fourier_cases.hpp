// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Fourier transforms on slabs and pencils of any number of ranks, against the plain formula.

#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fft/transform.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

namespace fourier_test {

using namespace shardwright;
using axis::dp;
using axis::tp;
using shardwright_test::Findings;

using Shape = std::array<std::int64_t, 3>;
using Numbers = std::vector<std::complex<long double>>;

/// @brief A random number in [-1, 1).
[[nodiscard]] inline double random_at(std::size_t i, std::uint64_t seed) {
  std::uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15U + seed * 0xd1b54a32d192ed03U;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>(bits >> 11U) * 0x1p-52 - 1.0;
}

/// @brief The whole tensor [i, j, k]; its type decides whether there are imaginary parts.
template <class Element> [[nodiscard]] Numbers whole(const Shape& shape) {
  Numbers out(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = {static_cast<RealPart<Element>>(random_at(i, 1)),
              ComplexElement<Element> ? static_cast<RealPart<Element>>(random_at(i, 2)) : 0};
  return out;
}

/// @brief The formula along a dimension: sum_j x_j exp(-2 pi i j k / n).
[[nodiscard]] inline Numbers plain_transform(const Numbers& x, const Shape& shape, std::size_t dimension) {
  const auto n = static_cast<std::size_t>(shape[dimension]);
  std::size_t inner = 1;
  for (std::size_t d = dimension + 1; d < 3; ++d)
    inner *= static_cast<std::size_t>(shape[d]);
  Numbers factors(n);
  for (std::size_t j = 0; j < n; ++j)
    factors[j] = std::polar(1.0L, -2 * std::numbers::pi_v<long double> * static_cast<long double>(j) /
                                      static_cast<long double>(n));
  Numbers out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t k = i / inner % n;
    for (std::size_t j = 0; j < n; ++j)
      out[i] += x[i + j * inner - k * inner] * factors[j * k % n];
  }
  return out;
}

/// @brief Calls visit(element, index in a whole tensor) for every element of this rank's block.
template <class Tensor, class Visit>
void each_element(Tensor& tensor, const Shape& whole_shape, Visit visit) {
  const auto offset = tensor.local_offset();
  const auto& local = tensor.local_shape();
  std::size_t at = 0;
  for (std::int64_t i = offset[0]; i < offset[0] + local[0]; ++i)
    for (std::int64_t j = offset[1]; j < offset[1] + local[1]; ++j)
      for (std::int64_t k = offset[2]; k < offset[2] + local[2]; ++k)
        visit(at++, static_cast<std::size_t>((i * whole_shape[1] + j) * whole_shape[2] + k));
}

template <class L, class Element, class Mesh>
[[nodiscard]] ShardedTensor<L, Element> block_of(const Mesh& mesh, const Shape& shape,
                                                 const Numbers& numbers) {
  ShardedTensor<L, Element> out(mesh, shape);
  Element* const to = out.mutable_data();
  each_element(out, shape, [&](std::size_t at, std::size_t i) {
    if constexpr (ComplexElement<Element>)
      to[at] = Element(static_cast<RealPart<Element>>(numbers[i].real()),
                       static_cast<RealPart<Element>>(numbers[i].imag()));
    else
      to[at] = static_cast<Element>(numbers[i].real());
  });
  return out;
}

/// @brief Whether a block differs from `wanted`, a tensor of at least its shape, by at most 1e-15 log2 N of
/// its norm, or as many units of a float.
template <class Tensor>
void expect_close(const Tensor& found, const Numbers& wanted, const Shape& wanted_shape, double transformed,
                  Findings& findings, const char* what) {
  using Real = RealPart<typename Tensor::value_type>;
  const auto* const data = found.data();
  long double error = 0, norm = 0;
  for (const auto& each : wanted)
    norm += std::norm(each);
  each_element(found, wanted_shape, [&](std::size_t at, std::size_t i) {
    error += std::norm(std::complex<long double>(data[at]) - wanted[i]);
  });
  const double units = static_cast<double>(std::numeric_limits<Real>::epsilon()) / 0x1p-52;
  const double bound = 1e-15 * units * std::max(1.0, std::log2(transformed));
  findings.expect(std::sqrt(error) <= bound * std::sqrt(norm), what, " of ", found.shape()[0], " x ",
                  found.shape()[1], " x ", found.shape()[2], " on ", found.core().world().size(),
                  " ranks: ", static_cast<double>(std::sqrt(error / norm)), " above ", bound);
}

/// @brief Slabs: both directions, complex and real, on one axis.
template <class Real>
void check_slabs(const HostCommunicator& world, const Shape& shape, Findings& findings) {
  using Complex = std::complex<Real>;
  using Slab = Layout<3, Shard<0, dp>>;
  using Other = Layout<3, Shard<1, dp>>;
  const DeviceMesh<dp> mesh(world, extent<dp>(world.size()));
  const auto count = static_cast<double>(shape[0] * shape[1] * shape[2]);
  const auto first_count = static_cast<double>(shape[0]), last_count = static_cast<double>(shape[2]);
  const double plane_count = static_cast<double>(shape[1]) * last_count;
  const Numbers x = whole<Complex>(shape);
  const Numbers last = plain_transform(x, shape, 2);
  const Numbers planes = plain_transform(last, shape, 1);
  const Numbers all = plain_transform(planes, shape, 0);
  const auto slab = block_of<Slab, Complex>(mesh, shape, x);
  expect_close(fft<2>(slab), last, shape, last_count, findings, "fft<2>");
  const auto two = fftn<1, 2>(slab);
  expect_close(two, planes, shape, plane_count, findings, "fftn<1, 2>");
  const auto spectrum = fft<0>(redistribute<Other>(two));
  expect_close(spectrum, all, shape, count, findings, "slabs");
  const auto back = ifftn<1, 2>(redistribute<Slab>(ifft<0>(spectrum)));
  expect_close(back, x, shape, 2 * count, findings, "slabs and back");
  expect_close(fftn(redistribute<Layout<3>>(slab)), all, shape, count, findings, "fftn");

  const Numbers real = whole<Real>(shape);
  const auto field = block_of<Slab, Real>(mesh, shape, real);
  const auto half = rfft<2>(field);
  const auto half_extent = shape[2] / 2 + 1;
  findings.expect(half.shape() == Shape{shape[0], shape[1], half_extent}, "the extents of half a spectrum");
  expect_close(irfft<2>(half, shape[2]), real, shape, 2 * last_count, findings, "irfft<2> of rfft<2>");
  const Numbers real_last = plain_transform(real, shape, 2);
  expect_close(half, real_last, shape, last_count, findings, "rfft<2>");
  const auto half_planes = rfftn<1, 2>(field);
  expect_close(half_planes, plain_transform(real_last, shape, 1), shape, plane_count, findings,
               "rfftn<1, 2>");
  expect_close(irfftn<1, 2>(half_planes, shape[2]), real, shape, 2 * plane_count, findings,
               "irfftn<1, 2> of rfftn<1, 2>");
  const auto across = rfft<0>(redistribute<Other>(field)); // with a stride
  expect_close(across, plain_transform(real, shape, 0), shape, first_count, findings, "rfft<0>");
  expect_close(irfft<0>(across, shape[0]), real, shape, 2 * first_count, findings, "irfft<0> of rfft<0>");
}

/// @brief Pencils on two axes: a transform and an all_to_all in turns.
template <class Real>
void check_pencils(const HostCommunicator& world, int first, const Shape& shape, Findings& findings) {
  using Complex = std::complex<Real>;
  const DeviceMesh<dp, tp> mesh(world, extent<dp>(first), extent<tp>(world.size() / first));
  const auto count = static_cast<double>(shape[0] * shape[1] * shape[2]);
  const Numbers x = whole<Complex>(shape);
  const Numbers all = plain_transform(plain_transform(plain_transform(x, shape, 2), shape, 1), shape, 0);
  const auto along_2 = fft<2>(block_of<Layout<3, Shard<0, dp>, Shard<1, tp>>, Complex>(mesh, shape, x));
  const auto along_1 = fft<1>(redistribute<Layout<3, Shard<0, dp>, Shard<2, tp>>>(along_2));
  const auto along_0 = fft<0>(redistribute<Layout<3, Shard<1, dp>, Shard<2, tp>>>(along_1));
  expect_close(along_0, all, shape, count, findings, "pencils");
}

/// @brief All of them, where blocks are even, uneven and empty.
inline void check_world(const HostCommunicator& world, Findings& findings) {
  for (const Shape& shape : {Shape{5, 6, 7}, Shape{3, 2, 4}, Shape{8, 8, 19}}) {
    check_slabs<double>(world, shape, findings);
    for (int first = 1; first <= world.size(); ++first)
      if (world.size() % first == 0)
        check_pencils<double>(world, first, shape, findings);
  }
  check_slabs<float>(world, {5, 6, 7}, findings);
  check_slabs<float>(world, {5, 3, 17}, findings); // groups of columns off the alignment
}

} // namespace fourier_test
