// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Matrix products of a warp on tensor cores, from tiles in shared memory.
///
/// Instructions and the threads' shares of their matrices are those of the PTX ISA, sections "Matrix
/// Fragments for mma.m16n8k16 with floating point type" and "ldmatrix" (compute capability 8.0). On the host,
/// the same functions work on the registers of all 32 threads at once, with loops over the matrices, so that
/// kernels also run there.

#include <shardwright/core/low_precision.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/lanes/thread.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// `count` registers of each thread of a warp. Indices must be compile-time constants after unrolling.
template <class Value, int count> struct Registers {
#if defined(__CUDA_ARCH__)
  Value own[count];
  __device__ Value& operator()(unsigned, int i) { return own[i]; }
  __device__ const Value& operator()(unsigned, int i) const { return own[i]; }
#else
  Value all[warp_threads][count];
  SHARDWRIGHT_FUNCTION Value& operator()(unsigned thread, int i) { return all[thread][i]; }
  SHARDWRIGHT_FUNCTION const Value& operator()(unsigned thread, int i) const { return all[thread][i]; }
#endif
};

/// body(thread) for every thread of the warp: the calling one on a device.
template <class Body> SHARDWRIGHT_FUNCTION inline void each_thread(const Body& body) {
#if defined(__CUDA_ARCH__)
  body(threadIdx.x % static_cast<unsigned>(warp_threads));
#else
  for (unsigned thread = 0; thread < warp_threads; ++thread)
    body(thread);
#endif
}

template <class Value, int count>
SHARDWRIGHT_FUNCTION inline void set_registers(Registers<Value, count>& registers, Value value) {
  each_thread([&](unsigned thread) {
    SHARDWRIGHT_UNROLL for (int i = 0; i < count; ++i) registers(thread, i) = value;
  });
}

/// Combines each register over the four threads that share a row.
template <int count, class Combine>
SHARDWRIGHT_FUNCTION inline void combine_rows(Registers<float, count>& registers, const Combine& combine) {
  SHARDWRIGHT_UNROLL for (unsigned distance = 1; distance <= 2; distance *= 2) {
#if defined(__CUDA_ARCH__)
    SHARDWRIGHT_UNROLL for (int i = 0; i < count; ++i) {
      float& own = registers.own[i];
      own = combine(own, __shfl_xor_sync(0xffffffffu, own, static_cast<int>(distance)));
    }
#else
    const Registers<float, count> before = registers;
    each_thread([&](unsigned thread) {
      for (int i = 0; i < count; ++i)
        registers(thread, i) = combine(before(thread, i), before(thread ^ distance, i));
    });
#endif
  }
}

/// 2^x with results below the normal range as zero.
SHARDWRIGHT_FUNCTION inline float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  return power_of_two_of(x);
#else
  return x < -126.0f ? 0.0f : std::exp2(x);
#endif
}

/// The first register of one matrix in an array of them.
template <class Value, int count> struct RegistersFrom {
  Registers<Value, count>& registers;
  int first;
  SHARDWRIGHT_FUNCTION Value& operator()(unsigned thread, int i) const {
    return registers(thread, first + i);
  }
};
template <class Value, int count> RegistersFrom(Registers<Value, count>&, int) -> RegistersFrom<Value, count>;

/// C += A B for A [16, 16], B [16, 8] and C [16, 8] of floats, in 4, 2 and 4 registers of each thread.
///
/// With g = thread / 4 and t = thread % 4: register 0 of A is (row g, columns 2t, 2t + 1), register 1 is of
/// row g + 8, registers 2 and 3 are 8 columns further; register 0 of B is (rows 2t, 2t + 1, column g),
/// register 1 is 8 rows further; registers 0, 1 of C are (row g, columns 2t, 2t + 1), 2, 3 are of row g + 8.
template <class Element, int c_count, int a_count, int b_count>
SHARDWRIGHT_FUNCTION inline void add_product(const RegistersFrom<float, c_count>& c,
                                             const RegistersFrom<std::uint32_t, a_count>& a,
                                             const RegistersFrom<std::uint32_t, b_count>& b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<Element, bfloat16>)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c(0, 0)), "+f"(c(0, 1)), "+f"(c(0, 2)), "+f"(c(0, 3))
                 : "r"(a(0, 0)), "r"(a(0, 1)), "r"(a(0, 2)), "r"(a(0, 3)), "r"(b(0, 0)), "r"(b(0, 1)));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c(0, 0)), "+f"(c(0, 1)), "+f"(c(0, 2)), "+f"(c(0, 3))
                 : "r"(a(0, 0)), "r"(a(0, 1)), "r"(a(0, 2)), "r"(a(0, 3)), "r"(b(0, 0)), "r"(b(0, 1)));
#else
  float left[16][16];
  float right[16][8];
  each_thread([&](unsigned thread) {
    const unsigned g = thread / 4;
    const unsigned t = thread % 4;
    for (int i = 0; i < 8; ++i)
      left[g + (i / 2 % 2 == 0 ? 0 : 8)][2 * t + static_cast<unsigned>(i % 2) + (i < 4 ? 0 : 8)] =
          unpacked<Element>(a(thread, i / 2), i % 2);
    for (int i = 0; i < 4; ++i)
      right[2 * t + static_cast<unsigned>(i % 2) + (i < 2 ? 0 : 8)][g] =
          unpacked<Element>(b(thread, i / 2), i % 2);
  });
  each_thread([&](unsigned thread) {
    for (int i = 0; i < 4; ++i) {
      const unsigned row = thread / 4 + (i < 2 ? 0 : 8);
      const unsigned column = thread % 4 * 2 + static_cast<unsigned>(i % 2);
      float sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += left[row][k] * right[k][column];
      c(thread, i) += sum;
    }
  });
