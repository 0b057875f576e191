// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sorts choices of experts by expert, with counts and the position of each choice.

#include <shardwright/tensor/kernels/experts/rows.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
#include <shardwright/tensor/kernels/device/cuda_sort.hpp>
#endif

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// The bin of a choice: that of its expert, one for none (-1), or one for invalid choices.
SHARDWRIGHT_FUNCTION constexpr std::int32_t bin_of(std::int32_t choice, std::int32_t experts) {
  return choice >= 0 && choice < experts ? choice : experts + (choice == -1 ? 0 : 1);
}

/// Orders `pairs` choices in a single functor call: on a host, one pass to count and one to place beat any
/// sort.
struct SortByExpert {
  const std::int32_t* choices;
  std::size_t pairs;
  std::int32_t experts;
  std::int32_t* order;
  std::int32_t* places;
  std::int32_t* counts; // [experts + 2]
  std::int32_t* next;   // [experts + 2]

  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    for (std::int32_t bin = 0; bin < experts + 2; ++bin)
      counts[bin] = 0;
    for (std::size_t pair = 0; pair < pairs; ++pair)
      ++counts[bin_of(choices[pair], experts)];
    std::int32_t first = 0;
    for (std::int32_t bin = 0; bin < experts + 2; ++bin) {
      next[bin] = first;
      first += counts[bin];
    }
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::int32_t bin = bin_of(choices[pair], experts);
      const std::int32_t row = next[bin]++;
      order[row] = static_cast<std::int32_t>(pair);
      places[pair] = bin < experts ? row : -1;
    }
  }
};

/// The input of a library sort: the bin of each choice with its index.
struct BinChoices {
  const std::int32_t* choices;
  std::int32_t experts;
  std::int32_t* bins;
  std::int32_t* numbers;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t pair) const {
    bins[pair] = bin_of(choices[pair], experts);
    numbers[pair] = static_cast<std::int32_t>(pair);
  }
};

/// The places of sorted choices.
struct PlaceChoices {
  const std::int32_t* bins; // sorted
  const std::int32_t* order;
  std::int32_t experts;
  std::int32_t* places;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t row) const {
    places[order[row]] = bins[row] < experts ? static_cast<std::int32_t>(row) : -1;
  }
};

/// Neighbouring arrays of a workspace begin at multiples of this.
inline constexpr std::size_t order_alignment = 256;
[[nodiscard]] constexpr std::size_t aligned_for_order(std::size_t bytes) {
  return (bytes + order_alignment - 1) / order_alignment * order_alignment;
}

} // namespace detail

/// @brief Bytes of memory that sort_by_expert() needs.
template <class Execution>
[[nodiscard]] std::size_t sort_by_expert_workspace(const Execution& execution, std::size_t pairs,
                                                   std::int32_t experts) {
  const auto bins = static_cast<std::size_t>(experts) + 2;
  if constexpr (detail::LibraryOrder<Execution>::available)
    return 3 * detail::aligned_for_order(pairs * sizeof(std::int32_t)) +
           detail::LibraryOrder<Execution>::bytes(execution, pairs, bins);
  else
    return static_cast<void>(execution), bins * sizeof(std::int32_t);
}

/// @brief Sorts choices stably by expert; those without an expert come last.
///
/// Two passes of one thread on a host; on an NVIDIA GPU CUB's radix sort and histogram, which are
/// deterministic. Does not wait.
/// @param choices [pairs], an expert or -1
/// @param order [pairs] the pair in each row
/// @param places  [pairs] the row of each pair, -1 for one without an expert
/// @param counts  [experts + 2] number of pairs of each expert, of none, and of invalid choices
/// @param memory  sort_by_expert_workspace() bytes, aligned to 256
template <class Execution>
void sort_by_expert(const Execution& execution, const std::int32_t* choices, std::size_t pairs,
                    std::int32_t experts, std::int32_t* order, std::int32_t* places, std::int32_t* counts,
                    void* memory) {
  if constexpr (counts_only<Execution>) {
    static_cast<void>(execution);
  } else if constexpr (detail::LibraryOrder<Execution>::available) {
    auto* const bytes = static_cast<unsigned char*>(memory);
    const std::size_t array = detail::aligned_for_order(pairs * sizeof(std::int32_t));
    auto* const keys = reinterpret_cast<std::int32_t*>(bytes);
    auto* const sorted = reinterpret_cast<std::int32_t*>(bytes + array);
    auto* const numbers = reinterpret_cast<std::int32_t*>(bytes + 2 * array);
    run("sw::bin_choices", execution, pairs, detail::BinChoices{choices, experts, keys, numbers});
    detail::LibraryOrder<Execution>::sort(execution, pairs, static_cast<std::size_t>(experts) + 2, keys,
                                          sorted, numbers, order, counts, bytes + 3 * array);
    run("sw::place_pairs", execution, pairs, detail::PlaceChoices{sorted, order, experts, places});
  } else {
    run("sw::order_pairs", execution, 1,
        detail::SortByExpert{choices, pairs, experts, order, places, counts,
                             static_cast<std::int32_t*>(memory)});
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
