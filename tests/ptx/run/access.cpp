// SPDX-License-Identifier: Apache-2.0
#include "access.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace ptx {

namespace {

const char* action(const Access& access) {
  return access.reads && access.writes ? "atomic access" : access.writes ? "store" : "load";
}

} // namespace

void compute_addresses(Warp& warp, const Instruction& in, std::uint32_t lanes, std::uint64_t* out) {
  const auto offset = static_cast<std::uint64_t>(in.immediate);
  if ((in.flags & flag::narrow_address) != 0) {
    const std::uint32_t* const base = warp.row<std::uint32_t>(in.from[0]);
    assign_lanes(out, lanes, [=](unsigned lane) { return base[lane] + offset; });
  } else {
    const std::uint64_t* const base = warp.row<std::uint64_t>(in.from[0]);
    assign_lanes(out, lanes, [=](unsigned lane) { return base[lane] + offset; });
  }
}

Checked::Checked(Warp& warp, const Instruction& in, std::uint32_t lanes, const Access& access)
    : warp_(warp), access_(access) {
  compute_addresses(warp, in, lanes, addresses_.given);
  check_alignment(lanes);
  resolve(lanes, access.space);
  notes_ = warp.launched.races != nullptr && (shared_lanes_ | global_lanes_) != 0;
  if (!notes_)
    return;
  race_.block = warp.block.number;
  race_.warp = warp.index;
  race_.instruction = warp.at;
  race_.bytes = access.bytes;
  race_.read = access.reads;
  race_.write = access.writes;
  race_.pending = access.pending;
  race_.strength = access.strength;
  warp.launched.races->begin(race_);
}

void Checked::check_alignment(std::uint32_t lanes) const {
  std::uint64_t all = 0;
  for_lanes(lanes, [&](unsigned lane) { all |= addresses_.given[lane]; });
  if ((all & (access_.bytes - 1)) == 0)
    return;
  const std::uint32_t wrong =
      lanes_where(lanes, [&](unsigned lane) { return (addresses_.given[lane] & (access_.bytes - 1)) != 0; });
  const auto first = static_cast<unsigned>(std::countr_zero(wrong));
  warp_.fail(FaultKind::alignment,
             "the address " + hexadecimal(addresses_.given[first]) + " of lane " + std::to_string(first) +
                 " is no multiple of the " + std::to_string(access_.bytes) + " bytes of this " +
                 action(access_) + ".",
             wrong);
}

void Checked::resolve(std::uint32_t lanes, Space space) {
  const Launched& launched = warp_.launched;
  switch (space) {
  case Space::generic:
    return resolve_generic(lanes);
  case Space::global:
  case Space::constant:
    return resolve_global(lanes);
  case Space::shared:
    shared_lanes_ |= lanes;
    return resolve_window(lanes, warp_.block.shared, warp_.block.shared_bytes, 0,
                          "shared memory of the block");
  case Space::local:
    return resolve_window(lanes, warp_.local, warp_.program.local_bytes, warp_.program.local_bytes,
                          "local memory of the thread");
  case Space::parameter:
    if (access_.writes)
      warp_.fail(FaultKind::read_only, "a store to the parameters of the kernel.", lanes);
    return resolve_window(lanes, static_cast<std::byte*>(const_cast<void*>(launched.launch.parameters)),
                          warp_.program.parameter_bytes, 0, "parameters of the kernel");
  }
}

/// A window begins at address 0 of its space.
void Checked::resolve_window(std::uint32_t lanes, std::byte* base, std::size_t extent, std::size_t stride,
                             const char* what) {
  std::uint64_t highest = 0;
  for_lanes(lanes, [&](unsigned lane) { highest = std::max(highest, addresses_.given[lane]); });
  if (highest > extent || extent - highest < access_.bytes) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes_where(lanes, [&](unsigned candidate) {
      return addresses_.given[candidate] > extent || extent - addresses_.given[candidate] < access_.bytes;
    })));
    const std::uint64_t offset = addresses_.given[lane];
    warp_.fail(FaultKind::bounds,
               "the " + std::string(action(access_)) + " of lane " + std::to_string(lane) +
                   " reaches bytes " + std::to_string(offset) + " to " +
                   std::to_string(offset + access_.bytes) + " of the " + what + ", which has " +
                   std::to_string(extent) + ".",
               bit(lane));
  }
  for_lanes(lanes,
            [&](unsigned lane) { addresses_.memory[lane] = base + lane * stride + addresses_.given[lane]; });
  if (warp_.block.shared_written && base == warp_.block.shared)
    check_written(lanes);
}

/// A generic address lies in shared, local or parameter memory if it lies in their windows, and else in
/// global memory.
void Checked::resolve_generic(std::uint32_t lanes) {
  const auto inside = [&](const void* base, std::size_t extent) {
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    return lanes_where(lanes, [&](unsigned lane) { return addresses_.given[lane] - begin < extent; });
  };
  const auto enter = [&](std::uint32_t group, Space space, const void* base, std::size_t stride) {
    for_lanes(group, [&](unsigned lane) {
      addresses_.given[lane] -= reinterpret_cast<std::uintptr_t>(base) + lane * stride;
    });
    resolve(group, space);
  };
  if (const std::uint32_t group = inside(warp_.block.shared, warp_.block.shared_bytes); group != 0) {
    enter(group, Space::shared, warp_.block.shared, 0);
    lanes &= ~group;
  }
  const std::size_t local_bytes = warp_.program.local_bytes;
  if (const std::uint32_t group = local_bytes == 0 ? 0 : inside(warp_.local, local_bytes * warp_lanes);
      group != 0) {
    enter(group, Space::local, warp_.local, local_bytes);
    lanes &= ~group;
  }
  const void* const parameters = warp_.launched.launch.parameters;
  if (const std::uint32_t group = inside(parameters, warp_.program.parameter_bytes); group != 0) {
    enter(group, Space::parameter, parameters, 0);
    lanes &= ~group;
  }
  if (lanes != 0)
    resolve_global(lanes);
}

