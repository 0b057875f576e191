// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Explicit vector lanes for kernel bodies: a register is as wide as the instruction set on the host,
/// and as a warp on a device. Lanes hold numbers of arithmetic; elements of two bytes are widened by loads
/// and rounded by stores.
///
/// A kernel with lanes is started by run_lanes, so that a device has a whole warp for each call: all its
/// threads run the body, each with its own numbers of every register. What a body does beside registers must
/// be the same in every thread; what must happen once is for the first_lane(), and memory that another thread
/// wrote may be read after sync_lanes().

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/lane_registers.hpp>
#include <shardwright/tensor/kernels/thread_lanes.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

#if defined(__CUDA_ARCH__)

/// The numbers as they are read again after a store to elements.
template <class Element, std::size_t, class Number>
SHARDWRIGHT_FUNCTION inline ThreadLanes<Number> stored_lanes(const ThreadLanes<Number>& lanes) {
  if constexpr (is_narrow<Element>) {
    ThreadLanes<Number> stored;
    for (std::size_t i = 0; i < stored.count; i += 2) {
      const std::uint32_t word = packed_pair<Element>(lanes.v[i], lanes.v[i + 1]);
      stored.v[i] = unpacked<Element>(word, 0);
      stored.v[i + 1] = unpacked<Element>(word, 1);
    }
    return stored;
  } else {
    return lanes;
  }
}

/// A whole register of aligned memory.
template <class Number>
struct WholeChunk {
  static constexpr std::size_t width = ThreadLanes<Number>::register_width;

  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return Lanes<Number>::load_whole(from, lane_number());
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number) const {
    return load(from);
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION void store(Element* to, const Lanes<Number>& lanes) const {
    lanes.store_whole(to, lane_number());
  }
  SHARDWRIGHT_FUNCTION Lanes<Number> keep(const Lanes<Number>& lanes, Number) const { return lanes; }
};

/// The first `length` lanes of a register, wherever they lie.
template <class Number>
struct TailChunk {
  std::size_t length;

  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return load_or(from, Number(0));
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number filler) const {
    return Lanes<Number>::load(from, lane_number(), length, filler);
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION void store(Element* to, const Lanes<Number>& lanes) const {
    lanes.store(to, lane_number(), length);
  }
  SHARDWRIGHT_FUNCTION Lanes<Number> keep(const Lanes<Number>& lanes, Number filler) const {
    const std::size_t thread = lane_number();
    return Lanes<Number>::each(
        [&](std::size_t i) { return Lanes<Number>::position(thread, i) < length ? lanes.v[i] : filler; });
  }
};

#else

/// `count` elements from memory, as numbers of arithmetic.
template <class Element, std::size_t count>
SHARDWRIGHT_FUNCTION inline Lanes<MainElement<Element>, count> load_lanes(const Element* from) {
  if constexpr (!is_narrow<Element>) {
    Lanes<Element, count> lanes;
    __builtin_memcpy(&lanes, from, sizeof(lanes));
    return lanes;
  } else if constexpr (count == 1) {
    return *from;
  } else {
    Lanes<std::uint16_t, count> halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    using Words = Lanes<std::uint32_t, count>;
    return Element::format::template widen<Lanes<float, count>>(__builtin_convertvector(halves, Words));
  }
}

/// The numbers as elements in memory.
template <class Element, std::size_t count>
SHARDWRIGHT_FUNCTION inline void store_lanes(Element* to, Lanes<MainElement<Element>, count> lanes) {
  if constexpr (!is_narrow<Element>) {
    __builtin_memcpy(to, &lanes, sizeof(lanes));
  } else if constexpr (count == 1) {
    *to = Element(lanes);
  } else {
    const auto words = Element::format::template narrow<Lanes<std::uint32_t, count>>(lanes);
    const auto halves = __builtin_convertvector(words, Lanes<std::uint16_t, count>);
    __builtin_memcpy(static_cast<void*>(to), &halves, sizeof(halves));
  }
}

/// The numbers as they are read again after a store to elements.
template <class Element, std::size_t count>
SHARDWRIGHT_FUNCTION inline Lanes<MainElement<Element>, count>
stored_lanes(Lanes<MainElement<Element>, count> lanes) {
  if constexpr (!is_narrow<Element>) {
    return lanes;
  } else {
    Element memory[count];
    store_lanes<Element, count>(memory, lanes);
    return load_lanes<Element, count>(memory);
  }
}

