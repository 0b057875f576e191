// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A Llama-style decoder language model over typed layouts.

#include <shardwright/nn/attention/mask.hpp>
#include <shardwright/nn/attention/self.hpp>
#include <shardwright/nn/decoder/config.hpp>
#include <shardwright/nn/decoder/layouts.hpp>
#include <shardwright/nn/decoder/token_batch.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/mlp.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/layers/output_table.hpp>
#include <shardwright/train/pipeline/model_parts.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The feed-forward part of a Decoder: one SwiGlu in each layer.
template <class Layouts, class Plan> class DenseFeedForward {
public:
  using Config = DecoderConfig;

  /// @param place of the layer
  /// @param up, down initial values of the matrices that read the stream and of those that add to it
  template <class Place>
  DenseFeedForward(const Place& place, const Config& config, const Initial& up, const Initial& down)
      : mlp_(place.mesh, config.width, config.hidden, up, down) {}

  template <class X> [[nodiscard]] auto operator()(X&& x) {
    return mlp_(std::forward<X>(x).template as<typename Layouts::Tokens>());
  }
  [[nodiscard]] auto members() { return mlp_.members(); }

private:
  SwiGlu<Layouts, Plan> mlp_;
};

/// @brief The attention of a Decoder: queries in groups that share a key and a value, with rotary positions.
template <class Layouts, class Plan> class GroupedAttention {
  using Module = shardwright::Attention<Layouts, Plan>;

public:
  /// @param place of the layer
  /// @param in, out initial values of the matrices that read the stream and of the one that adds to it
  template <class Place>
  GroupedAttention(const Place& place, const DecoderConfig& config, const Initial& in, const Initial& out,
                   Recompute recomputed)
      : attention_(place.mesh, sizes(config), in, out, angles(place, config), recomputed) {}

  /// @param x the normalized stream
  template <class X, TokenOrder Order, AttentionMask Mask>
  [[nodiscard]] auto operator()(X&& x, const TokenPositions<Order>& positions, const Mask& mask) {
    return attention_(std::forward<X>(x).template as<typename Layouts::Tokens>(), positions, mask);
  }
  [[nodiscard]] auto members() { return attention_.members(); }

private:
  [[nodiscard]] static AttentionSizes sizes(const DecoderConfig& config) {
    AttentionSizes out{config.width, config.heads, config.kv_heads, config.head_width(), config.qkv_bias};
    if (config.head_norms)
      out.head_norm = config.norm_epsilon;
    return out;
  }
  template <class Place> [[nodiscard]] static auto angles(const Place& place, const DecoderConfig& config) {
    using Angles = typename Module::Angles;
    return place.shared.template get<Angles>("rotary", [&] {
      return config.rope_scaling
                 ? Angles(place.mesh, config.sequence,
                          rotary_frequencies(config.head_width(), config.rope_base, config.rope_scaling))
                 : Angles(place.mesh, config.sequence, config.head_width(), config.rope_base);
    });
  }

  Module attention_;
};

/// @brief A decoder: token embedding, layers, final norm and vocabulary-parallel cross entropy (Touvron et
/// al., arXiv 2302.13971).
///
/// `Layouts`, DecoderLayouts or a type with its members, defines all layouts, and with them every collective.
/// The output table may be the input table (`DecoderConfig::tied_embedding`). `FeedForward` is the part of
/// each layer after attention: a class like DenseFeedForward, whose `Config` is the model's. `SelfAttention`
/// is the part before it: a class like GroupedAttention.
template <class Layouts, class Element = float, class Target = DefaultTarget,
          template <class, class> class FeedForward = DenseFeedForward,
          template <class, class> class SelfAttention = GroupedAttention>
struct Decoder {
  using layouts = Layouts;
  using element = Element;
  using target = Target;
  using Plan = ModelPlan<Element, typename Layouts::Zero, Target>;
  using Config = typename FeedForward<Layouts, Plan>::Config;
  using Stream = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Documents = DocumentsMask<CausalMask, DocumentStartsLayout<typename Layouts::AttentionInput>, Target>;
  /// Its sequences may hold several documents, each of which attends only to itself. Angles of the rotary
  /// embedding count from the start of the sequence: scores depend only on their differences.
  using Batch = TokenBatch<typename Layouts::Order, typename Layouts::Ids, Target, Documents>;
  using Ids = typename Batch::Ids;

  /// @brief The embedding, or the head.
  using TableLayout = TiedLayouts<typename Layouts::Table, typename Layouts::Head>;
  using TokenTable = shardwright::Embedding<typename Layouts::Ids, TableLayout, Plan, true, Stream>;
  using Table = typename TokenTable::Table;

  template <class Place>
  [[nodiscard]] static TiedParameter<Table> table(const Place& place, const Config& config, const char* name,
                                                  std::uint64_t key) {
    return place.shared.template tied<Table>(name, [&] {
      return Table(place.mesh, {config.vocabulary, config.width},
                   Initial::normal(config.initial_deviation).keyed(key));
    });
  }

  class Embedding {
  public:
    static constexpr bool gradient_reads_weights = false;
    template <class Place>
    Embedding(const Place& place, const Config& config) : table_(table(place, config, "embedding", 0)) {}
    auto operator()(Tape<Target>& tape, const Batch& batch) {
      return as_var(table_(tape, batch.ids).template as<Stream>());
    }
    [[nodiscard]] static std::vector<std::string_view> ties(const Config&) { return {"embedding"}; }
    auto members() { return shardwright::members("embedding", table_); }

