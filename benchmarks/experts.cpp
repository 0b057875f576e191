// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares a layer of experts with its grouped products, and dispatch and combine with plain copies
/// of their rows; measures two microbatches that hide each other's all_to_alls on a simulated link.
///
/// Usage: experts [--ranks N,N...] [--tokens N] [--turns N] [--only-link] [--json FILE]. The two sides of a
/// ratio alternate; wall times go from the first rank's start to the last one's end, processor times are
/// those of a rank's own thread, and ratios are medians over the turns.

#include "group_stopwatch.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/comm/observe/simulated_link.hpp>
#include <shardwright/comm/turns.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/layers/mlp.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/tape.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using benchmark::GroupStopwatch;
using benchmark::median;
using Mesh = sw::DeviceMesh<ep>;
using Tokens = sw::Layout<2, sw::Shard<0, ep>>;
using Layer = sw::ExpertMlp<Tokens, sw::AxisList<ep>>;

struct Options {
  std::vector<int> ranks{1, 2};
  std::int64_t tokens = 8192, width = 512, hidden = 1408, experts = 8;
  int turns = 9;
  double gigabytes_per_second = 1;
  double latency_microseconds = 20;
  bool only_link = false;
  std::string json;
};
constexpr std::int64_t slots = 2;

/// Two random experts for each token.
[[nodiscard]] auto choices_of(const Mesh& mesh, const Options& options) {
  sw::ShardedTensor<Tokens, std::int32_t> out(mesh, {options.tokens, slots});
  for (std::size_t i = 0; i < out.local_size(); i += 2) {
    const auto token = static_cast<std::uint32_t>(i / 2) + static_cast<std::uint32_t>(out.local_offset()[0]);
    const auto experts = static_cast<std::uint32_t>(options.experts);
    const std::uint32_t first = (token * 2654435761U >> 7U) % experts;
    const std::uint32_t second = (first + 1 + (token * 40503U >> 3U) % (experts - 1)) % experts;
    out.mutable_data()[i] = static_cast<std::int32_t>(first);
    out.mutable_data()[i + 1] = static_cast<std::int32_t>(second);
  }
  return out;
}
[[nodiscard]] sw::ExpertSet set_of(const Options& options) {
  return {options.experts, options.tokens * slots};
}
[[nodiscard]] auto random_of(const Mesh& mesh, std::int64_t rows, std::int64_t columns,
                             std::uint64_t stream) {
  sw::ShardedTensor<Tokens> out(mesh, {rows, columns});
  sw::fill_uniform(out, {1, stream}, -0.5, 0.5);
  return out;
}

/// Processor seconds of the calling thread.
[[nodiscard]] double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The products of a layer's forward and backward passes, expert by expert, on separate buffers.
class BareProducts {
public:
  BareProducts(const Options& options, const std::vector<std::int64_t>& rows)
      : width_(static_cast<std::size_t>(options.width)), hidden_(static_cast<std::size_t>(options.hidden)) {
    for (const std::int64_t count : rows)
      rows_.push_back(static_cast<std::size_t>(count));
    std::size_t all = 0;
    for (const std::size_t count : rows_)
      all += count;
    for (auto* narrow : {&x_, &y_})
      fill(*narrow, all * width_);
    for (auto* wide : {&a_, &b_, &g_})
      fill(*wide, all * hidden_);
    for (auto* weights : {&gate_, &up_, &down_, &gradient_})
      fill(*weights, rows_.size() * width_ * hidden_);
  }

  template <class Execution> void run(const Execution& execution) {
    using sw::kernels::matmul;
    constexpr auto no = sw::kernels::Transpose::no, yes = sw::kernels::Transpose::yes;
    for (std::size_t e = 0, first = 0; e < rows_.size(); first += rows_[e++]) {
      const std::size_t n = rows_[e];
      const Matrix x(x_.data() + first * width_, n, width_), y(y_.data() + first * width_, n, width_);
      const Matrix a(a_.data() + first * hidden_, n, hidden_), b(b_.data() + first * hidden_, n, hidden_);
      const Matrix g(g_.data() + first * hidden_, n, hidden_);
      const Matrix gate = of(gate_, e, width_, hidden_), up = of(up_, e, width_, hidden_);
      const Matrix down = of(down_, e, hidden_, width_);
      matmul(execution, x, no, gate, no, a);
      matmul(execution, x, no, up, no, b);
      matmul(execution, a, no, down, no, y);
      matmul(execution, y, no, down, yes, g);
      matmul(execution, a, yes, y, no, of(gradient_, e, hidden_, width_));
      for (const Matrix& weight : {gate, up}) {
        matmul(execution, g, no, weight, yes, x);
        matmul(execution, x, yes, g, no, of(gradient_, e, width_, hidden_));
      }
    }
  }

private:
  using Matrix = sw::MatrixView<float>;
  static void fill(std::vector<float>& out, std::size_t count) {
    out.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<float>((i * 2654435761U >> 9U) % 1000) * 1e-3F - 0.5F;
  }
  [[nodiscard]] Matrix of(std::vector<float>& weights, std::size_t e, std::size_t in, std::size_t out) const {
    return Matrix(weights.data() + e * width_ * hidden_, in, out);
  }

