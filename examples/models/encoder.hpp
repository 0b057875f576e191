// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A classifier of sequences by an encoder (Devlin et al., arXiv 1810.04805): every token attends to
/// all that are not padding, and the class is read off the first one.

#include <shardwright/models.hpp>

#include <array>
#include <cstdint>
#include <utility>

namespace models {

namespace sw = shardwright;

/// @brief Sizes of an Encoder.
struct EncoderConfig {
  std::int64_t layers = 4;
  std::int64_t width = 32;
  std::int64_t heads = 4;
  std::int64_t vocabulary = 8;
  std::int64_t sequence = 16;
  std::int64_t classes = 2;
  sw::Recomputation recompute{};
};

/// @brief Norms follow the sums, as in the paper. Over cp, attention is a ring.
template <class Plan = sw::ModelPlan<>> struct Encoder {
  using element = typename Plan::element;
  using target = typename Plan::target;
  using Config = EncoderConfig;
  using Layouts = sw::DecoderLayouts<true, typename Plan::zero, sw::RingContext>;
  using Stream = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Value = sw::Var<Stream, element, target>;
  using Norm = sw::LayerNorm<Stream, Plan>;
  using Ids = sw::TokenTensor<typename Layouts::Order, typename Layouts::Ids, std::int32_t, target>;
  using Lengths =
      sw::ShardedTensor<sw::KeyLengthsLayout<typename Layouts::AttentionInput>, std::int32_t, target>;

  /// @brief Ids; classes, at the first token of each sequence with -1 at the others; and the number of tokens
  /// before the padding.
  struct Batch {
    typename Ids::Handle ids, classes;
    sw::ShardedTensor<typename Lengths::layout, const std::int32_t, target> lengths;
    [[nodiscard]] sw::RowOrder row_order() const { return ids.row_order(); }
  };

  class Embed {
  public:
    template <class Place>
    Embed(const Place& place, const Config& config)
        : table_(place.mesh, config.vocabulary, config.width, sw::Initial::normal(0.1)),
          positions_(place.mesh, config.sequence, config.width, sw::Initial::normal(0.1)),
          norm_(place.mesh, config.width, 1e-5) {}
    auto operator()(sw::Tape<target>& tape, const Batch& batch) {
      return norm_(positions_(table_(tape, batch.ids).template as<Stream>()));
    }
    auto members() { return sw::members("words", table_, "positions", positions_, "norm", norm_); }

  private:
    sw::Embedding<typename Layouts::Ids, typename Layouts::Table, Plan> table_;
    sw::PositionEmbedding<Stream, Plan> positions_;
    Norm norm_;
  };

  class Layer {
  public:
    template <class Place>
    Layer(const Place& place, const Config& config)
        : recompute_(config.recompute.of(static_cast<std::int64_t>(place.number))),
          attention_(place.mesh, {config.width, config.heads, config.heads, config.width / config.heads},
                     sw::Initial::normal(0.1), sw::Initial::normal(0.05)),
          attention_norm_(place.mesh, config.width, 1e-5),
          mlp_(place.mesh, config.width, 4 * config.width, sw::Initial::normal(0.2),
               sw::Initial::normal(0.1)),
          mlp_norm_(place.mesh, config.width, 1e-5) {}

    auto operator()(Value x, const Batch& batch) {
      const auto layer = [&](Value stream) {
        auto attended = attention_(stream.template as<Tokens>(), batch.ids.positions(),
                                   sw::padded(sw::full, batch.lengths));
        stream = attention_norm_(std::move(stream) + std::move(attended));
        auto activated = mlp_(stream.template as<Tokens>());
        return mlp_norm_(std::move(stream) + std::move(activated));
      };
      return sw::recompute(layer, recompute_)(std::move(x));
    }
    auto members() {
      return sw::members("attention", attention_, "attention_norm", attention_norm_, "mlp", mlp_, "mlp_norm",
                         mlp_norm_);
    }

  private:
    sw::Recompute recompute_;
    sw::Attention<Layouts, Plan, true> attention_;
    Norm attention_norm_;
    sw::Mlp<Layouts, Plan, sw::operation::GeluErf> mlp_;
    Norm mlp_norm_;
  };

  class Classify {
  public:
    template <class Place>
    Classify(const Place& place, const Config& config)
        : scores_(place.mesh, {config.width, config.classes}, sw::Initial::normal(0.1)) {}
    auto operator()(Value x, const Batch& batch) {
      return sw::cross_entropy(scores_(std::move(x).template as<Tokens>()), batch.classes);
    }
    auto members() { return sw::members("scores", scores_); }

  private:
    sw::BiasedLinear<Tokens, sw::Layout<2>, Plan> scores_;
  };

  using Parts = sw::Parts<Embed, sw::Repeat<Layer, &Config::layers>, Classify>;

  [[nodiscard]] static std::array<std::int64_t, 3> boundary(const Config& config, const Batch& batch) {
    return {batch.ids.shape()[0], batch.ids.shape()[1], config.width};
  }
};

} // namespace models