  private:
    TokenTable table_;
  };

  class Layer;
  class Head;
  using Parts = shardwright::Parts<Embedding, Repeat<Layer, &Config::layers>, Head>;

  [[nodiscard]] static std::array<std::int64_t, 3> boundary(const Config& config, const Batch& batch) {
    return {batch.ids.shape()[0], batch.ids.shape()[1], config.width};
  }
  /// @throws InvalidArgument as check_decoder(), for extents of this mesh.
  template <class Mesh> static void check(const Mesh& mesh, const Config& config) {
    check_decoder(config, mesh.template extent<axis::tp>(), Layouts::sharded_sequence,
                  Layouts::Context::extents(mesh.template extent<axis::cp>()));
    if constexpr (requires { FeedForward<Layouts, Plan>::check(mesh, config); })
      FeedForward<Layouts, Plan>::check(mesh, config);
  }
};

/// @brief Attention and the feed-forward part, each after an RMSNorm, with residual connections.
template <class Layouts, class Element, class Target, template <class, class> class FeedForward,
          template <class, class> class SelfAttention>
class Decoder<Layouts, Element, Target, FeedForward, SelfAttention>::Layer {
public:
  template <class Place>
  Layer(const Place& place, const Config& config)
      : recompute_(config.recompute.of(static_cast<std::int64_t>(place.number))),
        attention_norm_(place.mesh, config.width, config.norm_epsilon),
        attention_(place, config, initial(config, place.number, 0), initial(config, place.number, 1),
                   recompute_ == Recompute::selective ? Recompute::selective : Recompute::none),
        mlp_norm_(place.mesh, config.width, config.norm_epsilon),
        mlp_(place, config, initial(config, place.number, 2), initial(config, place.number, 3)),
        attention_dropout_(config.dropout, key(place.number, 4)),
        mlp_dropout_(config.dropout, key(place.number, 5)) {}

  auto operator()(Var<Stream, Element, Target> x, const Batch& batch) {
    const auto layer = [&](auto stream) {
      auto attended = attention_(attention_norm_(stream), batch.ids.positions(), batch.mask);
      stream = std::move(stream) + attention_dropout_(std::move(attended).template as<Stream>());
      auto activated = mlp_(mlp_norm_(stream));
      return std::move(stream) + mlp_dropout_(std::move(activated).template as<Stream>());
    };
    return recompute(layer, recompute_ == Recompute::full ? Recompute::full : Recompute::none)(std::move(x));
  }

  auto members() {
    return shardwright::members("attention_norm", attention_norm_, "attention", attention_, "mlp_norm",
                                mlp_norm_, "mlp", mlp_, "attention_dropout", attention_dropout_,
                                "mlp_dropout", mlp_dropout_);
  }

private:
  /// Indices of a layer's random streams: 0 to 3 for matrices, 4 and 5 for dropout.
  [[nodiscard]] static std::uint32_t key(std::size_t layer, std::uint32_t part) {
    return 16 * (static_cast<std::uint32_t>(layer) + 1) + part;
  }
  /// Products that add to the stream start smaller, so that its variance does not grow with depth (Radford et
  /// al., 2019).
  [[nodiscard]] static Initial initial(const Config& config, std::size_t layer, std::uint32_t part) {
    const double residual = part % 2 == 1 ? std::sqrt(2.0 * static_cast<double>(config.layers)) : 1;
    return Initial::normal(config.initial_deviation / residual).keyed(key(layer, part));
  }

  Recompute recompute_;
  RmsNorm<Stream, Plan> attention_norm_;
  SelfAttention<Layouts, Plan> attention_;
  RmsNorm<Stream, Plan> mlp_norm_;
  FeedForward<Layouts, Plan> mlp_;
  Dropout attention_dropout_, mlp_dropout_;
};

/// @brief The final norm, the scores and their loss.
template <class Layouts, class Element, class Target, template <class, class> class FeedForward,
          template <class, class> class SelfAttention>
class Decoder<Layouts, Element, Target, FeedForward, SelfAttention>::Head {
public:
  template <class Place>
  Head(const Place& place, const Config& config)
      : norm_(place.mesh, config.width, config.norm_epsilon),
        table_(config.tied_embedding ? table(place, config, "embedding", 0)
                                     : table(place, config, "head", 1)) {}

  auto operator()(Var<Stream, Element, Target> x, const Batch& batch) {
    return table_.loss(norm_(std::move(x)).template as<Tokens>(), batch.targets);
  }
  /// @brief Scores of the next token, [batch, sequence, vocabulary]; for low-precision elements, in float.
  auto predict(Var<Stream, Element, Target> x, const Batch&) {
    return table_.scores(norm_(std::move(x)).template as<Tokens>());
  }
  [[nodiscard]] static std::vector<std::string_view> ties(const Config& config) {
    return {config.tied_embedding ? "embedding" : "head"};
  }
  auto members() { return shardwright::members("final_norm", norm_, "head", table_); }

private:
  RmsNorm<Stream, Plan> norm_;
  OutputTable<Tokens, Table> table_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
