// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A classifier of points: blocks of two products around a stream of rows.

#include <shardwright/models.hpp>

#include <array>
#include <cstdint>
#include <string>

namespace models {

namespace sw = shardwright;

/// @brief Sizes of an Mlp.
struct MlpConfig {
  std::int64_t layers = 4;
  std::int64_t features = 2;
  std::int64_t width = 16;
  std::int64_t hidden = 32;
  std::int64_t classes = 3;
  sw::Recomputation recompute{};
};

/// @brief The layouts of its tensors: rows over data ranks, and also over tensor ranks wherever no product
/// needs whole rows.
struct MlpLayouts {
  using Tokens = sw::Layout<2, sw::Shard<0, sw::axis::dpr, sw::axis::dp>>;
  using Residual = sw::Layout<2, sw::Shard<0, sw::axis::dpr, sw::axis::dp, sw::axis::tp>>;
  using Labels = sw::Layout<1, sw::Shard<0, sw::axis::dpr, sw::axis::dp, sw::axis::tp>>;
  using Up = sw::Layout<2, sw::Shard<1, sw::axis::tp>>;
  using Down = sw::Layout<2, sw::Shard<0, sw::axis::tp>>;
};

/// @brief Projects points to a stream, adds blocks to it, and reads classes off it.
template <class Plan = sw::ModelPlan<>> struct Mlp {
  using element = typename Plan::element;
  using target = typename Plan::target;
  using Config = MlpConfig;
  using Stream = MlpLayouts::Residual;
  using Value = sw::Var<Stream, element, target>;
  using Points = sw::ShardedTensor<Stream, element, target>;
  using Labels = sw::ShardedTensor<MlpLayouts::Labels, std::int32_t, target>;

  struct Batch {
    sw::ShardedTensor<Stream, const element, target> points;
    sw::ShardedTensor<MlpLayouts::Labels, const std::int32_t, target> labels;
  };

  class Lift {
  public:
    template <class Place>
    Lift(const Place& place, const Config& config)
        : lift_(place.mesh, {config.features, config.width}, sw::Initial::normal(1)) {}
    auto operator()(sw::Tape<target>& tape, const Batch& batch) { return lift_(tape.input(batch.points)); }
    auto members() { return sw::members("lift", lift_); }

  private:
    sw::BiasedLinear<Stream, sw::Layout<2>, Plan> lift_;
  };

  class Block {
  public:
    template <class Place>
    Block(const Place& place, const Config& config)
        : recompute_(config.recompute.of(static_cast<std::int64_t>(place.number))),
          mlp_(place.mesh, config.width, config.hidden, sw::Initial::normal(0.3), sw::Initial::normal(0.2)) {}
    auto operator()(Value x) {
      const auto block = [&](Value stream) {
        return stream + mlp_(stream.template as<MlpLayouts::Tokens>());
      };
      return sw::recompute(block, recompute_)(std::move(x));
    }
    auto members() { return sw::members("", mlp_); }

  private:
    sw::Recompute recompute_;
    sw::Mlp<MlpLayouts, Plan, sw::operation::Relu> mlp_;
  };

  class Classify {
  public:
    template <class Place>
    Classify(const Place& place, const Config& config)
        : norm_(place.mesh, config.width, 1e-5),
          scores_(place.mesh, {config.width, config.classes}, sw::Initial::normal(0.2)) {}
    auto operator()(Value x, const Batch& batch) {
      return sw::cross_entropy(scores_(norm_(std::move(x))), batch.labels);
    }
    auto members() { return sw::members("norm", norm_, "scores", scores_); }

  private:
    sw::LayerNorm<Stream, Plan> norm_;
    sw::BiasedLinear<Stream, sw::Layout<2>, Plan> scores_;
  };

  using Parts = sw::Parts<Lift, sw::Repeat<Block, &Config::layers>, Classify>;

  [[nodiscard]] static std::array<std::int64_t, 2> boundary(const Config& config, const Batch& batch) {
    return {batch.points.shape()[0], config.width};
  }
  template <class Mesh> static void check(const Mesh& mesh, const Config&) {
    if (mesh.template extent<sw::axis::cp>() > 1)
      throw sw::InvalidArgument("Mlp: points have no sequence that cp could shard, but the mesh has cp=" +
                                std::to_string(mesh.template extent<sw::axis::cp>()) + " (use dp or tp)");
  }
};

} // namespace models
