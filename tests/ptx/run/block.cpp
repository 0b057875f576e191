// SPDX-License-Identifier: Apache-2.0
#include "block.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ptx {

namespace {

constexpr std::size_t alignment = 1024;
constexpr std::byte poison{0xff}; // NaN in every format
constexpr std::uint64_t polls_until_parked = 256;
constexpr std::uint64_t longest_slice = 50'000, slice_of_polling = 500;

std::unique_ptr<std::byte[]> poisoned(std::size_t bytes) {
  std::unique_ptr<std::byte[]> storage(new std::byte[bytes + alignment]);
  std::fill_n(storage.get(), bytes + alignment, poison);
  return storage;
}

std::byte* aligned(std::byte* storage) {
  return storage + (alignment - reinterpret_cast<std::uintptr_t>(storage) % alignment) % alignment;
}

template <class T> void fill_row(std::byte* row, T value) {
  std::fill_n(reinterpret_cast<T*>(row), warp_lanes, value);
}

void fill_constants(const Program& program, std::byte* registers) {
  for (const Program::Constant& constant : program.constants) {
    std::byte* const row = registers + constant.slot;
    switch (constant.bits) {
    case 1:
      *reinterpret_cast<std::uint32_t*>(row) = constant.value != 0 ? all_lanes : 0;
      break;
    case 8:
      fill_row(row, static_cast<std::uint8_t>(constant.value));
      break;
    case 16:
      fill_row(row, static_cast<std::uint16_t>(constant.value));
      break;
    case 32:
      fill_row(row, static_cast<std::uint32_t>(constant.value));
      break;
    default:
      fill_row(row, constant.value);
      break;
    }
  }
}

Dim3 position_of(std::uint64_t number, const Dim3& grid) {
  return {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
          static_cast<unsigned>(number / grid.x / grid.y)};
}

} // namespace

Block::Block(Launched& of, std::uint64_t block_number)
    : launched(of), number(block_number), position(position_of(block_number, of.launch.grid)),
      random_(of.options.seed * 0x9e3779b97f4a7c15U + block_number) {
  const Program& program = launched.program;
  const Dim3& size = launched.launch.block;
  threads = size.x * size.y * size.z;
  const unsigned count = (threads + warp_lanes - 1) / warp_lanes;
  shared_bytes = program.dynamic_offset + launched.launch.dynamic_shared;
  shared_storage_ = poisoned(shared_bytes);
  shared = aligned(shared_storage_.get());
  if (launched.options.uninitialized)
    shared_written = std::make_unique<std::uint8_t[]>(shared_bytes);
  const std::size_t local_bytes = program.local_bytes * warp_lanes;
  if (local_bytes != 0)
    local_storage_ = poisoned(local_bytes * count);
  std::byte* const local = local_bytes != 0 ? aligned(local_storage_.get()) : nullptr;
  if (launched.races)
    launched.races->begin_block(number, count, shared_bytes);
  warps.reserve(count);
  for (unsigned warp = 0; warp < count; ++warp) {
    registers_.push_back(poisoned(program.register_bytes));
    fill_constants(program, aligned(registers_.back().get()));
    const unsigned lanes = std::min(threads - warp * warp_lanes, warp_lanes);
    warps.emplace_back(*this, warp, lanes == warp_lanes ? all_lanes : bit(lanes) - 1,
                       aligned(registers_.back().get()),
                       local == nullptr ? nullptr : local + warp * local_bytes);
    for (const Program::SpecialRow& row : program.specials)
      for (unsigned lane = 0; lane < warp_lanes; ++lane)
        warps.back().row<std::uint32_t>(row.slot)[lane] = special(row.which, warp, lane);
  }
  last_ = launched.options.order == Order::backward ? 0 : count - 1;
}