void Checked::resolve_global(std::uint32_t lanes) {
  std::uint64_t lowest = ~std::uint64_t{0}, highest = 0;
  for_lanes(lanes, [&](unsigned lane) {
    lowest = std::min(lowest, addresses_.given[lane]);
    highest = std::max(highest, addresses_.given[lane]);
    addresses_.memory[lane] = reinterpret_cast<std::byte*>(addresses_.given[lane]);
  });
  global_lanes_ |= lanes;
  if (access_.space != Space::constant) {
    const std::uint64_t bytes = std::uint64_t{access_.bytes} * static_cast<unsigned>(std::popcount(lanes));
    warp_.launched.statistics.bytes_read += access_.reads ? bytes : 0;
    warp_.launched.statistics.bytes_written += access_.writes ? bytes : 0;
  }
  const Memory::Block*& last = warp_.launched.last_block;
  const std::uint64_t span = highest - lowest + access_.bytes;
  const auto settle = [&](const Memory::Block& block, std::uint32_t group) {
    if (access_.writes && block.read_only)
      warp_.fail(FaultKind::read_only, "a store to " + block.label + ", which is constant.", group);
    if (block.written != nullptr)
      check_written(group);
  };
  if (last == nullptr || !last->holds(lowest, span))
    last = warp_.launched.memory.find(lowest, span);
  if (last != nullptr)
    return settle(*last, lanes);
  for_lanes(lanes, [&](unsigned lane) {
    last = warp_.launched.memory.find(addresses_.given[lane], access_.bytes);
    if (last == nullptr)
      fail_bounds(lane);
    settle(*last, bit(lane));
  });
}

void Checked::fail_bounds(unsigned lane) const {
  const std::uint64_t address = addresses_.given[lane];
  const Memory& memory = warp_.launched.memory;
  const bool freed = memory.was_freed(address);
  warp_.fail(freed ? FaultKind::freed : FaultKind::bounds,
             "the " + std::string(action(access_)) + " of " + std::to_string(access_.bytes) + " bytes at " +
                 hexadecimal(address) + " by lane " + std::to_string(lane) +
                 (freed ? " touches freed memory: " : " lies in no block: ") +
                 memory.describe(address, access_.bytes) + ".",
             bit(lane));
}

void Checked::check_written(std::uint32_t lanes) {
  const bool reports = warp_.launched.options.uninitialized && access_.reads;
  const bool in_shared = (shared_lanes_ & lanes) != 0;
  for_lanes(lanes, [&](unsigned lane) {
    std::byte* const at = addresses_.memory[lane];
    std::uint8_t* const flags =
        in_shared ? warp_.block.shared_written.get() + (at - warp_.block.shared)
                  : warp_.launched.last_block->written.get() +
                        (reinterpret_cast<std::uintptr_t>(at) - warp_.launched.last_block->begin);
    if (reports && std::find(flags, flags + access_.bytes, 0) != flags + access_.bytes)
      warp_.fail(FaultKind::uninitialized,
                 "lane " + std::to_string(lane) + " loads bytes of " +
                     (in_shared ? "shared memory" : warp_.launched.last_block->label) +
                     " that nothing has written.",
                 bit(lane));
    if (access_.writes)
      std::memset(flags, 1, access_.bytes);
  });
}

void Checked::note(unsigned lane, const void* value) {
  if (!notes_ || ((shared_lanes_ | global_lanes_) & bit(lane)) == 0)
    return;
  Races& races = *warp_.launched.races;
  const Races::Conflict conflict = (shared_lanes_ & bit(lane)) != 0
                                       ? races.shared(race_, lane, addresses_.given[lane])
                                       : races.global(race_, lane, addresses_.given[lane]);
  if (!conflict.found)
    return;
  const bool agrees = value != nullptr && conflict.same_instruction && conflict.was_write &&
                      std::memcmp(value, addresses_.memory[lane], access_.bytes) == 0;
  if (!agrees)
    fail_race(lane, conflict);
}

void Checked::fail_race(unsigned lane, const Races::Conflict& other) const {
  const Program::Origin& origin = warp_.program.origins[other.instruction];
  const std::string source = warp_.program.source(other.instruction);
  const bool in_shared = (shared_lanes_ & bit(lane)) != 0;
  const std::string what = other.was_pending ? "an asynchronous copy that has not been waited for"
                           : other.was_write ? "a write"
                                             : "a read";
  const std::string who =
      (other.block != warp_.block.number ? "block " + std::to_string(other.block) + ", " : "") + "warp " +
      std::to_string(other.warp) + ", lane " + std::to_string(other.lane) +
      (other.several ? " and others" : "");
  warp_.fail(FaultKind::race,
             "lane " + std::to_string(lane) + (access_.writes ? " writes " : " reads ") +
                 (in_shared ? "shared" : "global") + " memory at " + hexadecimal(addresses_.given[lane]) +
                 " in a race with " + what + " by " + who + ": `" + warp_.program.text(other.instruction) +
                 "` of PTX line " + std::to_string(origin.line) + (source.empty() ? "" : ", " + source) +
                 ". Nothing orders the two.",
             bit(lane));
}

} // namespace ptx
