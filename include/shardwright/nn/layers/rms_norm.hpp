// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief RMSNorm of sharded tensors, optionally fused with the preceding residual addition.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/norm_output.hpp>
#include <shardwright/tensor/kernels/rms_norm.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/members.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Layout of one number per row of X: X without its last dimension, which must not be sharded.
template <LayoutType X>
using RowsOf = ReductionLayout<Sum, X::tensor_rank - 1, RowwiseLayout<operation::rms_norm, X>>;

/// 1 / rms of every row of X.
template <LayoutType X, class Element, class Target>
using InverseRms = ShardedTensor<RowsOf<X>, AccumulationElement<Element>, Target>;

} // namespace detail

/// @brief Layout of the gradient of a norm's gain: a sum over all rows, so Partial<Sum> over every axis that
/// shards them.
template <LayoutType X>
using GainGradientLayout = LeadingSumLayout<RowwiseLayout<operation::rms_norm, X>, X::tensor_rank - 1>;

namespace detail {

/// The extents of X without the last one.
template <std::size_t rank>
[[nodiscard]] constexpr std::array<std::int64_t, rank - 1>
rows_shape(const std::array<std::int64_t, rank>& shape) {
  std::array<std::int64_t, rank - 1> rows{};
  for (std::size_t d = 0; d + 1 < rank; ++d)
    rows[d] = shape[d];
  return rows;
}

/// The gain of a norm: a vector that every rank holds entirely.
template <class X, class Gain> struct NormGainOf {
  static_assert(
      std::is_same_v<typename Gain::layout, Layout<1>>,
      "rms_norm: the gain must be a replicated vector (declare it as Layout<1>, or redistribute it)");
  static_assert(std::is_same_v<typename Gain::value_type, typename X::value_type>,
                "rms_norm: the gain must have the element type of the input (convert one first)");
  static constexpr bool value = std::is_same_v<typename Gain::layout, Layout<1>> &&
                                std::is_same_v<typename Gain::value_type, typename X::value_type>;
};

} // namespace detail

/// @brief y = x / rms(x) * gain over the last dimension (Zhang and Sennrich, arXiv 1910.07467, equation 4).
/// @param x [..., width], not Partial, width not sharded
/// @param gain [width], replicated
template <AnyShardedTensor X, AnyShardedTensor Gain>
[[nodiscard]] auto rms_norm(const X& x, const Gain& gain, double epsilon) {
  using L = typename X::layout;
  using Element = typename X::value_type;
  using Target = typename X::target;
  if constexpr (!detail::any_invalid<detail::RowsOf<L>> && detail::NormGainOf<X, Gain>::value) {
    NormOutput<ShardedTensor<L, Element, Target>, detail::InverseRms<L, Element, Target>> out{
        {x.resources(), x.shape()}, {x.resources(), detail::rows_shape(x.shape())}};
    kernels::rms_norm_forward(x.execution(), x.local_matrix(), gain.local(), epsilon,
                              out.normed.mutable_local_matrix(), detail::mutable_vector_of(out.statistics));
    return out;
  } else {
    using Invalid = ShardedTensor<InvalidLayout, Element, Target>;
    return NormOutput<Invalid, detail::InverseRms<InvalidLayout, Element, Target>>{{x.resources(), {}},
                                                                                   {x.resources(), {}}};
  }
}

/// @brief sum = residual + addition, in the memory of `addition`, and its norm, in one pass.
template <LayoutType X, class R, class Element, class Target, class G>
[[nodiscard]] AddNormOutput<ShardedTensor<X, Element, Target>, detail::InverseRms<X, Element, Target>>
add_rms_norm(const ShardedTensor<X, R, Target>& residual, ShardedTensor<X, Element, Target>&& addition,
             const ShardedTensor<Layout<1>, G, Target>& gain, double epsilon) {
  AddNormOutput<ShardedTensor<X, Element, Target>, detail::InverseRms<X, Element, Target>> out{
      std::move(addition),
      {residual.resources(), residual.shape()},
      {residual.resources(), detail::rows_shape(residual.shape())}};
  const auto sum = out.sum.mutable_local_matrix();
  kernels::add_rms_norm_forward(residual.execution(), residual.local_matrix(), sum, gain.local(), epsilon,
                                sum, out.normed.mutable_local_matrix(),
                                detail::mutable_vector_of(out.statistics));
  return out;
}

