// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A decoder with experts and, if its sizes say so, latent attention.

#include <shardwright/nn/attention/latent.hpp>
#include <shardwright/nn/decoder/latent_moe_config.hpp>
#include <shardwright/nn/decoder/moe.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The attention of a LatentMoeDecoder: latent if its LatentMoeConfig has sizes for it, grouped if
/// not.
template <class Layouts, class Plan> class LatentOrGroupedAttention {
  using Latent = MultiHeadLatentAttention<Layouts, Plan>;
  using Grouped = GroupedAttention<Layouts, Plan>;
  using Residual = typename Layouts::Residual;

public:
  /// @param place of the layer
  /// @param in, out initial values of the matrices before attention and of the one that adds to the stream
  template <class Place>
  LatentOrGroupedAttention(const Place& place, const LatentMoeConfig& config, const Initial& in,
                           const Initial& out, Recompute recomputed) {
    if (!config.latent) {
      grouped_.emplace(place, config, in, out, recomputed);
      return;
    }
    // Their random keys derive from names, as one number is reserved for all of them.
    latent_.emplace(place.mesh, config.latent_sizes(), Initial::normal(in.deviation), out,
                    angles(place, config), recomputed);
  }

  /// @param x the normalized stream
  template <class X, TokenOrder Order>
  [[nodiscard]] auto operator()(X&& x, const TokenPositions<Order>& positions) {
    return latent_ ? as_var((*latent_)(x, positions).template as<Residual>())
                   : as_var((*grouped_)(std::forward<X>(x), positions).template as<Residual>());
  }
  [[nodiscard]] auto members() { return shardwright::members("", latent_, "", grouped_); }

  static void check(const LatentMoeConfig& config) { check_latent(config); }

private:
  template <class Place> [[nodiscard]] static auto angles(const Place& place, const LatentMoeConfig& config) {
    using Angles = typename Latent::Angles;
    return place.shared.template get<Angles>("rotary", [&] {
      return Angles(place.mesh, config.sequence,
                    config.frequencies.empty()
                        ? rotary_frequencies(config.latent->rotary_width, config.rope_base)
                        : config.frequencies,
                    config.rotary_factor);
    });
  }

  std::optional<Latent> latent_; // exactly one of the two is set
  std::optional<Grouped> grouped_;
};

/// @brief The feed-forward part of a LatentMoeDecoder.
template <class Layouts, class Plan> class LatentMoeFeedForward : public MoeFeedForward<Layouts, Plan> {
public:
  using Config = LatentMoeConfig;
  using MoeFeedForward<Layouts, Plan>::MoeFeedForward;
};

/// @brief A decoder with experts in the style of DeepSeek-V3, or with the attention of MoeDecoder; its sizes
/// are a LatentMoeConfig.
/// @tparam Layouts MoeLayouts or a type with its members
template <class Layouts, class Element = float, class Target = DefaultTarget>
using LatentMoeDecoder = Decoder<Layouts, Element, Target, LatentMoeFeedForward, LatentOrGroupedAttention>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
