// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Kernels with one index per element, for operations that need no explicit vector lanes.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

template <class Element, class Function> struct MapKernel {
  const Element* in;
  Element* out;
  Function function;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    out[i] = static_cast<Element>(function(static_cast<MainElement<Element>>(in[i])));
  }
};

/// One element per index.
template <class Element, class Operation> struct CombineKernel {
  const Element* left;
  const Element* right;
  Element* out;
  std::size_t period;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    out[i] = static_cast<Element>(Operation::template of<MainElement<Element>>(left[i], right[i % period]));
  }
};
/// One repetition of the right operand per index.
template <class Element, class Operation> struct CombineRowKernel {
  const Element* left;
  const Element* right;
  Element* out;
  std::size_t period;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    for (std::size_t i = 0; i < period; ++i)
      out[row * period + i] = static_cast<Element>(
          Operation::template of<MainElement<Element>>(left[row * period + i], right[i]));
  }
};

/// out[i] = left[i] (op) right[i modulo its size], which divides `count`.
template <class Operation, class Target, class Element>
void combine_repeated(const typename Target::execution_space& execution, const Element* left,
                      const Element* right, Element* out, std::size_t count, std::size_t period) {
  if constexpr (Target::host_accessible)
    kernels::detail::run("sw::combine", execution, count / period,
                         CombineRowKernel<Element, Operation>{left, right, out, period});
  else
    kernels::detail::run("sw::combine", execution, count,
                         CombineKernel<Element, Operation>{left, right, out, period});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