  std::size_t width_, hidden_;
  std::vector<std::size_t> rows_;
  std::vector<float> x_, y_, a_, b_, g_, gate_, up_, down_, gradient_;
};

/// Median seconds of the layer and of its products, and the median of their ratio.
struct LayerLine {
  double layer = 0, products = 0, ratio = 0, processor_ratio = 0;
};

LayerLine measure_layer(sw::HostCommunicator world, const Options& options, GroupStopwatch& watch) {
  const Mesh mesh{world, sw::extent<ep>(world.size())};
  Layer layer(mesh, {options.width, options.hidden, set_of(options)}, sw::Initial::normal(0.02),
              sw::Initial::normal(0.02));
  sw::initialize(layer, 5);
  const sw::GradAccumulator accumulator(layer);
  const auto x = random_of(mesh, options.tokens, options.width, 1);
  const auto gates = random_of(mesh, options.tokens, slots, 2);
  const auto upstream = random_of(mesh, options.tokens, options.width, 3);
  const auto chosen = choices_of(mesh, options);
  BareProducts products(options, sw::rows_per_expert(sw::dispatch<ep>(x, chosen, set_of(options))));
  sw::Tape<> tape;
  const auto pass = [&] {
    tape.restart();
    {
      const auto y = layer(tape.variable(x), chosen, tape.variable(gates));
      tape.seed(y, upstream.share());
    }
    tape.backward();
  };
  std::vector<double> full, bare, ratios, processor_ratios;
  for (int turn = 0; turn <= options.turns; ++turn) {
    const double begin = processor_seconds();
    const double layer_seconds = watch.seconds(world, pass);
    const double middle = processor_seconds();
    const double product_seconds = watch.seconds(world, [&] { products.run(x.execution()); });
    const double end = processor_seconds();
    if (turn == 0) // which warms up
      continue;
    full.push_back(layer_seconds);
    bare.push_back(product_seconds);
    ratios.push_back(layer_seconds / product_seconds);
    processor_ratios.push_back((middle - begin) / (end - middle));
  }
  return {median(full), median(bare), median(ratios), median(processor_ratios)};
}

/// Wall seconds of calls, and processor seconds of this rank's thread in them.
struct Times {
  std::vector<double> wall{}, processor{};

  void add(GroupStopwatch& watch, sw::HostCommunicator& world, const auto& work) {
    const double begin = processor_seconds();
    wall.push_back(watch.seconds(world, work));
    processor.push_back(processor_seconds() - begin);
  }
};

/// The median of the ratios of two lists.
[[nodiscard]] double median_ratio(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios(over.size());
  for (std::size_t i = 0; i < ratios.size(); ++i)
    ratios[i] = over[i] / under[i];
  return median(std::move(ratios));
}

/// Times of dispatch, combine and a plain copy, in which each rank copies as many bytes as it receives in a
/// dispatch, in equal parts from all ranks.
struct MoveTimes {
  Times copy{}, dispatch{}, combine{};
};

MoveTimes measure_moves(sw::HostCommunicator world, const Options& options, GroupStopwatch& watch) {
  const Mesh mesh{world, sw::extent<ep>(world.size())};
  const auto x = random_of(mesh, options.tokens, options.width, 1);
  const auto gates = random_of(mesh, options.tokens, slots, 2);
  const auto chosen = choices_of(mesh, options);
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::size_t part =
      static_cast<std::size_t>(options.tokens * slots * options.width) / ranks * sizeof(float) / ranks;
  std::vector<char> from(part * ranks, 1), to(part * ranks, 2);
  std::vector<std::uint64_t> addresses(ranks);
  world.all_gather(std::vector<std::uint64_t>{reinterpret_cast<std::uintptr_t>(from.data())}, addresses);
  const auto copy = [&] {
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t rank = (i + static_cast<std::size_t>(world.rank())) % ranks;
      const auto* source =
          reinterpret_cast<const char*>(addresses[rank]); // NOLINT(performance-no-int-to-ptr)
      std::memcpy(to.data() + i * part, source + i * part, part);
    }
    asm volatile("" ::: "memory");
  };
  MoveTimes out;
  for (int turn = 0; turn <= 5 * options.turns; ++turn) {
    if (turn == 1) // the first one warms up
      out = {};
    out.copy.add(watch, world, copy);
    std::optional<sw::ShardedTensor<sw::DispatchLayout<Tokens, sw::AxisList<ep>>>> rows;
    out.dispatch.add(watch, world, [&] { rows.emplace(sw::dispatch<ep>(x, chosen, set_of(options))); });
    out.combine.add(watch, world, [&] { static_cast<void>(sw::combine(*rows, gates)); });
  }
  return out;
}

