// SPDX-License-Identifier: Apache-2.0
#include "warp.hpp"

#include <algorithm>
#include <limits>

#include "block.hpp"

namespace ptx {

namespace {

constexpr std::uint64_t share = 5'000; // instructions of the lowest path before another has its turn

} // namespace

Warp::Warp(Block& of, unsigned number, std::uint32_t lanes, std::byte* register_rows, std::byte* local_memory)
    : block(of), launched(of.launched), program(of.launched.program), index(number), registers(register_rows),
      local(local_memory), live(lanes), paths{{program.entry, lanes}} {}

void Warp::fail_at(std::uint32_t instruction, FaultKind kind, const std::string& sentence,
                   std::uint32_t lanes) const {
  const Program::Origin& origin = program.origins[instruction];
  throw Fault(kind, sentence,
              {.kernel = program.kernel,
               .instruction = program.text(instruction),
               .line = origin.line,
               .source = program.source(instruction),
               .block = block.position,
               .warp = index,
               .lanes = lanes});
}

bool Warp::can_run() const {
  return std::any_of(paths.begin(), paths.end(),
                     [](const Path& path) { return path.state == Path::State::ready; });
}

void Warp::pass_barrier(std::uint32_t lanes) {
  for (Path& path : paths) {
    if (path.state != Path::State::at_barrier || (path.lanes & lanes) == 0)
      continue;
    path.state = Path::State::ready;
    ++path.at;
  }
}

void Warp::merge() {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (std::size_t j = paths.size() - 1; j > i; --j) {
      if (paths[i].at != paths[j].at || paths[i].state == Path::State::at_barrier ||
          paths[j].state == Path::State::at_barrier)
        continue;
      paths[i].lanes |= paths[j].lanes;
      paths[i].state = Path::State::ready;
      paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

std::size_t Warp::choose() {
  const auto comes_first = [this](const Path& a, const Path& b) {
    return tired_ ? a.turn < b.turn : a.at < b.at;
  };
  std::size_t best = paths.size();
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (paths[i].state == Path::State::ready && (best == paths.size() || comes_first(paths[i], paths[best])))
      best = i;
  return best;
}

std::uint64_t Warp::run(std::uint64_t most) {
  std::uint64_t done = 0;
  while (done < most && live != 0) {
    if (paths.size() > 1)
      merge();
    const std::size_t path = choose();
    if (path == paths.size()) {
      if (std::none_of(paths.begin(), paths.end(),
                       [](const Path& p) { return p.state == Path::State::at_barrier; }))
        fail_gathering();
      break;
    }
    const bool in_turn = tired_;
    const bool alone = paths.size() == 1;
    paths[path].turn = ++turn_;
    const std::uint64_t ran = run_path(path, alone ? most - done : std::min(most - done, share), in_turn);
    unbroken_ = alone || in_turn ? 0 : unbroken_ + ran;
    tired_ = unbroken_ >= share;
    done += ran;
  }
  return done;
}

std::uint32_t Warp::next_meeting(std::size_t path, std::uint32_t from) const {
  std::uint32_t next = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (i != path && paths[i].at >= from && paths[i].state != Path::State::at_barrier)
      next = std::min(next, paths[i].at);
  return next;
}

bool Warp::other_is_lower(std::size_t path, std::uint32_t than) const {
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (i != path && paths[i].at < than && paths[i].state == Path::State::ready)
      return true;
  return false;
}

std::uint64_t Warp::run_path(std::size_t path, std::uint64_t most, bool in_turn) {
  const Instruction* const code = program.code.data();
  std::uint64_t* const counts = launched.counts.get();
  std::uint32_t next = paths[path].at;
  path_lanes = paths[path].lanes;
  std::uint32_t meeting = next_meeting(path, next);
  std::uint64_t done = 0, lane_instructions = 0;
  while (done < most && next < meeting) {
    const Instruction& instruction = code[next];
    const std::uint32_t lanes = path_lanes & (predicate(instruction.guard) ^ instruction.guard_flip);
    at = next;
    ++done;
    if (instruction.flow == Flow::next) {
      ++counts[next++];
      lane_instructions += static_cast<unsigned>(std::popcount(lanes));
      if (lanes != 0)
        instruction.execute(*this, instruction, lanes);
      continue;
    }
    if (instruction.flow == Flow::branch && (lanes == 0 || lanes == path_lanes)) {
      ++counts[next];
      lane_instructions += static_cast<unsigned>(std::popcount(lanes));
      next = lanes == 0 ? next + 1 : instruction.target;
    } else {
      paths[path].at = next;
      lane_instructions += static_cast<unsigned>(std::popcount(lanes));
      const bool goes_on = flow(path, instruction, lanes);
      counts[at] += goes_on;
      if (!goes_on) {
        launched.statistics.lane_instructions += lane_instructions;
        return done;
      }
      next = paths[path].at;
      path_lanes = paths[path].lanes;
    }
    if (paths.size() > 1) {
      meeting = next_meeting(path, next);
      if (!in_turn && other_is_lower(path, next))
        break;
    }
  }
  paths[path].at = next;
  launched.statistics.lane_instructions += lane_instructions;
  return done;
}

bool Warp::flow(std::size_t path, const Instruction& instruction, std::uint32_t lanes) {
  switch (instruction.flow) {
  case Flow::collective:
    return gather(path, instruction, lanes);
  case Flow::whole_warp:
    return gather_warp(path, instruction, lanes);
  case Flow::barrier:
    return arrive(path, instruction, lanes);
  case Flow::branch:
    return jump(path, lanes, instruction.target);
  case Flow::branch_table:
    return branch_table(path, instruction, lanes);
  case Flow::call:
    for_lanes(lanes, [&](unsigned lane) { row<std::uint32_t>(instruction.to)[lane] = at + 1; });
    return jump(path, lanes, instruction.target);
  case Flow::ret:
    return jump_each(path, lanes, row<std::uint32_t>(instruction.from[0]));
  case Flow::exit:
    return exit(path, lanes);
  case Flow::next:
    break;
  }
  return true;
}

bool Warp::jump(std::size_t path, std::uint32_t lanes, std::uint32_t target) {
  const std::uint32_t staying = paths[path].lanes & ~lanes;
  if (lanes == 0 || staying == 0) {
    paths[path].at = lanes == 0 ? at + 1 : target;
    return true;
  }
  ++launched.counts[at];
  paths[path] = {at + 1, staying};
  paths.push_back({target, lanes});
  return false;
}

bool Warp::jump_each(std::size_t path, std::uint32_t lanes, const std::uint32_t* targets) {
  const std::uint32_t target = lanes == 0 ? at + 1 : targets[std::countr_zero(lanes)];
  const std::uint32_t same = lanes_where(lanes, [&](unsigned lane) { return targets[lane] == target; });
  if (same == lanes)
    return jump(path, lanes, target);
  paths[path].lanes &= ~same;
  paths.push_back({target, same});
  return false; // the others are looked at again
}

bool Warp::branch_table(std::size_t path, const Instruction& instruction, std::uint32_t lanes) {
  const std::uint32_t* const indices = row<std::uint32_t>(instruction.from[0]);
  std::uint32_t targets[warp_lanes] = {};
  for_lanes(lanes, [&](unsigned lane) {
    if (indices[lane] >= instruction.immediate)
      fail(FaultKind::bounds,
           "the index " + std::to_string(indices[lane]) + " of a branch is beyond its table of " +
               std::to_string(instruction.immediate) + " labels.",
           bit(lane));
    targets[lane] = program.lists[instruction.list + indices[lane]];
  });
  return jump_each(path, lanes, targets);
}

bool Warp::exit(std::size_t path, std::uint32_t lanes) {
  if (lanes == 0)
    return jump(path, 0, 0);
  ++launched.counts[at];
  live &= ~lanes;
  paths[path].lanes &= ~lanes;
  ++paths[path].at;
  if (paths[path].lanes == 0)
    paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(path));
  for (Path& other : paths) // none waits for lanes that are gone
    if (other.state == Path::State::gathering)
      other.state = Path::State::ready;
  block.open_barriers();
  return false;
}

/// Lets the rest of a path go on, and these lanes wait for others.
bool Warp::wait(std::size_t path, std::uint32_t waiting) {
  const std::uint32_t going_on = paths[path].lanes & ~waiting;
  paths[path] = {at, waiting, Path::State::gathering};
  if (going_on != 0)
    paths.push_back({at + 1, going_on});
  return false;
}

std::uint32_t Warp::met_elsewhere(std::size_t path, const Instruction& instruction,
                                  std::uint32_t mask) const {
  if ((instruction.flags & flag::meets_others) == 0)
    return 0;
  std::uint32_t lanes = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const Instruction& other = program.code[paths[i].at];
    if (i == path || paths[i].state != Path::State::gathering || (other.flags & flag::meets_others) == 0 ||
        other.flow != Flow::collective)
      continue;
    const std::uint32_t* const masks = row_of_mask(other);
    lanes |= lanes_where(paths[i].lanes, [&](unsigned lane) { return masks[lane] == mask; });
  }
  return lanes;
}

void Warp::release_elsewhere(std::size_t path, const Instruction& instruction, std::uint32_t mask) {
  const std::uint32_t met = met_elsewhere(path, instruction, mask);
  for (std::size_t i = paths.size(); met != 0 && i-- > 0;) {
    if (i == path || (paths[i].lanes & met) == 0)
      continue;
    const std::uint32_t staying = paths[i].lanes & ~met;
    const std::uint32_t passed = paths[i].at + 1;
    if (staying != 0)
      paths.push_back({paths[i].at, staying, Path::State::gathering});
    paths[i] = {passed, paths[i].lanes & met};
  }
}

bool Warp::gather(std::size_t path, const Instruction& instruction, std::uint32_t lanes) {
  const std::uint32_t* const masks = row_of_mask(instruction);
  std::uint32_t waiting = 0;
  for (std::uint32_t left = lanes; left != 0;) {
    const std::uint32_t mask = masks[std::countr_zero(left)];
    const std::uint32_t group = lanes_where(left, [&](unsigned lane) { return masks[lane] == mask; });
    left &= ~group;
    if ((group & ~mask) != 0)
      fail(FaultKind::mask,
           "a lane executes this with a mask that does not name it: the mask is " + hexadecimal(mask) + ".",
           group & ~mask);
    const std::uint32_t missing = mask & live & ~group;
    if (missing != 0 && (missing & ~met_elsewhere(path, instruction, mask)) != 0) {
      waiting |= group;
      continue;
    }
    release_elsewhere(path, instruction, mask);
    instruction.execute(*this, instruction, group);
  }
  if (waiting != 0)
    return wait(path, waiting);
  ++paths[path].at;
  return true;
}

bool Warp::gather_warp(std::size_t path, const Instruction& instruction, std::uint32_t lanes) {
  if (lanes == 0)
    return jump(path, 0, 0);
  if (live != all_lanes)
    fail(FaultKind::convergence,
         "all 32 lanes of the warp must execute this, but some have exited, or the block has "
         "no threads for them.",
         ~live);
  if (lanes != paths[path].lanes)
    fail(FaultKind::convergence,
         "all 32 lanes of the warp must execute this, but the predicate leaves some out.",
         paths[path].lanes & ~lanes);
  if (lanes != all_lanes)
    return wait(path, lanes);
  instruction.execute(*this, instruction, lanes);
  ++paths[path].at;
  return true;
}

bool Warp::arrive(std::size_t path, const Instruction& instruction, std::uint32_t lanes) {
  if (lanes == 0)
    return jump(path, 0, 0);
  if ((instruction.flags & flag::aligned) != 0) {
    if (lanes != paths[path].lanes)
      fail(FaultKind::barrier, "all lanes of a warp must reach a barrier, but the predicate leaves some out.",
           paths[path].lanes & ~lanes);
    if (lanes != live)
      return wait(path, lanes);
  }
  ++launched.counts[at];
  const std::uint32_t going_on = paths[path].lanes & ~lanes;
  if ((instruction.flags & flag::arrives_only) != 0) {
    ++paths[path].at;
  } else {
    paths[path] = {at, lanes, Path::State::at_barrier};
    if (going_on != 0)
      paths.push_back({at + 1, going_on});
  }
  block.arrive(*this, lanes, instruction);
  return false;
}

std::string Warp::describe_paths() const {
  std::string text;
  for (const Path& path : paths) {
    text += (text.empty() ? "" : "; ") + lanes_of(path.lanes) +
            (path.state == Path::State::at_barrier  ? " at the barrier `"
             : path.state == Path::State::gathering ? " at `"
                                                    : " before `") +
            program.text(path.at) + "` of PTX line " + std::to_string(program.origins[path.at].line);
  }
  if (const std::uint32_t exited = ~live; exited != 0)
    text += "; exited or not there: " + lanes_of(exited);
  return text;
}

void Warp::fail_gathering() const {
  const Path& path = paths.front();
  const Instruction& instruction = program.code[path.at];
  if (instruction.flow == Flow::barrier)
    fail_at(path.at, FaultKind::barrier,
            "only some lanes of the warp reach this barrier, and the others wait "
            "elsewhere: " +
                describe_paths() + ".",
            path.lanes);
  if (instruction.flow == Flow::whole_warp)
    fail_at(path.at, FaultKind::convergence,
            "all 32 lanes of the warp must execute this together, but the others wait "
            "elsewhere: " +
                describe_paths() + ".",
            path.lanes);
  const std::uint32_t mask = row_of_mask(instruction)[std::countr_zero(path.lanes)];
  fail_at(path.at, FaultKind::mask,
          "the mask " + hexadecimal(mask) + " names lanes that never arrive here, " +
              lanes_of(mask & live & ~path.lanes) + ": " + describe_paths() + ".",
          path.lanes);
}

} // namespace ptx
