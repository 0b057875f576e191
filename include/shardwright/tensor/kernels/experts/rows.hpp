// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Kernels for rows of tokens sent to experts and back: gather, reorder, sum by token.

#include <shardwright/core/element.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/lanes/rounded.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
/// @brief Row i of `out` is row index[i] / divisor of `in`.
template <class Element> struct GatherRows {
  const Element* in;
  const std::int32_t* index;
  std::size_t divisor;
  Element* out;
  std::size_t width;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    detail::copy_lanes(in + static_cast<std::size_t>(index[i]) / divisor * width, out + i * width, 0, width);
  }
};

/// @brief Rows one after the other.
template <class Element> struct PackedRows {
  const Element* rows;
  std::size_t width;
  SHARDWRIGHT_FUNCTION const Element* operator()(std::size_t i) const { return rows + i * width; }
};

/// @brief Rows at arbitrary addresses.
template <class Element> struct ListedRows {
  const Element* const* rows;
  SHARDWRIGHT_FUNCTION const Element* operator()(std::size_t i) const { return rows[i]; }
};

/// @brief Row index[i] of `out` is row i of `in`; each row of `out` is written once.
template <class Element, class Rows> struct ScatterRows {
  Rows in;
  const std::int32_t* index;
  Element* out;
  std::size_t width;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    detail::copy_lanes(in(i), out + static_cast<std::size_t>(index[i]) * width, 0, width);
  }
};

/// @brief Row t of `out` is the sum of the rows of its slots, in their order, each times its gate if there
/// are any.
/// @tparam fused false rounds products before they are added, for the same bits whatever the Rows
template <class Element, class Rows, bool fused = true> struct SumSlots {
  using Number = AccumulationElement<Element>;
  Rows rows;
  const std::int32_t* places; // [tokens, slots], -1 for none
  const Number* gates;        // [tokens, slots], or null
  std::size_t slots;
  Element* out;
  std::size_t width;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t t) const {
    const std::int32_t* place = places + t * slots;
    const Number* gate = gates == nullptr ? nullptr : gates + t * slots;
    const Rows from = rows;
    Element* to = out + t * width;
    const std::size_t count = slots;
    const Element* unaligned = to; // one of the rows if any of them is
    for (std::size_t k = 0; k < count; ++k)
      if (place[k] >= 0 && !detail::starts_at_16_bytes(from(static_cast<std::size_t>(place[k]))))
        unaligned = from(static_cast<std::size_t>(place[k]));
    for_chunks<Number>(
        0, width,
        [=](auto chunk, std::size_t c) {
          Lanes<Number> sum{};
          for (std::size_t k = 0; k < count; ++k) {
            if (place[k] < 0)
              continue;
            const Lanes<Number> row = chunk.load(from(static_cast<std::size_t>(place[k])) + c);
            if constexpr (fused)
              sum += gate == nullptr ? row : gate[k] * row;
            else
              sum += gate == nullptr ? row : detail::as_rounded(Lanes<Number>(gate[k] * row));
          }
          chunk.store(to + c, sum);
        },
        unaligned, to);
  }
};

/// @brief For each row of gradients: its dot product with a row of values, and the row times a gate. Either
/// may be omitted.
template <class Element> struct GateRows {
  using Number = AccumulationElement<Element>;
  Element* gradient;    // [rows, width]
  const Element* value; // the same, or null
  const Number* gates;  // [rows], or null
  Number* d_gates;      // [rows], with `value`
  std::size_t width;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    Element* row = gradient + i * width;
    if (value != nullptr) {
      const Element* const from = row;
      const Number total = detail::dot_lanes(from, value + i * width, width);
      if (first_lane())
        d_gates[i] = total;
    }
    if (gates != nullptr) {
      const Number gate = gates[i];
      for_chunks<Number>(
          0, width,
          [row, gate](auto chunk, std::size_t c) { chunk.store(row + c, gate * chunk.load(row + c)); }, row);
    }
  }
};

/// @brief out[i] is the number of row places[i], or 0 for a place of -1.
template <class Number, class Rows> struct TakeNumbers {
  Rows rows;
  const std::int32_t* places;
  Number* out;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    out[i] = places[i] < 0 ? Number(0) : *rows(static_cast<std::size_t>(places[i]));
  }
};

/// @brief Elements `received` to `received + count` of `groups` become `grouped` and the numbers after it.
struct RowRun {
  std::int32_t received;
  std::int32_t grouped;
  std::int32_t count;
};
struct NumberRuns {
  const RowRun* runs;
  std::int32_t* groups;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const RowRun run = runs[i];
    for (auto row = static_cast<std::int32_t>(lane_number()); row < run.count;
         row += static_cast<std::int32_t>(lane_threads))
      groups[run.received + row] = run.grouped + row;
  }
};

namespace detail {

/// Sorts and counts on a device: `bytes(execution, pairs, bins)` of memory, and
/// `sort(execution, pairs, bins, keys, sorted, numbers, order, counts, memory)`, stable and the same in every
/// run; specialized by headers of targets.
template <class Execution> struct LibraryOrder { static constexpr bool available = false; };

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