#endif
}

/// Four matrices [8, 8] of 16-bit elements from shared memory; thread i has the address of row i % 8 of
/// matrix i / 8. Register m is of matrix m: row thread / 4, columns 2 (thread % 4) and the next; or with
/// `transposed` rows 2 (thread % 4) and the next, column thread / 4.
template <bool transposed, class Address, int count>
SHARDWRIGHT_FUNCTION inline void load_matrices(const RegistersFrom<std::uint32_t, count>& to,
                                               const Address& address) {
#if defined(__CUDA_ARCH__)
  const auto from = static_cast<unsigned>(
      __cvta_generic_to_shared(address(threadIdx.x % static_cast<unsigned>(warp_threads))));
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to(0, 0)), "=r"(to(0, 1)), "=r"(to(0, 2)), "=r"(to(0, 3))
                 : "r"(from));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to(0, 0)), "=r"(to(0, 1)), "=r"(to(0, 2)), "=r"(to(0, 3))
                 : "r"(from));
#else
  each_thread([&](unsigned thread) {
    for (unsigned m = 0; m < 4; ++m) {
      std::uint32_t word = 0;
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned row = transposed ? thread % 4 * 2 + i : thread / 4;
        const unsigned column = transposed ? thread / 4 : thread % 4 * 2 + i;
        word |= static_cast<std::uint32_t>(address(8 * m + row)[column].bits()) << (16 * i);
      }
      to(thread, static_cast<int>(m)) = word;
    }
  });
#endif
}

/// A tile [rows, dim] in shared memory. Rows are padded by 16 bytes, so that the eight rows of a matrix are
/// in different banks: dim is a multiple of 16.
template <class Element, int dim> struct SharedTile {
  static constexpr int stride = dim + 8;
  Element* data;

  [[nodiscard]] static constexpr std::size_t bytes(int rows) {
    return static_cast<std::size_t>(rows * stride) * sizeof(Element);
  }
  /// The left factor [16, 16] from (row, column).
  template <int count>
  SHARDWRIGHT_FUNCTION void load_left(const RegistersFrom<std::uint32_t, count>& to, int row,
                                      int column) const {
    load_matrices<false>(to, [&](unsigned thread) { return rows_first(thread, row, column); });
  }
  /// Two right factors [16, 8] that are the transposes of rows: their columns are the tile's rows from `row`
  /// on, 8 for each, their rows its columns from `column` on.
  template <int count>
  SHARDWRIGHT_FUNCTION void load_right_of_rows(const RegistersFrom<std::uint32_t, count>& to, int row,
                                               int column) const {
    load_matrices<false>(to, [&](unsigned thread) {
      const int t = static_cast<int>(thread);
      return data + (row + t % 8 + t / 16 * 8) * stride + column + t / 8 % 2 * 8;
    });
  }
  /// Two right factors [16, 8] without transposition, from (row, column) and 8 columns further.
  template <int count>
  SHARDWRIGHT_FUNCTION void load_right(const RegistersFrom<std::uint32_t, count>& to, int row,
                                       int column) const {
    load_matrices<true>(to, [&](unsigned thread) { return rows_first(thread, row, column); });
  }

private:
  SHARDWRIGHT_FUNCTION Element* rows_first(unsigned thread, int row, int column) const {
    const int t = static_cast<int>(thread);
    return data + (row + t % 16) * stride + column + t / 16 * 8;
  }
};

/// Starts to copy `rows` rows of a matrix into a tile, by all `warps` of a block; rows from `count` on and
/// columns from `columns` on become zero. Rows begin at multiples of 16 bytes and `columns` is a multiple of
/// 8. Each thread copies one column, in rows at a fixed distance.
template <int rows, int warps, class Block, class Element, int dim>
SHARDWRIGHT_FUNCTION inline void copy_tile(const Block& block, SharedTile<Element, dim> tile,
                                           const Element* from, std::size_t stride, std::size_t count,
                                           std::size_t columns) {
  constexpr int pieces = dim / 8; // of 16 bytes
  constexpr int at_once = warps * static_cast<int>(warp_threads) / pieces;
  static_assert(at_once * pieces == warps * static_cast<int>(warp_threads) && rows % at_once == 0);
  each_thread([&](unsigned thread) {
    const unsigned i = block.warp() * static_cast<unsigned>(warp_threads) + thread;
    const unsigned first = i / pieces;
    const unsigned column = i % pieces * 8;
    const auto end = column < columns ? static_cast<unsigned>(count) : 0u;
    Element* const to = tile.data + first * tile.stride + column;
    const std::size_t offset = first * stride + column;
    SHARDWRIGHT_UNROLL for (unsigned row = 0; row < rows; row += at_once) {
      const bool inside = first + row < end;
      block.template copy<16>(to + row * tile.stride, inside ? from + offset + row * stride : from, inside);
    }
  });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
