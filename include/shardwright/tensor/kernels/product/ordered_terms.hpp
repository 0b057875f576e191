// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Rows of sums as terms of FixedPoint sums, and rounded to the element of a tree's nodes.

#include <shardwright/core/element.hpp>
#include <shardwright/core/fixed_point.hpp>
#include <shardwright/core/vector_lanes.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// to[i] += FixedPoint::of(terms[i]). Returns whether all terms fit; the sums of others are undefined.
///
/// In a double of 1.5 * 2^52 and a number below 2^51, the lowest bit is 1: the addition rounds to the nearest
/// integer, and the bits are those of the integer, after those of 1.5 * 2^52.
inline bool add_terms(const float* terms, FixedPoint* to, std::size_t count) {
  using shardwright::detail::lane_bytes;
  using Floats = shardwright::detail::LanesOf<float, lane_bytes / 2>;
  using Doubles = shardwright::detail::LanesOf<double>::Register;
  using Units = shardwright::detail::LanesOf<std::int64_t>;
  constexpr std::size_t width = lane_bytes / sizeof(double);
  constexpr double whole = 0x1.8p52, limit = FixedPoint::limit, scale = 0x1p32;
  const Units::Register whole_bits = std::bit_cast<std::int64_t>(whole) - Units::Register{};
  Units::Register beyond{};
  std::size_t i = 0;
  for (; i + width <= count; i += width) {
    const Doubles term = __builtin_convertvector(Floats::load(terms + i), Doubles);
    const Doubles shifted = term * scale + whole;
    Units::Register bits;
    __builtin_memcpy(&bits, &shifted, sizeof(bits));
    std::int64_t* const units = &to[i].units;
    Units::store(units, Units::load(units) + bits - whole_bits);
    beyond |= ~((term > -limit) & (term < limit));
  }
  bool fits = true;
  for (std::size_t lane = 0; lane < width; ++lane)
    fits = fits && beyond[lane] == 0;
  for (; i < count; ++i) {
    fits = fits && FixedPoint::fits(terms[i]);
    if (FixedPoint::fits(terms[i]))
      to[i] += FixedPoint::of(terms[i]);
  }
  return fits;
}

/// The numbers as if stored as elements and loaded again; `count` is a multiple of the lanes.
template <class Element> void round_numbers(AccumulationElement<Element>* numbers, std::size_t count) {
  using Number = AccumulationElement<Element>;
  if constexpr (is_narrow<Element>)
    for (std::size_t i = 0; i < count; i += lane_count<Number>)
      store_lanes<Number, lane_count<Number>>(
          numbers + i,
          stored_lanes<Element, lane_count<Number>>(load_lanes<Number, lane_count<Number>>(numbers + i)));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
