// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The kernels with which thread ranks move and combine data in device memory: one launch does the
/// parts of all ranks on a device.
///
/// A work list has blocks; each block has `ins` inputs with the same number of elements, combined in rank
/// order, and `outs` outputs that all receive the result. Bytes, for N ranks and S bytes of a rank's own
/// buffer (of the whole for a rank's larger side): all_reduce reads N S and writes N S; all_gather reads S
/// and writes N S; reduce_scatter reads N S and writes S; all_to_all reads and writes N S; broadcast reads S
/// and writes (N - 1) S; a message reads and writes S. Of D devices with N / D ranks each, one receives from
/// the others: in all_reduce 2 (N - N / D) S / D, half of it by its own loads and half by their stores; in
/// all_gather S - S / D; in broadcast S; in reduce_scatter and all_to_all (N - N / D) S / D.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/strided_block.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One entry of a work list: the position of a block in one rank's buffer, in vectors, or the number of
/// elements of a block.
struct PeerEntry {
  std::byte* data = nullptr;    ///< Null: nothing to write.
  std::uint64_t row_length = 0; ///< 0: contiguous. In the first entry of a block: its number of elements.
  std::uint64_t row_stride = 0;
};

/// The work of one launch; a work list that is too long for kernel arguments is in device memory.
struct PeerWork {
  static constexpr std::size_t inline_entries = 160; // with the rest below 4096 bytes, which all GPUs accept
  PeerEntry entries[inline_entries];
  const PeerEntry* table = nullptr;
  struct Level {
    int extent;
    int stride;
  };
  Level levels[ReductionOrder::max_levels] = {}; ///< Levels of a nested reduction, innermost first.
  int depth = 0;
  ReduceOp op = ReduceOp::sum;
  unsigned blocks = 0;
  unsigned ins = 0;
  unsigned outs = 0;