/// What a special register holds in a lane.
unsigned Block::special(Special which, unsigned warp, unsigned lane) const {
  const Dim3& size = launched.launch.block;
  const Dim3& grid = launched.launch.grid;
  const unsigned thread = warp * warp_lanes + lane;
  switch (which) {
  case Special::tid_x:
    return thread % size.x;
  case Special::tid_y:
    return thread / size.x % size.y;
  case Special::tid_z:
    return thread / size.x / size.y;
  case Special::ntid_x:
    return size.x;
  case Special::ntid_y:
    return size.y;
  case Special::ntid_z:
    return size.z;
  case Special::ctaid_x:
    return position.x;
  case Special::ctaid_y:
    return position.y;
  case Special::ctaid_z:
    return position.z;
  case Special::nctaid_x:
    return grid.x;
  case Special::nctaid_y:
    return grid.y;
  case Special::nctaid_z:
    return grid.z;
  case Special::laneid:
    return lane;
  case Special::warpid:
    return warp;
  case Special::nwarpid:
    return (threads + warp_lanes - 1) / warp_lanes;
  case Special::lanemask_eq:
    return bit(lane);
  case Special::lanemask_lt:
    return bit(lane) - 1;
  case Special::lanemask_le:
    return bit(lane) | (bit(lane) - 1);
  case Special::lanemask_gt:
    return ~(bit(lane) | (bit(lane) - 1));
  case Special::lanemask_ge:
    return ~(bit(lane) - 1);
  case Special::dynamic_smem_size:
    return static_cast<unsigned>(launched.launch.dynamic_shared);
  case Special::total_smem_size:
    return static_cast<unsigned>(shared_bytes);
  case Special::nsmid:
  case Special::one:
    return 1;
  case Special::smid:
  case Special::gridid:
  case Special::zero:
    return 0;
  }
  return 0;
}

std::uint64_t Block::slice() {
  return launched.options.order == Order::random ? 1 + random_() % 64
         : polling_                              ? slice_of_polling
                                                 : longest_slice;
}

std::size_t Block::next_warp(std::size_t last) {
  const std::size_t count = warps.size();
  const std::size_t begin = launched.options.order == Order::random     ? random_() % count
                            : launched.options.order == Order::backward ? last + count - 1
                                                                        : last + 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t warp =
        (launched.options.order == Order::backward ? begin + count - i : begin + i) % count;
    if (warps[warp].can_run())
      return warp;
  }
  return count;
}

bool Block::run() {
  const std::uint64_t polls = launched.polls;
  for (;;) {
    const std::size_t next = next_warp(last_);
    if (next == warps.size()) {
      if (std::any_of(warps.begin(), warps.end(), [](const Warp& warp) { return warp.live != 0; }))
        fail_stuck();
      if (launched.races)
        launched.races->end_block(number);
      return true;
    }
    last_ = next;
    const std::uint64_t polls_before = launched.polls;
    const std::uint64_t ran = warps[next].run(std::min(slice(), launched.budget));
    launched.statistics.warp_instructions += ran;
    launched.budget -= ran;
    polling_ =
        10 * (launched.polls - polls_before) > ran; // at least every tenth instruction looks for a change
    if (launched.budget == 0)
      warps[next].fail(FaultKind::endless,
                       "the launch has executed " + std::to_string(launched.options.limit) +
                           " warp instructions and has not ended: an endless loop, or a wait for "
                           "what never comes (if it is only long, raise Options::limit).",
                       warps[next].path_lanes);
    if (polling_ && launched.polls - polls >= polls_until_parked)
      return false;
  }
}

