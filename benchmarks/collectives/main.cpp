// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares collectives of thread ranks with Open MPI on the same machine, and with the exchange-copy
/// limit.
///
/// The sides take turns within one run: thread ranks, a plain exchange of copies with memcpy and with
/// non-temporal stores, Open MPI. Only one side is active at a time; the others sleep. Figures are medians of
/// ratios over turns.
///
/// With --neighbour, busy processes compete for the cores, and each side calls back to back, with the library
/// in the processes of mpirun as a third side. Then the mean matters as well as the median, and where the
/// scheduler puts the ranks: two on one core can only take turns.

#include "busy_processes.hpp"
#include "library_side.hpp"
#include "measurement.hpp"
#include "mpi_peer.hpp"

#include <shardwright/comm/copy_kernels.hpp>
#include <shardwright/core/vector_lanes.hpp>
#include <shardwright/launch.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using collectives::Buffers;
using collectives::Case;
using collectives::Kind;
using collectives::MpiPeer;
using collectives::SeenCore;
using collectives::Span;
using collectives::Sustained;

struct Options {
  std::vector<int> ranks{2, 4};
  std::vector<std::uint64_t> sizes{4U << 10U, 64U << 10U, 256U << 10U, 1U << 20U,
                                   4U << 20U, 16U << 20U, 64U << 20U};
  std::vector<Kind> kinds{Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather};
  std::vector<bool> placements{false, true};
  int turns = 9;
  bool mpi = true;
  int neighbours = -1; ///< Busy processes; -1 for the usual table.
  std::string json;
};

/// One line of the table next to busy processes.
struct CrowdedLine {
  Case test{};
  Sustained threads;
  Sustained processes; ///< The library under MPI. No calls if it did not run, like the next one.
  Sustained mpi;
};

struct Line {
  int ranks = 0;
  Case test{};
  double seconds = 0;
  double share_of_limit = 0; ///< Limit divided by time: 1 means as fast as the exchange of copies.
  double mpi_ratio = 0;      ///< Open MPI's time over ours; 0 if it did not run.
};

/// The exchange-copy limit of a collective in terms of C(bytes).
double limit_factor(const Case& test, int ranks) {
  return test.kind == Kind::reduce_scatter ? (1.0 + 1.0 / ranks) / 2.0 : 1.0;
}

class ThreadSide {
public:
  ThreadSide(sw::HostCommunicator world, Buffers& buffers, std::vector<Span>& spans,
             std::vector<const float*>& inputs, SeenCore (&cores)[2])
      : world_(std::move(world)), buffers_(buffers), spans_(spans), inputs_(inputs), cores_(cores) {}

  /// One turn of the library's collective; the result counts on rank 0.
  double collective(const Case& test) {
    return turn(test, [&] { run(test); });
  }

  /// One turn of calls back to back; the result counts on rank 0.
  Sustained sustained(const Case& test) {
    const auto any = [this](bool stop) {
      const float one = stop ? 1.0F : 0.0F;
      float all = 0;
      world_.all_reduce(std::span<const float>(&one, 1), std::span<float>(&all, 1));
      return all > 0;
    };
    return collectives::sustain(
        test.seconds, world_.rank(), cores_, [&] { run(test); }, any);
  }

  /// One turn of every rank copying from its neighbour's freshly written buffer, between two meetings.
  double copies(std::uint64_t bytes, bool stream) {
    const Case test{Kind::all_reduce, false, bytes};
    const int rank = world_.rank();
    const auto neighbour = static_cast<std::size_t>((rank + 1) % world_.size());
    float* const out = buffers_.out(test, rank, world_.size());
    return turn(test, [&] {
      inputs_[static_cast<std::size_t>(rank)] = buffers_.in(test, rank, world_.size());
      world_.barrier();
      sw::detail::copy_run(reinterpret_cast<std::byte*>(out),
                           reinterpret_cast<const std::byte*>(inputs_[neighbour]), bytes, stream);
      if (stream)
        sw::detail::finish_streaming();
      world_.barrier();
    });
  }

private:
  void run(const Case& test) { collectives::run_collective(world_, test, buffers_); }

