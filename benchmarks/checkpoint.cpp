// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares saves and loads with dd, with as many writers on the same file system, and measures how
/// much a save slows concurrent computation.
///
/// Each line is the median over turns in which both sides alternate: a save until it is durable and dd with
/// fsync; a load that compares all hashes and dd to /dev/null; the time for which start() blocks a step and a
/// copy of the same bytes; products during a save and products without one.
#include "timing.hpp"

#include <shardwright/io/checkpoint/saver.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;
namespace fs = std::filesystem;
using sw::axis::dp;
using Rows = sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>>;

struct Options {
  int ranks = 2;
  int mib = 256; ///< Of all ranks.
  int turns = 5;
  bool products = true; ///< Whether to measure how much a save slows concurrent products.
  std::string directory = "checkpoint_benchmark";
};

constexpr int tensors = 16;
constexpr std::int64_t width = 1024;

/// One rank's part of the benchmark.
class Bench {
public:
  Bench(const sw::HostCommunicator& world, const Options& options)
      : options_(options), world_(world), mesh_(world, sw::extent<dp>(world.size())),
        directory_(options.directory), saver_(world, directory_ / "saves") {
    for (int i = 0; i < tensors; ++i) {
      weights_.emplace_back(mesh_, typename Rows::Shape{std::int64_t{options.mib} * 256 / tensors, width});
      sw::fill_normal(weights_.back(), {1, static_cast<std::uint64_t>(i)});
    }
  }

  int run() {
    std::vector<double> saves, save_ratios, loads, load_ratios, stalls, copies, beside;
    double rate = 0;
    for (int turn = -1; turn < options_.turns; ++turn) {
      const double dd = timed([&] { dd_write(); });
      const double own = timed([&] { save(); });
      forget();
      const double dd_in = timed([&] { dd_read(); });
      forget();
      const double in = timed([&] { load(); });
      const double copy = timed([&] { copy_plain(); });
      const double stall = timed([&] { start(); });
      saver_.finish();
      if (turn < 0)
        continue; // memory and pages
      rate = bytes() / dd;
      saves.push_back(bytes() / own);
      save_ratios.push_back(dd / own);
      loads.push_back(bytes() / in);
      load_ratios.push_back(dd_in / in);
      copies.push_back(copy);
      stalls.push_back(stall / copy);
      if (options_.products)
        beside.push_back(products(rate, true) / products(rate, false));
    }
    if (world_.rank() != 0)
      return 0;
    const auto line = [&](const char* what, double figure, const char* unit, double ratio, const char* of) {
      std::printf("%-28s %8.1f %-5s %5.2f of %s\n", what, figure, unit, ratio, of);
    };
    std::printf("%d writers, %d MiB\n", options_.ranks, options_.mib);
    line("save, until durable", benchmark::median(saves) * 1e-6, "MB/s", benchmark::median(save_ratios),
         "dd with fsync");
    line("load, hashes compared", benchmark::median(loads) * 1e-6, "MB/s", benchmark::median(load_ratios),
         "dd, both from the disk");
    line("start of a save", benchmark::median(copies) * benchmark::median(stalls) * 1e3, "ms",
         benchmark::median(stalls), "a copy of its bytes");
    if (!beside.empty())
      line("products beside a save", bytes() / (0.05 * rate), "s", benchmark::median(beside),
           "the time without; the save is 5% of what dd writes in it");
    return 0;
  }

private:
  [[nodiscard]] double bytes() const { return options_.mib * 1024.0 * 1024.0; }

  /// Seconds until all ranks are done.
  template <class Work> double timed(const Work& work) {
    world_.barrier();
    const auto begin = benchmark::Clock::now();
    work();
    world_.barrier();
    return benchmark::seconds_since(begin);
  }