void Block::arrive(Warp& warp, std::uint32_t lanes, const Instruction& instruction) {
  const auto first = static_cast<unsigned>(std::countr_zero(lanes));
  const std::uint32_t id = warp.row<std::uint32_t>(instruction.from[0])[first];
  const std::uint32_t expected = warp.row<std::uint32_t>(instruction.from[1])[first];
  if (id >= barriers.size())
    warp.fail(FaultKind::barrier, "a block has barriers 0 to 15, not " + std::to_string(id) + ".", lanes);
  if (expected % warp_lanes != 0)
    warp.fail(FaultKind::barrier,
              "the threads of a barrier must be a multiple of 32, not " + std::to_string(expected) + ".",
              lanes);
  Barrier& barrier = barriers[id];
  if (!barrier.arrivals.empty() && barrier.expected != expected)
    warp.fail(FaultKind::barrier,
              "another warp waits at barrier " + std::to_string(id) + " for " +
                  std::to_string(barrier.expected) + " threads (0: all), and this one for " +
                  std::to_string(expected) + ".",
              lanes);
  barrier.expected = expected;
  const bool whole = (instruction.flags & flag::aligned) != 0 && expected != 0;
  barrier.threads += whole ? warp_lanes : static_cast<unsigned>(std::popcount(lanes));
  barrier.arrivals.push_back({&warp, lanes, &instruction, (instruction.flags & flag::arrives_only) == 0});
  open_barriers();
}

void Block::open_barriers() {
  unsigned living = 0;
  for (const Warp& warp : warps)
    living += static_cast<unsigned>(std::popcount(warp.live));
  for (Barrier& barrier : barriers)
    if (!barrier.arrivals.empty() && barrier.threads >= (barrier.expected != 0 ? barrier.expected : living))
      open(barrier);
}

void Block::open(Barrier& barrier) {
  unsigned votes = 0, voters = 0;
  std::vector<std::pair<std::uint32_t, bool>> met;
  for (const Barrier::Arrival& arrival : barrier.arrivals) {
    voters += static_cast<unsigned>(std::popcount(arrival.lanes));
    votes += static_cast<unsigned>(
        std::popcount(arrival.warp->predicate(arrival.instruction->from[2]) & arrival.lanes));
    met.emplace_back(arrival.warp->index, arrival.waits);
  }
  if (launched.races)
    launched.races->barrier(number, met);
  const std::vector<Barrier::Arrival> arrivals = std::move(barrier.arrivals);
  barrier = {};
  for (const Barrier::Arrival& arrival : arrivals) {
    const Instruction& instruction = *arrival.instruction;
    const bool all = votes == voters, any = votes != 0;
    switch (static_cast<Reduction>(instruction.mode)) {
    case Reduction::none:
      break;
    case Reduction::popc:
      assign_lanes(arrival.warp->row<std::uint32_t>(instruction.to), arrival.lanes,
                   [&](unsigned) { return votes; });
      break;
    case Reduction::all:
      arrival.warp->set_predicate(instruction.to, arrival.lanes, all ? all_lanes : 0);
      break;
    case Reduction::any:
      arrival.warp->set_predicate(instruction.to, arrival.lanes, any ? all_lanes : 0);
      break;
    }
    if (arrival.waits)
      arrival.warp->pass_barrier(arrival.lanes);
  }
}

void Block::fail_stuck() {
  std::string text;
  const Warp* waiting = nullptr;
  unsigned shown = 0;
  for (const Warp& warp : warps) {
    if (warp.live == 0 || ++shown > 4)
      continue;
    waiting = waiting == nullptr ? &warp : waiting;
    text += (text.empty() ? "warp " : "; warp ") + std::to_string(warp.index) + ": " + warp.describe_paths();
  }
  for (std::size_t id = 0; id < barriers.size(); ++id)
    if (!barriers[id].arrivals.empty())
      text += "; barrier " + std::to_string(id) + ": " + std::to_string(barriers[id].threads) +
              " threads of " + std::to_string(barriers[id].expected != 0 ? barriers[id].expected : threads);
  waiting->fail_at(
      waiting->paths.front().at, FaultKind::barrier,
      "no warp of the block can go on, since a barrier waits for threads that never come: " + text + ".",
      waiting->paths.front().lanes);
}

} // namespace ptx
