// SPDX-License-Identifier: Apache-2.0
#include "opcode.hpp"

#include <array>
#include <cstddef>

namespace ptx {

namespace {

constexpr std::array words = {
    "add",
    "addc",
    "sub",
    "subc",
    "mul",
    "mul24",
    "mad",
    "mad24",
    "madc",
    "sad",
    "div",
    "rem",
    "abs",
    "neg",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "not",
    "cnot",
    "lop3",
    "shl",
    "shr",
    "shf",
    "popc",
    "clz",
    "brev",
    "bfind",
    "bfe",
    "bfi",
    "bmsk",
    "szext",
    "fns",
    "prmt",
    "dp4a",
    "dp2a",
    "fma",
    "rcp",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "lg2",
    "ex2",
    "tanh",
    "copysign",
    "testp",
    "setp",
    "set",
    "selp",
    "slct",
    "mov",
    "cvt",
    "cvta",
    "isspacep",
    "ld",
    "ldu",
    "st",
    "atom",
    "red",
    "cp",
    "prefetch",
    "prefetchu",
    "applypriority",
    "discard",
    "fence",
    "membar",
    "shfl",
    "vote",
    "match",
    "redux",
    "activemask",
    "elect",
    "mma",
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "bar",
    "barrier",
    "bra",
    "brx",
    "call",
    "ret",
    "exit",
    "trap",
    "brkpt",
    "nanosleep",
    "griddepcontrol",
    "pmevent",
};
static_assert(words.size() == static_cast<std::size_t>(Opcode::pmevent) + 1);

} // namespace

std::optional<Opcode> opcode(std::string_view word) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (word == words[i])
      return static_cast<Opcode>(i);
  return std::nullopt;
}

std::string_view name(Opcode opcode) { return words[static_cast<std::size_t>(opcode)]; }

} // namespace ptx
