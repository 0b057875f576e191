// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The widest vector registers of the target CPU, and stores that bypass the caches.

#include <shardwright/core/config.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Bytes of a cache line, to which non-temporal stores are aligned.
inline constexpr std::size_t line_bytes = 64;

/// Bytes of a register.
#if defined(__AVX512F__)
inline constexpr std::size_t lane_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t lane_bytes = 32;
#else
inline constexpr std::size_t lane_bytes = 16;
#endif

/// `count` numbers in one value, with elementwise arithmetic and comparisons.
template <class Number, std::size_t count> struct Vector {
  typedef Number type __attribute__((vector_size(count * sizeof(Number))));
};
template <class Number> struct Vector<Number, 1> { using type = Number; };

/// One register of elements, or a part of one; loads and stores need no alignment.
template <class Element, std::size_t bytes = lane_bytes> struct LanesOf {
  typedef Element Register __attribute__((vector_size(bytes))); // nvcc converts no Vector to another
  typedef Element Memory __attribute__((vector_size(bytes), aligned(sizeof(Element)), may_alias));

  static Register load(const Element* from) noexcept { return *reinterpret_cast<const Memory*>(from); }
  static void store(Element* to, Register value) noexcept { *reinterpret_cast<Memory*>(to) = value; }
  /// A whole register; `to` is aligned to one.
  static void stream(Element* to, Register value) noexcept {
    static_assert(bytes == lane_bytes);
#if defined(__clang__)
    __builtin_nontemporal_store(value, reinterpret_cast<Register*>(to));
#elif defined(__SSE2__)
    // Builtins, because the intrinsics header takes a second to compile.
    typedef float Floats __attribute__((vector_size(lane_bytes)));
    Floats bits;
    __builtin_memcpy(&bits, &value, sizeof(bits)); // nvcc casts no register of a template to another
    auto* const floats = reinterpret_cast<float*>(to);
#if defined(__AVX512F__)
    __builtin_ia32_movntps512(floats, bits);
#elif defined(__AVX__)
    __builtin_ia32_movntps256(floats, bits);
#else
    __builtin_ia32_movntps(floats, bits);
#endif
#else
    store(to, value);
#endif
  }
};

/// Makes streamed stores visible before the next atomic operation of this thread.
inline void finish_streaming() noexcept {
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
