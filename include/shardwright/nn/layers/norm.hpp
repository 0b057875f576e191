// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief RMSNorm and LayerNorm of sharded tensors, fused with the sum that they read and, backward, with the
/// gradient of the residual branch.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/kernels/norm.hpp>
#include <shardwright/tensor/kernels/ordered/layer_gradients.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layout of the gradients of a norm's gain and bias: a sum over all rows, so Partial<Sum> over every
/// axis that shards them.
/// @tparam Tag operation::rms_norm or operation::layer_norm
template <LayoutType X, class Tag = operation::rms_norm>
using GainGradientLayout = LeadingSumLayout<RowwiseLayout<Tag, X>, X::tensor_rank - 1>;

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

/// The gain or bias of a norm: a vector that every rank holds entirely.
template <class Tag, class X, class Weight> struct NormWeight {
  static constexpr bool is_whole = std::is_same_v<typename Weight::layout, Layout<1>>;
  static constexpr bool has_element = std::is_same_v<typename Weight::value_type, typename X::value_type>;
  static_assert(
      is_whole,
      "norm: gain and bias must be replicated vectors (declare them as Layout<1>, or redistribute them)");
  static_assert(has_element,
                "norm: gain and bias must have the element type of the input (convert one first)");
  static constexpr bool value = is_whole && has_element;
};

template <class Tag> inline constexpr bool is_centred = std::is_same_v<Tag, operation::layer_norm>;

/// The numbers of each row that the gradient of a norm reads; only a centred one has a mean.
template <class Tag, LayoutType X, class Element, class Target> struct NormStatistics {
  using Rows = ShardedTensor<ReductionLayout<Sum, X::tensor_rank - 1, RowwiseLayout<Tag, X>>,
                             AccumulationElement<Element>, Target>;
  Rows inverse;
  std::optional<Rows> mean;

  template <class Tensor> [[nodiscard]] static NormStatistics of(const Tensor& x) {
    const auto rows = rows_shape(x.shape());
    NormStatistics out{{x.resources(), rows}, std::nullopt};
    if constexpr (is_centred<Tag>)
      out.mean.emplace(x.resources(), rows);
    return out;
  }
};

/// The arguments that both passes of a norm share.
template <class Tensor, class Statistics, class Gain>
[[nodiscard]] auto norm_of_rows(const Tensor& x, Statistics& statistics, const Gain& gain) {
  kernels::Norm<typename Tensor::value_type> norm{
      .x = kernels::span_of(x.local_matrix()),
      .gain = kernels::span_of(gain.local()),
      .inverse = kernels::span_of(mutable_vector_of(statistics.inverse))};
  if (statistics.mean)
    norm.mean = kernels::span_of(mutable_vector_of(*statistics.mean));
  return norm;
}

/// Checks that a norm's weights are trained or frozen alike, with an error sentence if not.
template <class Gain, class... Bias> struct NormTrains {
  static_assert(
      ((Gain::is_frozen == Bias::is_frozen) && ...),
      "norm: gain and bias must both be trained or both be frozen, as one pass computes both gradients (give both parameters the same Zero type)");
  static constexpr bool value = !Gain::is_frozen;
};

/// Adds the gradients of a norm's gain and bias to slots, as FixedPoint.
template <bool centred, class Execution, class Element, class Gain, class... Bias>
void add_norm_terms(const Execution& execution, const kernels::Norm<Element>& norm, const Gain& gain,
                    const Bias&... bias) {
  kernels::norm_gain_sums<centred>(execution, norm, gain.tensor.mutable_data(), gain.beta != 0, gain.fault);
  (kernels::column_sums(execution, kernels::elements_as_terms(norm.dy.data), norm.dy.rows, norm.dy.columns,
                        bias.tensor.mutable_data(), bias.beta != 0, bias.fault),
   ...);
}

/// The gradient of a norm's input, in the memory of `gradient`; adds those of the gain and the bias to slots,
/// unless they are frozen: then there are none.
/// @param stream if the input is a residual stream, the gradient of the residual branch, which is added; or
/// null
template <class Tag, LayoutType L, class Element, class Target, class X, class Statistics, class Stream,
          class Gain, class... Slots>
