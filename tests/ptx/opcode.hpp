// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The opcodes that the interpreter knows: the first word of an instruction.

#include <cstdint>
#include <optional>
#include <string_view>

namespace ptx {

// clang-format off
/// @brief Named as in the PTX ISA, with an underscore where C++ has the word for itself.
enum class Opcode : std::uint16_t {
  // Integers, logic and bits
  add, addc, sub, subc, mul, mul24, mad, mad24, madc, sad, div, rem, abs, neg, min, max, and_, or_,
  xor_, not_, cnot, lop3, shl, shr, shf, popc, clz, brev, bfind, bfe, bfi, bmsk, szext, fns, prmt,
  dp4a, dp2a,
  // Floating point
  fma, rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, copysign, testp,
  // Comparison, selection, movement and conversion
  setp, set, selp, slct, mov, cvt, cvta, isspacep,
  // Memory
  ld, ldu, st, atom, red, cp, prefetch, prefetchu, applypriority, discard, fence, membar,
  // Warps, matrices and blocks
  shfl, vote, match, redux, activemask, elect, mma, ldmatrix, stmatrix, movmatrix, bar, barrier,
  // Control
  bra, brx, call, ret, exit, trap, brkpt, nanosleep, griddepcontrol, pmevent,
};
// clang-format on

/// @brief The opcode of a first word, such as `add`; nothing if there is none.
std::optional<Opcode> opcode(std::string_view word);

/// @brief The word of an opcode.
std::string_view name(Opcode);

} // namespace ptx
