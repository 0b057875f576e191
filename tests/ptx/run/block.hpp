// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A block of a launch: its warps, its shared memory and its barriers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "../executor.hpp"
#include "../program.hpp"
#include "races.hpp"
#include "warp.hpp"

namespace ptx {

/// @brief What the blocks of a launch share.
struct Launched {
  const Program& program;
  const Launch& launch;
  Memory& memory;
  const Options& options;
  std::unique_ptr<Races> races{}; ///< Null: not asked for.
  std::uint64_t budget = 0;       ///< Instructions that are left.
  std::uint64_t clock = 0;        ///< What clock registers show.
  std::uint64_t polls = 0;        ///< Reads that may wait for another block.
  const Memory::Block* last_block = nullptr;
  std::unique_ptr<std::uint64_t[]> counts{}; ///< Executions of each instruction.
  Statistics statistics{};
};

/// @brief What bar.red computes of the predicates of all threads; Instruction::mode of a barrier.
enum class Reduction : std::uint8_t { none, popc, all, any };

/// @brief One of the 16 barriers of a block.
struct Barrier {
  struct Arrival {
    Warp* warp;
    std::uint32_t lanes;
    const Instruction* instruction;
    bool waits;
  };

  std::vector<Arrival> arrivals;
  unsigned threads = 0;  ///< That have arrived, warps counted whole where the instruction says so.
  unsigned expected = 0; ///< Threads that the instruction names; 0: all of the block.
};

class Block {
public:
  Block(Launched&, std::uint64_t number);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// @brief Runs until the block ends, or seems to wait for another one.
  /// @returns whether it has ended.
  bool run();

  void arrive(Warp&, std::uint32_t lanes, const Instruction&);

  /// @brief Opens the barriers that wait for no one any more, after lanes have exited.
  void open_barriers();

  Launched& launched;
  const std::uint64_t number;
  Dim3 position;
  unsigned threads = 0;
  std::vector<Warp> warps;
  std::byte* shared = nullptr;
  std::size_t shared_bytes = 0;
  std::unique_ptr<std::uint8_t[]> shared_written; ///< A flag per byte, or null.
  std::array<Barrier, 16> barriers;

private:
  unsigned special(Special, unsigned warp, unsigned lane) const;
  void open(Barrier&);
  [[noreturn]] void fail_stuck();
  std::size_t next_warp(std::size_t last);
  std::uint64_t slice();

  std::unique_ptr<std::byte[]> shared_storage_;
  std::vector<std::unique_ptr<std::byte[]>> registers_;
  std::unique_ptr<std::byte[]> local_storage_;
  std::mt19937_64 random_;
  std::size_t last_ = 0;
  bool polling_ = false; // the warp that ran last seems to wait for another
};

} // namespace ptx
