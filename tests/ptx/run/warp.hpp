// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The state of a warp: its registers, and the paths on which its lanes go through the program.
///
/// Lanes that stand at the same instruction form a path. A warp begins with one; a branch may split it, and
/// paths that meet at an instruction become one again. The path at the lowest instruction runs first, so that
/// paths meet where the branches end; called functions lie below their callers for the same reason. A path
/// that runs long while others could lets them go on, so that lanes may wait for one another, as on Volta and
/// later.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../fault.hpp"
#include "../program.hpp"
#include "lanes.hpp"

namespace ptx {

class Block;
struct Launched;

/// @brief Lanes at one instruction.
struct Path {
  enum class State : std::uint8_t {
    ready,
    gathering,  ///< At an instruction that needs lanes of other paths.
    at_barrier, ///< Until the barrier opens.
  };

  std::uint32_t at = 0;
  std::uint32_t lanes = 0;
  State state = State::ready;
  std::uint64_t turn = 0; ///< When it ran last.
};

/// @brief An asynchronous copy that no wait has covered yet.
struct PendingCopy {
  std::uint32_t lane = 0;
  std::uint32_t group = 0; ///< Of its lane, counted from 0.
  std::uint32_t bytes = 0;
  std::uint32_t from_bytes = 0; ///< The rest becomes zero.
  std::size_t to = 0;           ///< In shared memory.
  std::uintptr_t from = 0;
  std::uint32_t instruction = 0;
};

class Warp {
public:
  /// @param registers, local belong to the block.
  Warp(Block& block, unsigned index, std::uint32_t lanes, std::byte* registers, std::byte* local);

  /// @brief The 32 values of a register.
  template <class T> T* row(Slot slot) { return reinterpret_cast<T*>(registers + slot); }

  std::uint32_t& predicate(Slot slot) { return *row<std::uint32_t>(slot); }

  void set_predicate(Slot slot, std::uint32_t lanes, std::uint32_t values) {
    std::uint32_t& all = predicate(slot);
    all = (all & ~lanes) | (values & lanes);
  }

  /// @brief Runs for at most so many instructions, and returns their number: fewer when no path can go on.
  std::uint64_t run(std::uint64_t most);

  bool can_run() const;

  /// @brief Makes the lanes that wait at a barrier go on behind it.
  void pass_barrier(std::uint32_t lanes);

  /// @brief Throws a fault of the instruction that runs.
  [[noreturn]] void fail(FaultKind kind, const std::string& sentence, std::uint32_t lanes) const {
    fail_at(at, kind, sentence, lanes);
  }
  [[noreturn]] void fail_at(std::uint32_t instruction, FaultKind, const std::string& sentence,
                            std::uint32_t lanes) const;

  /// @brief Where the paths stand, for people.
  std::string describe_paths() const;

  Block& block;
  Launched& launched;
  const Program& program;
  const unsigned index;
  std::byte* const registers;
  std::byte* const local;       ///< Of lane 0; the others follow, Program::local_bytes apart.
  std::uint32_t live;           ///< Lanes that have not exited.
  std::uint32_t at = 0;         ///< The instruction that runs.
  std::uint32_t path_lanes = 0; ///< The lanes of its path.
  std::uint32_t carry = 0;      ///< The condition code CC.CF, a bit per lane.
  std::vector<Path> paths;
  std::vector<PendingCopy> copies;
  std::uint32_t groups[warp_lanes] = {}; ///< Groups of copies that each lane has committed.

private:
  std::size_t choose();
  void merge();
  std::uint32_t next_meeting(std::size_t path, std::uint32_t from) const;
  bool other_is_lower(std::size_t path, std::uint32_t than) const;
  std::uint64_t run_path(std::size_t path, std::uint64_t most, bool in_turn);

  /// Each does an instruction that concerns the paths, and returns whether this path can go on at once.
  bool flow(std::size_t path, const Instruction&, std::uint32_t lanes);
  bool gather(std::size_t path, const Instruction&, std::uint32_t lanes);
  bool gather_warp(std::size_t path, const Instruction&, std::uint32_t lanes);
  bool arrive(std::size_t path, const Instruction&, std::uint32_t lanes);
  bool jump(std::size_t path, std::uint32_t lanes, std::uint32_t target);
  bool jump_each(std::size_t path, std::uint32_t lanes, const std::uint32_t* targets);
  bool branch_table(std::size_t path, const Instruction&, std::uint32_t lanes);
  bool exit(std::size_t path, std::uint32_t lanes);

  std::uint32_t met_elsewhere(std::size_t path, const Instruction&, std::uint32_t mask) const;
  void release_elsewhere(std::size_t path, const Instruction&, std::uint32_t mask);
  bool wait(std::size_t path, std::uint32_t waiting);
  [[noreturn]] void fail_gathering() const;
  const std::uint32_t* row_of_mask(const Instruction& instruction) const {
    return reinterpret_cast<const std::uint32_t*>(registers + instruction.from[3]);
  }

  std::uint64_t turn_ = 0;
  std::uint64_t unbroken_ = 0; // instructions of lowest paths since another one had its turn
  bool tired_ = false;         // it is the turn of the path that has waited longest
};

} // namespace ptx
