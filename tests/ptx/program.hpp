// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A decoded kernel: what the executor runs.
///
/// Every register of PTX has a row in the registers of a warp, with a value for each of the 32 lanes; a
/// predicate has 32 bits. Constants have rows too, so that an operand is one offset, whatever it is.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "opcode.hpp"

namespace ptx {

class Warp;
struct Instruction;

/// @brief The offset in bytes of a row.
using Slot = std::uint32_t;

/// @brief Does the work of an instruction for some lanes.
using Execute = void (*)(Warp&, const Instruction&, std::uint32_t lanes);

/// @brief Values of Instruction::flags.
namespace flag {
inline constexpr std::uint8_t aligned = 1; ///< Of a barrier: all lanes of a warp must reach it together.
inline constexpr std::uint8_t meets_others =
    2; ///< Of bar.warp.sync: lanes may wait for each other at several of them.
inline constexpr std::uint8_t arrives_only = 4;   ///< Of a barrier: the warp does not wait.
inline constexpr std::uint8_t narrow_address = 8; ///< The address is a register of 32 bits.
} // namespace flag

/// @brief What an instruction does to the paths of a warp.
enum class Flow : std::uint8_t {
  next,       ///< Nothing: the path goes on.
  collective, ///< Waits for the lanes that a mask names (from[3] is its row), as shfl.sync does.
  whole_warp, ///< Needs all 32 lanes, as mma.sync does.
  barrier,    ///< Waits for other warps.
  branch,     ///< Goes to `target`.
  branch_table,
  call,
  ret,
  exit,
};

/// @brief A decoded instruction. What the fields mean beyond their names is said where `execute` is defined.
struct Instruction {
  Execute execute = nullptr;
  Slot to = 0, to_second = 0;
  Slot from[4] = {};
  std::int64_t immediate = 0; ///< Such as the offset of an address.
  Slot guard = 0;             ///< A predicate. Lanes take part where it differs from guard_flip.
  std::uint32_t guard_flip = 0;
  std::uint32_t target = 0; ///< Of a branch or call: an instruction.
  std::uint32_t list = 0;   ///< Where the further operands begin in Program::lists.
  std::uint8_t list_size = 0;
  Flow flow = Flow::next;
  std::uint8_t mode = 0; ///< Such as a rounding.
  std::uint8_t flags = 0;
};

/// @brief A register that is not computed: every warp begins with its value.
enum class Special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z, // clang-format off
  laneid, warpid, nwarpid, smid, nsmid, gridid, lanemask_eq, lanemask_le, lanemask_lt, lanemask_ge, lanemask_gt,
  dynamic_smem_size, total_smem_size, zero, one, // clang-format on
};

struct Program {
  struct Origin {
    std::string_view text;
    unsigned line = 0;
    Opcode opcode = Opcode::mov;
    std::uint32_t file = 0, source_line = 0; ///< From .loc; file 0: none.
  };
  struct Constant {
    Slot slot;
    unsigned bits;
    std::uint64_t value;
  };
  struct SpecialRow {
    Slot slot;
    Special which;
  };

  std::string kernel;
  std::vector<Instruction> code;
  std::vector<Origin> origins; ///< Of each instruction.
  std::vector<std::uint32_t>
      sites; ///< The instructions that stand in the PTX; the others are parts of these.
  std::vector<Slot> lists;
  std::vector<std::string> strings; ///< Such as names of functions that print.
  std::vector<Constant> constants;
  std::vector<SpecialRow> specials;
  std::size_t register_bytes = 0; ///< Of a warp.
  std::uint32_t entry = 0;
  Slot scratch = 0;               ///< A row of addresses that no instruction keeps.
  std::size_t local_bytes = 0;    ///< Of a lane.
  std::size_t shared_bytes = 0;   ///< Static.
  std::size_t dynamic_offset = 0; ///< Where dynamic shared memory begins.
  std::size_t parameter_bytes = 0;
  unsigned maximum_threads = 1024;
  const std::vector<std::string>* files = nullptr; ///< By the numbers of .file; of the module.
  std::unique_ptr<std::atomic<std::uint64_t>[]>
      counts; ///< Executions of each instruction, added to by run().

  /// @brief The PTX of an instruction, white space shortened.
  std::string text(std::size_t instruction) const;

  /// @brief `file:line`, or nothing.
  std::string source(std::size_t instruction) const;
};

} // namespace ptx
