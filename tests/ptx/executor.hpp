// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a kernel on a grid, one warp instruction after the other, and checks what it does.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "fault.hpp"
#include "memory.hpp"
#include "module.hpp"

namespace ptx {

/// @brief What a host program gives to a launch.
struct Launch {
  Dim3 grid, block;
  std::size_t dynamic_shared = 0;   ///< Bytes.
  const void* parameters = nullptr; ///< Kernel::parameter_bytes of them, packed as Kernel::parameters says.
};

/// @brief The order in which the warps of a block, and the blocks of a grid, run.
enum class Order {
  forward,  ///< Each warp as far as it can go, from the first.
  backward, ///< From the last.
  random, ///< A few instructions of a random warp, then another, by Options::seed; blocks in a random order.
};

/// @brief When asynchronous copies (cp.async) write their bytes. A correct kernel works with both.
enum class Arrival {
  at_issue, ///< As early as possible.
  at_wait,  ///< As late as possible.
};

/// @brief Neighbouring bytes of global memory that a launch has accessed.
struct Touched {
  std::uintptr_t begin = 0, end = 0;
  std::uint32_t instruction = 0; ///< One that did, for Kernel::site().
  bool loaded = false;           ///< Read before the launch wrote them.
  bool written = false;          ///< Otherwise only read.
  bool strong = false;           ///< By accesses that may meet those of other launches.
};

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 0;
  Arrival arrival = Arrival::at_wait;
  bool uninitialized = false; ///< Report loads of bytes that nothing has written.
  bool races = true;          ///< Report races in shared and in global memory.

  /// @brief Warp instructions after which a launch counts as endless.
  std::uint64_t limit = 4'000'000'000;

  /// @brief Blocks that may run at the same time where one waits for another.
  unsigned resident_blocks = 512;

  /// @brief Takes what device code prints; by default it goes to the standard output.
  std::function<void(std::string_view)> print;

  /// @brief Told what a launch has touched, at its end and in no order; needs `races`.
  std::function<void(const Touched&)> touched;
};

/// @brief What a launch did.
struct Statistics {
  std::uint64_t blocks = 0;
  std::uint64_t warp_instructions = 0;
  std::uint64_t lane_instructions = 0; ///< Summed over the lanes that executed them.

  /// @brief Bytes of global memory that lanes asked for; an atomic access counts as both.
  std::uint64_t bytes_read = 0, bytes_written = 0;
};

/// @brief Runs all blocks of a launch. Several threads may run launches at the same time.
/// @throws Fault at the first fault; the memory is then as the instructions before it left it.
Statistics run(const Kernel&, const Launch&, Memory&, const Options& = {});

} // namespace ptx
