// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares a complex three-dimensional transform on slabs with FFTW's own MPI transform.
///
/// Under mpirun both take turns in the same processes, over the same planes, out of place, and leave the
/// result transposed; the figure is the median of the ratios of neighbouring turns. Started directly, it
/// times thread ranks, without a peer. Both kinds also time the transition alone, and a copy of as many bytes
/// of each rank.
#include "timing.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/tensor/fft/transform.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <fftw3-mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using sw::axis::dp;
using Complex = std::complex<double>;
using Planes = sw::Layout<3, sw::Shard<0, dp>>;
using Transposed = sw::Layout<3, sw::Shard<1, dp>>;

struct Options {
  std::int64_t side = 128;
  int turns = 21;
  int ranks = 0; ///< Of threads; 0 under mpirun.
  bool check = true;
};

/// FFTW's transform of this rank's planes, with one way to plan it.
class Peer {
public:
  Peer(std::int64_t side, unsigned planning) {
    ptrdiff_t planes = 0, first = 0, rows = 0, first_row = 0;
    const ptrdiff_t elements = fftw_mpi_local_size_3d_transposed(side, side, side, MPI_COMM_WORLD, &planes,
                                                                 &first, &rows, &first_row);
    in_ = fftw_alloc_complex(static_cast<std::size_t>(elements));
    out_ = fftw_alloc_complex(static_cast<std::size_t>(elements));
    plan_ = fftw_mpi_plan_dft_3d(side, side, side, in_, out_, MPI_COMM_WORLD, FFTW_FORWARD,
                                 planning | FFTW_MPI_TRANSPOSED_OUT);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    fftw_destroy_plan(plan_);
    fftw_free(out_);
    fftw_free(in_);
  }
  void fill(const Complex* from, std::size_t count) { std::memcpy(in_, from, count * sizeof(Complex)); }
  void run() { fftw_execute(plan_); }
  /// The largest difference from our [plane, own row, element]; theirs is [own row, plane, element].
  [[nodiscard]] double difference(const Complex* ours, const std::array<std::int64_t, 3>& local) const {
    double out = 0;
    for (std::int64_t i = 0; i < local[0]; ++i)
      for (std::int64_t j = 0; j < local[1]; ++j)
        for (std::int64_t k = 0; k < local[2]; ++k) {
          const fftw_complex& theirs = out_[(j * local[0] + i) * local[2] + k];
          const double error =
              std::abs(ours[(i * local[1] + j) * local[2] + k] - Complex(theirs[0], theirs[1]));
          out = error <= out ? out : error; // keeps a NaN
        }
    return out;
  }

private:
  fftw_complex* in_;
  fftw_complex* out_;
  fftw_plan plan_;
};

int compare(sw::HostCommunicator world, const Options& options) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  sw::ShardedTensor<Planes, Complex> x(mesh, {options.side, options.side, options.side});
  sw::ShardedTensor<Planes, double> parts(mesh, {options.side, options.side, 2 * options.side});
  sw::fill_uniform(parts, {.seed = 1, .tensor = 0}, -1, 1);
  std::memcpy(static_cast<void*>(x.mutable_data()), parts.data(), x.local_size() * sizeof(Complex));
  const auto ours = [&] { return sw::fft<0>(sw::redistribute<Transposed>(sw::fftn<1, 2>(x))); };

  std::vector<std::unique_ptr<Peer>> peers;
  double difference = 0;
  if (options.ranks == 0) {
    for (const unsigned planning : {FFTW_ESTIMATE, FFTW_MEASURE})
      peers.push_back(std::make_unique<Peer>(options.side, planning));
    const auto result = ours();
    for (const auto& peer : peers) {
      peer->fill(x.data(), x.local_size());
      peer->run();
      difference = std::max(difference, peer->difference(result.data(), result.local_shape()));
    }
  }
  // From the first rank's start to the last one's end: on shared cores, a rank may leave a barrier when
  // others have done half of the work.
  const auto turn = [&](const auto& run) {
    world.barrier();
    const auto since_boot = [] { // of the machine's one clock
      return std::chrono::duration<double>(benchmark::Clock::now().time_since_epoch()).count();
    };
    std::array<double, 2> span{-since_boot(), 0};
    run();
    span[1] = since_boot();
    world.all_reduce_in_place(span, sw::ReduceOp::maximum);
    return span[0] + span[1];
  };
  std::vector<double> times, moves, rates;
  std::vector<std::vector<double>> ratios(peers.size());
  for (int i = -2; i < options.turns; ++i) {
    const double mine = turn([&] { static_cast<void>(ours()); });
    std::vector<double> others;
    for (const auto& peer : peers)
      others.push_back(turn([&] { peer->run(); }));
    // The second of two finds its memory in the caches, as far as it fits there.
    double move = 0, copy = 0;
    for (int again = 0; again < 2; ++again)
      move = turn([&] { static_cast<void>(sw::redistribute<Transposed>(x)); });
    for (int again = 0; again < 2; ++again)
      copy = turn([&] { static_cast<void>(x.clone()); });
    if (i < 0)
      continue; // plans, memory and pages
    times.push_back(mine);
    moves.push_back(move);
    rates.push_back(copy / move);
    for (std::size_t peer = 0; peer < peers.size(); ++peer)
      ratios[peer].push_back(mine / others[peer]);
  }
  if (world.rank() != 0)
    return 0;
  std::printf("%d %s, %lld^3, %s: %.1f ms", world.size(), options.ranks == 0 ? "processes" : "threads",
              static_cast<long long>(options.side), options.check ? "calls compared" : "unchecked",
              benchmark::median(times) * 1e3);
  if (!peers.empty())
    std::printf(", %.2f of FFTW's MPI transform, %.2f of its timed plan (difference %.1e)",
                benchmark::median(ratios[0]), benchmark::median(ratios[1]), difference);
  std::printf("; the transition %.1f ms, %.0f%% of the rate of a copy\n", benchmark::median(moves) * 1e3,
              100 * benchmark::median(rates));
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A three-dimensional transform against FFTW's MPI transform");
  app.add_option("--side", options.side, "elements in each direction");
  app.add_option("--turns", options.turns, "turns of each; figures are medians over them");
  app.add_option("--ranks", options.ranks, "thread ranks; leave it out under mpirun");
  app.add_flag("!--unchecked", options.check, "ranks do not compare their calls");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  sw::LaunchOptions launch;
  launch.check = options.check;
  if (options.ranks > 0)
    launch.ranks = options.ranks;
  try {
    return sw::launch(launch, [&](sw::HostCommunicator world) {
      if (options.ranks == 0)
        fftw_mpi_init();
      return compare(std::move(world), options);
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
