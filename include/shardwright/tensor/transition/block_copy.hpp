// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Copies a strided block of local memory to contiguous memory, on the target.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/copy_rows.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Copies a block to contiguous memory; cost: one read and one write of each element.
template <class Target, class Element>
void copy_block(const typename Target::execution_space& execution, const Element* in,
                const StridedBlock& from, Element* out) {
  if (from.count() == 0)
    return;
  if constexpr (counts_only<Target>) {
    kernels::moves("sw::copy_block", execution, 2 * from.count() * sizeof(Element));
  } else if constexpr (Target::host_accessible) {
    wait_for_kernels(execution); // this thread copies now
    if (from.contiguous()) {
      std::copy_n(in + from.offset, from.count(), out);
    } else {
      for (std::size_t row = 0; row < from.rows; ++row)
        std::copy_n(in + from.offset + row * from.row_stride, from.row_length, out + row * from.row_length);
    }
  } else {
    const bool one_row = from.contiguous();
    kernels::copy_rows(execution, in + from.offset, one_row ? 1 : from.rows,
                       one_row ? from.count() : from.row_length, from.row_stride, out);
  }
}

/// Uninitialised memory for elements; filled with NaN in checked builds, so that unwritten elements show.
template <class Element, class Target>
[[nodiscard]] BufferHandle new_block(TargetResources<Target>& resources, std::size_t count,
                                     const SourceLocation& where = {}) {
  BufferHandle block(resources.take(count * sizeof(Element), where));
  using Part = RealPart<Element>;
  if constexpr (always_checked && RealElement<Part>)
    kernels::run(
        "sw::fill_nan", resources.execution(), count * parts_in<Element>,
        kernels::StoreValue<Part>{static_cast<Part*>(block.data()), static_cast<Part>(__builtin_nanf(""))});
  return block;
}

template <class Target, class Element>
void fill_zero(const typename Target::execution_space& execution, Element* out, std::size_t count) {
  kernels::zero_elements(execution, out, count);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
