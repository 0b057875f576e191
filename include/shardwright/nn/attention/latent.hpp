// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Multi-head latent attention: the module with its projections.

#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/nn/attention/latent_sizes.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/insert_columns.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434, section 2.1, equations 37 to 47): keys
/// and values of all heads, and queries, are computed from a few numbers per token, each after an RMSNorm.
///
/// `Layouts` gives the layouts, as for Attention: Residual is that of x and of the residual sum, in which
/// tokens are compressed by replicated matrices; Tokens that in which the compressed values are read; Qkv
/// that of the expanding matrices, [rank, heads, ...], split by heads; Output, [heads * value width, width];
/// AttentionInput that of attention's input. If Residual splits a sequence over tp, the ranks gather
/// query_rank + key_value_rank + rotary_width numbers per token instead of width, and the gradients of the
/// compressing matrices are Partial over tp. The result is Partial over the axes that shard the heads.
///
/// Scores are divided by sqrt(plain_width + rotary_width), times score_factor. The last elements of a head
/// are rotated, element i with i + rotary_width / 2; published weights pair neighbours, and are loaded with
/// their rows permuted.
/// @tparam compressed_queries or one product from x, as in DeepSeek-V2-Lite
template <class Layouts, class Plan = ModelPlan<>, bool compressed_queries = true>
class MultiHeadLatentAttention {
  using Residual = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Attended = MatmulLayout<Tokens, typename Layouts::Output, MatmulForm::right_transposed>;
  using Compress = Linear<Residual, Layout<2>, Plan>;
  using Norm = RmsNorm<typename Compress::Out, Plan>;
  using Expand = Linear<Tokens, typename Layouts::Qkv, Plan>;
  struct Nothing {
    template <class Mesh>
    Nothing(const Mesh&, const std::array<std::int64_t, 2>&, const Initial&, SourceLocation) {}
    template <class Mesh> Nothing(const Mesh&, std::int64_t, double, SourceLocation) {}
    [[nodiscard]] static auto members() { return shardwright::members(); }
  };

public:
  using target = typename Plan::target;
  using Angles = RotaryTable<typename Plan::element, target>;

  /// @param angles rotary table for rotary_width elements
  /// @param inner initial values of all matrices except the output matrix, which uses `out`
  /// @param recomputed what the backward pass recomputes: Recompute::selective for everything between the
  /// compressed tokens and the heads' results (arXiv 2412.19437, section 3.2.3)
  /// @throws InvalidArgument if rotary_width is not even and positive, or there are no angles.
  template <class Mesh>
  MultiHeadLatentAttention(const Mesh& mesh, const LatentAttentionSizes& sizes, const Initial& inner,
                           const Initial& out, std::shared_ptr<const Angles> angles,
                           Recompute recomputed = Recompute::none,
                           SourceLocation where = SourceLocation::current())
      : sizes_(checked(sizes, angles != nullptr)), angles_(std::move(angles)), recomputed_(recomputed),
        query_down_(mesh, {sizes.width, sizes.query_rank}, inner, where),
        query_norm_(mesh, sizes.query_rank, sizes.norm_epsilon, where),
        query_up_(mesh,
                  {compressed_queries ? sizes.query_rank : sizes.width, sizes.heads, sizes.head_width()},
                  inner, where),
        down_(mesh, {sizes.width, sizes.key_value_rank}, inner, where),
        norm_(mesh, sizes.key_value_rank, sizes.norm_epsilon, where),
        up_(mesh, {sizes.key_value_rank, sizes.heads, sizes.plain_width + sizes.value_width}, inner, where),
        rotary_key_(mesh, {sizes.width, sizes.rotary_width}, inner, where),
        out_(mesh, {sizes.heads * sizes.value_width, sizes.width}, out, where) {}

  /// @param tokens in layout Residual
  /// @param positions of this rank's tokens, from the batch's ids
  template <detail::TapeValue X, TokenOrder Order, AttentionMask Mask = CausalMask>
  [[nodiscard]] auto operator()(X&& tokens, const TokenPositions<Order>& positions, const Mask& mask = {},
                                SourceLocation where = SourceLocation::current()) {
    const auto x = as_var(std::forward<X>(tokens), where);
    const HeadShape heads{1, sizes_.head_width(), sizes_.value_width, sizes_.rotary_width,
                          sizes_.score_factor};
    const auto attend = [&](auto queries, auto latents, auto rotary_keys) {
      auto fused = up_(norm_(std::move(latents), where).template as<Tokens>(), where);
      auto with_keys = insert_columns(std::move(fused), std::move(rotary_keys).template as<Tokens>(),
                                      sizes_.plain_width, where);
      auto qkv =
          insert_columns(std::move(with_keys),
                         query_up_(normed(std::move(queries), where).template as<Tokens>(), where), 0, where);
      auto turned = detail::rotary_before_attention(std::move(qkv), *angles_, positions, heads, where);
      return detail::attention_after_rotary(std::move(turned).template as<typename Layouts::AttentionInput>(),
                                            angles_.get(), positions, heads, mask, where);
    };
    auto queries = compact(x, where); // one after the other, so that compilers record them in one order
    auto latents = down_(x, where);
    auto rotary_keys = rotary_key_(x, where);
    auto attended =
        recompute(attend, recomputed_)(std::move(queries), std::move(latents), std::move(rotary_keys));
    return out_(std::move(attended).template as<Attended>(), where);
  }
  [[nodiscard]] auto members() {
    return shardwright::members("query_down", query_down_, "query_norm", query_norm_, "query_up", query_up_,
                                "down", down_, "norm", norm_, "up", up_, "rotary_key", rotary_key_, "out",
                                out_);
  }

private:
  [[nodiscard]] static const LatentAttentionSizes& checked(const LatentAttentionSizes& sizes, bool turns) {
    if (sizes.rotary_width <= 0 || sizes.rotary_width % 2 != 0)
      throw InvalidArgument(
          "MultiHeadLatentAttention: the rotary width must be even and positive, but it is " +
          std::to_string(sizes.rotary_width) + " (give some elements of a head to positions)");
    if (!turns)
      throw InvalidArgument(
          "MultiHeadLatentAttention: rotary angles must be given (make a RotaryTable of the rotary width)");
    return sizes;
  }
  template <class X> [[nodiscard]] auto compact(const X& x, SourceLocation where) {
    if constexpr (compressed_queries)
      return query_down_(x, where);
    else
      return x;
  }
  template <class X> [[nodiscard]] auto normed(X queries, SourceLocation where) {
    if constexpr (compressed_queries)
      return query_norm_(std::move(queries), where);
    else
      return queries;
  }

  LatentAttentionSizes sizes_;
  std::shared_ptr<const Angles> angles_;
  Recompute recomputed_;
  std::conditional_t<compressed_queries, Compress, Nothing> query_down_;
  std::conditional_t<compressed_queries, Norm, Nothing> query_norm_;
  Expand query_up_;
  Compress down_;
  Norm norm_;
  Expand up_;
  Compress rotary_key_;
  Linear<Attended, typename Layouts::Output, Plan, Residual> out_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
