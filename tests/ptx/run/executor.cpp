// SPDX-License-Identifier: Apache-2.0
#include "../executor.hpp"

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "block.hpp"

namespace ptx {

namespace {

[[noreturn]] void refuse(const Program& program, const std::string& sentence) {
  throw Fault(FaultKind::launch, sentence, {.kernel = program.kernel});
}

void check(const Program& program, const Launch& launch) {
  const auto volume = [](const Dim3& size) { return std::uint64_t{size.x} * size.y * size.z; };
  const std::uint64_t threads = volume(launch.block);
  if (volume(launch.grid) == 0 || threads == 0)
    refuse(program, "a grid must have at least one block, and a block at least one thread.");
  if (threads > program.maximum_threads)
    refuse(program, "the block has " + std::to_string(threads) +
                        " threads, but the kernel is compiled for at most " +
                        std::to_string(program.maximum_threads) + ".");
  if (launch.parameters == nullptr && program.parameter_bytes != 0)
    refuse(program, "the kernel has parameters, but the launch gives none.");
  constexpr std::size_t most_shared = 227 * 1024; // of a block of compute capability 9.0
  if (program.dynamic_offset + launch.dynamic_shared > most_shared)
    refuse(program, "the block needs " + std::to_string(program.dynamic_offset + launch.dynamic_shared) +
                        " bytes of shared memory, but may have " + std::to_string(most_shared) + ".");
}

/// The numbers of the blocks, in the order in which they begin.
std::vector<std::uint32_t> sequence(std::uint64_t blocks, const Options& options) {
  std::vector<std::uint32_t> numbers(blocks);
  std::iota(numbers.begin(), numbers.end(), 0U);
  if (options.order == Order::backward)
    std::reverse(numbers.begin(), numbers.end());
  if (options.order == Order::random) {
    std::mt19937_64 random(options.seed);
    for (std::size_t i = numbers.size(); i > 1; --i)
      std::swap(numbers[i - 1], numbers[random() % i]);
  }
  return numbers;
}

/// Blocks run one after the other. One that seems to wait makes room for the next and has its turn again
/// later.
void run_blocks(Launched& launched, const std::vector<std::uint32_t>& numbers) {
  std::deque<std::unique_ptr<Block>> waiting;
  std::size_t begun = 0;
  while (begun < numbers.size() || !waiting.empty()) {
    std::unique_ptr<Block> block;
    if (begun < numbers.size() && waiting.size() < launched.options.resident_blocks) {
      block = std::make_unique<Block>(launched, numbers[begun++]);
    } else {
      block = std::move(waiting.front());
      waiting.pop_front();
      std::this_thread::yield(); // what it waits for may be another launch
    }
    if (!block->run())
      waiting.push_back(std::move(block));
  }
}

} // namespace

Statistics run(const Kernel& kernel, const Launch& launch, Memory& memory, const Options& options) {
  const Program& program = *kernel.program;
  check(program, launch);
  Launched launched{.program = program, .launch = launch, .memory = memory, .options = options};
  launched.budget = options.limit;
  if (options.races)
    launched.races = std::make_unique<Races>();
  launched.counts = std::make_unique<std::uint64_t[]>(program.code.size());
  launched.statistics.blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  struct CountsKept { // after a fault too
    const Launched& launched;
    ~CountsKept() {
      for (std::size_t i = 0; i < launched.program.code.size(); ++i)
        if (launched.counts[i] != 0)
          launched.program.counts[i] += launched.counts[i];
    }
  } kept{launched};
  run_blocks(launched, sequence(launched.statistics.blocks, options));
  if (options.touched && launched.races)
    launched.races->for_touched([&](Touched range) {
      const auto& sites = program.sites; // ascending
      range.instruction = static_cast<std::uint32_t>(
          std::upper_bound(sites.begin(), sites.end(), range.instruction) - sites.begin() - 1);
      options.touched(range);
    });
  return launched.statistics;
}

} // namespace ptx
