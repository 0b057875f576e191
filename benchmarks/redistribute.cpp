// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Measures the cost of redistribute relative to the bare communicator call, and of a trivial
/// transition.
///
/// Usage: redistribute [--ranks N] [--turns N] [--json FILE]. The sides take turns within one run on the same
/// tensors: the bare call, redistribute_into, redistribute from the mesh's pool. Figures are medians of
/// ratios over turns.

#include "group_stopwatch.hpp"
#include "transition_cases.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace sw = shardwright;
using benchmark::GroupStopwatch;
using benchmark::median;
using benchmark::TransitionCase;
using benchmark::TransitionLine;
using sw::axis::tp;

struct Options {
  int ranks = 2;
  int turns = 15;
  std::string json;
};

/// The three sides of one case.
template <class From, class To, class Bare>
TransitionLine measure(TransitionCase<From, To> test, std::size_t bytes, const Options& options,
                       sw::HostCommunicator& world, const sw::DeviceMesh<tp>& mesh, GroupStopwatch& watch,
                       const Bare& bare) {
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  sw::ShardedTensor<From> from(mesh, {count});
  sw::ShardedTensor<To> to(mesh, {count});
  sw::fill_zero(from);
  sw::fill_zero(to);
  const int repetitions = static_cast<int>(std::clamp<std::size_t>((std::size_t{32} << 20) / bytes, 3, 200));
  // Before each call, its future output is read and its input is written, so that all sides find them in the
  // same caches. The pool reuses the memory of the last result.
  std::optional<decltype(sw::redistribute<To>(from))> last(sw::redistribute<To>(from));
  volatile float seen = 0;
  const auto renew = [&](int round, bool pool) {
    const float* const result = pool ? last->data() : to.data();
    float sum = 0;
    for (std::size_t i = 0; i < to.local_size(); i += 16)
      sum += result[i];
    seen = sum;
    if (pool)
      last.reset();
    float* const data = from.mutable_data();
    for (std::size_t i = 0; i < from.local_size(); ++i)
      data[i] = static_cast<float>(round);
  };
  std::vector<double> bare_times, into_ratios, pool_ratios;
  for (int turn = 0; turn < options.turns; ++turn) {
    std::array<std::vector<double>, 3> times;
    for (int round = 0; round < repetitions; ++round) {
      for (std::size_t place = 0; place < 3; ++place) {
        const std::size_t side = (place + static_cast<std::size_t>(round)) % 3;
        renew(round, side == 2);
        times[side].push_back(watch.seconds(world, [&] {
          if (side == 0)
            bare(from, to);
          else if (side == 1)
            sw::redistribute_into(from, to);
          else
            last.emplace(sw::redistribute<To>(from));
        }));
      }
    }
    const double base = median(times[0]);
    bare_times.push_back(base);
    into_ratios.push_back(median(times[1]) / base);
    pool_ratios.push_back(median(times[2]) / base);
  }
  return {test.name, bytes, median(bare_times), median(into_ratios), median(pool_ratios)};
}

void measure_all(sw::HostCommunicator world, const Options& options, GroupStopwatch& watch,
                 std::vector<TransitionLine>& lines) {
  const sw::DeviceMesh mesh{world, sw::extent<tp>(world.size())};
  sw::HostCommunicator& group = mesh.communicator<tp>();
  for (std::size_t bytes = std::size_t{64} << 10; bytes <= std::size_t{64} << 20; bytes *= 4) {
    const auto found = benchmark::each_transition(group, [&](auto test, const auto& bare) {
      return measure(test, bytes, options, world, mesh, watch, bare);
    });
    if (world.rank() == 0)
      lines.insert(lines.end(), found.begin(), found.end());
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--ranks" && name != "--turns" && name != "--json")) {
      std::fprintf(stderr, "usage: redistribute [--ranks N] [--turns N] [--json FILE]\n");
      std::exit(2);
    }
    const char* const value = argv[++i];
    if (name == "--json")
      options.json = value;
    else
      (name == "--ranks" ? options.ranks : options.turns) = std::max(1, std::atoi(value));
  }
  return options;
}

void write_json(const std::string& path, int ranks, double trivial,
                const std::vector<TransitionLine>& lines) {
  std::ofstream out(path);
  out << "{\"benchmark\": \"redistribute\", \"ranks\": " << ranks << ", \"four_trivial_ns\": " << trivial
      << ", \"lines\": [";
  for (std::size_t i = 0; i < lines.size(); ++i)
    out << (i == 0 ? "\n" : ",\n") << "  {\"kind\": \"" << lines[i].name
        << "\", \"bytes\": " << lines[i].bytes << ", \"bare_seconds\": " << lines[i].bare_seconds
        << ", \"into_ratio\": " << lines[i].into_ratio << ", \"pool_ratio\": " << lines[i].pool_ratio << "}";
  out << "\n]}\n";
  if (!out.flush())
    std::fprintf(stderr, "redistribute: the figures could not be written to %s\n", path.c_str());
}

} // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Options options = parse(argc, argv);
  try {
    const double trivial = benchmark::four_trivial_transitions<sw::DefaultTarget>(options.turns);
    std::vector<TransitionLine> lines;
    GroupStopwatch watch(options.ranks);
    sw::launch({.ranks = options.ranks},
               [&](sw::HostCommunicator world) { measure_all(world, options, watch, lines); });
    std::printf("four trivial transitions: %.1f ns\n", trivial);
    std::printf("%-16s %10s %12s %10s %10s\n", "collective", "KiB", "bare [us]", "into", "pool");
    for (const TransitionLine& line : lines)
      std::printf("%-16s %10zu %12.1f %10.3f %10.3f\n", line.name, line.bytes >> 10, line.bare_seconds * 1e6,
                  line.into_ratio, line.pool_ratio);
    if (!options.json.empty())
      write_json(options.json, options.ranks, trivial, lines);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
