// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Explicit vector lanes for kernel bodies: a register is as wide as the instruction set on the host,
/// and as a warp on a device. Lanes hold numbers of arithmetic; elements of two bytes are widened by loads
/// and rounded by stores.
///
/// A kernel with lanes is started by run_lanes, so that a device has a whole warp for each call: all its
/// threads run the body, each with its own numbers of every register. Everything else that a body does must
/// be the same in every thread; work that must happen once is for the first_lane(), and memory that another
/// thread wrote may be read after sync_lanes().

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/lanes/registers.hpp>
#include <shardwright/tensor/kernels/lanes/thread.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

#if defined(__CUDA_ARCH__)

/// The numbers rounded as if stored as elements and loaded again.
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

/// A whole register of aligned memory, in parts of which each is one load of a thread.
template <class Number, std::size_t part = ThreadLanes<Number>::part> struct WholeChunk {
  static constexpr std::size_t width = ThreadLanes<Number>::register_width;

  template <class Element> SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return Lanes<Number>::template load_whole<part>(from, lane_number());
  }
  template <class Element> SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number) const {
    return load(from);
  }
  template <class Element> SHARDWRIGHT_FUNCTION void store(Element* to, const Lanes<Number>& lanes) const {
    lanes.template store_whole<part>(to, lane_number());
  }
  SHARDWRIGHT_FUNCTION Lanes<Number> keep(const Lanes<Number>& lanes, Number) const { return lanes; }
};

/// The first `length` lanes of a register, at any address.
template <class Number, std::size_t part = ThreadLanes<Number>::part> struct TailChunk {
  std::size_t length;

  template <class Element> SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return load_or(from, Number(0));
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number filler) const {
    return Lanes<Number>::template load<part>(from, lane_number(), length, filler);
  }
  template <class Element> SHARDWRIGHT_FUNCTION void store(Element* to, const Lanes<Number>& lanes) const {
    lanes.template store<part>(to, lane_number(), length);
  }
  SHARDWRIGHT_FUNCTION Lanes<Number> keep(const Lanes<Number>& lanes, Number filler) const {
    const std::size_t thread = lane_number();
    return Lanes<Number>::each([&](std::size_t i) {
      return Lanes<Number>::template position<part>(thread, i) < length ? lanes.v[i] : filler;
    });
  }
};

/// Elements from `address` to the next place where a thread's part of a register may begin.
template <class Number, std::size_t part, class Element>
SHARDWRIGHT_FUNCTION inline std::size_t elements_to_aligned(const Element* address) {
  constexpr std::size_t bytes = part * sizeof(Element) > 16 ? 16 : part * sizeof(Element);
  return (bytes - reinterpret_cast<std::uintptr_t>(address) % bytes) % bytes / sizeof(Element);
}

#else

/// `count` elements from memory, as numbers of arithmetic.
template <class Element, std::size_t count>
SHARDWRIGHT_FUNCTION inline Lanes<AccumulationElement<Element>, count> load_lanes(const Element* from) {
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
SHARDWRIGHT_FUNCTION inline void store_lanes(Element* to, Lanes<AccumulationElement<Element>, count> lanes) {
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

/// The numbers rounded as if stored as elements and loaded again.
template <class Element, std::size_t count>
SHARDWRIGHT_FUNCTION inline Lanes<AccumulationElement<Element>, count>
stored_lanes(Lanes<AccumulationElement<Element>, count> lanes) {
  if constexpr (!is_narrow<Element>) {
    return lanes;
  } else {
    Element memory[count];
    store_lanes<Element, count>(memory, lanes);
    return load_lanes<Element, count>(memory);
  }
}

/// A whole register of a row. `Number` is the AccumulationElement of the elements that are loaded or stored.
template <class Number> struct WholeChunk {
  static constexpr std::size_t width = lane_count<Number>;

  template <class Element> SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return load_lanes<Element, width>(from);
  }
  /// As load; the value of lanes past the end matters only in a TailChunk.
  template <class Element> SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number) const {
    return load(from);
  }
  template <class Element> SHARDWRIGHT_FUNCTION void store(Element* to, Lanes<Number> lanes) const {
    store_lanes<Element, width>(to, lanes);
  }
  /// The given lanes, with `filler` past the end of the row.
  SHARDWRIGHT_FUNCTION Lanes<Number> keep(Lanes<Number> lanes, Number) const { return lanes; }
};