/// A whole register of a row. `Number` is a MainElement, and what is loaded or stored has it for its own.
template <class Number>
struct WholeChunk {
  static constexpr std::size_t width = lane_count<Number>;

  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return load_lanes<Element, width>(from);
  }
  /// As load; the value of lanes past the end matters only in a TailChunk.
  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number) const {
    return load(from);
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION void store(Element* to, Lanes<Number> lanes) const {
    store_lanes<Element, width>(to, lanes);
  }
  /// The given lanes, with `filler` past the end of the row.
  SHARDWRIGHT_FUNCTION Lanes<Number> keep(Lanes<Number> lanes, Number) const { return lanes; }
};

/// The last, incomplete register of a row.
template <class Number>
struct TailChunk {
  std::size_t length; // 1 .. lane_count - 1

  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return load_or(from, Number(0));
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number filler) const {
    Number values[lane_count<Number>];
    for (std::size_t i = 0; i < lane_count<Number>; ++i)
      values[i] = i < length ? static_cast<Number>(from[i]) : filler;
    return as_bits<Lanes<Number>>(values);
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION void store(Element* to, Lanes<Number> lanes) const {
    Number values[lane_count<Number>];
    __builtin_memcpy(values, &lanes, sizeof(lanes));
    for (std::size_t i = 0; i < length; ++i)
      to[i] = static_cast<Element>(values[i]);
  }
  SHARDWRIGHT_FUNCTION Lanes<Number> keep(Lanes<Number> lanes, Number filler) const {
    Number values[lane_count<Number>];
    __builtin_memcpy(values, &lanes, sizeof(lanes));
    for (std::size_t i = length; i < lane_count<Number>; ++i)
      values[i] = filler;
    return as_bits<Lanes<Number>>(values);
  }
};

#endif

/// Calls body(chunk, first index) over [begin, end): whole registers, then the rest.
///
/// `memory` is all that the body loads from and stores to, by the same index. On a device, whole registers
/// are only for aligned memory, which one look at the beginning tells: a branch for each load would have one
/// under way at a time. A body that stores nothing can have the loads of `together` registers under way.
template <class Number, std::size_t together = 1, class Body, class... Elements>
SHARDWRIGHT_FUNCTION inline void for_chunks(std::size_t begin, std::size_t end, Body&& body,
                                            const Elements*... memory) {
  constexpr std::size_t width = WholeChunk<Number>::width;
  std::size_t i = begin;
#if defined(__CUDA_ARCH__)
  if (sizeof...(memory) != 0 && (Lanes<Number>::is_aligned(memory + begin) && ...)) {
    for (; together > 1 && i + together * width <= end; i += together * width) {
      SHARDWRIGHT_UNROLL
      for (std::size_t k = 0; k < together; ++k)
        body(WholeChunk<Number>{}, i + k * width);
    }
    for (; i + width <= end; i += width)
      body(WholeChunk<Number>{}, i);
  }
  for (; i < end; i += width)
    body(TailChunk<Number>{end - i < width ? end - i : width}, i);
#else
  ((void)memory, ...);
  for (; i + width <= end; i += width)
    body(WholeChunk<Number>{}, i);
  if (i < end) {
    TailChunk<Number> tail;
    tail.length = end - i;
    body(tail, i);
  }
#endif
}

/// As many elements as a register has lanes of double, converted.
template <class Element, class Wide = double>
SHARDWRIGHT_FUNCTION inline Lanes<Wide> load_as_double(const Element* from) {
#if defined(__CUDA_ARCH__)
  return Lanes<Wide>::each([from](std::size_t i) { return static_cast<Wide>(from[i]); });
#else
  if constexpr (lane_count<Wide> == 1) {
    return static_cast<Wide>(*from);
  } else {
    const auto numbers = load_lanes<Element, lane_count<Wide>>(from);
    if constexpr (std::is_same_v<Element, Wide>)
      return numbers;
    else
      return __builtin_convertvector(numbers, Lanes<Wide>);
  }
#endif
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
