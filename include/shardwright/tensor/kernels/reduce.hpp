// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums over all elements in double precision and fixed order: dot product, sum of squares, number of
/// non-finite values.

#include <shardwright/tensor/kernels/device/block.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/parts.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/tensor/kernels/device/cuda_block.hpp>
#endif

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Elements that share one partial sum.
inline constexpr std::size_t reduce_block = 8192;

/// What a sum adds: a term of one array or, with `pairs`, of two.
struct SquareOf {
  static constexpr bool pairs = false;
  template <class V> SHARDWRIGHT_FUNCTION static V plus(V sum, V x, V) { return sum + x * x; }
};
struct ElementOf {
  static constexpr bool pairs = false;
  template <class V> SHARDWRIGHT_FUNCTION static V plus(V sum, V x, V) { return sum + x; }
};
struct AbsoluteOf {
  static constexpr bool pairs = false;
  template <class V> SHARDWRIGHT_FUNCTION static V plus(V sum, V x, V) { return sum + (x < 0 ? -x : x); }
};
struct ProductOf {
  static constexpr bool pairs = true;
  template <class V> SHARDWRIGHT_FUNCTION static V plus(V sum, V x, V y) {
    const V term = x * y;
    return sum + term;
  }
};
struct SquaredDifferenceOf {
  static constexpr bool pairs = true;
  template <class V> SHARDWRIGHT_FUNCTION static V plus(V sum, V x, V y) {
    const V term = (x - y) * (x - y);
    return sum + term;
  }
};

/// Sums of the terms of two arrays; terms of one array do not read `y`.
template <class Element, class Term> struct SumBlocks {
  using Number = AccumulationElement<Element>;
  const Element* x;
  const Element* y;
  std::size_t count;
  double* partial;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t begin = block * reduce_block;
    const std::size_t end = block_end(block, reduce_block, count);
    double sum;
    if constexpr (lane_threads == 1)
      sum = sum_of_host(begin, end);
    else
      sum = sum_of_warp(begin, end);
    if (first_lane())
      partial[block] = sum;
  }

  SHARDWRIGHT_FUNCTION double sum_of_host(std::size_t i, std::size_t end) const {
    constexpr std::size_t width = lane_count<double>;
    constexpr std::size_t streams = width == 1 ? 1 : 4; // hides the latency of an addition
    Lanes<double> sums[streams] = {};
    for (; i + streams * width <= end; i += streams * width)
      for (std::size_t s = 0; s < streams; ++s) {
        const Lanes<double> left = load_as_double(x + i + s * width);
        sums[s] = Term::plus(sums[s], left, Term::pairs ? load_as_double(y + i + s * width) : left);
      }
    double rest = 0.0;
    for (; i < end; ++i)
      rest = Term::plus(rest, static_cast<double>(x[i]), static_cast<double>(y[i]));
    for (std::size_t s = 1; s < streams; ++s)
      sums[0] += sums[s];
    return sum_of<double>(sums[0]) + rest;
  }

  /// Each thread sums its own numbers of the block.
  SHARDWRIGHT_FUNCTION double sum_of_warp(std::size_t begin, std::size_t end) const {
    double sum = 0.0;
    for_chunks<Number, 4>(
        begin, end,
        [from = x, by = y, &sum](auto chunk, std::size_t i) {
          const Lanes<Number> left = chunk.load(from + i);
          const Lanes<Number> right = Term::pairs ? chunk.load(by + i) : left;
          Number lefts[lane_count<Number>];
          Number rights[lane_count<Number>];
          __builtin_memcpy(lefts, &left, sizeof(left));
          __builtin_memcpy(rights, &right, sizeof(right));
          for (std::size_t k = 0; k < lane_count<Number>; ++k)
            sum = Term::plus(sum, static_cast<double>(lefts[k]), static_cast<double>(rights[k]));
        },
        x, y);
    return over_threads(sum, PlusLanes{});
  }
};

/// Squares of floats or of doubles.
struct SquaresOfEither {
  const void* x;
  bool wide;
  std::size_t count;
  double* partial;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    if (wide)
      squares_of(static_cast<const double*>(x), block);
    else
      squares_of(static_cast<const float*>(x), block);
  }

private:
  template <class Element>
  SHARDWRIGHT_FUNCTION void squares_of(const Element* numbers, std::size_t block) const {
    SumBlocks<Element, SquareOf>{numbers, numbers, count, partial}(block);
  }
};

template <class Element> struct NonfiniteBlocks {
  const Element* x;
  std::size_t count;
  double* partial;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const std::size_t end = block_end(block, reduce_block, count);
    std::size_t found = 0;
    // x - x is 0 for a finite number and NaN for an infinite one or a NaN.
    for (std::size_t i = block * reduce_block + lane_number(); i < end; i += lane_threads)
      found += x[i] - x[i] == AccumulationElement<Element>(0) ? 0u : 1u;
    found = over_threads(found, PlusLanes{});
    if (first_lane())
      partial[block] = static_cast<double>(found);
  }
};