/// @brief The gradient of a norm's input, in the memory of `gradient`; adds the gain's gradient to `slot`.
/// @param gradient that of the normalised tensor
/// @param x the norm's input
/// @param stream if the input is a residual stream, the gradient of the residual branch, which is added
template <LayoutType X, class Element, class Target, class E, class G, class Rms, class Slot,
          class S = Element>
[[nodiscard]] ShardedTensor<X, Element, Target>
rms_norm_gradient(ShardedTensor<X, Element, Target>&& gradient, const ShardedTensor<X, E, Target>& x,
                  const ShardedTensor<Layout<1>, G, Target>& gain, const Rms& inverse_rms, const Slot& slot,
                  const ShardedTensor<X, S, Target>* stream = nullptr) {
  const auto rows = x.local_matrix();
  auto workspace = detail::workspace_of<AccumulationElement<Element>>(
      x.resources(), kernels::rms_norm_workspace(rows.extent(0), rows.extent(1)));
  ShardedTensor<X, Element, Target> out = std::move(gradient);
  const auto data = out.mutable_local_matrix();
  const auto inverse = detail::vector_of(inverse_rms);
  if (stream == nullptr) {
    kernels::rms_norm_backward_gain(x.execution(), rows, inverse, data, slot.tensor.mutable_local(),
                                    workspace.mutable_local(), slot.beta != 0);
    kernels::rms_norm_backward_input(x.execution(), rows, gain.local(), inverse, data, data);
  } else {
    kernels::add_rms_norm_backward(x.execution(), rows, gain.local(), inverse, data, stream->local_matrix(),
                                   data, slot.tensor.mutable_local(), workspace.mutable_local(),
                                   slot.beta != 0);
  }
  return out;
}

namespace operation {

/// @brief RMSNorm with its gradients.
struct RmsNorm {
  static constexpr std::string_view name = "rms_norm";
  static constexpr std::array<std::string_view, 0> differs_along{};
  static constexpr std::array<detail::GradientReads, 1> gradients_read{{{.left = true}}};
  static constexpr bool fuses_sum = true;
  template <LayoutType X> using WeightGradient = GainGradientLayout<X>;
  double epsilon;

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber("epsilon", epsilon)}; }
  template <class X, class Gain>
  [[nodiscard]] auto forward(SourceLocation, const X& x, const Gain& gain) const {
    return detail::with_statistics(shardwright::rms_norm(x, gain, epsilon));
  }
  template <class X, class Gain>
  [[nodiscard]] auto forward_sum(const X& left, X&& right, const Gain& gain) const {
    return detail::sum_with_statistics(add_rms_norm(left, detail::owned(std::move(right)), gain, epsilon));
  }
  template <class G, class Statistics, class X, class... Weights>
  void gradients(G&& y_gradient, const Statistics& statistics, X& x, Weights&... weights) const {
    detail::give_norm_gradients(*this, std::forward<G>(y_gradient), statistics, x, weights...);
  }
  template <class G, class X, class Statistics, class Gain, class Slot>
  [[nodiscard]] auto gradient(G&& gradient, const X& x, const Statistics& inverse_rms, const G* stream,
                              const Gain& gain, const Slot& slot) const {
    return rms_norm_gradient(detail::owned(std::move(gradient)), x, gain, inverse_rms, slot, stream);
  }
};

} // namespace operation

/// @brief rms_norm of a value on a tape with a gain that is a parameter. If `x` is a deferred sum, one pass
/// over memory computes both.
template <detail::TapeOperand X, class C, class R, class E, class Z, class T>
[[nodiscard]] auto rms_norm(X&& x, Parameter<C, R, E, Z, T>& gain, double epsilon,
                            SourceLocation where = SourceLocation::current()) {
  return apply(operation::RmsNorm{epsilon}, where, std::forward<X>(x), gain);
}

/// @brief RMSNorm of a stream in layout `In` with a trained gain.
template <LayoutType In, class Plan = ModelPlan<>> class RmsNorm {
public:
  using Gain = Parameter<Layout<1>, GainGradientLayout<In>, typename Plan::element, typename Plan::zero,
                         typename Plan::target>;

  template <class Mesh>
  RmsNorm(const Mesh& mesh, std::int64_t width, double epsilon,
          SourceLocation where = SourceLocation::current())
      : gain_(mesh, {width}, Initial::ones(), ParameterRole::gain, where), epsilon_(epsilon) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    return rms_norm(std::forward<X>(x), gain_, epsilon_, where);
  }
  [[nodiscard]] auto members() { return shardwright::members("", gain_); }

private:
  Gain gain_;
  double epsilon_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
