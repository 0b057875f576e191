// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief LayerNorm with or without a bias, optionally fused with the preceding residual addition.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/norm_output.hpp>
#include <shardwright/nn/layers/rms_norm.hpp>
#include <shardwright/tensor/kernels/layer_norm.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/members.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layout of the gradients of a LayerNorm's gain and bias: a sum over all rows, so Partial<Sum> over
/// every axis that shards them.
template <LayoutType X>
using LayerNormGradientLayout = LeadingSumLayout<RowwiseLayout<operation::layer_norm, X>, X::tensor_rank - 1>;

/// @brief Mean and inverse deviation of every row, 1 / sqrt(variance + epsilon), in the AccumulationElement.
template <LayoutType X, class Element, class Target> struct LayerNormStatistics {
  using Rows =
      ShardedTensor<ReductionLayout<Sum, X::tensor_rank - 1, RowwiseLayout<operation::layer_norm, X>>,
                    AccumulationElement<Element>, Target>;
  Rows mean;
  Rows inverse_deviation;
};

namespace detail {

/// A gain or bias: a vector that every rank holds entirely.
template <class X, class Weight> struct LayerNormWeight {
  static_assert(
      std::is_same_v<typename Weight::layout, Layout<1>>,
      "layer_norm: gain and bias must be replicated vectors (declare them as Layout<1>, or redistribute them)");
  static_assert(std::is_same_v<typename Weight::value_type, typename X::value_type>,
                "layer_norm: gain and bias must have the element type of the input (convert one first)");
  static constexpr bool value = std::is_same_v<typename Weight::layout, Layout<1>> &&
                                std::is_same_v<typename Weight::value_type, typename X::value_type>;
};

/// Stands for a missing bias.
template <class X> [[nodiscard]] auto no_bias() {
  return VectorView<const typename X::value_type, typename X::target>(nullptr, 0);
}
template <class X> [[nodiscard]] auto no_bias_gradient() {
  return VectorView<AccumulationElement<typename X::value_type>, typename X::target>(nullptr, 0);
}

template <class X, class Gain, class Bias>
[[nodiscard]] auto layer_normed(const X& x, const Gain& gain, const Bias& bias, double epsilon) {
  using L = typename X::layout;
  using Element = typename X::value_type;
  const auto rows = rows_shape(x.shape());
  using Target = typename X::target;
  NormOutput<ShardedTensor<L, Element, Target>, LayerNormStatistics<L, Element, Target>> out{
      {x.resources(), x.shape()}, {{x.resources(), rows}, {x.resources(), rows}}};
  kernels::layer_norm_forward(x.execution(), x.local_matrix(), gain.local(), bias, epsilon,
                              out.normed.mutable_local_matrix(), mutable_vector_of(out.statistics.mean),
                              mutable_vector_of(out.statistics.inverse_deviation));
  return out;
}

/// Stands for the result where the compiler has rejected the operands.
template <class X> [[nodiscard]] auto invalid_layer_normed(const X& x) {
  using Element = typename X::value_type;
  using Target = typename X::target;
  using Statistics = LayerNormStatistics<InvalidLayout, Element, Target>;
  return NormOutput<ShardedTensor<InvalidLayout, Element, Target>, Statistics>{
      {x.resources(), {}}, {{x.resources(), {}}, {x.resources(), {}}}};
}

template <LayoutType L, class R, class Element, class Target, class Gain, class Bias>
[[nodiscard]] AddNormOutput<ShardedTensor<L, Element, Target>, LayerNormStatistics<L, Element, Target>>
add_layer_normed(const ShardedTensor<L, R, Target>& residual, ShardedTensor<L, Element, Target>&& addition,
                 const Gain& gain, const Bias& bias, double epsilon) {
  const auto rows = rows_shape(residual.shape());
  AddNormOutput<ShardedTensor<L, Element, Target>, LayerNormStatistics<L, Element, Target>> out{
      std::move(addition),
      {residual.resources(), residual.shape()},
      {{residual.resources(), rows}, {residual.resources(), rows}}};
  const auto sum = out.sum.mutable_local_matrix();
  kernels::add_layer_norm_forward(residual.execution(), residual.local_matrix(), sum, gain.local(), bias,
                                  epsilon, sum, out.normed.mutable_local_matrix(),
                                  mutable_vector_of(out.statistics.mean),
                                  mutable_vector_of(out.statistics.inverse_deviation));
  return out;
}

/// dx in the memory of `gradient`; `stream` may be null.
template <LayoutType L, class Element, class Target, class X, class Gain, class Stream, class DGain,
          class DBias>
[[nodiscard]] ShardedTensor<L, Element, Target>
layer_norm_slopes(ShardedTensor<L, Element, Target>&& gradient, const X& x, const Gain& gain,
                  const LayerNormStatistics<L, Element, Target>& statistics, const Stream* stream,
                  const DGain& d_gain, bool add_gain, const DBias& d_bias, bool add_bias) {
  ShardedTensor<L, Element, Target> out = std::move(gradient);
  const auto rows = x.local_matrix();
  auto workspace = workspace_of<AccumulationElement<Element>>(
      x.resources(), kernels::layer_norm_workspace(rows.extent(0), rows.extent(1)));
  const auto data = out.mutable_local_matrix();
  const auto mean = vector_of(statistics.mean);
  const auto inverse = vector_of(statistics.inverse_deviation);
  if (stream == nullptr)
    kernels::layer_norm_backward(out.execution(), rows, gain.local(), mean, inverse, data, data, d_gain,
                                 d_bias, workspace.mutable_local(), add_gain, add_bias);
  else
    kernels::add_layer_norm_backward(out.execution(), rows, gain.local(), mean, inverse, data,
                                     stream->local_matrix(), data, d_gain, d_bias, workspace.mutable_local(),
                                     add_gain, add_bias);
  return out;
}

} // namespace detail