/// Prints and returns the line of one of the moves.
nlohmann::json report_move(const char* name, const Times& copy, const Times& move) {
  const double wall = median_ratio(copy.wall, move.wall);
  const double processor = median_ratio(copy.processor, move.processor);
  std::printf("  %-8s %8.2f ms: %.0f%% of the rate of a copy of the rows, %.0f%% by processor time\n", name,
              median(move.wall) * 1e3, 100 * wall, 100 * processor);
  return {{"seconds", median(move.wall)}, {"share_of_copy", wall}, {"processor_share_of_copy", processor}};
}

struct DenseLayouts {
  using Tokens = ::Tokens;
  using Residual = ::Tokens;
  using GateUp = sw::Layout<3>;
  using Down = sw::Layout<2>;
};

/// Layers, each an MLP that all tokens pass through and experts; then an MLP in place of a model's head.
class Layers {
public:
  Layers(const Mesh& mesh, const Options& options, int count) {
    const auto initial = sw::Initial::normal(0.02);
    for (int i = 0; i <= count; ++i)
      dense_.emplace_back(mesh, options.width, options.hidden, initial, initial);
    for (int i = 0; i < count; ++i)
      experts_.emplace_back(mesh, sw::ExpertSizes{options.width, options.hidden, set_of(options)}, initial,
                            initial);
  }
  [[nodiscard]] auto operator()(auto x, const auto& chosen, const auto& gates) {
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      auto h = x + dense_[i](x);
      x = h + experts_[i](h, chosen, gates);
    }
    return dense_.back()(x);
  }
  [[nodiscard]] auto members() { return sw::members("dense", dense_, "experts", experts_); }

private:
  std::deque<sw::SwiGlu<DenseLayouts>> dense_;
  std::deque<Layer> experts_;
};

/// For a step of two microbatches: median seconds, the seconds of its all_to_alls, and the share of these
/// that is hidden.
struct LinkLine {
  std::array<double, 2> seconds{}, moving{}, hidden{}; // one after the other, and in turns
};

LinkLine measure_link(const sw::HostCommunicator& world, const Options& all, GroupStopwatch& watch) {
  Options options = all;
  options.tokens /= 8; // of a microbatch
  const auto clock = std::make_shared<sw::CommunicationClock>();
  const auto turns = std::make_shared<sw::Turns>();
  sw::HostCommunicator ranks = world;
  const sw::HostCommunicator linked = sw::timed(
      sw::simulated_link(world, {options.latency_microseconds * 1e-6, options.gigabytes_per_second * 1e9}),
      clock);
  const Mesh mesh{sw::in_turns(linked, turns), sw::extent<ep>(world.size())};
  Layers layers(mesh, options, 2);
  sw::initialize(layers, 5);
  const sw::GradAccumulator accumulator(layers);
  const auto x = random_of(mesh, options.tokens, options.width, 1);
  const auto gates = random_of(mesh, options.tokens, slots, 2);
  const auto upstream = random_of(mesh, options.tokens, options.width, 3);
  const auto chosen = choices_of(mesh, options);
  std::array<sw::Tape<>, 2> tapes;
  const auto pass = [&](std::size_t microbatch) {
    sw::Tape<>& tape = tapes[microbatch];
    tape.restart();
    {
      const auto y = layers(tape.variable(x), chosen, tape.variable(gates));
      tape.seed(y, upstream.share());
    }
    tape.backward();
  };
  std::array<std::vector<double>, 2> seconds, moving, hidden;
  for (int turn = 0; turn <= options.turns; ++turn)
    for (const std::size_t way : {0U, 1U}) {
      clock->restart();
      const double taken = watch.seconds(ranks, [&] {
        if (way == 1)
          return turns->run([&] { pass(0); }, [&] { pass(1); });
        pass(0);
        pass(1);
      });
      sw::CommunicationTotals moves;
      for (const sw::CommunicationKind& kind : clock->kinds())
        if (kind.operation == sw::Operation::all_to_all)
          moves += kind.totals;
      if (turn == 0)
        continue;
      seconds[way].push_back(taken);
      moving[way].push_back(moves.seconds);
      hidden[way].push_back(moves.hidden_seconds() / moves.seconds);
    }
  LinkLine out;
  for (std::size_t way = 0; way < 2; ++way) {
    out.seconds[way] = median(seconds[way]);
    out.moving[way] = median(moving[way]);
    out.hidden[way] = median(hidden[way]);
  }
  return out;
}

