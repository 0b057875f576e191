// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Collectives of thread ranks that share the device.

#include "group_timing.hpp"
#include "parts.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/kernels/random.hpp>

#include <array>
#include <cstdio>
#include <span>
#include <string>

namespace gpu {

namespace {

using namespace sw::axis;
using Buffer = Kokkos::View<float*, Kokkos::LayoutRight, Device::memory_space>;

/// A collective, and whether its input or its output is one part of a rank's larger buffer.
struct Kind {
  const char* name;
  bool parted_input;
  bool parted_output;
  bool in_place;
};
constexpr std::array kinds{Kind{"all_reduce", false, false, false},
                           Kind{"all_reduce in place", false, false, true},
                           Kind{"reduce_scatter", false, true, false}, Kind{"all_gather", true, false, false},
                           Kind{"all_to_all", false, false, false}};

/// The bytes that all ranks together must read and write: every input once, every output once.
double copied_bytes(const Kind& kind, std::size_t bytes, int ranks) {
  const double whole = static_cast<double>(bytes) * ranks;
  const double part = static_cast<double>(bytes);
  return (kind.parted_input ? part : whole) + (kind.parted_output ? part : whole);
}

template <class Group> void run(const Kind& kind, Group& group, std::span<float> in, std::span<float> out) {
  const auto ranks = static_cast<std::size_t>(group.size());
  if (kind.in_place)
    group.all_reduce_in_place(in);
  else if (kind.parted_output)
    group.reduce_scatter(std::span<const float>(in), out.first(out.size() / ranks));
  else if (kind.parted_input)
    group.all_gather(std::span<const float>(in.first(in.size() / ranks)), out);
  else if (std::string_view(kind.name) == "all_to_all")
    group.all_to_all(std::span<const float>(in), out);
  else
    group.all_reduce(std::span<const float>(in), out);
}

} // namespace

void measure_collectives(const Options& options, const Rates& rates, Report& report) {
  GroupTimer timer(options.ranks);
  constexpr std::size_t judged = std::size_t{64} << 20;
  report.note(
      "collectives",
      std::to_string(options.ranks) +
          " thread ranks on one device; the share is the time in which the copy rate moves every input and every output once, over the time of the call");
  std::printf("collectives of %d thread ranks that share the device\n%-20s %10s %12s %10s %9s\n",
              options.ranks, "operation", "KiB", "us", "GB/s", "of copy");
  sw::launch({.ranks = options.ranks}, [&](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<tp>(options.ranks)};
    auto& group = mesh.core().communicator<Device>(1u);
    const Execution& execution = mesh.execution<Device>();
    const std::size_t most = options.most_bytes / sizeof(float);
    const auto buffer = [&](const char* name) {
      return Buffer(Kokkos::view_alloc(std::string(name), Kokkos::WithoutInitializing), most);
    };
    const Buffer in = buffer("in"), out = buffer("out");
    for (const Kind& kind : kinds) {
      for (const std::size_t bytes : sizes_between(options.least_bytes, options.most_bytes)) {
        const double copied = copied_bytes(kind, bytes, options.ranks);
        const std::size_t elements = bytes / sizeof(float);
        const auto call = [&] { run(kind, group, {in.data(), elements}, {out.data(), elements}); };
        std::vector<double> times;
        for (int turn = -1; turn < options.turns; ++turn) {
          // A hundred sums that are made in place, each four times the last, stay finite from 1e-30.
          sw::kernels::fill_normal(execution, in, {{0}, {most}},
                                   {9, static_cast<std::uint64_t>(world.rank())}, 0.0, 1e-30);
          const double seconds =
              timer.seconds(world, execution, calls_of(static_cast<std::size_t>(copied)), call);
          if (turn >= 0) // the first one warms up
            times.push_back(seconds);
        }
        if (world.rank() != 0)
          continue;
        const double seconds = median(times);
        const double share = 100 * copied / seconds / rates.copy;
        std::printf("%-20s %10zu %12.1f %10.1f %8.0f%%\n", kind.name, bytes >> 10, 1e6 * seconds,
                    1e-9 * copied / seconds, share);
        report.add({"collectives", std::string(kind.name) + ", " + std::to_string(bytes >> 10) + " KiB",
                    share, "% of what the copied bytes allow", bytes == judged ? 70.0 : 0.0});
      }
    }
  });
  std::printf("\n");
}

} // namespace gpu
