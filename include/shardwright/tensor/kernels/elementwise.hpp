// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Elementwise kernels on contiguous memory: functions and their slopes, fill, copy, sums, scale,
/// axpy.

#include <shardwright/tensor/kernels/formulas.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/terms.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// A piece of the elements of run_elementwise().
template <class Number, class Operation> struct Elementwise {
  Operation operation;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t, std::size_t begin, std::size_t end) const {
    operation.with_memory(
        [&](const auto*... memory) { for_chunks<Number>(begin, end, operation, memory...); });
  }
};

} // namespace detail

/// @brief Runs operation(chunk, index) over the elements; the operation holds the pointers, and gives them to
/// with_memory(use).
template <class Element, class Execution, class Operation>
void run_elementwise(const char* label, const Execution& execution, std::size_t count,
                     const Operation& operation) {
  run_pieces(label, execution, 1, count, 4096,
             detail::Elementwise<AccumulationElement<Element>, Operation>{operation});
}

namespace detail {

template <class Element> struct FillElements {
  Element* to;
  AccumulationElement<Element> value;
  template <class Chunk> SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    chunk.store(to + i, broadcast(value));
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const { use(to); }
};

template <class To, class From> struct ConvertElements {
  To* to;
  const From* from;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t, std::size_t begin, std::size_t end) const {
    if constexpr (std::is_same_v<AccumulationElement<To>, AccumulationElement<From>>) {
      copy_lanes(from, to, begin, end);
    } else {
      for (std::size_t i = begin + lane_number(); i < end; i += lane_threads)
        to[i] = static_cast<To>(from[i]);
    }
  }
};

/// Loads come first: compilers fuse a product and a sum only where nothing branches in between, as the loads
/// of incomplete registers do, and all elements must be rounded alike.
template <class From, class To> struct AxpyElements {
  AccumulationElement<To> factor;
  const From* x;
  To* y;
  template <class Chunk> SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    const auto left = chunk.load(x + i);
    const auto right = chunk.load(y + i);
    chunk.store(y + i, factor * left + right);
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const { use(x, y); }
};

} // namespace detail

/// @brief Sets every element of a contiguous view to `value`.
template <class Execution, KernelView View>
void fill(const Execution& execution, const View& to, typename View::value_type value) {
  using Element = typename View::value_type;
  const auto all = flat_span_of(to, "fill");
  moves("sw::fill", execution, all);
  run_elementwise<Element>("sw::fill", execution, all.size, detail::FillElements<Element>{all.data, value});
}

/// @brief Copies contiguous views of equal size, converting between element types: narrowing rounds to
/// nearest, ties to even. They must not overlap.
/// @throws InvalidArgument for views of different sizes, or that are not contiguous.
template <class Execution, KernelView From, KernelView To>
void copy(const Execution& execution, const From& from, const To& to) {
  const auto source = flat_span_of(from, "copy");
  const auto target = flat_span_of(to, "copy");
  require(source.size == target.size, "copy", "both views must have the same size.");
  using Functor = detail::ConvertElements<typename To::value_type, typename From::non_const_value_type>;
  moves("sw::copy", execution, source, target);
  run_pieces("sw::copy", execution, 1, target.size, 4096, Functor{target.data, source.data});
}

/// @brief out = a + b on contiguous views of equal size; `out` may be `a` or `b`.
/// @throws InvalidArgument for views of different sizes, or that are not contiguous.
template <class Execution, KernelView A, KernelView B, KernelView Out>
void add(const Execution& execution, const A& a, const B& b, const Out& out) {
  using Element = typename Out::value_type;
  const auto left = flat_span_of(a, "add");
  const auto right = flat_span_of(b, "add");
  const auto to = flat_span_of(out, "add");
  require(left.size == to.size && right.size == to.size, "add", "all views must have the same size.");
  store_formula("sw::add", execution, CombineOf<operation::Add>{}, NoElements{}, Elements<Element>{left.data},
                Elements<Element>{right.data}, to.data, to.size);
}

/// @brief y = y + factor * x on contiguous views of equal size; `x` may be narrower than `y`.
/// @throws InvalidArgument for views of different sizes, or that are not contiguous.
template <class Execution, KernelView X, KernelView Y>
void axpy(const Execution& execution, double factor, const X& x, const Y& y) {
  using Element = typename Y::value_type;
  using From = typename X::non_const_value_type;
  const auto source = flat_span_of(x, "axpy");
  const auto target = flat_span_of(y, "axpy");
  require(source.size == target.size, "axpy", "both views must have the same size.");
  moves("sw::axpy", execution, source, target, target);
  run_elementwise<Element>("sw::axpy", execution, target.size,
                           detail::AxpyElements<From, Element>{
                               static_cast<AccumulationElement<Element>>(factor), source.data, target.data});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
