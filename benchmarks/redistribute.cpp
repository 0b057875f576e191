// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief What redistribute costs over the bare communicator call, and what a trivial transition costs.
///
/// Usage: redistribute [--ranks N] [--turns N] [--json FILE]. The sides take turns within one run on the same
/// tensors: the bare call, redistribute_into, redistribute from the mesh's pool. Figures are medians of
/// ratios over turns.

#include <shardwright/comm/launch.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;

using Parts = sw::Layout<1, sw::Partial<sw::Sum, tp>>;
using Rows = sw::Layout<1, sw::Shard<0, tp>>;
using Whole = sw::Layout<1>;

struct Options {
  int ranks = 2;
  int turns = 15;
  std::string json;
};

struct Line {
  const char* kind = "";
  std::size_t bytes = 0;
  double bare_seconds = 0;
  double into_ratio = 0;
  double pool_ratio = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Start and end of one call on every rank; the call took from the first start to the last end.
class Stopwatch {
public:
  explicit Stopwatch(int ranks) : spans_(static_cast<std::size_t>(ranks)) {}
  template <class Call>
  double time(sw::HostCommunicator& world, Call call) {
    auto& own = spans_[static_cast<std::size_t>(world.rank())];
    world.barrier();
    own.first = now_seconds();
    call();
    own.second = now_seconds();
    world.barrier();
    double first = spans_[0].first;
    double last = spans_[0].second;
    for (const auto& [start, end] : spans_) {
      first = std::min(first, start);
      last = std::max(last, end);
    }
    world.barrier();
    return last - first;
  }

private:
  struct alignas(128) Span {
    double first = 0;
    double second = 0;
  };
  std::vector<Span> spans_;
};

/// The three sides of one case.
template <class From, class To, class Bare>
Line measure(const char* kind, std::size_t bytes, const Options& options, sw::HostCommunicator& world,
             const sw::DeviceMesh<tp>& mesh, Stopwatch& watch, Bare bare) {
  const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
  sw::ShardedTensor<From> from(mesh, {count});
  sw::ShardedTensor<To> to(mesh, {count});
  sw::fill_zero(from);
  sw::fill_zero(to);
  const int repetitions = static_cast<int>(std::clamp<std::size_t>((std::size_t{32} << 20) / bytes, 3, 200));
  // Before each call the output that it will write is read and the input is written, so that all sides find
  // them in the same place. The pool gives the memory of the last result again.
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
        times[side].push_back(watch.time(world, [&] {
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
  return {kind, bytes, median(bare_times), median(into_ratios), median(pool_ratios)};
}

template <class Tensor>
std::span<const float> elements_of(const Tensor& tensor) {
  return {tensor.data(), tensor.local_size()};
}
template <class Tensor>
std::span<float> elements_of(Tensor& tensor) {
  return {tensor.mutable_data(), tensor.local_size()};
}

void measure_all(sw::HostCommunicator world, const Options& options, Stopwatch& watch,
                 std::vector<Line>& lines) {
  const sw::DeviceMesh mesh{world, sw::extent<tp>(world.size())};
  sw::HostCommunicator& group = mesh.communicator<tp>();
  for (std::size_t bytes = std::size_t{64} << 10; bytes <= std::size_t{64} << 20; bytes *= 4) {
    const std::array found{measure<Parts, Whole>("all_reduce", bytes, options, world, mesh, watch,
                                                 [&](const auto& from, auto& to) {
                                                   group.all_reduce(elements_of(from), elements_of(to));
                                                 }),
                           measure<Parts, Rows>("reduce_scatter", bytes, options, world, mesh, watch,
                                                [&](const auto& from, auto& to) {
                                                  group.reduce_scatter(elements_of(from), elements_of(to));
                                                }),
                           measure<Rows, Whole>("all_gather", bytes, options, world, mesh, watch,
                                                [&](const auto& from, auto& to) {
                                                  group.all_gather(elements_of(from), elements_of(to));
                                                })};
    if (world.rank() == 0)
      lines.insert(lines.end(), found.begin(), found.end());
  }
}

/// Nanoseconds of four transitions that do nothing on this mesh.
double four_trivial_transitions() {
  double best = 0;
  sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
    const sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>> x(mesh, {64, 64});
    constexpr int repetitions = 200'000;
    std::vector<double> times;
    for (int turn = 0; turn < 15; ++turn) {
      const double start = now_seconds();
      for (int i = 0; i < repetitions; ++i) {
        const auto a = sw::redistribute<sw::Layout<2, sw::Shard<0, dp, tp>>>(x);
        const auto b = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>>(a);
        const auto c = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>>>(b);
        const auto d = sw::redistribute<sw::Layout<2>>(c);
        if (d.data() != x.data())
          std::abort();
      }
      times.push_back((now_seconds() - start) / repetitions * 1e9);
    }
    best = median(times);
  });
  return best;
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

void write_json(const std::string& path, int ranks, double trivial, const std::vector<Line>& lines) {
  std::ofstream out(path);
  out << "{\"benchmark\": \"redistribute\", \"ranks\": " << ranks << ", \"four_trivial_ns\": " << trivial
      << ", \"lines\": [";
  for (std::size_t i = 0; i < lines.size(); ++i)
    out << (i == 0 ? "\n" : ",\n") << "  {\"kind\": \"" << lines[i].kind
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
    const double trivial = four_trivial_transitions();
    std::vector<Line> lines;
    Stopwatch watch(options.ranks);
    sw::launch({.ranks = options.ranks},
               [&](sw::HostCommunicator world) { measure_all(world, options, watch, lines); });
    std::printf("four trivial transitions: %.1f ns\n", trivial);
    std::printf("%-16s %10s %12s %10s %10s\n", "collective", "KiB", "bare [us]", "into", "pool");
    for (const Line& line : lines)
      std::printf("%-16s %10zu %12.1f %10.3f %10.3f\n", line.kind, line.bytes >> 10, line.bare_seconds * 1e6,
                  line.into_ratio, line.pool_ratio);
    if (!options.json.empty())
      write_json(options.json, options.ranks, trivial, lines);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
