// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Lanes in device kernels: one thread's part of a warp-wide register.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#if defined(__CUDACC__)
#include <shardwright/tensor/kernels/device/cuda_narrow.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
#define SHARDWRIGHT_UNROLL _Pragma("unroll")
#else
#define SHARDWRIGHT_UNROLL
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Threads of a warp.
inline constexpr std::size_t warp_threads = 32;

/// Whether an access of 16 bytes, the widest of a thread, may begin at an address.
SHARDWRIGHT_FUNCTION inline bool starts_at_16_bytes(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// Lane-wise result of a comparison.
template <std::size_t count> struct LaneMask { bool v[count]; };

/// Two 16-bit elements in one word, the first in the lower half: rounded like the element type, except that a
/// device has only one NaN.
template <class Element> SHARDWRIGHT_FUNCTION inline std::uint32_t packed_pair(float first, float second) {
#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
  return cuda_packed_pair<Element>(first, second);
#else
  return Element(first).bits() | static_cast<std::uint32_t>(Element(second).bits()) << 16;
#endif
}

/// A number as an element, 16-bit ones rounded as packed_pair rounds.
template <class Element, class Number> SHARDWRIGHT_FUNCTION inline Element rounded_to(Number number) {
#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
  if constexpr (is_narrow<Element> && std::is_same_v<Number, float>)
    return cuda_rounded<Element>(number);
  else
    return static_cast<Element>(number);
#else
  return static_cast<Element>(number);
#endif
}

/// Half 0 or 1 of a word of two 16-bit elements.
template <class Element> SHARDWRIGHT_FUNCTION inline float unpacked(std::uint32_t word, int half) {
  const auto bits = static_cast<std::uint16_t>(half == 0 ? word : word >> 16);
#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
  return cuda_widened<Element>(bits);
#else
  return Element::from_bits(bits);
#endif
}

/// Neighbouring numbers of one thread, loaded or stored by one instruction if their alignment allows it.
template <class Number, std::size_t size> struct ThreadGroup {
  Number v[size];

  /// The first `count` elements; `filler` for the others.
  template <class Element>
  SHARDWRIGHT_FUNCTION static ThreadGroup load(const Element* from, std::size_t count,
                                               Number filler = Number(0)) {
    if (count >= size && is_aligned(from))
      return load_whole(from);
    ThreadGroup out;
    for (std::size_t i = 0; i < size; ++i)
      out.v[i] = i < count ? static_cast<Number>(from[i]) : filler;
    return out;
  }
  template <class Element> SHARDWRIGHT_FUNCTION void store(Element* to, std::size_t count) const {
    if (count >= size && is_aligned(to))
      return store_whole(to);
    for (std::size_t i = 0; i < size; ++i)
      if (i < count)
        to[i] = rounded_to<Element>(v[i]);
  }

  /// All elements, at an aligned address.
  template <class Element> SHARDWRIGHT_FUNCTION static ThreadGroup load_whole(const Element* from) {
    ThreadGroup out;
    if constexpr (in_words<Element>) {
      const Words words = bits_at<Words>(from);
      for (std::size_t i = 0; i < size; ++i)
        out.v[i] = unpacked<Element>(words.v[i / 2], static_cast<int>(i % 2));
    } else {
      const Memory<Element> memory = bits_at<Memory<Element>>(from);
      for (std::size_t i = 0; i < size; ++i)
        out.v[i] = static_cast<Number>(memory.v[i]);
    }
    return out;
  }
  template <class Element> SHARDWRIGHT_FUNCTION void store_whole(Element* to) const {
    if constexpr (in_words<Element>) {
      Words words;
      for (std::size_t i = 0; i < size; i += 2)
        words.v[i / 2] = packed_pair<Element>(v[i], v[i + 1]);
      put_bits(to, words);
    } else {
      Memory<Element> memory;
      for (std::size_t i = 0; i < size; ++i)
        memory.v[i] = static_cast<Element>(v[i]);
      put_bits(to, memory);
    }
  }
  /// Whether load_whole and store_whole may be used at an address and at every multiple of `size` elements
  /// after it.
  template <class Element> SHARDWRIGHT_FUNCTION static bool is_aligned(const Element* address) {
    return reinterpret_cast<std::uintptr_t>(address) % alignof(Memory<Element>) == 0;
  }

private:
  /// One access of as many bytes as Bits has, at its alignment.
  template <class Bits, class Element> SHARDWRIGHT_FUNCTION static Bits bits_at(const Element* from) {
#if defined(__CUDA_ARCH__)
    return *reinterpret_cast<const Bits*>(from);
#else
    Bits bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    return bits;
#endif
  }
  template <class Bits, class Element>
  SHARDWRIGHT_FUNCTION static void put_bits(Element* to, const Bits& bits) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<Bits*>(to) = bits;
#else
    __builtin_memcpy(static_cast<void*>(to), &bits, sizeof bits);
#endif
  }

  /// 16-bit elements in pairs, as the rounding instructions use them.
  struct alignas(size * 2 > 16 ? 16 : size * 2) Words {
    std::uint32_t v[(size + 1) / 2];
  };
  template <class Element>
  static constexpr bool in_words = is_narrow<Element>&& std::is_same_v<Number, float>&& size % 2 == 0;
  template <class Element> struct alignas(size * sizeof(Element) > 16 ? 16 : size * sizeof(Element)) Memory {
    Element v[size];
  };
};

