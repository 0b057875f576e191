// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Register tiles of products whose sums over short leaves, floats, become terms of FixedPoint sums.

#include <shardwright/core/fixed_point.hpp>
#include <shardwright/core/vector_lanes.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>
#include <shardwright/tensor/kernels/lanes/rounded.hpp>
#include <shardwright/tensor/kernels/ordered/fixed_point_sums.hpp>
#include <shardwright/tensor/kernels/product/tiles.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Float sums of a leaf of products each, which become terms of FixedPoint sums.
struct LeafSums {
  std::span<const std::size_t> ends; ///< Of the leaves, in the packed factors; at most most_leaf.
  bool fresh;                        ///< Whether the old content is ignored.
  bool all_fit = true;               ///< Becomes false if a term did not: it is then left out.
};

/// The sums of up to 256 terms for each lane of a register, as two integers of 32 bits: multiples of 2^-10,
/// and of 2^-32.
///
/// If M is 1.5 * 2^23 units, the bits of x + M are those of x in units, as an integer, and x + M - M is x
/// rounded to units: the rest is exact. Conversion to integers of 64 bits would take twice the instructions.
class SplitTerms {
  static constexpr std::size_t lanes = lane_count<float>;

public:
  using Integers = typename shardwright::detail::Vector<std::uint32_t, lanes>::type;

  /// @param terms  that will be added
  void start(std::size_t terms) {
    std::fill_n(high_, lanes, -static_cast<std::uint32_t>(terms) * bits_of(high_rounder));
    std::fill_n(low_, lanes, -static_cast<std::uint32_t>(terms) * bits_of(low_rounder));
  }
  /// @param outside  gets a bit above the 23 lowest ones if the term is not in [-4,096, 4,096)
  void add(Lanes<float> term, Integers& outside) {
    in_order(outside, term);
    const Lanes<float> shifted = as_rounded(term + high_rounder);
    const Integers bits = bits_of(shifted);
    add_to(high_, bits);
    outside |= bits ^ bits_of(high_rounder);
    const Lanes<float> rest = term - as_rounded(shifted - high_rounder); // exact
    add_to(low_, bits_of(as_rounded(rest + low_rounder)));
  }
  /// to[lane] (+)= the sum
  void store(FixedPoint* to, bool fresh) const {
    for (std::size_t l = 0; l < lanes; l += half) {
      Sums sum{};
      if (!fresh)
        __builtin_memcpy(&sum, to + l, sizeof(sum));
      sum += (widened(high_ + l) << 22) + widened(low_ + l);
      __builtin_memcpy(static_cast<void*>(to + l), &sum, sizeof(sum));
    }
  }
  /// Whether all terms of which `outside` knows were in [-4,096, 4,096).
  [[nodiscard]] static bool all_inside(const Integers& outside) {
    std::uint32_t any = 0;
    for (std::size_t l = 0; l < lanes; ++l)
      any |= outside[l];
    return any >> 23 == 0;
  }

private:
  static constexpr float high_rounder = 0x1.8p13F;
  static constexpr float low_rounder = 0x1.8p-9F;
  static_assert(FixedPoint::fraction_bits == 32);

  static constexpr std::uint32_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }
  static Integers bits_of(const Lanes<float>& numbers) {
    Integers bits;
    __builtin_memcpy(&bits, &numbers, sizeof(bits));
    return bits;
  }

  static constexpr std::size_t half = lanes / 2;
  using Sums = typename shardwright::detail::Vector<std::uint64_t, half>::type; // which may wrap
  static Sums widened(const std::uint32_t* from) {
    typename shardwright::detail::Vector<std::int32_t, half>::type numbers;
    __builtin_memcpy(&numbers, from, sizeof(numbers));
    return __builtin_convertvector(numbers, Sums);
  }
  static void add_to(std::uint32_t* sums, const Integers& terms) {
    Integers sum;
    __builtin_memcpy(&sum, sums, sizeof(sum));
    sum += terms;
    __builtin_memcpy(sums, &sum, sizeof(sum));
  }

  alignas(64) std::uint32_t high_[lanes];
  std::uint32_t low_[lanes];
};

/// The same as tile_product for terms of any size, and for few terms: the tile's sums go through memory.
template <int rows, int registers>
[[gnu::noinline]] void tile_product_of_any_terms(TileLeft<float> a, const float* b, std::size_t b_stride,
                                                 FixedPoint* c, std::size_t c_stride, LeafSums& terms) {
  constexpr std::size_t columns = registers * lane_count<float>;
  alignas(64) float sums[rows * columns];
  TermAdder adder;
  for (std::size_t i = 0; i < rows && terms.fresh; ++i)
    std::fill_n(c + i * c_stride, columns, FixedPoint{});
  std::size_t k = 0;
  for (const std::size_t end : terms.ends) {
    tile_product<TileStore::assign, rows, registers>(
        TileLeft<float>{a.data + k * a.step, a.row_stride, a.step}, b + k * b_stride, b_stride, end - k, sums,
        columns);
    k = end;
    for (std::size_t i = 0; i < rows; ++i)
      adder.add(sums + i * columns, columns, c + i * c_stride);
  }
  terms.all_fit = terms.all_fit && adder.all_fit();
}

/// Adds the sums of a tile over one leaf to `split`. A function of its own, so that the sums of the leaf stay
/// in registers, and those of all leaves in the nearest cache.
template <int rows, int registers>
[[gnu::noinline]] void add_leaf(const TileLeft<float>& a, const float* b, std::size_t b_stride,
                                std::size_t begin, std::size_t end, SplitTerms* split,
                                SplitTerms::Integers* outside) {
  Lanes<float> sums[rows][registers] = {};
  add_products(TileLeft<float>{a.data + begin * a.step, a.row_stride, a.step}, b + begin * b_stride, b_stride,
               end - begin, sums);
  SplitTerms::Integers any = *outside;
  [&]<std::size_t... at>(std::index_sequence<at...>) { // a loop of this length would move the sums to memory
    (split[at].add(sums[at / registers][at % registers], any), ...);
  }
  (std::make_index_sequence<static_cast<std::size_t>(rows * registers)>{});
  *outside = any;
}

template <TileStore store, int rows, int registers>
[[gnu::noinline]] void tile_product(TileLeft<float> a, const float* b, std::size_t b_stride,
                                    std::size_t /*depth*/, FixedPoint* c, std::size_t c_stride,
                                    LeafSums& terms) {
  static_assert(store == TileStore::accumulate);
  constexpr std::size_t columns = registers * lane_count<float>;
  for (std::size_t i = 0; i < rows && !terms.fresh; ++i) // requests memory before it is needed
    for (std::size_t l = 0; l < columns; l += 64 / sizeof(FixedPoint))
      __builtin_prefetch(c + i * c_stride + l, 1);
  if (terms.ends.size() == 1) // of up to 256 products: few terms
    return tile_product_of_any_terms<rows, registers>(a, b, b_stride, c, c_stride, terms);
  SplitTerms split[rows * registers];
  for (SplitTerms& one : split)
    one.start(terms.ends.size());
  SplitTerms::Integers outside{};
  std::size_t k = 0;
  for (const std::size_t end : terms.ends) {
    add_leaf<rows, registers>(a, b, b_stride, k, end, split, &outside);
    k = end;
  }
  if (!SplitTerms::all_inside(outside))
    return tile_product_of_any_terms<rows, registers>(a, b, b_stride, c, c_stride, terms);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t r = 0; r < registers; ++r)
      split[i * registers + r].store(c + i * c_stride + r * lane_count<float>, terms.fresh);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
