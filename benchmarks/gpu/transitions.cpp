// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares redistribute with the bare call of the communicator, and measures transitions that do
/// nothing.

#include "group_timing.hpp"
#include "parts.hpp"
#include "transition_cases.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace gpu {

namespace {

using benchmark::TransitionCase;
using benchmark::TransitionLine;
using sw::axis::tp;

/// The three sides take turns.
template <class From, class To, class Bare>
TransitionLine measure(TransitionCase<From, To> test, std::size_t bytes, const Options& options,
                       sw::HostCommunicator& world, const sw::DeviceMesh<tp>& mesh, GroupTimer& timer,
                       const Bare& bare) {
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  sw::ShardedTensor<From, float, Device> from(mesh, {count});
  sw::ShardedTensor<To, float, Device> to(mesh, {count});
  sw::fill_zero(from);
  sw::fill_zero(to);
  const Execution& execution = mesh.execution<Device>();
  const std::size_t calls = calls_of(2 * bytes * static_cast<std::size_t>(world.size()));
  std::optional<decltype(sw::redistribute<To>(from))> last(sw::redistribute<To>(from));
  std::vector<double> bare_times, into_ratios, pool_ratios;
  for (int turn = -1; turn < options.turns; ++turn) {
    const double base = timer.seconds(world, execution, calls, [&] { bare(from, to); });
    const double into = timer.seconds(world, execution, calls, [&] { sw::redistribute_into(from, to); });
    const double pool = timer.seconds(world, execution, calls, [&] {
      last.reset();
      last.emplace(sw::redistribute<To>(from));
    });
    if (turn < 0)
      continue; // warms up
    bare_times.push_back(base);
    into_ratios.push_back(into / base);
    pool_ratios.push_back(pool / base);
  }
  return {test.name, bytes, median(bare_times), median(into_ratios), median(pool_ratios)};
}

} // namespace

void measure_transitions(const Options& options, const Rates&, Report& report) {
  const double trivial = benchmark::four_trivial_transitions<Device>(options.turns);
  report.add({"transitions", "four that are trivial on the mesh", trivial, "ns of the host"});
  std::printf("four trivial transitions: %.1f ns\nredistribute over the bare call, %d thread ranks\n",
              trivial, options.ranks);
  std::printf("%-16s %10s %12s %8s %8s\n", "operation", "KiB", "bare us", "into", "pool");
  GroupTimer timer(options.ranks);
  sw::launch({.ranks = options.ranks}, [&](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<tp>(options.ranks)};
    auto& group = mesh.core().communicator<Device>(1u);
    for (const std::size_t bytes :
         sizes_between(options.least_bytes, std::min(options.most_bytes, std::size_t{64} << 20))) {
      const auto lines = benchmark::each_transition(group, [&](auto test, const auto& bare) {
        return measure(test, bytes, options, world, mesh, timer, bare);
      });
      if (world.rank() != 0)
        continue;
      for (const TransitionLine& line : lines) {
        std::printf("%-16s %10zu %12.1f %8.3f %8.3f\n", line.name, bytes >> 10, 1e6 * line.bare_seconds,
                    line.into_ratio, line.pool_ratio);
        const std::string name = std::string(line.name) + ", " + std::to_string(bytes >> 10) + " KiB";
        report.add({"transitions", name + ", into a destination", line.into_ratio, "x the bare call"});
        report.add({"transitions", name + ", from the pool", line.pool_ratio, "x the bare call"});
      }
    }
  });
  std::printf("\n");
}

} // namespace gpu