/// @brief y = (x - mean) / sqrt(variance + epsilon) * gain + bias over the last dimension (Ba et al., arXiv
/// 1607.06450, equation 4).
/// @param x [..., width], not Partial, width not sharded
/// @param gain, bias [width], replicated
template <AnyShardedTensor X, AnyShardedTensor Gain, AnyShardedTensor Bias>
[[nodiscard]] auto layer_norm(const X& x, const Gain& gain, const Bias& bias, double epsilon) {
  using Checked = RowwiseLayout<operation::layer_norm, typename X::layout>;
  if constexpr (!detail::any_invalid<Checked> && detail::LayerNormWeight<X, Gain>::value &&
                detail::LayerNormWeight<X, Bias>::value)
    return detail::layer_normed(x, gain, bias.local(), epsilon);
  else
    return detail::invalid_layer_normed(x);
}
/// @brief The same without a bias.
template <AnyShardedTensor X, AnyShardedTensor Gain>
[[nodiscard]] auto layer_norm(const X& x, const Gain& gain, double epsilon) {
  using Checked = RowwiseLayout<operation::layer_norm, typename X::layout>;
  if constexpr (!detail::any_invalid<Checked> && detail::LayerNormWeight<X, Gain>::value)
    return detail::layer_normed(x, gain, detail::no_bias<X>(), epsilon);
  else
    return detail::invalid_layer_normed(x);
}

/// @brief sum = residual + addition, in the memory of `addition`, and its norm, in one pass.
template <LayoutType X, class R, class Element, class Target, class G, class B>
[[nodiscard]] AddNormOutput<ShardedTensor<X, Element, Target>, LayerNormStatistics<X, Element, Target>>
add_layer_norm(const ShardedTensor<X, R, Target>& residual, ShardedTensor<X, Element, Target>&& addition,
               const ShardedTensor<Layout<1>, G, Target>& gain,
               const ShardedTensor<Layout<1>, B, Target>& bias, double epsilon) {
  return detail::add_layer_normed(residual, std::move(addition), gain, bias.local(), epsilon);
}
/// @brief The same without a bias.
template <LayoutType X, class R, class Element, class Target, class G>
[[nodiscard]] AddNormOutput<ShardedTensor<X, Element, Target>, LayerNormStatistics<X, Element, Target>>
add_layer_norm(const ShardedTensor<X, R, Target>& residual, ShardedTensor<X, Element, Target>&& addition,
               const ShardedTensor<Layout<1>, G, Target>& gain, double epsilon) {
  return detail::add_layer_normed(residual, std::move(addition), gain,
                                  detail::no_bias<ShardedTensor<X, Element, Target>>(), epsilon);
}

