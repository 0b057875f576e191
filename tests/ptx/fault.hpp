// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What the interpreter reports: an exception that says which instruction did what, and with whom.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace ptx {

/// @brief An extent or a position in a grid.
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;

  friend bool operator==(const Dim3&, const Dim3&) = default;
};

/// @brief The kinds of faults. Each has a test that plants it.
enum class FaultKind {
  syntax,        ///< The text is not PTX as this reader knows it.
  unsupported,   ///< An opcode, or a form of one, that the interpreter does not know.
  launch,        ///< The launch does not fit the kernel: threads, shared memory, grid.
  bounds,        ///< An access outside every block, or across the end of one.
  alignment,     ///< An address that is not a multiple of the access.
  freed,         ///< An access to a block after it was removed.
  read_only,     ///< A store to parameters or to a constant bank.
  uninitialized, ///< A load of bytes that nothing has written.
  race,          ///< Two accesses that nothing orders, one of them a write.
  mask,          ///< A lane that a mask names does not arrive, or the caller is not in its own mask.
  barrier,       ///< A barrier that part of a warp reaches, or that some warps never reach.
  convergence,   ///< An instruction of a whole warp that not all its lanes execute.
  endless,       ///< More instructions than the limit.
  trap,          ///< The instruction trap, or a brk.
  assertion,     ///< A failed assert of device code.
};

/// @brief The name of a kind, as in the enumeration.
const char* name(FaultKind);

/// @brief Such as `lane 3`, `lanes 0-15, 20` or `all lanes`.
std::string lanes_of(std::uint32_t mask);

/// @brief Such as `0x1f`.
std::string hexadecimal(std::uint64_t);

/// @brief A fault of a kernel, or of its text. what() is one paragraph with all of it.
struct Fault : std::runtime_error {
  struct Where {
    std::string kernel{};
    std::string instruction{}; ///< Its PTX text.
    unsigned line = 0;         ///< Line of the PTX text, from 1; 0: unknown.
    std::string source{};      ///< `file:line` of the source, where the PTX says so.
    Dim3 block{0, 0, 0};
    unsigned warp = 0;       ///< Of the block.
    std::uint32_t lanes = 0; ///< The lanes at fault, a bit each; 0: not while a warp ran.
  };

  Fault(FaultKind kind, std::string sentence, Where where);

  FaultKind kind;
  std::string sentence; ///< What happened and with whom.
  Where where;
};

} // namespace ptx