  template <class Action> double turn(const Case& test, Action action) {
    const int rank = world_.rank(), ranks = world_.size();
    const int count = collectives::repetitions(test.bytes);
    for (int r = -1; r < count; ++r) {
      buffers_.renew(test, rank, ranks, r + 1);
      world_.barrier();
      Span span;
      span.start = collectives::now_ns();
      action();
      span.end = collectives::now_ns();
      // If ranks share cores, the preparation of the next repetition would be measured with this one.
      world_.barrier();
      if (r >= 0)
        spans_[static_cast<std::size_t>(r * ranks + rank)] = span;
    }
    world_.barrier();
    return rank == 0 ? collectives::turn_seconds(spans_.data(), ranks, count) : 0.0;
  }

  sw::HostCommunicator world_;
  Buffers& buffers_;
  std::vector<Span>& spans_;
  std::vector<const float*>& inputs_;
  SeenCore (&cores_)[2]; ///< Of ranks that call back to back.
};

std::string size_text(std::uint64_t bytes) {
  if (bytes < (1U << 10U))
    return std::to_string(bytes) + " B";
  return bytes >= (1U << 20U) ? std::to_string(bytes >> 20U) + " MiB" : std::to_string(bytes >> 10U) + " KiB";
}

void print(const Line& line) {
  std::printf("%-15s %-12s P=%d %8s %10.1f us %7.0f%%", collectives::name_of(line.test.kind),
              line.test.in_place ? "in place" : "out of place", line.ranks,
              size_text(line.test.bytes).c_str(), line.seconds * 1e6, line.share_of_limit * 100);
  if (line.mpi_ratio > 0)
    std::printf(" %8.2f x\n", line.mpi_ratio);
  else
    std::printf("        -\n");
  std::fflush(stdout);
}

Line measure(ThreadSide& side, MpiPeer* peer, const Case& test, int rank, int ranks, int turns,
             sw::HostCommunicator& world) {
  std::vector<double> times, shares, ratios;
  for (int t = 0; t < turns; ++t) {
    const double own = side.collective(test);
    const double plain = side.copies(test.bytes, false);
    const double streamed = side.copies(test.bytes, true);
    double mpi = 0;
    if (rank == 0 && peer != nullptr)
      mpi = peer->turn(test);
    world.barrier(); // The others sleep here while Open MPI works.
    if (rank != 0)
      continue;
    times.push_back(own);
    shares.push_back(std::min(plain, streamed) * limit_factor(test, ranks) / own);
    ratios.push_back(mpi / own);
  }
  if (rank != 0)
    return {};
  return {ranks, test, benchmark::median(times), benchmark::median(shares),
          peer != nullptr ? benchmark::median(ratios) : 0.0};
}

std::vector<Line> measure_world(const Options& options, int ranks, const std::string& program) {
  const std::uint64_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::unique_ptr<MpiPeer> peer;
  if (options.mpi && MpiPeer::available())
    peer = std::make_unique<MpiPeer>(program, ranks, most);
  std::vector<Line> lines;
  std::vector<Span> spans(static_cast<std::size_t>(64 * ranks));
  std::vector<const float*> inputs(static_cast<std::size_t>(ranks));
  SeenCore cores[2];
  sw::launch({.ranks = ranks}, [&](sw::HostCommunicator world) {
    Buffers buffers(most);
    ThreadSide side(world, buffers, spans, inputs, cores);
    for (const Kind kind : options.kinds)
      for (const bool in_place : options.placements)
        for (const std::uint64_t bytes : options.sizes) {
          const Line line =
              measure(side, peer.get(), {kind, in_place, bytes}, world.rank(), ranks, options.turns, world);
          if (world.rank() == 0) {
            print(line);
            lines.push_back(line);
          }
        }
  });
  return lines;
}

/// Several turns as one: medians of their medians, means over all calls.
Sustained together(const std::vector<Sustained>& turns) {
  std::vector<double> medians, shared_medians;
  double seconds = 0, shared_seconds = 0;
  Sustained out;
  for (const Sustained& turn : turns) {
    const double time = turn.mean * static_cast<double>(turn.calls);
    medians.push_back(turn.median);
    if (turn.shared_median > 0)
      shared_medians.push_back(turn.shared_median);
    seconds += time;
    shared_seconds += turn.shared * time;
    out.calls += turn.calls;
  }
  if (out.calls == 0)
    return {};
  out.median = benchmark::median(medians);
  out.mean = seconds / static_cast<double>(out.calls);
  out.shared = shared_seconds / seconds;
  out.shared_median = shared_medians.empty() ? 0 : benchmark::median(shared_medians);
  return out;
}

