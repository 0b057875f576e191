// SPDX-License-Identifier: Apache-2.0
#include "fault.hpp"

#include <array>
#include <cstddef>
#include <sstream>
#include <utility>

namespace ptx {

namespace {

constexpr std::array names = {"syntax",  "unsupported", "launch",        "bounds", "alignment",
                              "freed",   "read_only",   "uninitialized", "race",   "mask",
                              "barrier", "convergence", "endless",       "trap",   "assertion"};
static_assert(names.size() == static_cast<std::size_t>(FaultKind::assertion) + 1);

std::string paragraph(FaultKind kind, const std::string& sentence, const Fault::Where& where) {
  std::string text = "ptx: " + std::string(name(kind)) + ": " + sentence;
  if (!where.instruction.empty())
    text += "\n  instruction: " + where.instruction;
  if (where.line != 0)
    text += "\n  PTX line: " + std::to_string(where.line);
  if (!where.source.empty())
    text += "\n  source: " + where.source;
  if (!where.kernel.empty())
    text += "\n  kernel: " + where.kernel;
  if (where.lanes != 0)
    text += "\n  block (" + std::to_string(where.block.x) + ", " + std::to_string(where.block.y) + ", " +
            std::to_string(where.block.z) + "), warp " + std::to_string(where.warp) + ", " +
            lanes_of(where.lanes);
  return text;
}

} // namespace

std::string lanes_of(std::uint32_t mask) {
  if (mask == ~0U)
    return "all lanes";
  std::string text;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0)
      continue;
    unsigned last = lane;
    while (last < 31 && (mask >> (last + 1) & 1) != 0)
      ++last;
    text += text.empty() ? "" : ", ";
    text += std::to_string(lane);
    if (last > lane)
      text.append("-").append(std::to_string(last));
    lane = last;
  }
  return (text.find_first_of(",-") == std::string::npos ? "lane " : "lanes ") + text;
}

std::string hexadecimal(std::uint64_t value) {
  std::ostringstream text;
  text << "0x" << std::hex << value;
  return text.str();
}

const char* name(FaultKind kind) { return names[static_cast<std::size_t>(kind)]; }

Fault::Fault(FaultKind given_kind, std::string given_sentence, Where given_where)
    : std::runtime_error(paragraph(given_kind, given_sentence, given_where)), kind(given_kind),
      sentence(std::move(given_sentence)), where(std::move(given_where)) {}

} // namespace ptx
