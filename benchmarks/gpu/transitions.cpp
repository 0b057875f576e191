// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief redistribute over the bare call of the communicator, and transitions that do nothing.

#include "group_timing.hpp"
#include "parts.hpp"

#include <shardwright/comm/launch.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace gpu {

namespace {

using namespace sw::axis;
using Parts = sw::Layout<1, sw::Partial<sw::Sum, tp>>;
using Rows = sw::Layout<1, sw::Shard<0, tp>>;
using Whole = sw::Layout<1>;
template <class Layout>
using Tensor = sw::ShardedTensor<Layout, float, Device>;

struct Line {
  const char* name;
  double bare; ///< Seconds.
  double into; ///< Over the bare call: redistribute_into,
  double pool; ///< and redistribute, whose result is memory of the mesh's pool.
};

/// The three sides take turns.
template <class From, class To, class Bare>
Line measure(const char* name, std::size_t bytes, const Options& options, sw::HostCommunicator& world,
             const sw::DeviceMesh<tp>& mesh, GroupTimer& timer, const Bare& bare) {
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  Tensor<From> from(mesh, {count});
  Tensor<To> to(mesh, {count});
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
  return {name, median(bare_times), median(into_ratios), median(pool_ratios)};
}

/// Nanoseconds of the host for four transitions that do nothing on this mesh.
double four_trivial_transitions(int turns) {
  double found = 0;
  sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
    const sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>, float, Device> x(
        mesh, {64, 64});
    constexpr int repetitions = 20'000;
    std::vector<double> times;
    for (int turn = 0; turn < turns; ++turn) {
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < repetitions; ++i) {
        const auto a = sw::redistribute<sw::Layout<2, sw::Shard<0, dp, tp>>>(x);
        const auto b = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>>(a);
        const auto c = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>>>(b);
        const auto d = sw::redistribute<sw::Layout<2>>(c);
        if (d.data() != x.data())
          throw std::runtime_error("a trivial transition must share memory");
      }
      times.push_back(1e9 * seconds_since(begin) / repetitions);
    }
    found = median(times);
  });
  return found;
}

template <class T>
std::span<const float> elements_of(const T& tensor) {
  return {tensor.data(), tensor.local_size()};
}
template <class T>
std::span<float> elements_of(T& tensor) {
  return {tensor.mutable_data(), tensor.local_size()};
}

} // namespace

void measure_transitions(const Options& options, const Rates&, Report& report) {
  const double trivial = four_trivial_transitions(options.turns);
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
      const std::array lines{measure<Parts, Whole>("all_reduce", bytes, options, world, mesh, timer,
                                                   [&](const auto& from, auto& to) {
                                                     group.all_reduce(elements_of(from), elements_of(to));
                                                   }),
                             measure<Parts, Rows>("reduce_scatter", bytes, options, world, mesh, timer,
                                                  [&](const auto& from, auto& to) {
                                                    group.reduce_scatter(elements_of(from), elements_of(to));
                                                  }),
                             measure<Rows, Whole>("all_gather", bytes, options, world, mesh, timer,
                                                  [&](const auto& from, auto& to) {
                                                    group.all_gather(elements_of(from), elements_of(to));
                                                  })};
      if (world.rank() != 0)
        continue;
      for (const Line& line : lines) {
        std::printf("%-16s %10zu %12.1f %8.3f %8.3f\n", line.name, bytes >> 10, 1e6 * line.bare, line.into,
                    line.pool);
        const std::string name = std::string(line.name) + ", " + std::to_string(bytes >> 10) + " KiB";
        report.add({"transitions", name + ", into a destination", line.into, "x the bare call"});
        report.add({"transitions", name + ", from the pool", line.pool, "x the bare call"});
      }
    }
  });
  std::printf("\n");
}

} // namespace gpu