void print(const CrowdedLine& line) {
  const auto side = [&line](const char* name, const Sustained& times) {
    if (times.calls == 0)
      return;
    std::printf("%-15s %8s %-13s %10.2f %10.2f %7.0f%% %10.2f", collectives::name_of(line.test.kind),
                size_text(line.test.bytes).c_str(), name, times.median * 1e6, times.mean * 1e6,
                100 * times.shared, times.shared_median * 1e6);
    if (&times != &line.mpi && line.mpi.calls > 0)
      std::printf(" %8.2f %8.2f", times.median / line.mpi.median, times.mean / line.mpi.mean);
    std::printf("\n");
  };
  side("threads", line.threads);
  side("processes", line.processes);
  side("Open MPI", line.mpi);
  std::fflush(stdout);
}

std::vector<CrowdedLine> measure_crowded(const Options& options, const std::string& program) {
  constexpr double turn_seconds = 0.5;
  constexpr int ranks = 2;
  const collectives::BusyProcesses busy(options.neighbours);
  const std::uint64_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::unique_ptr<MpiPeer> peer;
  if (options.mpi && MpiPeer::available())
    peer = std::make_unique<MpiPeer>(program, ranks, most);
  std::printf("%d ranks beside %d busy processes; us; on one core: share of the time, median then; over MPI\n"
              "%-15s %8s %-13s %10s %10s %19s %17s\n",
              ranks, options.neighbours, "operation", "size", "ranks", "median", "mean", "on one core",
              "median, mean");
  std::vector<CrowdedLine> lines;
  std::vector<Span> spans;
  std::vector<const float*> inputs(ranks);
  SeenCore cores[2];
  sw::launch({.ranks = ranks}, [&](sw::HostCommunicator world) {
    Buffers buffers(most);
    ThreadSide side(world, buffers, spans, inputs, cores);
    for (const Kind kind : options.kinds)
      for (const std::uint64_t bytes : options.sizes) {
        const Case test{kind, false, bytes, turn_seconds};
        Case in_processes = test;
        in_processes.library = true;
        std::vector<Sustained> own, processes, mpi;
        for (int t = 0; t < options.turns; ++t) {
          own.push_back(side.sustained(test));
          if (world.rank() == 0 && peer != nullptr) {
            mpi.push_back(peer->sustained_turn(test));
            processes.push_back(peer->sustained_turn(in_processes));
          }
          world.barrier(); // The others sleep here while processes work.
        }
        if (world.rank() == 0)
          print(lines.emplace_back(CrowdedLine{test, together(own), together(processes), together(mpi)}));
      }
  });
  return lines;
}

void write_json(const std::string& path, const std::vector<CrowdedLine>& lines, int neighbours) {
  std::ofstream file(path);
  const auto side = [&file](const char* name, const Sustained& times) {
    file << ", \"" << name << "\": {\"median_seconds\": " << times.median
         << ", \"mean_seconds\": " << times.mean << ", \"calls\": " << times.calls
         << ", \"share_of_time_on_one_core\": " << times.shared
         << ", \"median_seconds_on_one_core\": " << times.shared_median << "}";
  };
  file << "[\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    file << "  {\"operation\": \"" << collectives::name_of(lines[i].test.kind)
         << "\", \"bytes\": " << lines[i].test.bytes << ", \"neighbours\": " << neighbours;
    side("threads", lines[i].threads);
    if (lines[i].mpi.calls > 0) {
      side("processes", lines[i].processes);
      side("open_mpi", lines[i].mpi);
    }
    file << (i + 1 < lines.size() ? "},\n" : "}\n");
  }
  file << "]\n";
  if (!file)
    throw std::runtime_error("collectives: " + path + " must be writable (choose another --json)");
}

void write_json(const std::string& path, const std::vector<Line>& lines) {
  std::ofstream file(path);
  file << "[\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    file << "  {\"operation\": \"" << collectives::name_of(line.test.kind)
         << "\", \"in_place\": " << (line.test.in_place ? "true" : "false") << ", \"ranks\": " << line.ranks
         << ", \"bytes\": " << line.test.bytes << ", \"seconds\": " << line.seconds
         << ", \"share_of_exchange_copy_limit\": " << line.share_of_limit << ", \"open_mpi_over_threads\": ";
    if (line.mpi_ratio > 0)
      file << line.mpi_ratio;
    else
      file << "null";
    file << (i + 1 < lines.size() ? "},\n" : "}\n");
  }
  file << "]\n";
  if (!file)
    throw std::runtime_error("collectives: " + path + " must be writable (choose another --json)");
}

