// SPDX-License-Identifier: Apache-2.0
#include "races.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace ptx {

namespace {

// How a cell packs who accessed it last.
constexpr std::uint32_t instruction_bits = 20, lane_shift = 20, strength_shift = 25;
constexpr std::uint32_t pending_flag = 1U << 27;
constexpr std::uint32_t several_flag = 1U << 28;      // more readers, none weaker than the one named
constexpr std::uint32_t several_weak_flag = 1U << 29; // one of those is not strong for every block
constexpr std::uint32_t loaded_flag = 1U << 30;       // some read came before every write

std::uint32_t pack(const Races::Access& access, unsigned lane) {
  return (access.instruction & ((1U << instruction_bits) - 1)) | lane << lane_shift |
         static_cast<std::uint32_t>(access.strength) << strength_shift | (access.pending ? pending_flag : 0);
}

std::uint32_t lane_of(std::uint32_t what) { return what >> lane_shift & 31; }
Strength strength_of(std::uint32_t what) { return static_cast<Strength>(what >> strength_shift & 3); }

/// Whether a cell keeps what it knows: of two accesses by one lane in one segment, which the same others come
/// after, the weaker one has the races of both.
bool outweighs(std::uint32_t other, std::uint32_t known, std::uint32_t mine, std::uint32_t what) {
  return other == mine && lane_of(known) == lane_of(what) && strength_of(known) < strength_of(what);
}

/// Whether a release after `since` was followed by an acquire.
bool published(const std::vector<std::uint32_t>& releases, std::uint32_t since, std::uint32_t acquired) {
  const auto release = std::upper_bound(releases.begin(), releases.end(), since);
  return release != releases.end() && *release < acquired;
}

} // namespace

struct Races::Clock {
  unsigned warps = 0;
  std::vector<std::uint32_t> seen;     // [warp][other]: the epoch of the other that the warp comes after
  std::vector<std::uint32_t> interval; // of each warp
  std::vector<std::uint32_t> segment;  // of each warp; 0: a new one is due
  std::vector<std::uint32_t> time;     // of each warp's last fence
  std::vector<Fences> fences;          // of each warp
  std::vector<Page> shared;
};

Races::Races() = default;
Races::~Races() = default;

void Races::begin_block(std::uint64_t block, unsigned warps, std::size_t shared_bytes) {
  Clock& clock = clocks_[block];
  clock.warps = warps;
  clock.seen.assign(std::size_t{warps} * warps, 0);
  for (unsigned warp = 0; warp < warps; ++warp)
    clock.seen[std::size_t{warp} * warps + warp] = 1;
  clock.interval.assign(warps, 0);
  clock.segment.assign(warps, 0);
  clock.time.assign(warps, 0);
  clock.fences.resize(warps);
  clock.shared.resize((shared_bytes >> page_shift) + 1);
}

void Races::end_block(std::uint64_t block) {
  clocks_.erase(block);
  last_block_ = ~std::uint64_t{0};
}

Races::Clock& Races::clock(std::uint64_t block) {
  if (block != last_block_) {
    last_block_ = block;
    last_clock_ = &clocks_.at(block);
  }
  return *last_clock_;
}

std::uint32_t Races::segment(Clock& clock, const Access& access) {
  std::uint32_t& current = clock.segment[access.warp];
  if (current == 0) {
    const std::size_t own = std::size_t{access.warp} * clock.warps + access.warp;
    current = static_cast<std::uint32_t>(segments_.size());
    segments_.push_back(
        {access.block, access.warp, clock.seen[own], clock.interval[access.warp], clock.time[access.warp]});
  }
  return current;
}

std::pair<Races::Cell*, unsigned> Races::cells(Page& page, std::size_t offset, unsigned bytes) {
  const auto wanted = static_cast<unsigned>(std::countr_zero(bytes));
  if (page.cells.empty()) {
    page.shift = std::min(wanted, 4U);
    page.cells.resize(std::size_t{1} << (page_shift - page.shift));
  } else if (wanted < page.shift) {
    const unsigned factor = 1U << (page.shift - wanted);
    std::vector<Cell> finer(page.cells.size() * factor);
    for (std::size_t i = 0; i < finer.size(); ++i)
      finer[i] = page.cells[i / factor];
    page.cells.swap(finer);
    page.shift = wanted;
  }
  return {page.cells.data() + (offset >> page.shift), bytes >> page.shift};
}