/// The larger of two; NaN propagates.
struct LargerOrNan {
  SHARDWRIGHT_FUNCTION double operator()(double a, double b) const { return b > a || b != b ? b : a; }
};

/// The largest absolute value of each block.
template <class Element> struct LargestBlocks {
  const Element* x;
  std::size_t count;
  double* partial;
  std::size_t block_size = reduce_block;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    constexpr std::size_t streams = lane_threads == 1 ? 8 : 1; // maxima that need not wait for one another
    const std::size_t end = block_end(block, block_size, count);
    double largest[streams] = {};
    std::size_t i = block * block_size + lane_number();
    for (; i + (streams - 1) * lane_threads < end; i += streams * lane_threads)
      for (std::size_t s = 0; s < streams; ++s)
        largest[s] = larger_of(largest[s], x[i + s * lane_threads]);
    if constexpr (streams > 1)
      for (; i < end; i += lane_threads)
        largest[0] = larger_of(largest[0], x[i]);
    for (std::size_t s = 1; s < streams; ++s)
      largest[0] = LargerOrNan{}(largest[0], largest[s]);
    largest[0] = over_threads(largest[0], LargerOrNan{});
    if (first_lane())
      partial[block] = largest[0];
  }

private:
  SHARDWRIGHT_FUNCTION static double larger_of(double largest, Element element) {
    const auto number = static_cast<double>(element);
    return LargerOrNan{}(largest, number < 0 ? -number : number);
  }
};

/// One block of this many warps adds them, because a single warp would wait for each of its loads.
template <class Number, unsigned count_of_warps = 1, class Result = Number> struct SumInOrder {
  static constexpr unsigned warps = count_of_warps;
  static constexpr unsigned blocks_at_once = 1;
  static constexpr std::size_t shared_bytes = warps * sizeof(Number);
  const Number* partial;
  std::size_t count;
  Result* result;
  bool add;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const { (*this)(LoneWarp{}); }
  template <KernelBlock Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    Number own = add && block_thread(block) == 0 ? static_cast<Number>(*result) : Number(0);
    for (std::size_t i = block_thread(block); i < count; i += warps * lane_threads)
      own += partial[i];
    const Number sum = sum_over_block<warps>(block, own, reinterpret_cast<Number*>(block.shared()));
    if (block_thread(block) == 0)
      *result = static_cast<Result>(sum);
  }
};

} // namespace detail

/// @brief result[0] (+)= the sum of partial[0, count), always in the same order.
/// @param add false overwrites the result
template <class Execution, class Number, class Result = Number>
void run_sum_in_order(const Execution& execution, const Number* partial, std::size_t count, Result* result,
                      bool add) {
  moves("sw::sum_order", execution, (add ? 2 : 1) * sizeof(Result));
  if constexpr (detail::BlockLauncher<Execution>::available) {
    using Sum = detail::SumInOrder<Number, 32, Result>;
    detail::BlockLauncher<Execution>::run(execution, 1, Sum::shared_bytes, Sum{partial, count, result, add});
  } else {
    run_lanes("sw::sum_order", execution, 1,
              detail::SumInOrder<Number, 1, Result>{partial, count, result, add});
  }
}

/// @brief Doubles of workspace for a reduction over `count` elements.
[[nodiscard]] constexpr std::size_t reduce_workspace(std::size_t count) {
  return blocks_of(count, detail::reduce_block);
}

/// @brief The first element of part `part` of `parts`, of about as many elements each: they end where the
/// blocks of a reduction over `count` elements do.
[[nodiscard]] constexpr std::size_t reduce_part(std::size_t count, std::size_t part, std::size_t parts) {
  const std::size_t first = reduce_workspace(count) * part / parts * detail::reduce_block;
  return first < count ? first : count;
}

namespace detail {

/// Starts the functor Blocks{x, others..., size, workspace} for every block of views of one size; returns the
/// number of blocks.
template <class Blocks, class Execution, KernelVector Result, KernelVector Work, KernelView X,
          KernelView... Others>
std::size_t run_blocks(const char* label, const char* operation, const Execution& execution,
                       const Result& result, const Work& workspace, const X& x, const Others&... others) {
  const auto all = flat_span_of(x, operation);
  const std::size_t blocks = reduce_workspace(all.size);
  require(((flat_span_of(others, operation).size == all.size) && ...), operation,
          "both views must have the same size.");
  require(result.extent(0) >= 1, operation, "the result must have one element.");
  require(workspace.extent(0) >= blocks, operation, "the workspace is too small (see reduce_workspace).");
  moves(label, execution, x, (others.data() == all.data ? 0 : bytes_of(others))...);
  run_lanes(label, execution, blocks, Blocks{all.data, others.data()..., all.size, workspace.data()});
  return blocks;
}

/// result[0] (+)= the sum of the blocks.
template <class Blocks, class Execution, KernelVector Result, KernelVector Work, KernelView... Views>
void run_sum(const char* label, const char* operation, const Execution& execution, bool add,
             const Result& result, const Work& workspace, const Views&... views) {
  const std::size_t blocks = run_blocks<Blocks>(label, operation, execution, result, workspace, views...);
  const typename Work::value_type* const partial = workspace.data();
  run_sum_in_order(execution, partial, blocks, result.data(), add);
}

template <class View, class Term> using SumBlocksOf = SumBlocks<typename View::non_const_value_type, Term>;

} // namespace detail