/// The last, incomplete register of a row.
template <class Number> struct TailChunk {
  std::size_t length; // 1 .. lane_count - 1

  template <class Element> SHARDWRIGHT_FUNCTION Lanes<Number> load(const Element* from) const {
    return load_or(from, Number(0));
  }
  template <class Element>
  SHARDWRIGHT_FUNCTION Lanes<Number> load_or(const Element* from, Number filler) const {
    Number values[lane_count<Number>];
    for (std::size_t i = 0; i < lane_count<Number>; ++i)
      values[i] = i < length ? static_cast<Number>(from[i]) : filler;
    return as_bits<Lanes<Number>>(values);
  }
  template <class Element> SHARDWRIGHT_FUNCTION void store(Element* to, Lanes<Number> lanes) const {
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
/// `memory` lists every array that the body loads from or stores to, by the same index. On a device, whole
/// registers need aligned memory, which is checked once, at the beginning: with a branch for each load, only
/// one load would be in flight at a time. In a body that stores nothing, the loads of `together` registers
/// can be in flight. Rows of any width may begin off their alignment: with `any_row` the first few elements
/// are handled separately if all memory is aligned after them.
template <class Number, std::size_t together = 1, bool any_row = false, class Body, class... Elements>
SHARDWRIGHT_FUNCTION inline void for_chunks(std::size_t begin, std::size_t end, Body&& body,
                                            const Elements*... memory) {
  constexpr std::size_t width = WholeChunk<Number>::width;
  std::size_t i = begin;
#if defined(__CUDA_ARCH__)
  constexpr std::size_t part = ThreadLanes<Number>::template part_for<Elements...>;
  using Whole = WholeChunk<Number, part>;
  using Tail = TailChunk<Number, part>;
  std::size_t stop = begin; // end of the elements before whole registers
  if constexpr (any_row)
    ((stop = begin + elements_to_aligned<Number, part>(memory + begin)), ...);
  if (sizeof...(memory) == 0 || stop + width > end ||
      !(Lanes<Number>::template is_aligned<part>(memory + stop) && ...))
    stop = end;
  for (bool whole = !any_row;; whole = true) {
    if (whole && stop != end) {
      i = stop;
      for (; together > 1 && i + together * width <= end; i += together * width) {
        SHARDWRIGHT_UNROLL
        for (std::size_t k = 0; k < together; ++k)
          body(Whole{}, i + k * width);
      }
      for (; i + width <= end; i += width)
        body(Whole{}, i);
      stop = end;
    }
    for (; i < stop; i += width)
      body(Tail{stop - i < width ? stop - i : width}, i);
    if (stop == end)
      return;
  }
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

/// to[i] = from[i] for i in [begin, end), for elements of the same numbers.
template <bool any_row = false, class From, class To>
SHARDWRIGHT_FUNCTION inline void copy_lanes(const From* from, To* to, std::size_t begin, std::size_t end) {
  for_chunks<AccumulationElement<To>, 1, any_row>(
      begin, end, [from, to](auto chunk, std::size_t i) { chunk.store(to + i, chunk.load(from + i)); }, from,
      to);
}

/// to[i] += from[i] for i in [begin, end).
template <class From, class To>
SHARDWRIGHT_FUNCTION inline void add_lanes(const From* from, To* to, std::size_t begin, std::size_t end) {
  for_chunks<AccumulationElement<To>>(
      begin, end,
      [from, to](auto chunk, std::size_t i) {
        chunk.store(to + i, chunk.load(to + i) + chunk.load(from + i));
      },
      from, to);
}

/// The sum of x[i] y[i]; every thread of the warp gets it.
template <class Element>
SHARDWRIGHT_FUNCTION inline AccumulationElement<Element> dot_lanes(const Element* x, const Element* y,
                                                                   std::size_t count) {
  using Number = AccumulationElement<Element>;
  Lanes<Number> sum{};
  for_chunks<Number, 3>(
      0, count, [x, y, &sum](auto chunk, std::size_t i) { sum += chunk.load(x + i) * chunk.load(y + i); }, x,
      y);
  return sum_of<Number>(sum);
}

/// Calls body(registers, length) over the `count` elements from `from` on, `together` registers at a time:
/// the first `length` lanes hold elements, those that share a register with them the filler. All loads of a
/// call are in flight at once.
template <class Number, std::size_t together, class Element, class Body>
SHARDWRIGHT_FUNCTION inline void for_registers(const Element* from, std::size_t count, Number filler,
                                               Body&& body) {
  constexpr std::size_t width = WholeChunk<Number>::width;
  Lanes<Number> registers[together];
  std::size_t i = 0;
#if defined(__CUDA_ARCH__)
  constexpr std::size_t part = ThreadLanes<Number>::template part_for<Element>;
  const std::size_t head = elements_to_aligned<Number, part>(from);
  std::size_t stop = head + together * width <= count ? head : count;
  for (;;) {
    for (; i < stop; i += together * width) {
      SHARDWRIGHT_UNROLL
      for (std::size_t k = 0; k < together; ++k) {
        const std::size_t at = i + k * width;
        registers[k] = TailChunk<Number, part>{at < stop ? stop - at : 0}.load_or(from + at, filler);
      }
      body(registers, stop - i < together * width ? stop - i : together * width);
    }
    if (stop == count)
      return;
    i = stop;
    for (; i + together * width <= count; i += together * width) {
      SHARDWRIGHT_UNROLL
      for (std::size_t k = 0; k < together; ++k)
        registers[k] = WholeChunk<Number, part>{}.load(from + i + k * width);
      body(registers, together * width);
    }
    stop = count;
  }
#else
  for (; i + together * width <= count; i += together * width) {
    for (std::size_t k = 0; k < together; ++k)
      registers[k] = WholeChunk<Number>{}.load(from + i + k * width);
    body(registers, together * width);
  }
  if (i < count) {
    std::size_t k = 0;
    for (; i + (k + 1) * width <= count; ++k)
      registers[k] = WholeChunk<Number>{}.load(from + i + k * width);
    if (i + k * width < count)
      registers[k] = TailChunk<Number>{count - i - k * width}.load_or(from + i + k * width, filler);
    body(registers, count - i);
  }
#endif
}

/// A register that for_registers loaded from elements, with 0 in the lanes from `length` on.
template <class Element, class Number = AccumulationElement<Element>>
SHARDWRIGHT_FUNCTION inline Lanes<Number> lanes_below(const Lanes<Number>& lanes, std::size_t length) {
  if (length >= WholeChunk<Number>::width)
    return lanes;
#if defined(__CUDA_ARCH__)
  constexpr std::size_t part = ThreadLanes<Number>::template part_for<Element>;
  return TailChunk<Number, part>{length}.keep(lanes, Number(0));
#else
  return TailChunk<Number>{length}.keep(lanes, Number(0));
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

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

// What the bodies of kernels with lanes are written with.
using detail::broadcast;
using detail::first_lane;
using detail::for_chunks;
using detail::lane_count;
using detail::lane_number;
using detail::lane_threads;
using detail::Lanes;
using detail::sum_of;
using detail::sync_lanes;

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