void run_link(const Options& options, nlohmann::json& out) {
  GroupStopwatch watch(2);
  sw::launch({.ranks = 2}, [&](const sw::HostCommunicator& world) {
    const LinkLine line = measure_link(world, options, watch);
    if (world.rank() != 0)
      return;
    std::printf("two microbatches over links of %g GB/s and %g us:\n", options.gigabytes_per_second,
                options.latency_microseconds);
    for (const std::size_t way : {0U, 1U}) {
      std::printf("  %-20s %8.1f ms, all_to_alls %6.1f ms, of it hidden %5.1f%%\n",
                  way == 0 ? "one after the other" : "in turns", line.seconds[way] * 1e3,
                  line.moving[way] * 1e3, 100 * line.hidden[way]);
      out.push_back({{"in_turns", way == 1},
                     {"step_seconds", line.seconds[way]},
                     {"all_to_all_seconds", line.moving[way]},
                     {"hidden_share", line.hidden[way]}});
    }
  });
}

void run(const Options& options) {
  nlohmann::json lines = nlohmann::json::array();
  for (const int ranks : options.only_link ? std::vector<int>{} : options.ranks) {
    GroupStopwatch watch(ranks);
    sw::launch({.ranks = ranks}, [&](const sw::HostCommunicator& world) {
      if (sw::detail::ThreadRanks::of(world) == nullptr) // whose buffers the copies read
        throw std::runtime_error("the ranks must be threads of one process (start it without mpirun)");
      const LayerLine layer = measure_layer(world, options, watch);
      const MoveTimes moves = measure_moves(world, options, watch);
      if (world.rank() != 0)
        return;
      std::printf("%d ranks: layer %.1f ms, its products %.1f ms: %.3f, of processor time %.3f\n", ranks,
                  layer.layer * 1e3, layer.products * 1e3, layer.ratio, layer.processor_ratio);
      lines.push_back({{"ranks", ranks},
                       {"layer_seconds", layer.layer},
                       {"product_seconds", layer.products},
                       {"layer_over_products", layer.ratio},
                       {"processor_time_over_products", layer.processor_ratio},
                       {"dispatch", report_move("dispatch", moves.copy, moves.dispatch)},
                       {"combine", report_move("combine", moves.copy, moves.combine)}});
    });
  }
  nlohmann::json link = nlohmann::json::array();
  run_link(options, link);
  if (!options.json.empty())
    std::ofstream(options.json) << nlohmann::json{{"benchmark", "experts"},
                                                  {"tokens", options.tokens},
                                                  {"width", options.width},
                                                  {"hidden", options.hidden},
                                                  {"experts", options.experts},
                                                  {"lines", lines},
                                                  {"link", link}}
                                       .dump(2)
                                << "\n";
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Compares a layer of experts with its grouped products, and its moves of rows with copies",
               "experts"};
  app.add_option("--ranks", options.ranks, "Numbers of ranks that share the experts, one line for each")
      ->delimiter(',');
  app.add_option("--tokens", options.tokens, "Tokens of all ranks together")->check(CLI::PositiveNumber);
  app.add_option("--width", options.width, "Width of a token")->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden, "Hidden width of an expert")->check(CLI::PositiveNumber);
  app.add_option("--experts", options.experts, "Experts of the layer")->check(CLI::Range(2, 4096));
  app.add_option("--turns", options.turns, "Repetitions")->check(CLI::PositiveNumber);
  app.add_option("--gigabytes-per-second", options.gigabytes_per_second,
                 "Bandwidth of a rank's simulated link")
      ->check(CLI::PositiveNumber);
  app.add_option("--latency", options.latency_microseconds, "Latency of that link, in microseconds");
  app.add_flag("--only-link", options.only_link, "Measure only the two microbatches");
  app.add_option("--json", options.json, "File for the figures");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  sw::kernels::use_single_threaded_blas();
  try {
    run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "experts: %s\n", error.what());
    return 1;
  }
  return 0;
}