[[nodiscard]] ShardedTensor<L, Element, Target>
norm_gradient(ShardedTensor<L, Element, Target>&& gradient, const X& x, Statistics& statistics,
              const Stream* stream, const Gain& gain, const Slots&... slots) {
  ShardedTensor<L, Element, Target> out = std::move(gradient);
  auto norm = norm_of_rows(x, statistics, gain);
  norm.dx = kernels::span_of(out.mutable_local_matrix());
  norm.dy = norm.dx;
  if (stream != nullptr)
    norm.d_residual = kernels::span_of(stream->local_matrix());
  const auto add_to = [&norm](const auto& gain_slot, const auto&... bias_slot) {
    norm.d_gain = kernels::span_of(gain_slot.tensor.mutable_local());
    norm.add_gain = gain_slot.beta != 0;
    ((norm.d_bias = kernels::span_of(bias_slot.tensor.mutable_local()), norm.add_bias = bias_slot.beta != 0),
     ...);
  };
  constexpr bool summed = sizeof...(Slots) > 0 && !is_reproducible<Target>;
  if constexpr (summed)
    add_to(slots...);
  else if constexpr (sizeof...(Slots) > 0)
    add_norm_terms<is_centred<Tag>>(x.execution(), norm, slots...); // before dx overwrites dy
  auto workspace = workspace_of<AccumulationElement<Element>>(
      x.resources(), summed ? kernels::norm_workspace(norm.x.rows, norm.x.columns, sizeof...(Slots) > 1) : 0);
  norm.workspace = kernels::span_of(workspace.mutable_local());
  kernels::norm_backward<is_centred<Tag>, summed>(x.execution(), norm);
  return out;
}

} // namespace detail

namespace operation {

/// @brief RMSNorm or LayerNorm with its gradients: of a gain, or, of a LayerNorm, a gain and a bias.
/// @tparam Tag rms_norm or layer_norm
template <class Tag> struct Norm {
  static constexpr std::string_view name = Tag::name;
  static constexpr std::array<std::string_view, 0> differs_along{};
  static constexpr bool fuses_sum = true;
  static constexpr std::array gradients_read{GradientReads{.left = true}};
  double epsilon;

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber("epsilon", epsilon)}; }
  template <AnyShardedTensor X, AnyShardedTensor Gain, AnyShardedTensor... Bias>
  [[nodiscard]] auto forward(SourceLocation, const X& x, const Gain& gain, const Bias&... bias) const {
    using Element = typename X::value_type;
    using Target = typename X::target;
    using Checked = RowwiseLayout<Tag, typename X::layout>;
    if constexpr (!detail::any_invalid<Checked> && detail::NormWeight<Tag, X, Gain>::value &&
                  (detail::NormWeight<Tag, X, Bias>::value && ...)) {
      using Statistics = detail::NormStatistics<Tag, typename X::layout, Element, Target>;
      detail::WithState out{ShardedTensor<typename X::layout, Element, Target>(x.resources(), x.shape()),
                            Statistics::of(x)};
      run(detail::norm_of_rows(x, out.state, gain), out.value, bias...);
      return out;
    } else { // after the error sentence
      return detail::WithState{ShardedTensor<InvalidLayout, Element, Target>(x.resources(), {}), 0};
    }
  }
  /// The sum, in the memory of `right`, and its norm, in one pass.
  template <class Left, class Right, class Gain, class... Bias>
  [[nodiscard]] auto forward_sum(const Left& left, Right&& right, const Gain& gain,
                                 const Bias&... bias) const {
    auto sum = detail::owned(std::forward<Right>(right));
    using Tensor = decltype(sum);
    using Statistics = detail::NormStatistics<Tag, typename Tensor::layout, typename Tensor::value_type,
                                              typename Tensor::target>;
    detail::WithState out{Tensor(left.resources(), left.shape()), Statistics::of(left)};
    auto norm = detail::norm_of_rows(left, out.state, gain);
    norm.sum = kernels::span_of(sum.mutable_local_matrix());
    norm.branch = norm.sum;
    run(norm, out.value, bias...);
    return std::pair{std::move(sum), std::move(out)};
  }
  template <class G, class State, class X, class Gain, class... Bias>
  void gradients(G&& y_gradient, State& state, X& operand, Gain& gain, Bias&... bias) const {
    using GradientLayout = GainGradientLayout<typename X::layout, Tag>;
    if constexpr ((Gain::template takes<GradientLayout>() && ... && Bias::template takes<GradientLayout>())) {
      const auto x = operand.read_last();
      auto stream = operand.take_gradient();
      const auto gradient_with = [&](const auto&... slots) {
        return detail::norm_gradient<Tag>(detail::owned(std::forward<G>(y_gradient)), x, state,
                                          stream ? &*stream : nullptr, gain.read(), slots...);
      };
      auto out = [&] {
        if constexpr (detail::NormTrains<Gain, Bias...>::value)
          return gradient_with(gain.slot(), bias.slot()...);
        else
          return gradient_with();
      }();
      stream.reset();
      if (operand.wants_gradient())
        operand.give(std::move(out));
    }
  }

