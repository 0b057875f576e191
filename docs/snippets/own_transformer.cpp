// SPDX-License-Identifier: Apache-2.0
//
// The second tutorial, second half: a custom transformer on pipeline x data x tensor ranks, its steps
// compared with those of one rank, and a dry run of it. Runs on eight thread ranks by default.
#include <shardwright/launch.hpp>
#include <shardwright/models.hpp>

#include <shardwright/nn/layers/position_embedding.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/dry_run/memory_text.hpp>
#include <shardwright/train/pipeline/model.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

//! [layouts]
namespace sw = shardwright;
using namespace sw::axis;

struct Where {
  using Rows = sw::Shard<0, dp>;
  using Ids = sw::Layout<2, Rows>;                        // [batch, sequence]
  using Tokens = sw::Layout<3, Rows>;                     // [batch, sequence, width], as products read it
  using Residual = sw::Layout<3, Rows, sw::Shard<1, tp>>; // the stream: sequences split over tp as well
  using AttentionInput = sw::Layout<4, Rows, sw::Shard<2, tp>>; // some of the heads
  using Qkv = sw::Layout<3, sw::Shard<1, tp>>;                  // the matrices, column-parallel ...
  using Up = sw::Layout<2, sw::Shard<1, tp>>;
  using Output = sw::Layout<2, sw::Shard<0, tp>>; // ... and row-parallel
  using Down = sw::Layout<2, sw::Shard<0, tp>>;
  using Table = sw::Layout<2, sw::Shard<0, tp>>; // the vocabulary over tp
  using Scores = sw::Layout<2, sw::Shard<1, tp>>;
};
//! [layouts]

//! [block]
template <class Plan> class Block {
  using Stream = Where::Residual;
  using Tokens = Where::Tokens;

public:
  template <class Mesh>
  Block(const Mesh& mesh, std::int64_t width, std::int64_t heads, std::int64_t hidden)
      : norm1_(mesh, width, 1e-5), norm2_(mesh, width, 1e-5),
        attention_(mesh, {width, heads, heads, width / heads}, sw::Initial::normal(0.1),
                   sw::Initial::normal(0.05)),
        mlp_(mesh, width, hidden, sw::Initial::normal(0.1), sw::Initial::normal(0.05)) {}

  template <class Positions>
  auto operator()(sw::Var<Stream, typename Plan::element, typename Plan::target> x,
                  const Positions& positions) {
    auto attended = attention_(norm1_(x).template as<Tokens>(), positions, sw::causal);
    x = std::move(x) + std::move(attended).template as<Stream>();
    auto fed = mlp_(norm2_(x).template as<Tokens>());
    return std::move(x) + std::move(fed);
  }
  auto members() {
    return sw::members("norm1", norm1_, "attention", attention_, "norm2", norm2_, "mlp", mlp_);
  }

private:
  sw::LayerNorm<Stream, Plan> norm1_, norm2_;
  sw::Attention<Where, Plan> attention_;
  sw::Mlp<Where, Plan> mlp_; // with biases, so that its result is in the stream's layout
};
//! [block]

//! [model]
struct Sizes {
  std::int64_t layers = 4, width = 16, heads = 4, hidden = 32, vocabulary = 12, sequence = 8;
};

