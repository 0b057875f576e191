// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A decoder with experts: DeepSeek-style or Mixtral-style, over typed layouts.

#include <shardwright/layout/ragged.hpp>
#include <shardwright/nn/attention/latent.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/nn/decoder/moe_config.hpp>
#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/capacity.hpp>
#include <shardwright/nn/experts/global_balance.hpp>
#include <shardwright/nn/experts/layer.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/experts/router.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layouts of a decoder with experts on a DecoderMesh: dense parts as those of a decoder whose batch
/// is split over dpr, dp and ep, with the stream split over tp.
///
/// `OwnerAxes` own the experts. If tp is not among them, it shards each expert's hidden dimension, and all
/// its ranks dispatch the same tokens; if it is, its ranks dispatch the tokens that they hold.
/// @tparam ZeroChoice shards a parameter over those of dp, ep and cp that replicate it
template <class ZeroChoice = DataParallelOver<MoeZeroAxes>, class OwnerAxes = AxisList<axis::ep>>
struct MoeLayouts
    : DecoderLayouts<true, ZeroChoice, AllToAllContext, Shard<0, axis::dpr, axis::dp, axis::ep>> {
  using Owners = OwnerAxes;
  /// @brief Returns whether an axis owns experts.
  [[nodiscard]] static constexpr bool owns(std::string_view axis) {
    return axis_index(Owners::names, axis) >= 0;
  }
  using Inner = std::conditional_t<owns("tp"), AxisList<>, AxisList<axis::tp>>;
  /// @brief Tokens as router and experts read them, [batch, sequence, width].
  using ExpertTokens =
      std::conditional_t<owns("tp"), typename MoeLayouts::Residual, typename MoeLayouts::Tokens>;
  /// @brief Choices in the order in which capacity is assigned, [batch, sequence, chosen].
  using InOrder =
      std::conditional_t<owns("tp"), Layout<3, Shard<0, axis::dpr, axis::dp, axis::ep, axis::cp, axis::tp>>,
                         Layout<3, Shard<0, axis::dpr, axis::dp, axis::ep, axis::cp>>>;
};

/// @brief A Router with its balance losses and the capacity of its experts, according to a MoeConfig.
template <class Layouts, class Plan> class BalancedRouter {
  using Tokens = typename Layouts::ExpertTokens;
  using Router = shardwright::Router<Tokens, Plan>;
  using OverBatch = GlobalBalance<typename Router::Logits, typename Plan::target>;

public:
  template <class Mesh>
  BalancedRouter(const Mesh& mesh, const MoeConfig& config)
      : config_(config), router_(mesh, config.width, config.experts, config.routing,
                                 Initial::normal(config.initial_deviation), config.bias) {
    if (config.balance > 0 && config.balance_over == BalanceOver::global_batch)
      over_batch_.emplace(mesh, config.experts, BalanceOptions{config.balance, config.routing.scores});
    if (config.balance > 0 || config.z_loss > 0)
      router_.load().report_losses();
  }

  /// @brief Routes tokens [tokens..., width], and adds the losses of their balance.
  /// @throws as Router; ConfigurationMismatch if the tape checks inputs and ranks have other capacities.
  template <class X>
  [[nodiscard]] typename Router::Out operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    auto routed = router_(std::forward<X>(x), std::nullopt, where);
    auto* const losses = routed.logits.first_pass() ? router_.load().losses() : nullptr;
    if (losses != nullptr)
      losses->counted_share = routed.logits.tape().counted_share();
    if (config_.balance > 0)
      balance(routed, losses == nullptr ? nullptr : &losses->balance, where);
    if (config_.z_loss > 0)
      add_to(losses == nullptr ? nullptr : &losses->z,
             router_z_loss(routed.logits, routed.experts, config_.z_loss, where));
    if (config_.capacity > 0) {
      if (routed.logits.tape().checks_inputs())
        detail::require_agreement(routed.experts.core(), "within_capacity",
                                  detail::numbers_of_capacity(config_.experts, config_.capacity),
                                  detail::no_axes, where);
      auto kept = within_capacity(redistribute<typename Layouts::InOrder>(routed.experts, where),
                                  config_.experts, config_.capacity, where);
      router_.load().count_dropped(routed.logits.first_pass(), kept.dropped);
      routed.experts =
          redistribute<typename decltype(routed.experts)::layout>(std::move(kept.experts), where).share();
    }
    return routed;
  }
  [[nodiscard]] auto members() { return shardwright::members("", router_, "balance", over_batch_); }

private:
  using Loss = typename OverBatch::Loss;

  static void add_to(Loss* total, const Loss& loss) {
    if (total != nullptr)
      *total += loss;
  }
  /// On the experts that a token would choose without bias and groups.
  void balance(const typename Router::Out& routed, Loss* total, SourceLocation where) {
    const RouterOptions& rule = config_.routing;
    const BalanceOptions options{config_.balance, rule.scores};
    const auto chosen = !config_.bias.used() && rule.groups == 1
                            ? routed.experts
                            : choose_experts(routed.logits.value(),
                                             {.chosen = rule.chosen, .scores = rule.scores}, {}, where);
    switch (config_.balance_over) {
    case BalanceOver::sequence:
      add_to(total, balance_loss<EachSequence>(routed.logits, chosen, options, where));
      break;
    case BalanceOver::microbatch:
      add_to(total, balance_loss<WholeMicrobatch>(routed.logits, chosen, options, where));
      break;
    case BalanceOver::global_batch:
      (*over_batch_)(routed.logits, chosen, where, total);
      break;
    case BalanceOver::previous_batch:
      add_to(total, stale_balance_loss(routed.logits, chosen, router_.load().last_step(), options, where));
    }
  }

  MoeConfig config_;
  Router router_;
  std::optional<OverBatch> over_batch_;
};

