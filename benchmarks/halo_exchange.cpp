// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares refresh_halos with a hand-written exchange over MPI: Irecv, packed columns, Isend,
/// Waitall.
///
/// Under mpirun both take turns in the same processes: each side refreshes a grid of doubles with one cell
/// around every block, and the figure is the median of the ratios of neighbouring turns. Started directly,
/// thread ranks take turns with processes that mpirun starts only for the hand-written exchange. The
/// hand-written exchange moves the same elements as ours, corners included; with --five-point it omits
/// corners.
#include "timing.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;

struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
struct columns : sw::axis_tag<columns> {
  static constexpr std::string_view name = "columns";
};
using Grid = sw::Layout<2, sw::Shard<0, rows, sw::Halo<1>>, sw::Shard<1, columns, sw::Halo<1>>>;

struct Options {
  int ranks = 2;
  int turns = 15;
  std::vector<int> sizes{64, 512, 2048};
  bool check = true;   ///< Whether ranks compare their calls, the default of launch().
  bool corners = true; ///< Whether the hand-written exchange moves corners, as refresh_halos does.
  int hand = 0;        ///< As a peer: the size of the grid that the hand-written exchange is timed for.
  std::string self;
};

/// Exchanges per turn, and the ranks of a grid: two next to each other, or two by two.
int repetitions(int size) { return size <= 64 ? 4000 : size <= 512 ? 2000 : 1000; }
int across(int ranks) { return ranks % 2 == 0 ? 2 : 1; }

/// The exchange as it is usually written.
class HandWritten {
public:
  HandWritten(int rank, int ranks, int size, bool corners)
      : height_(size / (ranks / across(ranks))), width_(size / across(ranks)),
        cells_(static_cast<std::size_t>((height_ + 2) * (width_ + 2)), 1.0), column_(4) {
    const int rows_of = ranks / across(ranks);
    const int i = rank / across(ranks);
    const int j = rank % across(ranks);
    const auto at = [&](int a, int b) {
      return a < 0 || b < 0 || a >= rows_of || b >= across(ranks) ? MPI_PROC_NULL : a * across(ranks) + b;
    };
    up_ = at(i - 1, j);
    down_ = at(i + 1, j);
    left_ = at(i, j - 1);
    right_ = at(i, j + 1);
    for (const int side : {-1, 1})
      for (const int other : {-1, 1})
        if (const int to = at(i + side, j + other); corners && to != MPI_PROC_NULL)
          corners_.push_back({to, cell(side < 0 ? 1 : height_, other < 0 ? 1 : width_),
                              cell(side < 0 ? 0 : height_ + 1, other < 0 ? 0 : width_ + 1)});
    for (auto& one : column_)
      one.resize(static_cast<std::size_t>(height_));
  }

  void exchange() {
    std::array<MPI_Request, 16> requests{};
    int count = 0;
    const auto receive = [&](double* data, int length, int from) {
      MPI_Irecv(data, length, MPI_DOUBLE, from, 0, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(count++)]);
    };
    const auto send = [&](const double* data, int length, int to) {
      MPI_Isend(data, length, MPI_DOUBLE, to, 0, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(count++)]);
    };
    receive(cell(0, 1), width_, up_);
    receive(cell(height_ + 1, 1), width_, down_);
    receive(column_[0].data(), height_, left_);
    receive(column_[1].data(), height_, right_);
    for (const Corner& corner : corners_)
      receive(corner.halo, 1, corner.to);
    send(cell(1, 1), width_, up_);
    send(cell(height_, 1), width_, down_);
    if (left_ != MPI_PROC_NULL)
      for (int i = 0; i < height_; ++i)
        column_[2][static_cast<std::size_t>(i)] = *cell(i + 1, 1);
    send(column_[2].data(), height_, left_);
    if (right_ != MPI_PROC_NULL)
      for (int i = 0; i < height_; ++i)
        column_[3][static_cast<std::size_t>(i)] = *cell(i + 1, width_);
    send(column_[3].data(), height_, right_);
    for (const Corner& corner : corners_)
      send(corner.owned, 1, corner.to);
    MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE);
    if (left_ != MPI_PROC_NULL)
      for (int i = 0; i < height_; ++i)
        *cell(i + 1, 0) = column_[0][static_cast<std::size_t>(i)];
    if (right_ != MPI_PROC_NULL)
      for (int i = 0; i < height_; ++i)
        *cell(i + 1, width_ + 1) = column_[1][static_cast<std::size_t>(i)];
  }

private:
  struct Corner {
    int to;
    const double* owned;
    double* halo;
  };

  double* cell(int i, int j) { return cells_.data() + static_cast<std::size_t>(i * (width_ + 2) + j); }

  int height_, width_;
  std::vector<double> cells_;
  std::vector<std::vector<double>> column_; ///< Received left and right, sent left and right.
  std::vector<Corner> corners_;
  int up_ = 0, down_ = 0, left_ = 0, right_ = 0;
};