void Races::begin(Access& access) {
  access.clock = &clock(access.block);
  access.segment = segment(*access.clock, access);
}

bool Races::ordered(const Access& access, unsigned lane, std::uint32_t other, std::uint32_t what) {
  const bool same_lane = lane_of(what) == lane && (what & several_flag) == 0;
  if (other == access.segment)
    return same_lane;
  if (access.segment == last_mine_ && other == last_other_)
    return last_ordered_;
  const Segment& theirs = segments_[other];
  const bool same_warp = theirs.block == access.block && theirs.warp == access.warp;
  if (same_warp && theirs.interval >= access.clock->interval[access.warp])
    return same_lane;
  last_mine_ = access.segment;
  last_other_ = other;
  last_ordered_ = same_warp || ordered_between_warps(access, other);
  return last_ordered_;
}

bool Races::ordered_between_warps(const Access& access, std::uint32_t other) const {
  const Segment& theirs = segments_[other];
  const Clock& clock = *access.clock;
  if (theirs.block == access.block)
    return clock.seen[std::size_t{access.warp} * clock.warps + theirs.warp] >= theirs.epoch ||
           published(clock.fences[theirs.warp].releases, theirs.time, clock.fences[access.warp].acquired);
  const auto them = fences_.find(theirs.block), me = fences_.find(access.block);
  return them != fences_.end() && me != fences_.end() &&
         published(them->second.releases, theirs.time, me->second.acquired);
}

bool Races::races(const Access& access, unsigned lane, std::uint32_t other, std::uint32_t what) {
  if ((what & pending_flag) != 0)
    return true;
  const Strength strength = std::min(access.strength, strength_of(what));
  if (strength == Strength::device || (strength == Strength::block && segments_[other].block == access.block))
    return false;
  if (access.strength == Strength::device && (what & several_weak_flag) == 0)
    what &= ~several_flag; // they may meet this access
  return !ordered(access, lane, other, what);
}

Races::Conflict Races::conflict(const Access& access, std::uint32_t other, std::uint32_t what,
                                bool write) const {
  Conflict out;
  out.found = true;
  out.was_write = write;
  out.was_pending = (what & pending_flag) != 0;
  out.several = (what & several_flag) != 0;
  out.block = segments_[other].block;
  out.warp = segments_[other].warp;
  out.lane = lane_of(what);
  out.instruction = what & ((1U << instruction_bits) - 1);
  out.same_instruction = access.segment == other && out.instruction == access.instruction && !out.was_pending;
  return out;
}

void Races::join(Cell& cell, std::uint32_t mine, std::uint32_t what) {
  const Strength named = strength_of(cell.read_what), joins = strength_of(what);
  if (cell.read_segment == mine && lane_of(cell.read_what) == lane_of(what) && named <= joins)
    return;
  std::uint32_t flags = several_flag | (cell.read_what & several_weak_flag);
  if (std::max(named, joins) != Strength::device)
    flags |= several_weak_flag;
  if (joins < named) {
    cell.read_segment = mine;
    cell.read_what = what;
  }
  cell.read_what |= flags;
}

Races::Conflict Races::note(const Access& access, unsigned lane, Page& page, std::size_t offset) {
  const std::uint32_t mine = access.segment;
  const std::uint32_t what = pack(access, lane);
  Conflict found;
  auto [cell, count] = cells(page, offset, access.bytes);
  for (const Cell* const end = cell + count; cell != end; ++cell) {
    const std::uint32_t loaded =
        access.read && cell->write_segment == 0 ? loaded_flag : cell->read_what & loaded_flag;
    if (cell->write_segment != 0 && (cell->write_segment != mine || cell->write_what != what) &&
        races(access, lane, cell->write_segment, cell->write_what))
      found = conflict(access, cell->write_segment, cell->write_what, true);
    if (access.write) {
      if (cell->read_segment != 0 && races(access, lane, cell->read_segment, cell->read_what))
        found = conflict(access, cell->read_segment, cell->read_what, false);
      // What races with a weaker read need not race with this write.
      if (strength_of(cell->read_what) >= access.strength)
        cell->read_segment = cell->read_what = 0;
      if (!outweighs(cell->write_segment, cell->write_what, mine, what)) {
        cell->write_segment = mine;
        cell->write_what = what;
      }
    } else if (cell->read_segment == 0 || ordered(access, lane, cell->read_segment, cell->read_what)) {
      if (!outweighs(cell->read_segment, cell->read_what, mine, what)) {
        cell->read_segment = mine;
        cell->read_what = what;
      }
    } else {
      join(*cell, mine, what);
    }
    cell->read_what |= loaded;
  }
  return found;
}