/// A thread's 32 bytes of numbers, in parts of `part` numbers. Thread t holds, of each piece of
/// part * warp_threads numbers of the register, those from t * part on: every load and store of a part by the
/// warp is contiguous. Parts of four are 16 bytes of floats per thread, parts of eight 16 bytes of 16-bit
/// elements; see part_for.
template <class Number> struct ThreadLanes {
  static constexpr std::size_t count = 32 / sizeof(Number);
  static constexpr std::size_t part = count / 2;
  static constexpr std::size_t register_width = warp_threads * count;
  Number v[count];

  ThreadLanes() = default;
  /// All numbers equal.
  SHARDWRIGHT_FUNCTION
  ThreadLanes(Number value) { // NOLINT(google-explicit-constructor): as vectors on a host
    for (std::size_t i = 0; i < count; ++i)
      v[i] = value;
  }

  /// The part for memory of these elements, all used by the same index: 16 bytes of the smallest. Floats
  /// beside 16-bit elements then take two accesses of 16 bytes.
  template <class... Elements>
  static constexpr std::size_t part_for = (is_narrow<Elements> || ...) ? count : part;

  /// Position in the register of a thread's number i.
  template <std::size_t of_part = part>
  SHARDWRIGHT_FUNCTION static constexpr std::size_t position(std::size_t thread, std::size_t i) {
    return i / of_part * (warp_threads * of_part) + thread * of_part + i % of_part;
  }

  template <class Function> SHARDWRIGHT_FUNCTION static ThreadLanes each(const Function& function) {
    ThreadLanes out;
    for (std::size_t i = 0; i < count; ++i)
      out.v[i] = function(i);
    return out;
  }
  template <class Relation> SHARDWRIGHT_FUNCTION static LaneMask<count> mask(const Relation& relation) {
    LaneMask<count> out;
    for (std::size_t i = 0; i < count; ++i)
      out.v[i] = relation(i);
    return out;
  }

  friend SHARDWRIGHT_FUNCTION ThreadLanes operator-(const ThreadLanes& a) {
    return each([&](std::size_t i) { return -a.v[i]; });
  }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator+(const ThreadLanes& a, const ThreadLanes& b) {
    return each([&](std::size_t i) { return a.v[i] + b.v[i]; });
  }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator-(const ThreadLanes& a, const ThreadLanes& b) {
    return each([&](std::size_t i) { return a.v[i] - b.v[i]; });
  }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator*(const ThreadLanes& a, const ThreadLanes& b) {
    return each([&](std::size_t i) { return a.v[i] * b.v[i]; });
  }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator/(const ThreadLanes& a, const ThreadLanes& b) {
    return each([&](std::size_t i) { return a.v[i] / b.v[i]; });
  }
  SHARDWRIGHT_FUNCTION ThreadLanes& operator+=(const ThreadLanes& other) { return *this = *this + other; }

  friend SHARDWRIGHT_FUNCTION LaneMask<count> operator<(const ThreadLanes& a, const ThreadLanes& b) {
    return mask([&](std::size_t i) { return a.v[i] < b.v[i]; });
  }
  friend SHARDWRIGHT_FUNCTION LaneMask<count> operator<=(const ThreadLanes& a, const ThreadLanes& b) {
    return mask([&](std::size_t i) { return a.v[i] <= b.v[i]; });
  }
  friend SHARDWRIGHT_FUNCTION LaneMask<count> operator>(const ThreadLanes& a, const ThreadLanes& b) {
    return b < a;
  }

  /// The thread's numbers of the `length` elements from `from` on; `filler` beyond them.
  template <std::size_t of_part = part, class Element>
  SHARDWRIGHT_FUNCTION static ThreadLanes load(const Element* from, std::size_t thread, std::size_t length,
                                               Number filler) {
    return of_parts<of_part>([&](std::size_t first) {
      const std::size_t at = position<of_part>(thread, first);
      return ThreadGroup<Number, of_part>::load(from + at, at < length ? length - at : 0, filler);
    });
  }
  /// Stores the thread's numbers with positions below `length`.
  template <std::size_t of_part = part, class Element>
  SHARDWRIGHT_FUNCTION void store(Element* to, std::size_t thread, std::size_t length) const {
    for (std::size_t first = 0; first < count; first += of_part) {
      const std::size_t at = position<of_part>(thread, first);
      part_from<of_part>(first).store(to + at, at < length ? length - at : 0);
    }
  }

  /// The same for a whole register if is_aligned(from): no branch, so that many loads are in flight.
  template <std::size_t of_part = part, class Element>
  SHARDWRIGHT_FUNCTION static ThreadLanes load_whole(const Element* from, std::size_t thread) {
    return of_parts<of_part>([&](std::size_t first) {
      return ThreadGroup<Number, of_part>::load_whole(from + position<of_part>(thread, first));
    });
  }
  template <std::size_t of_part = part, class Element>
  SHARDWRIGHT_FUNCTION void store_whole(Element* to, std::size_t thread) const {
    for (std::size_t first = 0; first < count; first += of_part)
      part_from<of_part>(first).store_whole(to + position<of_part>(thread, first));
  }
  template <std::size_t of_part = part, class Element>
  SHARDWRIGHT_FUNCTION static bool is_aligned(const Element* address) {
    return ThreadGroup<Number, of_part>::is_aligned(address);
  }

private:
  template <std::size_t of_part, class Load>
  SHARDWRIGHT_FUNCTION static ThreadLanes of_parts(const Load& load) {
    ThreadLanes out;
    for (std::size_t first = 0; first < count; first += of_part) {
      const ThreadGroup<Number, of_part> loaded = load(first);
      for (std::size_t i = 0; i < of_part; ++i)
        out.v[first + i] = loaded.v[i];
    }
    return out;
  }
  template <std::size_t of_part>
  SHARDWRIGHT_FUNCTION ThreadGroup<Number, of_part> part_from(std::size_t first) const {
    ThreadGroup<Number, of_part> out;
    for (std::size_t i = 0; i < of_part; ++i)
      out.v[i] = v[first + i];
    return out;
  }
};

/// Lane-wise a where the mask is set, else b.
template <std::size_t count, class Number>
SHARDWRIGHT_FUNCTION inline ThreadLanes<Number> chosen(LaneMask<count> mask, ThreadLanes<Number> a,
                                                       ThreadLanes<Number> b) {
  return ThreadLanes<Number>::each([&](std::size_t i) { return mask.v[i] ? a.v[i] : b.v[i]; });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
