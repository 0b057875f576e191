// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The kind of memory that a communicator supports, and the containers that are certainly in host
/// memory.

#include <shardwright/core/config.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The kind of memory that a communicator's calls use.
struct HostMemory {};
/// @brief Memory that kernels can access and host code may not.
struct DeviceMemory {};

namespace detail {

template <class C> struct MemoryOf { using type = HostMemory; };
template <class C>
requires requires { typename C::memory; }
struct MemoryOf<C> {
  using type = typename C::memory;
};

/// Containers in host memory; spans and views may refer to any memory.
template <class Range> inline constexpr bool is_host_container = std::is_array_v<Range>;
template <class Range> inline constexpr bool is_host_container<const Range> = is_host_container<Range>;
template <class E> inline constexpr bool is_host_container<std::vector<E, std::allocator<E>>> = true;
template <class E, std::size_t size> inline constexpr bool is_host_container<std::array<E, size>> = true;

/// Whether a communicator's calls can access the elements of a range, as far as the types tell.
template <class C, class Range>
inline constexpr bool may_carry =
    std::is_same_v<typename MemoryOf<C>::type, HostMemory> || !is_host_container<Range>;

} // namespace detail

/// @brief Memory that a communicator supports: its member type `memory`, else host memory.
template <class C> using MemoryOf = typename detail::MemoryOf<C>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
