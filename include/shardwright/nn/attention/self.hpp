// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention: the module with its projections.

#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/head_norm.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Sizes of an Attention.
struct AttentionSizes {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   ///< Must divide the number of heads: groups of heads share a key and a value.
  std::int64_t head_width = 0; ///< Usually width / heads.
  bool qkv_bias = false;       ///< Adds biases to queries, keys and values only (Qwen2, arXiv 2407.10671).
  std::optional<double>
      head_norm{}; ///< Epsilon of norms of each head of queries and keys, as in Qwen3 (arXiv 2505.09388).

  [[nodiscard]] HeadShape shape() const noexcept { return {heads / kv_heads, head_width}; }
};

/// @brief Self-attention with its projections (Vaswani et al., arXiv 1706.03762; shared heads as Ainslie et
/// al., arXiv 2305.13245): one product for queries, keys and values, attention with any mask, and an output
/// product. `Layouts` gives the layouts:
///
/// Tokens is that of x, Qkv and Output those of the matrices [width, kv_heads, (queries per kv head + 2) *
/// head width] and [heads * head width, width], AttentionInput that of attention's input, Residual that of
/// the result. Without biases the result is the product itself, Partial over the axes that shard the heads;
/// with them it is in layout Residual.
template <class Layouts, class Plan = ModelPlan<>, bool biased = false> class Attention {
  using In = typename Layouts::Tokens;
  using Attended = MatmulLayout<In, typename Layouts::Output, MatmulForm::right_transposed>;
  using Norm = HeadNorm<MatmulLayout<In, typename Layouts::Qkv>, Plan>;
  using QkvBias = typename BiasedLinear<In, typename Layouts::Qkv, Plan>::Bias;

public:
  using Angles = RotaryTable<typename Plan::element, typename Plan::target>;

  /// @param angles rotary table; null for a model with another kind of positions
  /// @param recomputed what the backward pass recomputes: Recompute::selective for the attention itself
  template <class Mesh>
  Attention(const Mesh& mesh, const AttentionSizes& sizes, const Initial& qkv, const Initial& out,
            std::shared_ptr<const Angles> angles = nullptr, Recompute recomputed = Recompute::none,
            SourceLocation where = SourceLocation::current())
      : heads_(sizes.shape()), angles_(std::move(angles)), recomputed_(recomputed),
        qkv_(mesh, {sizes.width, sizes.kv_heads, (sizes.shape().queries + 2) * sizes.head_width}, qkv, where),
        out_(mesh, {sizes.heads * sizes.head_width, sizes.width}, out, where) {
    qkv_.name_outputs(2, {{"queries", heads_.queries * sizes.head_width},
                          {"keys", sizes.head_width},
                          {"values", sizes.head_width}});
    if (sizes.qkv_bias)
      qkv_bias_.emplace(mesh, typename QkvBias::Shape{sizes.kv_heads, heads_.of_group()}, Initial::zeros(),
                        ParameterRole::bias, where);
    if (sizes.head_norm)
      head_norms_.emplace(mesh, heads_, *sizes.head_norm, where);
  }

  /// @param positions of this rank's tokens, from the batch's ids
  template <detail::TapeOperand X, TokenOrder Order, AttentionMask Mask = CausalMask>
  [[nodiscard]] auto operator()(X&& x, const TokenPositions<Order>& positions, const Mask& mask = {},
                                SourceLocation where = SourceLocation::current()) {
    auto qkv = qkv_(std::forward<X>(x), where);
    if (qkv_bias_)
      qkv = add(std::move(qkv), *qkv_bias_, where);
    if (head_norms_)
      qkv = (*head_norms_)(std::move(qkv), where);
    if (angles_)
      qkv = detail::rotary_before_attention(std::move(qkv), *angles_, positions, heads_, where);
    auto attend = recompute(
        [&](auto read) {
          return detail::attention_after_rotary(std::move(read), angles_.get(), positions, heads_, mask,
                                                where);
        },
        recomputed_);
    return out_(
        attend(std::move(qkv).template as<typename Layouts::AttentionInput>()).template as<Attended>(),
        where);
  }
  [[nodiscard]] auto members() {
    return shardwright::members("qkv", qkv_, "qkv_bias", qkv_bias_, "head_norms", head_norms_, "out", out_);
  }

private:
  HeadShape heads_;
  std::shared_ptr<const Angles> angles_;
  Recompute recomputed_;
  detail::MaybeBiased<biased, In, typename Layouts::Qkv, Plan> qkv_;
  std::optional<QkvBias> qkv_bias_;
  std::optional<Norm> head_norms_;
  detail::MaybeBiased<biased, Attended, typename Layouts::Output, Plan, typename Layouts::Residual> out_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