const char* const usage =
    R"(collectives_benchmark: thread ranks against Open MPI and against the exchange-copy limit
  --ranks 2,4            worlds
  --sizes 4,64,1024      KiB of the larger buffer of one rank
  --operations LIST      of all_reduce, reduce_scatter, all_gather
  --placements LIST      of out, in (out of place, in place)
  --turns 9              alternations of the sides; figures are medians over them
  --neighbour [1]        two ranks, calls back to back beside so many busy processes; by default all_reduce,
                         4 B to 4 MiB, 4 turns of half a second of thread ranks, of Open MPI, and of the library
                         under MPI; 0 gives the same table on an idle machine
  --no-mpi               leave Open MPI out
  --json FILE            write the table as JSON
)";

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> out(1);
  for (const char c : list)
    c == ',' ? void(out.emplace_back()) : void(out.back() += c);
  return out;
}

[[noreturn]] void reject(const std::string& sentence) {
  std::fprintf(stderr, "collectives_benchmark: %s\n%s", sentence.c_str(), usage);
  std::exit(2);
}

std::uint64_t number(const std::string& text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value == 0)
    reject("'" + text + "' must be a positive number");
  return value;
}

/// The defaults of --neighbour, which other options override.
void crowd(Options& options, int neighbours) {
  options.neighbours = neighbours;
  options.kinds = {Kind::all_reduce};
  options.sizes = {4, 4U << 10U, 64U << 10U, 1U << 20U, 4U << 20U};
  options.turns = 4;
}

/// Sets an option that has a value.
void set(Options& options, const std::string& flag, const std::string& value) {
  if (flag == "--ranks") {
    options.ranks.clear();
    for (const auto& part : parts_of(value))
      options.ranks.push_back(static_cast<int>(number(part)));
  } else if (flag == "--sizes") {
    options.sizes.clear();
    for (const auto& part : parts_of(value))
      options.sizes.push_back(number(part) << 10U);
  } else if (flag == "--operations") {
    options.kinds.clear();
    for (const auto& part : parts_of(value)) {
      const std::size_t before = options.kinds.size();
      for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather})
        if (part == collectives::name_of(kind))
          options.kinds.push_back(kind);
      if (options.kinds.size() == before)
        reject("'" + part + "' must be an operation");
    }
  } else if (flag == "--placements") {
    options.placements.clear();
    for (const auto& part : parts_of(value)) {
      if (part != "in" && part != "out")
        reject("'" + part + "' must be in or out");
      options.placements.push_back(part == "in");
    }
  } else if (flag == "--turns") {
    options.turns = static_cast<int>(number(value));
  } else if (flag == "--json") {
    options.json = value;
  } else {
    reject("'" + flag + "' must be one of the options below");
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--neighbour") == 0) {
      const bool counted = i + 1 < argc && argv[i + 1][0] != '-';
      crowd(options, counted && std::strcmp(argv[i + 1], "0") == 0 ? 0
                     : counted                                     ? static_cast<int>(number(argv[i + 1]))
                                                                   : 1);
    }
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") {
      std::fputs(usage, stdout);
      std::exit(0);
    }
    if (flag == "--neighbour") {
      i += i + 1 < argc && argv[i + 1][0] != '-' ? 1 : 0;
      continue;
    }
    if (flag == "--no-mpi") {
      options.mpi = false;
      continue;
    }
    if (i + 1 == argc)
      reject("'" + flag + "' must be one of the options below, with a value");
    set(options, flag, argv[++i]);
  }
  return options;
}

} // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--mpi-peer") == 0)
    return collectives::run_mpi_peer(argv[2]);
  try {
    const Options options = parse(argc, argv);
    if (options.mpi && !MpiPeer::available())
      std::fprintf(stderr,
                   "collectives_benchmark: without Open MPI (not built with it, or no mpirun on the path)\n");
    if (options.neighbours >= 0) {
      const std::vector<CrowdedLine> lines = measure_crowded(options, argv[0]);
      if (!options.json.empty())
        write_json(options.json, lines, options.neighbours);
      return 0;
    }
    std::printf("%-15s %-12s %3s %8s %13s %8s %10s\n", "operation", "placement", "", "size", "time",
                "of limit", "Open MPI");
    std::vector<Line> lines;
    for (const int ranks : options.ranks)
      for (const Line& line : measure_world(options, ranks, argv[0]))
        lines.push_back(line);
    if (!options.json.empty())
      write_json(options.json, lines);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
