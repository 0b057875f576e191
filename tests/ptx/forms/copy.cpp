// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies to shared memory, in groups: PTX ISA 9.0, section 9.7.9.25.3.
#include <algorithm>
#include <cstring>

#include "../run/access.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

// Of a copy: from[0] + immediate is the address to write, from[1] + target that to read, `mode` the bytes to
// write and from[2] a row of the bytes to read, after which zeros follow.

void arrive(Warp& warp, const PendingCopy& copy) {
  std::byte* const to = warp.block.shared + copy.to;
  if (copy.from_bytes != 0)
    std::memcpy(to, reinterpret_cast<const std::byte*>(copy.from), copy.from_bytes);
  std::memset(to + copy.from_bytes, 0, copy.bytes - copy.from_bytes);
}

/// A copy that reads fewer bytes than it writes is checked byte by byte.
void check_partial(Warp& warp, unsigned lane, std::uint64_t from, std::uint32_t from_bytes,
                   std::uint32_t bytes) {
  Access access;
  access.space = Space::global;
  access.bytes = 1;
  access.reads = true;
  if (from_bytes != 0 && from % bytes != 0)
    warp.fail(FaultKind::alignment,
              "the address " + hexadecimal(from) + " of lane " + std::to_string(lane) +
                  " is no multiple of the " + std::to_string(bytes) + " bytes of this copy.",
              bit(lane));
  Instruction byte; // whose address is a scratch row's
  for (std::uint32_t i = 0; i < from_bytes; ++i) {
    std::uint64_t* const row = warp.row<std::uint64_t>(warp.program.scratch);
    row[lane] = from + i;
    byte.from[0] = warp.program.scratch;
    Checked(warp, byte, bit(lane), access).note(lane);
  }
}

void copy(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t bytes = in.mode;
  Access write;
  write.space = Space::shared;
  write.bytes = bytes;
  write.writes = write.pending = true;
  Checked to(warp, in, lanes, write);
  Access read;
  read.space = Space::global;
  read.bytes = bytes;
  read.reads = true;
  Instruction source = in;
  source.from[0] = in.from[1];
  source.immediate = static_cast<std::int32_t>(in.target);
  source.flags = 0;
  const std::uint32_t* const from_bytes = warp.row<std::uint32_t>(in.from[2]);
  const std::uint32_t whole = lanes_where(lanes, [&](unsigned lane) { return from_bytes[lane] >= bytes; });
  std::uint64_t from[warp_lanes];
  compute_addresses(warp, source, lanes, from);
  if (whole != 0) {
    Checked checked(warp, source, whole, read);
    for_lanes(whole, [&](unsigned lane) { checked.note(lane); });
  }
  for_lanes(lanes, [&](unsigned lane) {
    if (from_bytes[lane] > bytes)
      warp.fail(FaultKind::bounds,
                "a copy of " + std::to_string(bytes) + " bytes reads " + std::to_string(from_bytes[lane]) +
                    ".",
                bit(lane));
    if ((whole & bit(lane)) == 0)
      check_partial(warp, lane, from[lane], from_bytes[lane], bytes);
    to.note(lane);
    const PendingCopy pending{lane,
                              warp.groups[lane],
                              bytes,
                              from_bytes[lane],
                              static_cast<std::size_t>(to.memory(lane) - warp.block.shared),
                              from[lane],
                              warp.at};
    if (warp.launched.options.arrival == Arrival::at_issue)
      arrive(warp, pending);
    warp.copies.push_back(pending);
  });
}

void commit(Warp& warp, const Instruction&, std::uint32_t lanes) {
  for_lanes(lanes, [&](unsigned lane) { ++warp.groups[lane]; });
}

/// Waits for all groups of a lane but the last `immediate` ones.
void wait(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto open = static_cast<std::uint32_t>(in.immediate);
  const auto covered = [&](const PendingCopy& copy) {
    return (lanes & bit(copy.lane)) != 0 && copy.group + open < warp.groups[copy.lane];
  };
  Races* const races = warp.launched.races.get();
  Races::Access arrived{.block = warp.block.number, .warp = warp.index, .write = true};
  if (races != nullptr)
    races->begin(arrived);
  for (const PendingCopy& copy : warp.copies) {
    if (!covered(copy))
      continue;
    if (warp.launched.options.arrival == Arrival::at_wait)
      arrive(warp, copy);
    arrived.instruction = copy.instruction;
    arrived.bytes = copy.bytes;
    if (races != nullptr)
      races->settle(arrived, copy.lane, copy.to);
  }
  std::erase_if(warp.copies, covered);
}

void wait_all(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  commit(warp, in, lanes);
  wait(warp, in, lanes);
}

void build_async(Build& build) {
  if (build.words.take("commit_group"))
    return build.emit(commit);
  if (build.words.take("wait_all"))
    return build.emit(wait_all);
  if (build.words.take("wait_group")) {
    build.out.immediate = static_cast<std::int64_t>(build.operand(0).number.integer);
    return build.emit(wait);
  }
  build.words.take_one_of({"ca", "cg"});
  build.words.take_one_of({"L2::64B", "L2::128B", "L2::256B"});
  if (build.words.take_one_of({"shared", "shared::cta"}).empty() || !build.words.take("global"))
    build.unsupported("a copy goes from .global to .shared");
  const std::uint64_t bytes = build.operand(2).number.integer;
  if (bytes != 4 && bytes != 8 && bytes != 16)
    build.unsupported("a copy has 4, 8 or 16 bytes");
  build.address(1, Space::global);
  build.out.from[1] = build.out.from[0];
  build.out.target = static_cast<std::uint32_t>(build.out.immediate);
  if (build.out.flags != 0)
    build.unsupported("the address to read has 64 bits");
  build.address(0, Space::shared);
  build.out.mode = static_cast<std::uint8_t>(bytes);
  build.out.from[2] = build.count() > 3 ? build.from(3, Type::u32) : build.decoder.constant(bytes, 32);
  build.emit(copy);
}

} // namespace

void build_copy(Build& build) {
  if (!build.words.take("async"))
    build.unsupported("it knows only cp.async");
  build_async(build);
}

} // namespace ptx
