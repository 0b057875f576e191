// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The dot product of complex vectors, in double and in a fixed order.

#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Sums of conj(x) y over blocks, from the parts of both; their real parts come first in `partial`.
template <class Real> struct ConjugateProductBlocks {
  const Real* x;
  const Real* y;
  std::size_t count;
  double* partial;
  std::size_t blocks;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    constexpr std::size_t streams = lane_threads == 1 ? 4 : 1; // hides the latency of an addition
    const std::size_t end = block_end(block, reduce_block, count);
    double re[streams] = {};
    double im[streams] = {};
    std::size_t i = block * reduce_block + lane_number();
    for (; i + (streams - 1) * lane_threads < end; i += streams * lane_threads)
      for (std::size_t s = 0; s < streams; ++s)
        add(i + s * lane_threads, re[s], im[s]);
    if constexpr (streams > 1)
      for (; i < end; i += lane_threads)
        add(i, re[0], im[0]);
    for (std::size_t s = 1; s < streams; ++s) {
      re[0] += re[s];
      im[0] += im[s];
    }
    re[0] = over_threads(re[0], PlusLanes{});
    im[0] = over_threads(im[0], PlusLanes{});
    if (first_lane()) {
      partial[block] = re[0];
      partial[blocks + block] = im[0];
    }
  }

private:
  SHARDWRIGHT_FUNCTION void add(std::size_t i, double& re, double& im) const {
    const auto a = static_cast<double>(x[2 * i]), b = static_cast<double>(x[2 * i + 1]);
    const auto c = static_cast<double>(y[2 * i]), d = static_cast<double>(y[2 * i + 1]);
    re += a * c + b * d;
    im += a * d - b * c;
  }
};

} // namespace detail

/// @brief result[0] = sum of conj(x) y over contiguous views of complex elements of one size, in double and
/// rounded once.
/// @param workspace  double [2 reduce_workspace(size)]
/// @throws InvalidArgument for views of different sizes, or that are not contiguous.
template <class Execution, KernelView X, KernelView Y, KernelVector Result, KernelVector Work>
void conjugate_dot(const Execution& execution, const X& x, const Y& y, const Result& result,
                   const Work& workspace) {
  const auto left = flat_span_of(x, "dot");
  const auto right = flat_span_of(y, "dot");
  const std::size_t blocks = reduce_workspace(left.size);
  require(left.size == right.size, "dot", "both views must have the same size.");
  require(result.extent(0) >= 1, "dot", "the result must have one element.");
  require(workspace.extent(0) >= 2 * blocks, "dot", "the workspace is too small (see reduce_workspace).");
  using Real = RealPart<typename X::non_const_value_type>;
  double* const partial = workspace.data();
  moves("sw::dot", execution, x, y.data() == x.data() ? 0 : detail::bytes_of(y));
  run_lanes("sw::dot", execution, blocks,
            detail::ConjugateProductBlocks<Real>{shardwright::detail::as_parts(left.data),
                                                 shardwright::detail::as_parts(right.data), left.size,
                                                 partial, blocks});
  Real* const parts = shardwright::detail::as_parts(result.data());
  run_sum_in_order<Execution, double>(execution, partial, blocks, parts, false);
  run_sum_in_order<Execution, double>(execution, partial + blocks, blocks, parts + 1, false);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