  /// Takes all files out of the page cache, so that a load comes from the disk.
  void forget() {
    world_.barrier();
    if (world_.rank() == 0)
      for (const fs::directory_entry& each : fs::recursive_directory_iterator(directory_))
        if (each.is_regular_file()) {
          const int file = ::open(each.path().c_str(), O_RDONLY | O_CLOEXEC);
          static_cast<void>(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED));
          ::close(file);
        }
  }

  void stage() {
    cp::Staging& memory = saver_.staging();
    for (std::size_t i = 0; i < weights_.size(); ++i)
      memory.add("weight." + std::to_string(i), weights_[i]);
  }
  void start() {
    stage();
    saver_.start({++step_, "", "", {}}, 1);
  }
  void save() {
    start();
    saver_.finish();
  }
  void load() {
    std::vector<std::string> refused;
    const auto reader = cp::open_newest(world_, directory_ / "saves", refused);
    for (std::size_t i = 0; i < weights_.size(); ++i)
      cp::read_tensor(*reader, "weight." + std::to_string(i), weights_[i]);
  }
  void copy_plain() {
    plain_.resize(weights_.size());
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      plain_[i].resize(weights_[i].local_size());
      std::memcpy(plain_[i].data(), weights_[i].data(), weights_[i].local_size() * sizeof(float));
    }
  }

  [[nodiscard]] std::string dd_file() const {
    return (directory_ / ("dd-" + std::to_string(world_.rank()))).string();
  }
  void dd_write() {
    shell("dd if=/dev/zero of='" + dd_file() +
          "' bs=1M count=" + std::to_string(options_.mib / options_.ranks) + " conv=fsync 2>/dev/null");
  }
  void dd_read() { shell("dd if='" + dd_file() + "' of=/dev/null bs=1M 2>/dev/null"); }
  static void shell(const std::string& command) {
    if (std::system(command.c_str()) != 0)
      throw std::runtime_error(command + " must succeed");
  }

  /// Seconds of a series of products long enough to fill the time in which dd would write twenty times the
  /// bytes; both sides compute the same number.
  double products(double rate, bool saves) {
    sw::ShardedTensor<sw::Layout<2>> a(mesh_, {512, 512}), b(mesh_, {512, 512});
    sw::fill_normal(a, {1, 1});
    sw::fill_normal(b, {1, 2});
    const auto one = [&] { static_cast<void>(sw::matmul(a, b)); };
    constexpr int trial = 40;
    if (count_ == 0) {
      one();
      const double each = timed([&] {
                            for (int i = 0; i < trial; ++i)
                              one();
                          }) /
                          trial;
      std::vector<double> first{bytes() / (0.05 * rate) / each};
      world_.broadcast(first, 0);
      count_ = static_cast<int>(first.front());
    }
    return timed([&] {
      if (saves)
        start();
      for (int i = 0; i < count_; ++i) {
        one();
        if (saves && i % trial == 0)
          static_cast<void>(saver_.poll());
      }
      saver_.finish();
    });
  }

  const Options& options_;
  sw::HostCommunicator world_;
  sw::DeviceMesh<dp> mesh_;
  fs::path directory_;
  cp::Saver saver_;
  std::vector<Rows> weights_;
  std::vector<std::vector<float>> plain_;
  std::uint64_t step_ = 0;
  int count_ = 0;
};

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Compares saving and loading checkpoints with dd.", "checkpoint"};
  app.add_option("--ranks", options.ranks, "Writers");
  app.add_option("--mib", options.mib, "MiB of all ranks together");
  app.add_option("--turns", options.turns, "Turns of each comparison");
  app.add_flag("!--no-products", options.products, "Leave the products out");
  app.add_option("--directory", options.directory, "A new directory on the file system to measure");
  CLI11_PARSE(app, argc, argv);
  if (fs::exists(options.directory)) {
    std::fprintf(stderr, "checkpoint: %s must be a new directory\n", options.directory.c_str());
    return 2;
  }
  fs::create_directories(options.directory);
  const Kokkos::ScopeGuard kokkos;
  const int code = sw::launch({.ranks = options.ranks},
                              [&](sw::HostCommunicator world) { return Bench(world, options).run(); });
  fs::remove_all(options.directory);
  return code;
}
