// SPDX-License-Identifier: Apache-2.0
// Reductions over all elements, compared with Thrust's on the same device memory; a second run gives the same
// bits.
#include <shardwright/tensor/kernels/checksum.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>

#include "cuda/compare.hpp"

#include <Kokkos_Core.hpp>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/inner_product.h>
#include <thrust/transform_reduce.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <vector>

namespace {

namespace sw = shardwright;
namespace kernels = sw::kernels;
using cuda_test::Device;

template <class Element> using Vector = Kokkos::View<Element*, Kokkos::LayoutRight, Device::memory_space>;

template <class Element> struct Square {
  __host__ __device__ double operator()(Element x) const {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};
template <class Element> struct Absolute {
  __host__ __device__ double operator()(Element x) const { return std::abs(static_cast<double>(x)); }
};
template <class Element> struct IsNotFinite {
  __host__ __device__ double operator()(Element x) const {
    return std::isfinite(static_cast<double>(x)) ? 0 : 1;
  }
};
template <class Element> struct Product {
  __host__ __device__ double operator()(Element x, Element y) const {
    return static_cast<double>(x) * static_cast<double>(y);
  }
};

/// The sums by this library's kernels, in memory that Thrust owns.
template <class Element>
std::vector<double> ours(const Kokkos::Cuda& execution, const Vector<Element>& x, const Vector<Element>& y) {
  thrust::device_vector<double> results(5);
  const std::size_t size = kernels::reduce_workspace(x.size());
  const Vector<double> work("work", size);
  const auto result = [&](std::size_t i) {
    return Vector<double>(thrust::raw_pointer_cast(results.data()) + i, 1);
  };
  if constexpr (std::is_same_v<Element, sw::bfloat16>) { // gradients are summed in float or double
    kernels::dot(execution, x, x, result(0), work);
  } else {
    kernels::SquareSum squares(execution, work.data());
    squares.add(x);
    squares.finish(result(0));
  }
  kernels::dot(execution, x, y, result(1), work);
  kernels::sum_of_absolutes(execution, x, result(2), work);
  kernels::largest_absolute(execution, x, result(3), work);
  kernels::count_nonfinite(execution, x, result(4), work);
  execution.fence();
  std::vector<double> out(results.size());
  thrust::copy(results.begin(), results.end(), out.begin());
  return out;
}

template <class Element>
std::vector<double> by_thrust(const Kokkos::Cuda& execution, const Vector<Element>& x,
                              const Vector<Element>& y) {
  const auto on = thrust::cuda::par.on(execution.cuda_stream());
  const thrust::device_ptr<const Element> first(x.data()),
      last = first + static_cast<std::ptrdiff_t>(x.size());
  const auto sum = [&](auto term) {
    return thrust::transform_reduce(on, first, last, term, 0.0, thrust::plus<double>());
  };
  return {sum(Square<Element>()),
          thrust::inner_product(on, first, last, thrust::device_ptr<const Element>(y.data()), 0.0,
                                thrust::plus<double>(), Product<Element>()),
          sum(Absolute<Element>()),
          thrust::transform_reduce(on, first, last, Absolute<Element>(), 0.0, thrust::maximum<double>()),
          sum(IsNotFinite<Element>())};
}

template <class Element> bool reductions_agree(const char* what, std::size_t size) {
  const Kokkos::Cuda execution = Device::make_execution_space();
  const Vector<Element> x("x", size), y("y", size);
  kernels::fill_normal(execution, x, {{0}, {size}}, {1, 1}, 0.0, 1.0);
  kernels::fill_normal(execution, y, {{0}, {size}}, {1, 2}, 0.0, 1.0);
  execution.fence();
  const std::vector<double> once = ours(execution, x, y);
  if (once != ours(execution, x, y)) {
    std::printf("%s: two runs must have the same bits\n", what);
    return false;
  }
  return cuda_test::agrees(what, once, by_thrust(execution, x, y), 1e-9);
}

} // namespace

int main(int argc, char** argv) {
  return cuda_test::device_program(argc, argv, [] {
    bool sound = true;
    for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, std::size_t{1000003}}) {
      sound &= reductions_agree<float>("reductions of floats", size);
      sound &= reductions_agree<double>("reductions of doubles", size);
      sound &= reductions_agree<sw::bfloat16>("reductions of bfloat16", size);
    }
    return sound;
  });
}