Races::Conflict Races::shared(const Access& access, unsigned lane, std::size_t offset) {
  return note(access, lane, access.clock->shared[offset >> page_shift],
              offset & ((std::size_t{1} << page_shift) - 1));
}

Races::Conflict Races::global(const Access& access, unsigned lane, std::uintptr_t address) {
  const std::uintptr_t number = address >> page_shift;
  if (number != last_page_) {
    last_page_ = number;
    last_cells_ = &pages_[number];
  }
  return note(access, lane, *last_cells_, address & ((std::uintptr_t{1} << page_shift) - 1));
}

void Races::settle(const Access& access, unsigned lane, std::size_t offset) {
  const std::uint32_t what = pack(access, lane);
  auto [cell, count] = cells(access.clock->shared[offset >> page_shift],
                             offset & ((std::size_t{1} << page_shift) - 1), access.bytes);
  for (const Cell* const end = cell + count; cell != end; ++cell)
    *cell = {access.segment, what, 0, 0};
}

void Races::warp_barrier(std::uint64_t block, std::uint32_t warp) {
  Clock& of_block = clock(block);
  ++of_block.interval[warp];
  of_block.segment[warp] = 0;
}

void Races::barrier(std::uint64_t block, const std::vector<std::pair<std::uint32_t, bool>>& warps) {
  Clock& of_block = clock(block);
  const std::size_t count = of_block.warps;
  std::vector<std::uint32_t> joined(count, 0);
  for (const auto& [warp, waits] : warps)
    for (std::size_t other = 0; other < count; ++other)
      joined[other] = std::max(joined[other], of_block.seen[warp * count + other]);
  for (const auto& [warp, waits] : warps) {
    if (waits)
      std::copy(joined.begin(), joined.end(),
                of_block.seen.begin() + static_cast<std::ptrdiff_t>(warp * count));
    ++of_block.seen[warp * count + warp];
    of_block.interval[warp] += waits;
    of_block.segment[warp] = 0;
  }
}

void Races::strong_read(std::uint64_t block, std::uint32_t warp) {
  clock(block).fences[warp].looked = time_;
  fences_[block].looked = time_;
}

void Races::fence(std::uint64_t block, std::uint32_t warp, bool release, bool acquire) {
  Clock& of_block = clock(block);
  const std::uint32_t now = time_++;
  for (Fences* fences : {&of_block.fences[warp], &fences_[block]}) {
    if (release)
      fences->releases.push_back(now);
    if (acquire)
      fences->acquired = fences->looked;
  }
  of_block.time[warp] = now;
  of_block.segment[warp] = 0;
}

void Races::for_touched(const std::function<void(const Touched&)>& tell) const {
  for (const auto& [number, page] : pages_) {
    const std::uintptr_t bytes = std::uintptr_t{1} << page.shift;
    Touched run;
    for (std::size_t i = 0; i < page.cells.size(); ++i) {
      const Cell& cell = page.cells[i];
      const bool written = cell.write_segment != 0;
      if (!written && cell.read_segment == 0)
        continue;
      const std::uint32_t what = written ? cell.write_what : cell.read_what;
      const bool strong = strength_of(what) == Strength::device && (what & several_weak_flag) == 0;
      const bool loaded = (cell.read_what & loaded_flag) != 0;
      const std::uintptr_t begin = (number << page_shift) + i * bytes;
      if (begin == run.end && loaded == run.loaded && written == run.written && strong == run.strong) {
        run.end += bytes;
        continue;
      }
      if (run.end != 0)
        tell(run);
      run = {begin, begin + bytes, what & ((1U << instruction_bits) - 1), loaded, written, strong};
    }
    if (run.end != 0)
      tell(run);
  }
}

} // namespace ptx
