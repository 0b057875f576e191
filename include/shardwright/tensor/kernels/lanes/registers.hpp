// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Vector registers, distributed over the threads of a warp on devices, and operations that combine
/// their lanes.

#include <shardwright/core/config.hpp>
#include <shardwright/core/vector_lanes.hpp>
#include <shardwright/tensor/kernels/lanes/thread.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

using shardwright::detail::Vector;

/// The signed integer with the bits of a floating-point element.
template <class Element>
using IntegerOf = std::conditional_t<sizeof(Element) == 4, std::int32_t, std::int64_t>;

/// The unsigned integer with as many bits as an element of 1, 2, 4 or 8 bytes.
template <class Element>
using BitsOf = std::conditional_t<
    sizeof(Element) == 8, std::uint64_t,
    std::conditional_t<sizeof(Element) == 4, std::uint32_t,
                       std::conditional_t<sizeof(Element) == 2, std::uint16_t, std::uint8_t>>>;

/// Lanes that fit into one register; on a device, those of one thread.
template <class Element>
#if defined(__CUDA_ARCH__)
inline constexpr std::size_t lane_count = 32 / sizeof(Element);
#else
inline constexpr std::size_t lane_count = shardwright::detail::lane_bytes / sizeof(Element);
#endif

#if defined(__CUDA_ARCH__)
template <class Element, std::size_t = lane_count<Element>> using Lanes = ThreadLanes<Element>;
#else
template <class Element, std::size_t count = lane_count<Element>>
using Lanes = typename Vector<Element, count>::type;
#endif

/// Same bits, another type of the same size.
template <class To, class From> SHARDWRIGHT_FUNCTION inline To as_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

/// All lanes equal.
template <class Element> SHARDWRIGHT_FUNCTION inline Lanes<Element> broadcast(Element value) {
#if defined(__CUDA_ARCH__)
  return value;
#else
  return value - Lanes<Element>{}; // keeps the sign of zero, unlike an addition
#endif
}

/// Lane-wise a where the mask is set, else b.
template <class Mask, class Value> SHARDWRIGHT_FUNCTION inline Value chosen(Mask mask, Value a, Value b) {
  return mask ? a : b;
}

#if defined(__CUDACC__) && defined(__CUDA_ARCH__) // a test defines its own warp
__device__ inline unsigned lane_of_warp() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
#endif

/// This thread's number in its warp; 0 on the host, where one call has the whole register.
SHARDWRIGHT_FUNCTION inline unsigned lane_number() {
#if defined(__CUDA_ARCH__)
  return lane_of_warp();
#else
  return 0;
#endif
}

/// Threads that run a body together.
#if defined(__CUDA_ARCH__)
inline constexpr std::size_t lane_threads = warp_threads;
#else
inline constexpr std::size_t lane_threads = 1;
#endif

/// Whether this thread does what must happen once per warp.
SHARDWRIGHT_FUNCTION inline bool first_lane() { return lane_number() == 0; }

/// Makes earlier writes of any thread of the warp visible to all of them.
SHARDWRIGHT_FUNCTION inline void sync_lanes() {
#if defined(__CUDA_ARCH__)
  __syncwarp();
#endif
}

/// A bit for each thread of the warp for which the condition holds; all threads must call it.
SHARDWRIGHT_FUNCTION inline std::uint32_t threads_where(bool holds) {
#if defined(__CUDA_ARCH__)
  return __ballot_sync(0xffffffffu, holds);
#else
  return holds ? 1u : 0u;
#endif
}

SHARDWRIGHT_FUNCTION inline unsigned bit_count(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__popc(bits));
#else
  return static_cast<unsigned>(__builtin_popcount(bits));
#endif
}

/// Position of the lowest set bit of a nonzero word.
SHARDWRIGHT_FUNCTION inline unsigned lowest_bit(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__ffs(static_cast<int>(bits))) - 1;
#else
  return static_cast<unsigned>(__builtin_ctz(bits));
#endif
}

/// Combines one number of each thread, always in the same order; all threads get the result.
template <class Number, class Combine>
SHARDWRIGHT_FUNCTION inline Number over_threads(Number number, Combine combine) {
#if defined(__CUDA_ARCH__)
  for (int distance = 16; distance > 0; distance /= 2)
    number = combine(number, __shfl_xor_sync(0xffffffffu, number, distance));
#else
  (void)combine;
#endif
  return number;
}

/// Lane-wise larger value; a NaN in `b` is dropped, so compare against a running maximum with the new values
/// first.
template <class Value> SHARDWRIGHT_FUNCTION inline Value larger(Value a, Value b) {
  return chosen(a > b, a, b);
}

struct PlusLanes {
  template <class Value> SHARDWRIGHT_FUNCTION Value operator()(Value a, Value b) const { return a + b; }
};

struct LargerLanes {
  template <class Value> SHARDWRIGHT_FUNCTION Value operator()(Value a, Value b) const {
    return larger(a, b);
  }
};

/// Combines the lanes of this thread by halves, always in the same order.
template <class Element, std::size_t count, class Combine>
SHARDWRIGHT_FUNCTION inline Element fold_own(Lanes<Element, count> lanes, Combine combine) {
#if defined(__CUDA_ARCH__)
  for (std::size_t half = count / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i)
      lanes.v[i] = combine(lanes.v[i], lanes.v[i + half]);
  return lanes.v[0];
#else
  if constexpr (count == 1) {
    return lanes;
  } else {
    using Half = typename Vector<Element, count / 2>::type;
    Half low;
    Half high;
    __builtin_memcpy(&low, &lanes, sizeof(Half));
    __builtin_memcpy(&high, reinterpret_cast<const char*>(&lanes) + sizeof(Half), sizeof(Half));
    return fold_own<Element, count / 2>(combine(low, high), combine);
  }
#endif
}

/// Combines all lanes; every thread of the warp gets the result.
template <class Element, std::size_t count, class Combine>
SHARDWRIGHT_FUNCTION inline Element fold(Lanes<Element, count> lanes, Combine combine) {
  return over_threads(fold_own<Element, count>(lanes, combine), combine);
}

/// Sum of all lanes.
template <class Element> SHARDWRIGHT_FUNCTION inline Element sum_of(Lanes<Element> lanes) {
  return fold<Element, lane_count<Element>>(lanes, PlusLanes{});
}

/// Largest lane.
template <class Element> SHARDWRIGHT_FUNCTION inline Element largest_of(Lanes<Element> lanes) {
  return fold<Element, lane_count<Element>>(lanes, LargerLanes{});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
