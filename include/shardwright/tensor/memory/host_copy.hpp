// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Explicit copies between the host and a target's memory.

#include <shardwright/mesh/target.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Contiguous host elements to the memory of a target, and back; both wait. A copy from unpinned memory
/// blocks until earlier work on the stream is done, so the wait comes first.
template <class Target, class Element>
void copy_to_target(const typename Target::execution_space& execution, const Element* from, Element* to,
                    std::size_t count) {
  if constexpr (counts_only<Target>) {
    static_cast<void>(execution), static_cast<void>(from), static_cast<void>(to), static_cast<void>(count);
  } else if constexpr (Target::host_accessible) {
    std::copy_n(from, count, to);
  } else {
    using Host = Kokkos::View<const Element*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    wait_for_device<Target>(execution);
    Kokkos::deep_copy(execution, VectorView<Element, Target>(to, count), Host(from, count));
    wait_for_kernels(execution);
  }
}
template <class Target, class Element>
void copy_to_host(const typename Target::execution_space& execution, const Element* from, Element* to,
                  std::size_t count) {
  if constexpr (counts_only<Target>) {
    static_cast<void>(execution), static_cast<void>(from);
    std::fill_n(to, count, Element(1)); // the value of every number in a dry run
  } else if constexpr (Target::host_accessible) {
    wait_for_kernels(execution);
    std::copy_n(from, count, to);
  } else {
    using Host = Kokkos::View<Element*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    wait_for_device<Target>(execution);
    Kokkos::deep_copy(execution, Host(to, count), VectorView<const Element, Target>(from, count));
    wait_for_kernels(execution);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
