// SPDX-License-Identifier: Apache-2.0
// Movement of registers and conversion of addresses: PTX ISA 9.0, sections 9.7.9.4 to 9.7.9.21.
#include <cstring>

#include "../run/block.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

template <class T> void copy_row(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  assign_lanes(warp.row<T>(in.to), lanes, [a](unsigned lane) { return a[lane]; });
}

void copy_predicate(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  warp.set_predicate(in.to, lanes, warp.predicate(in.from[0]));
}

/// The rows of the list, from the lowest bits, become one.
template <class Whole, class Part> void pack(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  constexpr unsigned parts = sizeof(Whole) / sizeof(Part);
  const Slot* const slots = warp.program.lists.data() + in.list;
  for_lanes(lanes, [&](unsigned lane) {
    Part values[parts];
    for (unsigned i = 0; i < parts; ++i)
      values[i] = warp.row<Part>(slots[i])[lane];
    std::memcpy(&warp.row<Whole>(in.to)[lane], values, sizeof values);
  });
}
template <class Whole, class Part> void unpack(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  constexpr unsigned parts = sizeof(Whole) / sizeof(Part);
  const Slot* const slots = warp.program.lists.data() + in.list;
  for_lanes(lanes, [&](unsigned lane) {
    Part values[parts];
    std::memcpy(values, &warp.row<Whole>(in.from[0])[lane], sizeof values);
    for (unsigned i = 0; i < parts; ++i)
      warp.row<Part>(slots[i])[lane] = values[i];
  });
}

/// Clocks count reads, a million cycles each, so that a loop that waits for some time soon ends.
template <class T> void read_clock(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint64_t now = warp.launched.clock += std::uint64_t{1} << 20;
  assign_lanes(warp.row<T>(in.to), lanes,
               [&](unsigned) { return static_cast<T>(in.immediate != 0 ? now >> 32 : now); });
}

void packing(Build& build, Type type) {
  const bool packs = build.operand(1).kind == Operand::Kind::list;
  const std::vector<Operand>& parts = build.operand(packs ? 1 : 0).items;
  const unsigned width = bits(type);
  if (parts.empty() || width % parts.size() != 0 || width < 32)
    build.unsupported("its parts do not make a whole");
  const Type part = bits_type(width / static_cast<unsigned>(parts.size()));
  std::vector<Slot> slots;
  for (const Operand& operand : parts)
    slots.push_back(packs ? build.from(operand, part) : build.to(operand, part));
  build.list(slots);
  if (packs)
    build.out.to = build.to(0, type);
  else
    build.out.from[0] = build.from(1, type);
  const unsigned shape = width * 100 + bits(part);
  switch (shape) {
  case 3216:
    return build.emit(packs ? pack<std::uint32_t, std::uint16_t> : unpack<std::uint32_t, std::uint16_t>);
  case 3208:
    return build.emit(packs ? pack<std::uint32_t, std::uint8_t> : unpack<std::uint32_t, std::uint8_t>);
  case 6432:
    return build.emit(packs ? pack<std::uint64_t, std::uint32_t> : unpack<std::uint64_t, std::uint32_t>);
  case 6416:
    return build.emit(packs ? pack<std::uint64_t, std::uint16_t> : unpack<std::uint64_t, std::uint16_t>);
  case 12864:
    return build.emit(packs ? pack<Bits128, std::uint64_t> : unpack<Bits128, std::uint64_t>);
  default:
    build.unsupported("its parts have no such width");
  }
}