/// @brief The feed-forward part of a decoder with experts: a SwiGlu in the first layers, experts in the
/// others.
template <class Layouts, class Plan> class MoeFeedForward {
  using Tokens = typename Layouts::ExpertTokens;
  using Residual = typename Layouts::Residual;
  struct Where {
    using Tokens = typename Layouts::ExpertTokens;
    using Residual = typename Layouts::Residual;
    using Dense = typename Layouts::Tokens;
  };
  using Dense = SwiGlu<Layouts, Plan>;
  using Experts = ExpertMlp<Tokens, typename Layouts::Owners, typename Layouts::Inner, Plan>;
  using Layer = MoeLayer<Where, BalancedRouter<Layouts, Plan>, Experts, std::optional<Dense>>;

public:
  using Config = MoeConfig;

  template <class Place>
  MoeFeedForward(const Place& place, const Config& config, const Initial& up, const Initial& down) {
    if (static_cast<std::int64_t>(place.number) < config.dense_layers) {
      dense_.emplace(place.mesh, config.width, config.hidden, up, down);
      return;
    }
    // Their random keys derive from names, as a layer has more matrices than reserved numbers.
    const Initial into = Initial::normal(up.deviation), back = Initial::normal(down.deviation);
    const ExpertSizes sizes{
        config.width, config.expert_hidden, {config.experts, most_rows(place.mesh, config)}};
    const auto router = std::forward_as_tuple(place.mesh, config);
    const auto experts = std::forward_as_tuple(place.mesh, sizes, into, back);
    if (config.shared_hidden > 0)
      layer_.emplace(
          router, experts,
          std::forward_as_tuple(std::in_place, place.mesh, config.width, config.shared_hidden, into, back));
    else
      layer_.emplace(router, experts);
  }

  template <class X> [[nodiscard]] auto operator()(X&& x) {
    return dense_ ? as_var((*dense_)(std::forward<X>(x).template as<typename Layouts::Tokens>())
                               .template as<Residual>())
                  : (*layer_)(x);
  }
  [[nodiscard]] auto members() { return shardwright::members("", dense_, "", layer_); }

  /// @throws InvalidArgument as check_moe().
  template <class Mesh> static void check(const Mesh&, const Config& config) { check_moe(config); }

private:
  template <class Mesh> [[nodiscard]] static std::int64_t most_rows(const Mesh& mesh, const Config& config) {
    using namespace axis;
    const std::int64_t dps = mesh.template extent<dp>(), eps = mesh.template extent<ep>();
    const std::int64_t cps = mesh.template extent<cp>(), tps = mesh.template extent<tp>();
    const auto among = [](const char* name, std::int64_t ranks) { return Layouts::owns(name) ? ranks : 1; };
    const std::int64_t sharers = among("dp", dps) * among("ep", eps);
    return most_expert_rows(config, sharers * among("cp", cps) * among("tp", tps), sharers,
                            mesh.template extent<dpr>() * dps * eps, Layouts::owns("cp") ? 1 : cps);
  }

  std::optional<Dense> dense_;
  std::optional<Layer> layer_;
};

/// @brief The attention of a decoder with experts: latent if its MoeConfig has sizes for it, grouped if not.
template <class Layouts, class Plan> class LatentOrGroupedAttention {
  using Latent = MultiHeadLatentAttention<Layouts, Plan>;
  using Grouped = GroupedAttention<Layouts, Plan>;
  using Residual = typename Layouts::Residual;

public:
  /// @param place of the layer
  /// @param in, out initial values of the matrices before attention and of the one that adds to the stream
  template <class Place>
  LatentOrGroupedAttention(const Place& place, const MoeConfig& config, const Initial& in, const Initial& out,
                           Recompute recomputed) {
    if (!config.latent) {
      grouped_.emplace(place, config, in, out, recomputed);
      return;
    }
    // Their random keys derive from names, as one number is reserved for all of them.
    latent_.emplace(place.mesh, config.latent_sizes(), Initial::normal(in.deviation), out,
                    angles(place, config), recomputed);
  }

  /// @param x the normalized stream
  template <class X, TokenOrder Order, AttentionMask Mask>
  [[nodiscard]] auto operator()(X&& x, const TokenPositions<Order>& positions, const Mask& mask) {
    return latent_ ? as_var((*latent_)(x, positions, mask).template as<Residual>())
                   : as_var((*grouped_)(std::forward<X>(x), positions, mask).template as<Residual>());
  }
  [[nodiscard]] auto members() { return shardwright::members("", latent_, "", grouped_); }

private:
  template <class Place> [[nodiscard]] static auto angles(const Place& place, const MoeConfig& config) {
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

/// @brief A decoder with experts, and with latent or grouped attention; its sizes are a MoeConfig.
/// @tparam Layouts MoeLayouts or a type with its members
template <class Layouts, class Element = float, class Target = DefaultTarget>
using MoeDecoder = Decoder<Layouts, Element, Target, MoeFeedForward, LatentOrGroupedAttention>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