/// Seconds of one of many exchanges, from the first rank's start to the last one's end.
template <class Meet, class Exchange> double turn(int count, Meet meet, Exchange exchange) {
  meet();
  const auto begin = benchmark::Clock::now();
  for (int i = 0; i < count; ++i)
    exchange();
  meet();
  return benchmark::seconds_since(begin) / count;
}

class Ours {
public:
  Ours(const sw::HostCommunicator& world, int size)
      : mesh_(world, sw::extent<rows>(world.size() / across(world.size())),
              sw::extent<columns>(across(world.size()))),
        grid_(mesh_, {size, size}) {
    sw::fill(grid_, 1.0);
  }
  void exchange() { sw::refresh_halos(grid_); }

private:
  sw::DeviceMesh<rows, columns> mesh_;
  sw::ShardedTensor<Grid, double> grid_;
};

/// Both sides in the processes of one mpirun.
int on_mpi(sw::HostCommunicator world, const Options& options) {
  for (const int size : options.sizes) {
    Ours ours(world, size);
    HandWritten hand(world.rank(), world.size(), size, options.corners);
    const auto meet = [] { MPI_Barrier(MPI_COMM_WORLD); };
    std::vector<double> own;
    std::vector<double> ratios;
    for (int i = -1; i < options.turns; ++i) {
      const double mine = turn(repetitions(size), meet, [&] { ours.exchange(); });
      const double theirs = turn(repetitions(size), meet, [&] { hand.exchange(); });
      if (i < 0)
        continue; // memory and pages
      own.push_back(mine);
      ratios.push_back(mine / theirs);
    }
    if (world.rank() == 0)
      std::printf("MPI, %d ranks, %4d x %-4d: %7.2f us, %.2f of the hand-written\n", world.size(), size, size,
                  benchmark::median(own) * 1e6, benchmark::median(ratios));
  }
  return 0;
}

/// Only the hand-written exchange, for comparison with thread ranks.
int hand_alone(const Options& options) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  HandWritten hand(rank, ranks, options.hand, options.corners);
  const auto meet = [] { MPI_Barrier(MPI_COMM_WORLD); };
  std::vector<double> times;
  for (int i = -1; i < 3; ++i)
    times.push_back(turn(repetitions(options.hand), meet, [&] { hand.exchange(); }));
  times.erase(times.begin());
  if (rank == 0)
    std::printf("%.9e\n", benchmark::median(times));
  MPI_Finalize();
  return 0;
}

double time_of_hand(const Options& options, int size) {
  const std::string command = "mpirun --oversubscribe --bind-to none -n " + std::to_string(options.ranks) +
                              " " + options.self + " --hand " + std::to_string(size) +
                              (options.corners ? "" : " --five-point");
  FILE* const pipe = popen(command.c_str(), "r");
  double seconds = 0;
  const bool found = pipe != nullptr && std::fscanf(pipe, "%lf", &seconds) == 1;
  if (pipe == nullptr || pclose(pipe) != 0 || !found)
    throw std::runtime_error("halo_exchange: the processes of mpirun must give a time (check '" + command +
                             "')");
  return seconds;
}

int on_threads(const Options& options) {
  for (const int size : options.sizes) {
    std::vector<double> own;
    std::vector<double> ratios;
    for (int i = 0; i < options.turns; ++i) {
      double mine = 0;
      sw::launch({.ranks = options.ranks, .check = options.check}, [&](sw::HostCommunicator world) {
        Ours ours(world, size);
        const auto meet = [&] { world.barrier(); };
        std::vector<double> times;
        for (int j = -1; j < 3; ++j)
          times.push_back(turn(repetitions(size), meet, [&] { ours.exchange(); }));
        times.erase(times.begin());
        if (world.rank() == 0)
          mine = benchmark::median(times);
      });
      own.push_back(mine);
      ratios.push_back(mine / time_of_hand(options, size));
    }
    std::printf("threads, %d ranks, %4d x %-4d: %7.2f us, %.2f of the hand-written\n", options.ranks, size,
                size, benchmark::median(own) * 1e6, benchmark::median(ratios));
    std::fflush(stdout);
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  options.self = argv[0];
  CLI::App app("refresh_halos against a hand-written exchange over MPI");
  app.add_option("--ranks", options.ranks, "thread ranks");
  app.add_option("--turns", options.turns, "pairs of turns; figures are medians over them");
  app.add_option("--sizes", options.sizes, "rows and columns of the grid")->delimiter(',');
  app.add_flag("!--unchecked", options.check, "ranks do not compare their calls");
  app.add_flag("!--five-point", options.corners, "the hand-written exchange leaves corners out");
  app.add_option("--hand", options.hand, "as a process of mpirun: time the hand-written exchange alone");
  CLI11_PARSE(app, argc, argv);
  if (options.hand > 0)
    return hand_alone(options);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  try {
    if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr)
      return on_threads(options);
    return sw::launch({.check = options.check},
                      [&](sw::HostCommunicator world) { return on_mpi(std::move(world), options); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