void move(Build& build) {
  const Type type = build.type();
  const Operand& source = build.operand(1);
  if (source.kind == Operand::Kind::list || build.operand(0).kind == Operand::Kind::list)
    return packing(build, type);
  build.out.to = build.to(0, type);
  if (source.name == "%clock" || source.name == "%clock_hi" || source.name == "%globaltimer_lo" ||
      source.name == "%globaltimer_hi" || source.name == "%clock64" || source.name == "%globaltimer") {
    build.out.immediate = source.name.ends_with("_hi");
    return build.emit(bits(type) == 32 ? read_clock<std::uint32_t> : read_clock<std::uint64_t>);
  }
  build.out.from[0] = build.from(1, type);
  if (type == Type::pred)
    return build.emit(copy_predicate);
  with_width(bits(type), [&]<class T>(std::type_identity<T>) { build.emit(copy_row<T>); });
}

/// The generic address of a lane's address 0 of a space.
std::uint64_t base_of(const Warp& warp, Space space, unsigned lane) {
  switch (space) {
  case Space::shared:
    return reinterpret_cast<std::uintptr_t>(warp.block.shared);
  case Space::local:
    return reinterpret_cast<std::uintptr_t>(warp.local) + lane * warp.program.local_bytes;
  case Space::parameter:
    return reinterpret_cast<std::uintptr_t>(warp.launched.launch.parameters);
  default:
    return 0;
  }
}

void to_generic(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.row<std::uint64_t>(in.from[0]);
  assign_lanes(warp.row<std::uint64_t>(in.to), lanes,
               [&](unsigned lane) { return a[lane] + base_of(warp, static_cast<Space>(in.mode), lane); });
}
void from_generic(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.row<std::uint64_t>(in.from[0]);
  assign_lanes(warp.row<std::uint64_t>(in.to), lanes,
               [&](unsigned lane) { return a[lane] - base_of(warp, static_cast<Space>(in.mode), lane); });
}

std::size_t extent_of(const Warp& warp, Space space) {
  switch (space) {
  case Space::shared:
    return warp.block.shared_bytes;
  case Space::local:
    return warp.program.local_bytes;
  case Space::parameter:
    return warp.program.parameter_bytes;
  default:
    return 0;
  }
}

/// Global memory is what lies in no other space.
void is_in_space(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.row<std::uint64_t>(in.from[0]);
  const auto in_space = [&](Space space, unsigned lane) {
    return a[lane] - base_of(warp, space, lane) < extent_of(warp, space);
  };
  const auto space = static_cast<Space>(in.mode);
  warp.set_predicate(in.to, lanes, lanes_where(lanes, [&](unsigned lane) {
                       return space == Space::global
                                  ? !in_space(Space::shared, lane) && !in_space(Space::local, lane)
                                  : in_space(space, lane);
                     }));
}

Space take_space(Build& build) {
  const std::string_view word = build.words.take_one_of(
      {"shared", "shared::cta", "shared::cluster", "local", "global", "const", "param", "param::entry"});
  return word.starts_with("shared")  ? Space::shared
         : word == "local"           ? Space::local
         : word == "const"           ? Space::constant
         : word.starts_with("param") ? Space::parameter
                                     : Space::global;
}

void convert_address(Build& build) {
  const bool to_space = build.words.take("to");
  const Space space = take_space(build);
  if (bits(build.type()) != 64)
    build.unsupported("generic addresses have 64 bits");
  build.out.mode = static_cast<std::uint8_t>(space);
  build.out.to = build.to(0, Type::u64);
  build.out.from[0] = build.from(1, Type::u64);
  if (space == Space::global || space == Space::constant)
    return build.emit(copy_row<std::uint64_t>);
  build.emit(to_space ? from_generic : to_generic);
}

} // namespace

void build_move(Build& build) {
  if (build.opcode == Opcode::mov)
    return move(build);
  if (build.opcode == Opcode::cvta)
    return convert_address(build);
  build.out.mode = static_cast<std::uint8_t>(take_space(build));
  if (static_cast<Space>(build.out.mode) == Space::constant)
    build.unsupported("constant banks lie in global memory here");
  build.out.to = build.to(0, Type::pred);
  build.out.from[0] = build.from(1, Type::u64);
  build.emit(is_in_space);
}

} // namespace ptx