private:
  template <class Arguments, class Y, class... Bias>
  void run(Arguments norm, Y& y, const Bias&... bias) const {
    norm.y = kernels::span_of(y.mutable_local_matrix());
    norm.epsilon = epsilon;
    ((norm.bias = kernels::span_of(bias.local())), ...);
    kernels::norm_forward<detail::is_centred<Tag>>(y.execution(), norm);
  }
};

/// @brief RMSNorm with its gradients.
using RmsNorm = Norm<rms_norm>;
/// @brief LayerNorm with its gradients.
using LayerNorm = Norm<layer_norm>;

} // namespace operation

namespace detail {

/// The value on a tape, or of tensors without the numbers that only a gradient reads.
template <class Operation, class X, class... Weights>
[[nodiscard]] auto norm_value(const Operation& operation, SourceLocation where, X&& x, Weights&&... weights) {
  auto out = apply(operation, where, std::forward<X>(x), std::forward<Weights>(weights)...);
  if constexpr (requires { out.state; })
    return std::move(out.value);
  else
    return out;
}

} // namespace detail

/// @brief y = x / rms(x) * gain over the last dimension (Zhang and Sennrich, arXiv 1910.07467, equation 4).
///
/// @param x [..., width], not Partial, width not sharded; a deferred sum is computed in the same pass
/// @param gain [width], replicated
/// @throws InvalidArgument if the extents do not agree.
template <Operand X, Operand Gain>
[[nodiscard]] auto rms_norm(X&& x, Gain&& gain, double epsilon,
                            SourceLocation where = SourceLocation::current()) {
  return detail::norm_value(operation::RmsNorm{epsilon}, where, std::forward<X>(x), std::forward<Gain>(gain));
}

/// @brief y = (x - mean) / sqrt(variance + epsilon) * gain + bias over the last dimension (Ba et al., arXiv
/// 1607.06450, equation 4).
///
/// @param x [..., width], not Partial, width not sharded; a deferred sum is computed in the same pass
/// @param gain, bias [width], replicated
/// @throws InvalidArgument if the extents do not agree.
template <Operand X, Operand Gain, Operand Bias>
[[nodiscard]] auto layer_norm(X&& x, Gain&& gain, Bias&& bias, double epsilon,
                              SourceLocation where = SourceLocation::current()) {
  return detail::norm_value(operation::LayerNorm{epsilon}, where, std::forward<X>(x),
                            std::forward<Gain>(gain), std::forward<Bias>(bias));
}
/// @brief The same without a bias.
template <Operand X, Operand Gain>
[[nodiscard]] auto layer_norm(X&& x, Gain&& gain, double epsilon,
                              SourceLocation where = SourceLocation::current()) {
  return detail::norm_value(operation::LayerNorm{epsilon}, where, std::forward<X>(x),
                            std::forward<Gain>(gain));
}

/// @brief A norm of a stream in layout `In` with a trained gain and, if `biased`, a trained bias.
/// @tparam Tag operation::rms_norm or operation::layer_norm
template <class Tag, LayoutType In, class Plan, bool biased> class Norm {
public:
  using Weight = Parameter<Layout<1>, GainGradientLayout<In, Tag>, typename Plan::element,
                           typename Plan::zero, typename Plan::target>;

  template <class Mesh>
  Norm(const Mesh& mesh, std::int64_t width, double epsilon, SourceLocation where = SourceLocation::current())
      : gain_(mesh, {width}, Initial::ones(), ParameterRole::gain, where),
        bias_(made_bias(mesh, width, where)), epsilon_(epsilon) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    if constexpr (biased)
      return apply(operation::Norm<Tag>{epsilon_}, where, std::forward<X>(x), gain_, bias_);
    else
      return apply(operation::Norm<Tag>{epsilon_}, where, std::forward<X>(x), gain_);
  }
  [[nodiscard]] auto members() {
    if constexpr (biased)
      return shardwright::members("gain", gain_, "bias", bias_);
    else
      return shardwright::members(detail::is_centred<Tag> ? "gain" : "", gain_);
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

/// @brief RMSNorm of a stream in layout `In` with a trained gain.
template <LayoutType In, class Plan = ModelPlan<>> using RmsNorm = Norm<operation::rms_norm, In, Plan, false>;
/// @brief LayerNorm of a stream in layout `In` with a trained gain and, if `biased`, a trained bias.
template <LayoutType In, class Plan = ModelPlan<>, bool biased = true>
using LayerNorm = Norm<operation::layer_norm, In, Plan, biased>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