namespace operation {

/// @brief LayerNorm with its gradients, with a gain, or a gain and a bias.
struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";
  static constexpr std::array<std::string_view, 0> differs_along{};
  static constexpr std::array<detail::GradientReads, 1> gradients_read{{{.left = true}}};
  static constexpr bool fuses_sum = true;
  template <LayoutType X> using WeightGradient = LayerNormGradientLayout<X>;
  double epsilon;

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber("epsilon", epsilon)}; }
  template <AnyShardedTensor X, AnyShardedTensor... Weights>
  [[nodiscard]] auto forward(SourceLocation, const X& x, const Weights&... weights) const {
    return detail::with_statistics(shardwright::layer_norm(x, weights..., epsilon));
  }
  template <class X, class... Weights>
  [[nodiscard]] auto forward_sum(const X& left, X&& right, const Weights&... weights) const {
    return detail::sum_with_statistics(
        add_layer_norm(left, detail::owned(std::move(right)), weights..., epsilon));
  }
  template <class G, class Statistics, class X, class... Weights>
  void gradients(G&& y_gradient, const Statistics& statistics, X& x, Weights&... weights) const {
    detail::give_norm_gradients(*this, std::forward<G>(y_gradient), statistics, x, weights...);
  }
  template <class G, class X, class Statistics, class Gain, class Bias, class GainSlot, class BiasSlot>
  [[nodiscard]] auto gradient(G&& y_gradient, const X& x, const Statistics& statistics, const G* stream,
                              const Gain& gain, const Bias&, const GainSlot& gain_slot,
                              const BiasSlot& bias_slot) const {
    return detail::layer_norm_slopes(detail::owned(std::move(y_gradient)), x, gain, statistics, stream,
                                     gain_slot.tensor.mutable_local(), gain_slot.beta != 0,
                                     bias_slot.tensor.mutable_local(), bias_slot.beta != 0);
  }
  template <class G, class X, class Statistics, class Gain, class GainSlot>
  [[nodiscard]] auto gradient(G&& y_gradient, const X& x, const Statistics& statistics, const G* stream,
                              const Gain& gain, const GainSlot& gain_slot) const {
    return detail::layer_norm_slopes(detail::owned(std::move(y_gradient)), x, gain, statistics, stream,
                                     gain_slot.tensor.mutable_local(), gain_slot.beta != 0,
                                     detail::no_bias_gradient<X>(), false);
  }
};

} // namespace operation

/// @brief layer_norm of a value on a tape with a gain and a bias that are parameters. If `x` is a deferred
/// sum, one pass over memory computes both.
template <detail::TapeOperand X, class C, class R, class E, class Z, class T, class BC, class BR, class BE,
          class BZ, class BT>
[[nodiscard]] auto layer_norm(X&& x, Parameter<C, R, E, Z, T>& gain, Parameter<BC, BR, BE, BZ, BT>& bias,
                              double epsilon, SourceLocation where = SourceLocation::current()) {
  return apply(operation::LayerNorm{epsilon}, where, std::forward<X>(x), gain, bias);
}
/// @brief The same without a bias.
template <detail::TapeOperand X, class C, class R, class E, class Z, class T>
[[nodiscard]] auto layer_norm(X&& x, Parameter<C, R, E, Z, T>& gain, double epsilon,
                              SourceLocation where = SourceLocation::current()) {
  return apply(operation::LayerNorm{epsilon}, where, std::forward<X>(x), gain);
}

/// @brief LayerNorm of a stream in layout `In` with a trained gain and, if `biased`, a trained bias.
template <LayoutType In, class Plan = ModelPlan<>, bool biased = true> class LayerNorm {
public:
  using Weight = Parameter<Layout<1>, LayerNormGradientLayout<In>, typename Plan::element,
                           typename Plan::zero, typename Plan::target>;

  template <class Mesh>
  LayerNorm(const Mesh& mesh, std::int64_t width, double epsilon,
            SourceLocation where = SourceLocation::current())
      : gain_(mesh, {width}, Initial::ones(), ParameterRole::gain, where),
        bias_(made_bias(mesh, width, where)), epsilon_(epsilon) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    if constexpr (biased)
      return layer_norm(std::forward<X>(x), gain_, bias_, epsilon_, where);
    else
      return layer_norm(std::forward<X>(x), gain_, epsilon_, where);
  }
  [[nodiscard]] auto members() {
    if constexpr (biased)
      return shardwright::members("gain", gain_, "bias", bias_);
    else
      return shardwright::members("gain", gain_);
  }

private:
  struct NoBias {};
  using Bias = std::conditional_t<biased, Weight, NoBias>;
  template <class Mesh>
  [[nodiscard]] static Bias made_bias(const Mesh& mesh, std::int64_t width, SourceLocation where) {
    if constexpr (biased)
      return Weight(mesh, {width}, Initial{}, ParameterRole::bias, where);
    else
      return {};
  }

  Weight gain_;
  Bias bias_;
  double epsilon_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