/// @brief result[0] (+)= sum of x y over contiguous views of equal size, in double and rounded once to the
/// result's element.
/// @param workspace  double [reduce_workspace(size)]
/// @param add        false overwrites the result
template <class Execution, KernelView X, KernelView Y, KernelVector Result, KernelVector Work>
void dot(const Execution& execution, const X& x, const Y& y, const Result& result, const Work& workspace,
         bool add = false) {
  using Blocks = detail::SumBlocksOf<X, detail::ProductOf>;
  detail::run_sum<Blocks>("sw::dot", "dot", execution, add, result, workspace, x, y);
}

/// @brief result[0] (+)= sum of (x - y)^2, as dot.
template <class Execution, KernelView X, KernelView Y, KernelVector Result, KernelVector Work>
void squared_distance(const Execution& execution, const X& x, const Y& y, const Result& result,
                      const Work& workspace, bool add = false) {
  using Blocks = detail::SumBlocksOf<X, detail::SquaredDifferenceOf>;
  detail::run_sum<Blocks>("sw::distance", "squared_distance", execution, add, result, workspace, x, y);
}

/// @brief result[0] = sum of x, as dot.
template <class Execution, KernelView X, KernelVector Result, KernelVector Work>
void sum_of_elements(const Execution& execution, const X& x, const Result& result, const Work& workspace) {
  using Blocks = detail::SumBlocksOf<X, detail::ElementOf>;
  detail::run_sum<Blocks>("sw::sum", "sum_of_elements", execution, false, result, workspace, x, x);
}

/// @brief result[0] = sum of |x|, as dot.
template <class Execution, KernelView X, KernelVector Result, KernelVector Work>
void sum_of_absolutes(const Execution& execution, const X& x, const Result& result, const Work& workspace) {
  using Blocks = detail::SumBlocksOf<X, detail::AbsoluteOf>;
  detail::run_sum<Blocks>("sw::absolutes", "sum_of_absolutes", execution, false, result, workspace, x, x);
}

/// @brief result[0] = the largest |x|; 0 if there are no elements and NaN if any element is NaN.
/// @param workspace  double [reduce_workspace(size)]
template <class Execution, KernelView X, KernelVector Result, KernelVector Work>
void largest_absolute(const Execution& execution, const X& x, const Result& result, const Work& workspace) {
  using Blocks = detail::LargestBlocks<typename X::non_const_value_type>;
  const std::size_t blocks =
      detail::run_blocks<Blocks>("sw::largest", "largest_absolute", execution, result, workspace, x);
  moves("sw::largest", execution, sizeof(typename Result::value_type));
  run_lanes("sw::largest", execution, 1,
            detail::LargestBlocks<double>{workspace.data(), blocks, result.data(), blocks == 0 ? 1 : blocks});
}

/// @brief The sum of squares of many views of float or double, in their order: on a host bitwise the same as
/// sums of one view after the other, in as few launches as their arguments allow.
template <class Execution> class SquareSum {
public:
  /// @param workspace  double, reduce_workspace(size) of all views together
  SquareSum(const Execution& execution, double* workspace)
      : launcher_("sum_of_squares", execution), workspace_(workspace) {}

  /// @brief Adds a contiguous view, whose memory must stay until finish().
  template <KernelView X> void add(const X& x) {
    using Element = typename X::non_const_value_type;
    static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, double>,
                  "SquareSum: the elements must be float or double.");
    const auto all = flat_span_of(x, "sum_of_squares");
    const std::size_t blocks = reduce_workspace(all.size);
    moves("sum_of_squares", launcher_.execution(), x);
    launcher_.add({all.data, std::is_same_v<Element, double>, all.size, workspace_ + blocks_}, blocks);
    blocks_ += blocks;
  }
  /// @brief result[0] = the sum.
  template <KernelVector Result> void finish(const Result& result) {
    launcher_.launch();
    run_sum_in_order<Execution, double>(launcher_.execution(), workspace_, blocks_, result.data(), false);
  }

private:
  PartLauncher<Execution, detail::SquaresOfEither> launcher_;
  double* workspace_;
  std::size_t blocks_ = 0;
};

/// @brief result[0] (+)= number of elements that are infinite or NaN.
/// @param workspace  double [reduce_workspace(size)]
/// @param add        false overwrites the result
template <class Execution, KernelView X, KernelVector Result, KernelVector Work>
void count_nonfinite(const Execution& execution, const X& x, const Result& result, const Work& workspace,
                     bool add = false) {
  using Blocks = detail::NonfiniteBlocks<typename X::non_const_value_type>;
  detail::run_sum<Blocks>("count_nonfinite", "count_nonfinite", execution, add, result, workspace, x);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