  /// Entry `k` of a block: its count, its inputs, its outputs.
  [[nodiscard]] SHARDWRIGHT_FUNCTION const PeerEntry& entry(unsigned block, unsigned k) const {
    const std::size_t at = std::size_t{block} * (1u + ins + outs) + k;
    return table != nullptr ? table[at] : entries[at];
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION std::uint64_t count(unsigned block) const {
    return entry(block, 0).row_length;
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION const PeerEntry& in(unsigned block, unsigned i) const {
    return entry(block, 1u + i);
  }
  [[nodiscard]] SHARDWRIGHT_FUNCTION const PeerEntry& out(unsigned block, unsigned j) const {
    return entry(block, 1u + ins + j);
  }
};

/// Lanes of a tile: threads of a block on a device.
inline constexpr unsigned peer_lanes = 256;

/// `width` elements that one access moves.
template <class Element, unsigned width> struct alignas(sizeof(Element) * width) PeerVector {
  Element at[width];
};

/// Indexes the vectors of a side, whatever its rows.
template <class Vector> struct PeerAccess {
  SHARDWRIGHT_FUNCTION static std::byte* address(const PeerEntry& side, std::uint64_t i) {
    std::uint64_t at = i;
    if (side.row_length != 0) { // nvcc divides numbers of 32 bits by the faster instruction
      const std::uint64_t row = i / side.row_length;
      at = row * side.row_stride + (i - row * side.row_length);
    }
    return side.data + at * sizeof(Vector);
  }
  /// The same for a side without rows. There are none on the outputs of reductions, nor behind the last whole
  /// vector, since rows consist of whole ones.
  SHARDWRIGHT_FUNCTION static std::byte* contiguous(const PeerEntry& side, std::uint64_t i) {
    return side.data + i * sizeof(Vector);
  }
  SHARDWRIGHT_FUNCTION static Vector load(const PeerEntry& side, std::uint64_t i) {
    return load(address(side, i));
  }
  SHARDWRIGHT_FUNCTION static void store(const PeerEntry& side, std::uint64_t i, const Vector& value) {
    store(address(side, i), value);
  }

  SHARDWRIGHT_FUNCTION static Vector load(const std::byte* from) {
#if defined(__CUDA_ARCH__)
    return *reinterpret_cast<const Vector*>(from);
#else
    Vector out;
    std::memcpy(static_cast<void*>(&out), from, sizeof(Vector));
    return out;
#endif
  }
  SHARDWRIGHT_FUNCTION static void store(std::byte* to, const Vector& value) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<Vector*>(to) = value;
#else
    std::memcpy(to, static_cast<const void*>(&value), sizeof(Vector));
#endif
  }
};

/// Copies the one input of each block into its outputs, `vector_bytes` at a time; counts are bytes. An
/// incomplete last vector is copied byte by byte.
template <unsigned vector_bytes> struct PeerCopyKernel {
  using Word = std::conditional_t<vector_bytes >= 4, std::uint32_t,
                                  std::conditional_t<vector_bytes == 2, std::uint16_t, std::uint8_t>>;
  using Vector = PeerVector<Word, vector_bytes / sizeof(Word)>;
  using Access = PeerAccess<Vector>;
  static constexpr unsigned unroll = 4; // loads in flight per thread
  PeerWork work;

  SHARDWRIGHT_FUNCTION void operator()(unsigned block, std::uint64_t tile, unsigned lane) const {
    const std::uint64_t bytes = work.count(block);
    const std::uint64_t vectors = bytes / vector_bytes;
    const std::uint64_t first = tile * (unroll * peer_lanes) + lane;
    Vector values[unroll];
    for (unsigned u = 0; u < unroll; ++u)
      if (first + u * peer_lanes < vectors)
        values[u] = Access::load(work.in(block, 0), first + u * peer_lanes);
    for (unsigned j = 0; j < work.outs; ++j) {
      const PeerEntry& out = work.out(block, j);
      if (out.data == nullptr)
        continue;
      for (unsigned u = 0; u < unroll; ++u)
        if (first + u * peer_lanes < vectors)
          Access::store(out, first + u * peer_lanes, values[u]);
      if (tile == 0 && lane < bytes % vector_bytes)
        Access::contiguous(out, vectors)[lane] = Access::contiguous(work.in(block, 0), vectors)[lane];
    }
  }
};

/// Calls `function.operator()<bytes>()` with the widest access, of up to 16 bytes, that addresses, rows and
/// strides allow: `bits` is all of them in bytes, or-ed together.
template <class Function> void with_vector_bytes(std::uint64_t bits, Function&& function) {
  if (bits % 16 == 0)
    function.template operator()<16>();
  else if (bits % 8 == 0)
    function.template operator()<8>();
  else if (bits % 4 == 0)
    function.template operator()<4>();
  else if (bits % 2 == 0)
    function.template operator()<2>();
  else
    function.template operator()<1>();
}

/// Arithmetic of a reduction: the same operations in the same order as on the host. Integers wrap; 16-bit
/// numbers are combined as floats and rounded once per level.
template <class Element> struct PeerArithmetic {
  using Main = AccumulationElement<Element>;

  SHARDWRIGHT_FUNCTION static Main combine(ReduceOp op, Main a, Main b) {
    switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
    case ReduceOp::ordered_sum:
      return sum(a, b);
    case ReduceOp::product:
      if constexpr (std::is_integral_v<Main>)
        return static_cast<Main>(static_cast<std::make_unsigned_t<Main>>(a) *
                                 static_cast<std::make_unsigned_t<Main>>(b));
      else
        return a * b;
    case ReduceOp::maximum: // NaN if either is NaN
      return ((a > b) || (a != a)) ? a : b;
    case ReduceOp::minimum:
      return ((a < b) || (a != a)) ? a : b;
    }
    return a;
  }
  SHARDWRIGHT_FUNCTION static Main sum(Main a, Main b) {
    if constexpr (std::is_integral_v<Main>)
      return static_cast<Main>(static_cast<std::make_unsigned_t<Main>>(a) +
                               static_cast<std::make_unsigned_t<Main>>(b));
    else
      return a + b;
  }
  /// The result of a level with this many inputs. There are no averages of integers.
  SHARDWRIGHT_FUNCTION static Element finish(ReduceOp op, Main value, int inputs) {
    if constexpr (RealElement<Element>)
      if (op == ReduceOp::average)
        value /= static_cast<Main>(inputs);
    return static_cast<Element>(value);
  }
};

