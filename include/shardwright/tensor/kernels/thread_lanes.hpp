// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What one thread of a warp holds of a register as wide as the warp: the lanes of kernel bodies on a
/// device.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Threads of a warp.
inline constexpr std::size_t warp_threads = 32;

/// Outcome of a comparison, lane by lane.
template <std::size_t count>
struct LaneMask {
  bool v[count];
};

/// Neighbouring numbers of one thread, moved by one instruction where their address allows it.
template <class Number, std::size_t size>
struct ThreadGroup {
  Number v[size];

  /// The first `count` elements; `filler` for the others.
  template <class Element>
  SHARDWRIGHT_FUNCTION static ThreadGroup load(const Element* from, std::size_t count,
                                               Number filler = Number(0)) {
    ThreadGroup out;
    if (count >= size && is_aligned(from)) {
      const Memory<Element> memory = *reinterpret_cast<const Memory<Element>*>(from);
      for (std::size_t i = 0; i < size; ++i)
        out.v[i] = static_cast<Number>(memory.v[i]);
    } else {
      for (std::size_t i = 0; i < size; ++i)
        out.v[i] = i < count ? static_cast<Number>(from[i]) : filler;
    }
    return out;
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION void store(Element* to, std::size_t count) const {
    if (count >= size && is_aligned(to)) {
      Memory<Element> memory;
      for (std::size_t i = 0; i < size; ++i)
        memory.v[i] = static_cast<Element>(v[i]);
      *reinterpret_cast<Memory<Element>*>(to) = memory;
    } else {
      for (std::size_t i = 0; i < size; ++i)
        if (i < count)
          to[i] = static_cast<Element>(v[i]);
    }
  }

private:
  template <class Element>
  struct alignas(size * sizeof(Element) > 16 ? 16 : size * sizeof(Element)) Memory {
    Element v[size];
  };
  template <class Element>
  SHARDWRIGHT_FUNCTION static bool is_aligned(const Element* address) {
    return reinterpret_cast<std::uintptr_t>(address) % alignof(Memory<Element>) == 0;
  }
};

/// A thread's 32 bytes of numbers, in two parts. Thread t holds, of each half of the register, the numbers
/// from t * part on: every load and store of a part by the warp is one piece of memory without gaps, of 16
/// bytes per thread for whole elements and of 8 for narrow ones, whichever elements meet in one kernel.
template <class Number>
struct ThreadLanes {
  static constexpr std::size_t count = 32 / sizeof(Number);
  static constexpr std::size_t part = count / 2;
  static constexpr std::size_t register_width = warp_threads * count;
  Number v[count];

  /// Place in the register of number i of a thread.
  SHARDWRIGHT_FUNCTION static constexpr std::size_t position(std::size_t thread, std::size_t i) {
    return i / part * (warp_threads * part) + thread * part + i % part;
  }

  template <class Function>
  SHARDWRIGHT_FUNCTION static ThreadLanes each(const Function& function) {
    ThreadLanes out;
    for (std::size_t i = 0; i < count; ++i)
      out.v[i] = function(i);
    return out;
  }
  template <class Relation>
  SHARDWRIGHT_FUNCTION static LaneMask<count> mask(const Relation& relation) {
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
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator+(Number a, const ThreadLanes& b) { return all(a) + b; }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator-(Number a, const ThreadLanes& b) { return all(a) - b; }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator*(Number a, const ThreadLanes& b) { return all(a) * b; }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator/(Number a, const ThreadLanes& b) { return all(a) / b; }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator+(const ThreadLanes& a, Number b) { return a + all(b); }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator-(const ThreadLanes& a, Number b) { return a - all(b); }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator*(const ThreadLanes& a, Number b) { return a * all(b); }
  friend SHARDWRIGHT_FUNCTION ThreadLanes operator/(const ThreadLanes& a, Number b) { return a / all(b); }
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

  SHARDWRIGHT_FUNCTION static ThreadLanes all(Number value) {
    return each([value](std::size_t) { return value; });
  }

  /// The thread's numbers of the `length` elements from `from` on; `filler` beyond them.
  template <class Element>
  SHARDWRIGHT_FUNCTION static ThreadLanes load(const Element* from, std::size_t thread, std::size_t length,
                                               Number filler) {
    ThreadLanes out;
    for (std::size_t first = 0; first < count; first += part) {
      const std::size_t at = position(thread, first);
      const auto group = ThreadGroup<Number, part>::load(from + at, at < length ? length - at : 0, filler);
      for (std::size_t i = 0; i < part; ++i)
        out.v[first + i] = group.v[i];
    }
    return out;
  }
  /// Stores the thread's numbers that lie below `length`.
  template <class Element>
  SHARDWRIGHT_FUNCTION void store(Element* to, std::size_t thread, std::size_t length) const {
    for (std::size_t first = 0; first < count; first += part) {
      const std::size_t at = position(thread, first);
      ThreadGroup<Number, part> group;
      for (std::size_t i = 0; i < part; ++i)
        group.v[i] = v[first + i];
      group.store(to + at, at < length ? length - at : 0);
    }
  }
};

/// Lane-wise a where the mask is set, else b.
template <std::size_t count, class Number>
SHARDWRIGHT_FUNCTION inline ThreadLanes<Number>
chosen(const LaneMask<count>& mask, const ThreadLanes<Number>& a, const ThreadLanes<Number>& b) {
  return ThreadLanes<Number>::each([&](std::size_t i) { return mask.v[i] ? a.v[i] : b.v[i]; });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
