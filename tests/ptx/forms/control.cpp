// SPDX-License-Identifier: Apache-2.0
// Control flow and barriers: PTX ISA 9.0, sections 9.7.12 and 9.7.13.1.
#include "../run/block.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

void nothing(Warp&, const Instruction&, std::uint32_t) {}

/// Whoever sleeps waits for something.
void sleep(Warp& warp, const Instruction&, std::uint32_t) { ++warp.launched.polls; }

void trap(Warp& warp, const Instruction&, std::uint32_t lanes) {
  warp.fail(FaultKind::trap, "the kernel gives up with a trap.", lanes);
}

void branch(Build& build) {
  build.words.take("uni");
  build.decoder.refer_to_label(build.operand(0).name,
                               static_cast<std::uint32_t>(build.decoder.program.code.size()));
  build.emit(nothing, Flow::branch);
}

void branch_by_table(Build& build) {
  if (!build.words.take("idx"))
    build.unsupported("it knows only brx.idx");
  build.words.take("uni");
  const std::vector<std::string_view>& labels = build.decoder.branch_targets(build.operand(1).name);
  build.out.from[0] = build.from(0, Type::u32);
  build.out.immediate = static_cast<std::int64_t>(labels.size());
  build.list(std::vector<Slot>(labels.size()));
  for (std::size_t i = 0; i < labels.size(); ++i)
    build.decoder.refer_to_label_in_list(labels[i], build.out.list + static_cast<std::uint32_t>(i));
  build.emit(nothing, Flow::branch_table);
}

void leave(Build& build) {
  build.words.take("uni");
  if (build.decoder.in_kernel)
    return build.emit(nothing, Flow::exit);
  build.out.from[0] = build.decoder.return_to;
  build.emit(nothing, Flow::ret);
}

/// from[0] is the barrier, from[1] the threads (0: all), from[2] a predicate to reduce.
void block_barrier(Build& build) {
  build.words.take("cta");
  const std::string_view kind = build.words.take_one_of({"sync", "arrive", "red"});
  const bool aligned = build.words.take("aligned") || build.opcode == Opcode::bar;
  build.out.flags =
      static_cast<std::uint8_t>((aligned ? flag::aligned : 0) | (kind == "arrive" ? flag::arrives_only : 0));
  build.out.from[1] = build.decoder.constant(0, 32);
  if (kind.empty())
    build.unsupported("it must be .sync, .arrive or .red");
  if (kind != "red") {
    build.out.from[0] = build.from(0, Type::u32);
    if (build.count() > 1)
      build.out.from[1] = build.from(1, Type::u32);
    return build.emit(nothing, Flow::barrier);
  }
  const std::string_view word = build.words.take_one_of({"popc", "and", "or"});
  build.out.mode = static_cast<std::uint8_t>(word == "popc"  ? Reduction::popc
                                             : word == "and" ? Reduction::all
                                                             : Reduction::any);
  build.out.to = build.to(0, build.type());
  build.out.from[0] = build.from(1, Type::u32);
  if (build.count() > 3)
    build.out.from[1] = build.from(2, Type::u32);
  build.out.from[2] = build.from(build.count() - 1, Type::pred);
  build.emit(nothing, Flow::barrier);
}

} // namespace

void build_control(Build& build) {
  switch (build.opcode) {
  case Opcode::bra:
    return branch(build);
  case Opcode::brx:
    return branch_by_table(build);
  case Opcode::ret:
    return leave(build);
  case Opcode::exit:
    return build.emit(nothing, Flow::exit);
  case Opcode::trap:
  case Opcode::brkpt:
    return build.emit(trap);
  case Opcode::nanosleep:
    build.words.take("u32");
    return build.emit(sleep);
  case Opcode::griddepcontrol:
    build.words.take_one_of({"launch_dependents", "wait"});
    return build.emit(nothing);
  case Opcode::pmevent:
    build.words.take("mask");
    return build.emit(nothing);
  case Opcode::bar:
    if (build.words.take("warp")) {
      build.words.take("sync");
      return build_warp_barrier(build);
    }
    return block_barrier(build);
  default:
    return block_barrier(build);
  }
}

} // namespace ptx