/// Sums and averages over all inputs in one level, or in two, a vector at a time; the elements of an
/// incomplete last vector one by one.
template <class Element, unsigned width, bool two_levels = false> struct PeerSumKernel {
  static constexpr unsigned unroll = 1; // the loads of several inputs are in flight together
  using Access = PeerAccess<PeerVector<Element, width>>;
  using Arithmetic = PeerArithmetic<Element>;
  PeerWork work;

  SHARDWRIGHT_FUNCTION void operator()(unsigned block, std::uint64_t tile, unsigned lane) const {
    const std::uint64_t count = work.count(block);
    const std::uint64_t vectors = count / width;
    const std::uint64_t i = tile * peer_lanes + lane;
    if (i < vectors)
      reduce<width>(block, i, 0);
    if (tile == 0 && lane < count % width)
      reduce<1>(block, vectors, lane * sizeof(Element));
  }

private:
  /// Where the elements of a side begin: a whole vector, or one at a byte offset into an incomplete one.
  template <unsigned elements>
  SHARDWRIGHT_FUNCTION static std::byte* address(const PeerEntry& side, std::uint64_t i, std::size_t behind) {
    if constexpr (elements == width)
      return Access::address(side, i);
    else
      return Access::contiguous(side, i) + behind;
  }

  template <unsigned elements>
  SHARDWRIGHT_FUNCTION void reduce(unsigned block, std::uint64_t i, std::size_t behind) const {
    using Part = PeerAccess<PeerVector<Element, elements>>;
    PeerVector<Element, elements> value;
    if constexpr (two_levels) {
      value = sum<elements>(block, i, behind, 0, work.levels[0].extent, work.levels[0].stride);
      typename Arithmetic::Main sums[elements];
      for (unsigned e = 0; e < elements; ++e)
        sums[e] = value.at[e];
      for (int outer = 1; outer < work.levels[1].extent; ++outer) {
        value = sum<elements>(block, i, behind, outer * work.levels[1].stride, work.levels[0].extent,
                              work.levels[0].stride);
        for (unsigned e = 0; e < elements; ++e)
          sums[e] = Arithmetic::sum(sums[e], value.at[e]);
      }
      for (unsigned e = 0; e < elements; ++e)
        value.at[e] = Arithmetic::finish(work.op, sums[e], work.levels[1].extent);
    } else {
      value = sum<elements>(block, i, behind, 0, static_cast<int>(work.ins), 1);
    }
    for (unsigned j = 0; j < work.outs; ++j)
      Part::store(Access::contiguous(work.out(block, j), i) + behind, value);
  }

  /// The result of one level over `extent` inputs.
  template <unsigned elements>
  SHARDWRIGHT_FUNCTION PeerVector<Element, elements> sum(unsigned block, std::uint64_t i, std::size_t behind,
                                                         int first, int extent, int stride) const {
    using Part = PeerAccess<PeerVector<Element, elements>>;
    const auto load = [&](int input) {
      return Part::load(address<elements>(work.in(block, static_cast<unsigned>(input)), i, behind));
    };
    PeerVector<Element, elements> value = load(first);
    typename Arithmetic::Main sums[elements];
    for (unsigned e = 0; e < elements; ++e)
      sums[e] = value.at[e];
#if defined(__CUDA_ARCH__)
#pragma unroll 4
#endif
    for (int s = 1; s < extent; ++s) {
      const PeerVector<Element, elements> next = load(first + s * stride);
      for (unsigned e = 0; e < elements; ++e)
        sums[e] = Arithmetic::sum(sums[e], next.at[e]);
    }
    for (unsigned e = 0; e < elements; ++e)
      value.at[e] = Arithmetic::finish(work.op, sums[e], extent);
    return value;
  }
};

/// Every other reduction, an element at a time: each level combines the results of the level below.
template <class Element> struct PeerReduceKernel {
  static constexpr unsigned unroll = 1;
  using Access = PeerAccess<PeerVector<Element, 1>>;
  using Arithmetic = PeerArithmetic<Element>;
  PeerWork work;

  SHARDWRIGHT_FUNCTION void operator()(unsigned block, std::uint64_t tile, unsigned lane) const {
    const std::uint64_t i = tile * peer_lanes + lane;
    if (i >= work.count(block))
      return;
    typename Arithmetic::Main results[ReductionOrder::max_levels] = {};
    int digits[ReductionOrder::max_levels] = {};
    PeerVector<Element, 1> value{};
    for (unsigned k = 0; k < work.ins; ++k) {
      int rank = 0;
      for (int level = 0; level < work.depth; ++level)
        rank += digits[level] * work.levels[level].stride;
      value = Access::load(work.in(block, static_cast<unsigned>(rank)), i);
      for (int level = 0; level < work.depth; ++level) {
        const typename Arithmetic::Main next = value.at[0];
        results[level] = digits[level] == 0 ? next : Arithmetic::combine(work.op, results[level], next);
        if (++digits[level] < work.levels[level].extent)
          break;
        digits[level] = 0;
        value.at[0] = Arithmetic::finish(work.op, results[level], work.levels[level].extent);
      }
    }
    for (unsigned j = 0; j < work.outs; ++j)
      Access::store(Access::contiguous(work.out(block, j), i), value);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