template <class Zero, class Target> struct Transformer {
  using target = Target;
  using element = float;
  using Plan = sw::ModelPlan<element, Zero, Target>;
  using Stream = sw::Var<Where::Residual, element, Target>;

  using Config = Sizes;
  using Batch = sw::TokenBatch<sw::NaturalOrder, Where::Ids, Target>;

  class First {
  public:
    template <class Place>
    First(const Place& place, const Config& config)
        : table_(place.mesh, config.vocabulary, config.width, sw::Initial::normal(0.1)),
          positions_(place.mesh, config.sequence, config.width, sw::Initial::normal(0.1)) {}
    auto operator()(sw::Tape<Target>& tape, const Batch& batch) {
      return positions_(table_(tape, batch.ids).template as<Where::Residual>());
    }
    auto members() { return sw::members("table", table_, "positions", positions_); }

  private:
    sw::Embedding<Where::Ids, Where::Table, Plan> table_;
    sw::PositionEmbedding<Where::Residual, Plan> positions_;
  };

  class Layer {
  public:
    template <class Place>
    Layer(const Place& place, const Config& config)
        : block_(place.mesh, config.width, config.heads, config.hidden) {}
    auto operator()(Stream x, const Batch& batch) {
      //! [recompute]
      return sw::recompute(block_)(std::move(x), batch.ids.positions());
      //! [recompute]
    }
    auto members() { return sw::members("", block_); }

  private:
    Block<Plan> block_;
  };

  class Last {
  public:
    template <class Place>
    Last(const Place& place, const Config& config)
        : norm_(place.mesh, config.width, 1e-5),
          scores_(place.mesh, {config.width, config.vocabulary}, sw::Initial::normal(0.1)) {}
    auto operator()(Stream x, const Batch& batch) {
      return sw::cross_entropy(scores_(norm_(std::move(x)).template as<Where::Tokens>()), batch.targets);
    }
    auto members() { return sw::members("norm", norm_, "scores", scores_); }

  private:
    sw::LayerNorm<Where::Residual, Plan> norm_;
    sw::Linear<Where::Tokens, Where::Scores, Plan> scores_;
  };

  using Parts = sw::Parts<First, sw::Repeat<Layer, &Config::layers>, Last>;

  static std::array<std::int64_t, 3> boundary(const Config& config, const Batch& batch) {
    return {batch.ids.shape()[0], batch.ids.shape()[1], config.width};
  }
};
//! [model]

//! [edges]
using Fused = sw::MatmulLayout<Where::Tokens, Where::Qkv>;
static_assert(std::is_same_v<Fused, Where::AttentionInput>); // attention reads the product's output as it is
using Unfinished = sw::Layout<3, Where::Rows, sw::Partial<sw::Sum, tp>>; // result of a row-parallel product
static_assert(sw::Transition<Where::Residual, Where::Tokens>::count<sw::AllGather> == 1);
static_assert(sw::Transition<Unfinished, Where::Residual>::count<sw::ReduceScatter> == 1);
//! [edges]

struct Extents {
  int pipeline = 1, data = 1, tensor = 1;
  [[nodiscard]] int ranks() const { return pipeline * data * tensor; }
};

//! [batch]
/// Sequences of consecutive numbers, each with its own start: `rows` of them, from number `first` on.
template <class Model, class Mesh>
typename Model::Batch count_up(const Mesh& mesh, const Sizes& sizes, std::int64_t rows, std::int64_t first) {
  typename Model::Batch::Ids ids(mesh, {rows, sizes.sequence}), targets(mesh, {rows, sizes.sequence});
  const auto fill = [&](auto& tokens, std::int64_t shift) {
    const auto read = [&](std::int64_t row, std::span<std::int32_t> to) {
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] =
            static_cast<std::int32_t>((5 * row + static_cast<std::int64_t>(i) + shift) % sizes.vocabulary);
    };
    sw::load_rows(tokens, read, first); // keeps this rank's part of each whole row
  };
  fill(ids, 0);
  fill(targets, 1);
  return {ids.share(), targets.share(), {}};
}
//! [batch]

