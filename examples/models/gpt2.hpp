// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief GPT-2 (Radford et al., 2019): LayerNorm, biases, GELU, learned positions, one table at both ends.

#include <shardwright/models.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace models {

namespace sw = shardwright;

/// @brief Sizes of a Gpt2.
struct Gpt2Config {
  std::int64_t layers = 4;
  std::int64_t width = 32;
  std::int64_t heads = 4;
  std::int64_t vocabulary = 32;
  std::int64_t sequence = 16;
  double deviation = 0.1; ///< Of initial weights; 0.02 for the paper's sizes.
  sw::Recomputation recompute{};
};

/// @brief Blocks of attention and Mlp, each after a LayerNorm, around the stream.
/// @tparam Activation sw::operation::GeluTanh, the form of the original, or sw::operation::GeluErf
template <class Plan = sw::ModelPlan<>, class Activation = sw::operation::GeluTanh> struct Gpt2 {
  using element = typename Plan::element;
  using target = typename Plan::target;
  using Config = Gpt2Config;
  using Layouts = sw::DecoderLayouts<true, typename Plan::zero>;
  using Stream = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Value = sw::Var<Stream, element, target>;
  using Batch = sw::TokenBatch<typename Layouts::Order, typename Layouts::Ids, target>;
  using Table = typename sw::Embedding<typename Layouts::Ids, typename Layouts::Table, Plan>::Table;

  template <class Place>
  [[nodiscard]] static sw::TiedParameter<Table> table(const Place& place, const Config& config) {
    return place.shared.template tied<Table>("wte", [&] {
      return Table(place.mesh, {config.vocabulary, config.width}, sw::Initial::normal(config.deviation));
    });
  }

  class Embed {
  public:
    static constexpr bool gradient_reads_weights = false;
    template <class Place>
    Embed(const Place& place, const Config& config)
        : table_(table(place, config)),
          positions_(place.mesh, config.sequence, config.width, sw::Initial::normal(config.deviation / 2)) {}
    auto operator()(sw::Tape<target>& tape, const Batch& batch) {
      return positions_(sw::embed(tape, batch.ids, *table_).template as<Stream>());
    }
    [[nodiscard]] static std::vector<std::string_view> ties(const Config&) { return {"wte"}; }
    auto members() { return sw::members("wte", table_, "wpe", positions_); }

  private:
    sw::TiedParameter<Table> table_;
    sw::PositionEmbedding<Stream, Plan> positions_;
  };

  class Block {
  public:
    static constexpr std::string_view name = "h";
    template <class Place>
    Block(const Place& place, const Config& config)
        : recompute_(config.recompute.of(static_cast<std::int64_t>(place.number))),
          norm_1_(place.mesh, config.width, 1e-5),
          attention_(place.mesh, {config.width, config.heads, config.heads, config.width / config.heads},
                     sw::Initial::normal(config.deviation), residual(config)),
          norm_2_(place.mesh, config.width, 1e-5),
          mlp_(place.mesh, config.width, 4 * config.width, sw::Initial::normal(config.deviation),
               residual(config)) {}

    auto operator()(Value x, const Batch& batch) {
      const auto block = [&](Value stream) {
        auto attended = attention_(norm_1_(stream).template as<Tokens>(), batch.ids.positions());
        stream = std::move(stream) + std::move(attended);
        auto activated = mlp_(norm_2_(stream).template as<Tokens>());
        return std::move(stream) + std::move(activated);
      };
      return sw::recompute(block, recompute_)(std::move(x));
    }
    auto members() { return sw::members("ln_1", norm_1_, "attn", attention_, "ln_2", norm_2_, "mlp", mlp_); }

  private:
    /// Weights whose results are added to the stream start smaller, so that its variance does not grow with
    /// depth.
    [[nodiscard]] static sw::Initial residual(const Config& config) {
      return sw::Initial::normal(config.deviation / std::sqrt(2.0 * static_cast<double>(config.layers)));
    }

    sw::Recompute recompute_;
    sw::LayerNorm<Stream, Plan> norm_1_;
    sw::Attention<Layouts, Plan, true> attention_;
    sw::LayerNorm<Stream, Plan> norm_2_;
    sw::Mlp<Layouts, Plan, Activation> mlp_;
  };

  class Predict {
  public:
    template <class Place>
    Predict(const Place& place, const Config& config)
        : norm_(place.mesh, config.width, 1e-5), table_(table(place, config)) {}
    auto operator()(Value x, const Batch& batch) {
      return sw::linear_cross_entropy(norm_(std::move(x)).template as<Tokens>(), *table_, batch.targets);
    }
    [[nodiscard]] static std::vector<std::string_view> ties(const Config&) { return {"wte"}; }
    auto members() { return sw::members("ln_f", norm_, "wte", table_); }

  private:
    sw::LayerNorm<Stream, Plan> norm_;
    sw::TiedParameter<Table> table_;
  };

  using Parts = sw::Parts<Embed, sw::Repeat<Block, &Config::layers>, Predict>;

  [[nodiscard]] static std::array<std::int64_t, 3> boundary(const Config& config, const Batch& batch) {
    return {batch.ids.shape()[0], batch.ids.shape()[1], config.width};
  }
};

} // namespace models
