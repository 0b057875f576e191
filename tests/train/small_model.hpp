// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A small model of parts that is not a decoder: a matrix, layers around a stream, and a matrix with
/// squared errors.

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/pipeline/model_parts.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace train_test {

namespace sw = shardwright;

/// @brief The mesh of a SmallModel, over all ranks.
[[nodiscard]] inline sw::DeviceMesh<sw::axis::dp, sw::axis::cp, sw::axis::tp>
small_mesh(const sw::HostCommunicator& ranks, int tensor) {
  return sw::DeviceMesh<sw::axis::dp, sw::axis::cp, sw::axis::tp>(
      ranks, sw::extent<sw::axis::dp>(ranks.size() / tensor), sw::extent<sw::axis::cp>(1),
      sw::extent<sw::axis::tp>(tensor));
}

/// @brief Rows over dp and tp, products over tp.
/// @tparam HeadZero of the last matrix
template <class Element = double, class Zero = sw::DataParallel, class Target = sw::DefaultTarget,
          class HeadZero = Zero>
struct SmallModel {
  using target = Target;
  using element = Element;
  using Plan = sw::ModelPlan<Element, Zero, Target>;
  using Stream = sw::Layout<2, sw::Shard<0, sw::axis::dp, sw::axis::tp>>;
  using Tokens = sw::Layout<2, sw::Shard<0, sw::axis::dp>>;
  using Column = sw::Layout<2, sw::Shard<1, sw::axis::tp>>;
  using Row = sw::Layout<2, sw::Shard<0, sw::axis::tp>>;
  using Mesh = sw::DeviceMesh<sw::axis::dp, sw::axis::cp, sw::axis::tp>;
  using Value = sw::Var<Stream, Element, Target>;
  using Rows = sw::ShardedTensor<Tokens, Element, Target>;

  struct Config {
    std::int64_t layers = 3;
    std::int64_t width = 6;
    std::int64_t hidden = 10;
  };
  struct Batch {
    sw::ShardedTensor<Tokens, const Element, Target> x, wanted;
    sw::BatchOrigin origin{};
    int* faults = nullptr; ///< How many of the next losses on the host are to be NaN.
  };

  class First {
  public:
    template <class Place>
    First(const Place& place, const Config& config)
        : in_(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4)) {}
    auto operator()(sw::Tape<Target>& tape, const Batch& batch) {
      return sw::as_var(in_(tape.input(batch.x)).template as<Stream>());
    }
    auto members() { return sw::members("in", in_); }

  private:
    sw::Linear<Tokens, sw::Layout<2>, Plan> in_;
  };
  class Layer {
  public:
    template <class Place>
    Layer(const Place& place, const Config& config)
        : up_(place.mesh, {config.width, config.hidden}, sw::Initial::normal(0.3)),
          down_(place.mesh, {config.hidden, config.width}, sw::Initial::normal(0.3)) {}
    auto operator()(Value x) {
      auto inner = down_(sw::tanh(up_(x.template as<Tokens>())));
      return std::move(x) + std::move(inner).template as<Stream>();
    }
    auto members() { return sw::members("up", up_, "down", down_); }

  private:
    sw::Linear<Tokens, Column, Plan> up_;
    sw::Linear<sw::MatmulLayout<Tokens, Column>, Row, Plan> down_;
  };
  class Last {
  public:
    static constexpr std::string_view name = "head";
    template <class Place>
    Last(const Place& place, const Config& config)
        : out_(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4)) {}
    auto operator()(Value x, const Batch& batch) {
      auto loss = sw::mse(out_(std::move(x).template as<Tokens>()), batch.wanted);
      if constexpr (Target::host_accessible)
        if (batch.faults != nullptr && *batch.faults > 0) {
          --*batch.faults;
          loss.loss.value = std::numeric_limits<double>::quiet_NaN();
        }
      return loss;
    }
    auto members() { return sw::members("out", out_); }

  private:
    sw::Linear<Tokens, sw::Layout<2>, sw::ModelPlan<Element, HeadZero, Target>> out_;
  };
  using Parts = sw::Parts<First, sw::Repeat<Layer, &Config::layers>, Last>;

  [[nodiscard]] static std::array<std::int64_t, 2> boundary(const Config& config, const Batch& batch) {
    return {batch.x.shape()[0], config.width};
  }
};

/// @brief A microbatch of a step: wavy rows, and their targets. `at` changes an element, given its value.
template <class Model, class At>
[[nodiscard]] typename Model::Batch small_batch(const typename Model::Mesh& mesh, std::int64_t step,
                                                std::int64_t pass, At at) {
  const typename Model::Config config;
  typename Model::Rows x(mesh, {7, config.width}), wanted(mesh, {7, config.width});
  const auto read = [&](typename Model::Rows& rows, double phase) {
    sw::load_rows(rows, [&](std::int64_t row, std::span<typename Model::element> to) {
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = static_cast<typename Model::element>(
            at(row, std::sin(phase + 0.7 * static_cast<double>(row + 7 * pass + 13 * step) +
                             1.3 * static_cast<double>(i))));
    });
  };
  read(x, 0);
  read(wanted, 2);
  return {x.share(),
          wanted.share(),
          {static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(7 * pass)},
          nullptr};
}
template <class Model>
[[nodiscard]] typename Model::Batch small_batch(const typename Model::Mesh& mesh, std::int64_t step,
                                                std::int64_t pass) {
  return small_batch<Model>(mesh, step, pass, [](std::int64_t, double value) { return value; });
}

/// @brief A microbatch of `small_batch` whose rows are sequences of one token.
template <class Model>
[[nodiscard]] typename Model::Batch one_token_batch(const typename Model::Mesh& mesh, std::int64_t step,
                                                    std::int64_t pass) {
  auto out = small_batch<Model>(mesh, step, pass);
  out.origin.sequences = 7;
  return out;
}

/// @brief Trains with `passes` microbatches of one_token_batch for each step.
/// @returns the losses
template <class Model, class Training>
[[nodiscard]] std::vector<double> losses_of(Training& training, const typename Model::Mesh& mesh, int steps,
                                            int passes) {
  std::vector<typename Model::Batch> batches;
  const auto read = [&](std::int64_t step) {
    batches.clear();
    for (int pass = 0; pass < passes; ++pass)
      batches.push_back(one_token_batch<Model>(mesh, step, pass));
    return std::span<const typename Model::Batch>(batches);
  };
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step)
    losses.push_back(training.step(read, 0.02)->loss);
  training.require_equal_replicas();
  return losses;
}

} // namespace train_test