/// Some steps; their losses.
template <class Zero, class Target>
std::vector<double> train(const sw::HostCommunicator& world, const Extents& extents, const Sizes& sizes,
                          std::int64_t rows, int steps) {
  constexpr int microbatches = 4;
  //! [mesh]
  const sw::DeviceMesh ranks{world, sw::extent<pp>(extents.pipeline), sw::extent<dp>(extents.data),
                             sw::extent<cp>(1), sw::extent<tp>(extents.tensor)};
  const sw::DeviceMesh mesh{ranks.template communicator<dp, cp, tp>(), sw::extent<dp>(extents.data),
                            sw::extent<cp>(1), sw::extent<tp>(extents.tensor)}; // of this rank's stage
  const auto schedule = sw::make_schedule<sw::OneFOneB>(extents.pipeline, microbatches);
  //! [mesh]

  //! [training]
  using Model = Transformer<Zero, Target>;
  const sw::LayerPartition layers(static_cast<int>(sizes.layers), extents.pipeline); // evenly
  sw::PipelineModel<Model> model(mesh, ranks.template communicator<pp>(), schedule.placement(), layers, sizes,
                                 1);
  sw::Training training(mesh, model, world, ranks.template communicator<pp>(), schedule,
                        sw::AdamW({.weight_decay = 0.01}));
  //! [training]

  //! [step]
  std::vector<typename Model::Batch> batches;
  const auto read = [&](std::int64_t step) { // the microbatches of a step, called again if it is repeated
    batches.clear();
    for (std::int64_t i = 0; i < microbatches; ++i)
      batches.push_back(count_up<Model>(mesh, sizes, rows, rows * (microbatches * step + i)));
    return std::span<const typename Model::Batch>(batches);
  };
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    sw::count_anew(); // a dry run counts the last step; elsewhere this does nothing
    losses.push_back(training.step(read, 0.01)->loss);
  }
  //! [step]
  return losses;
}

std::vector<double> losses_on(const Extents& extents) {
  std::vector<double> losses;
  sw::launch({.ranks = extents.ranks()}, [&](const sw::HostCommunicator& world) {
    const auto own = train<sw::Zero3, sw::DefaultTarget>(world, extents, {}, 4, 20);
    if (world.rank() == 0)
      losses = own;
  });
  return losses;
}

//! [dry_run]
/// Rank `rank` of 4096, none of which exists: the second of two steps.
sw::DryRun imagined(int rank) {
  constexpr Extents extents{.pipeline = 4, .data = 256, .tensor = 4};
  const Sizes sizes{
      .layers = 32, .width = 4096, .heads = 32, .hidden = 16384, .vocabulary = 32000, .sequence = 2048};
  return sw::dry_run(extents.ranks(), rank, [&](const sw::HostCommunicator& world) {
    static_cast<void>(train<sw::Zero3, sw::Counting<sw::DefaultTarget>>(world, extents, sizes, 512, 2));
  });
}
//! [dry_run]

void report(const sw::DryRun& run) {
  std::printf("rank %d of 4096: %.3g operations in products and attention\n", run.rank, run.flops);
  //! [report]
  const std::array<sw::NamedMemory, 1> memory{{{"rank " + std::to_string(run.rank), run.memory}}};
  std::printf("%s", sw::memory_text(memory).c_str());
  struct Total {
    std::size_t calls = 0, bytes = 0;
  };
  std::map<std::string, Total> totals;
  for (const sw::RecordedCall& call : run.calls) {
    Total& total = totals[call.group + " " + std::string(sw::name_of(call.operation))];
    ++total.calls;
    total.bytes += call.bytes;
  }
  for (const auto& [name, total] : totals)
    std::printf("  %-28s %4zu calls %10s\n", name.c_str(), total.calls,
                sw::bytes_text(static_cast<double>(total.bytes)).c_str());
  //! [report]
}

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  try {
    const std::vector<double> alone = losses_on({1, 1, 1});
    const std::vector<double> many = losses_on({.pipeline = 2, .data = 2, .tensor = 2});
    double largest = 0;
    for (std::size_t i = 0; i < alone.size(); ++i)
      largest = std::max(largest, std::abs(alone[i] - many[i]));
    const bool trained = largest < 1e-4 && many.back() < 0.5 * many.front();
    std::printf("losses of eight ranks and of one: %s\n", trained ? "equal, and falling" : "wrong");

    //! [compare]
    const std::vector<sw::DryRun> runs{imagined(0), imagined(1000), imagined(4095)};
    const std::vector<std::string> differences = sw::call_differences(runs); // one sentence for each
    //! [compare]
    report(runs[1]);
    std::printf("calls of ranks 0, 1000 and 4095: %s\n",
                differences.empty() ? "agree" : differences[0].c_str());
    return trained && differences.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
