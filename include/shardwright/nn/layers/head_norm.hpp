// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief RMSNorm of each head of queries and keys separately, before attention.

#include <shardwright/core/element.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/attention.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/kernels/norm.hpp>
#include <shardwright/tensor/kernels/ordered/layer_gradients.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/members.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// 1 / rms of every head of queries and keys: [batch, sequence, these heads], in the kernel's order.
template <LayoutType Qkv, class Element, class Target>
using HeadInverseRms = ShardedTensor<AttentionLayout<Qkv>, AccumulationElement<Element>, Target>;

/// Calls `visit(norm, number)` with the norm of each query head of a group and of its key: the parts of a
/// norm whose rows are groups of all heads.
template <class Element, class Visit>
void each_normed_head(HeadShape heads, const kernels::Norm<Element>& all, const Visit& visit) {
  const auto width = static_cast<std::size_t>(heads.width), queries = static_cast<std::size_t>(heads.queries);
  for (std::size_t head = 0; head <= queries; ++head) {
    const std::size_t first = head < queries ? 0 : width;
    kernels::Norm<Element> norm = all;
    norm.x = all.x.columns_from(head * width, width);
    norm.gain = all.gain.from(first, width);
    norm.inverse = all.inverse.from(head * all.x.rows, all.x.rows);
    visit(norm, head);
  }
}

template <class Tensor, class Gain>
void require_head_gain(const Tensor& qkv, const Gain& gain, HeadShape heads, SourceLocation where) {
  static_cast<void>(NormWeight<operation::rms_norm, Tensor, Gain>::value);
  static_cast<void>(local_attention_shape(qkv, heads, where));
  if (gain.shape()[0] != 2 * heads.width)
    reject_operation("head_norm",
                     "the gain must be [2 * head width], of queries and of keys, but its extent is " +
                         std::to_string(gain.shape()[0]) + " with heads of " + std::to_string(heads.width) +
                         " (make it as long)",
                     qkv.core(), where);
}

} // namespace detail

namespace operation {

/// @brief head_norm() with its gradients.
struct HeadNorm {
  static constexpr std::string_view name = "head_norm";
  static constexpr std::array<std::string_view, 0> differs_along{};
  static constexpr std::array gradients_read{GradientReads{.left = true}};
  HeadShape heads;
  double epsilon;

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber("epsilon", epsilon)}; }
  template <AnyShardedTensor Qkv, AnyShardedTensor Gain>
  [[nodiscard]] auto forward(SourceLocation where, const Qkv& qkv, const Gain& gain) const {
    using L = typename Qkv::layout;
    using Element = typename Qkv::value_type;
    using Target = typename Qkv::target;
    detail::require_head_gain(qkv, gain, heads, where);
    detail::WithState out{qkv.clone(where), detail::HeadInverseRms<L, Element, Target>(
                                                qkv.resources(), {qkv.shape()[0], qkv.shape()[1],
                                                                  qkv.shape()[2] * (heads.queries + 1)})};
    const auto groups = kernels::span_of(detail::mutable_matrix_at(out.value, 3));
    detail::each_normed_head(
        heads,
        kernels::Norm<Element>{.x = groups,
                               .gain = kernels::span_of(gain.local()),
                               .epsilon = epsilon,
                               .inverse = kernels::span_of(detail::mutable_vector_of(out.state))},
        [&](kernels::Norm<Element> norm, std::size_t head) {
          norm.y = groups.columns_from(head * norm.x.columns, norm.x.columns);
          kernels::norm_forward<false>(qkv.execution(), norm);
        });
    return out;
  }
  template <class G, class State, class Qkv, class Gain>
  void gradients(G&& y_gradient, State& state, Qkv& qkv, Gain& gain) const {
    if constexpr (Gain::template takes<GainGradientLayout<typename Qkv::layout>>()) {
      auto out = [&] {
        if constexpr (Gain::is_frozen)
          return gradient(detail::owned(std::forward<G>(y_gradient)), state, qkv.read_last(), gain.read());
        else
          return gradient(detail::owned(std::forward<G>(y_gradient)), state, qkv.read_last(), gain.read(),
                          gain.slot());
      }();
      if (qkv.wants_gradient())
        qkv.give(std::move(out));
    }
  }
  /// The input's gradient, in the memory of `out`; adds that of the gain to a slot, unless it is frozen.
  template <class Tensor, class State, class Qkv, class Gain, class... Slot>
  [[nodiscard]] Tensor gradient(Tensor out, State& inverse, const Qkv& qkv, const Gain& gain,
                                const Slot&... slot) const {
    using Element = typename Tensor::value_type;
    const auto x = kernels::span_of(detail::matrix_at(qkv, 3));
    const auto d_groups = kernels::span_of(detail::mutable_matrix_at(out, 3));
    constexpr bool summed = sizeof...(Slot) > 0 && !is_reproducible<typename Tensor::target>;
    auto workspace = detail::workspace_of<AccumulationElement<Element>>(
        qkv.resources(),
        summed ? kernels::norm_workspace(x.rows, static_cast<std::size_t>(heads.width), false) : 0);
    detail::each_normed_head(
        heads,
        kernels::Norm<Element>{.x = x,
                               .gain = kernels::span_of(gain.local()),
                               .inverse = kernels::span_of(detail::mutable_vector_of(inverse)),
                               .workspace = kernels::span_of(workspace.mutable_local())},
        [&](kernels::Norm<Element> norm, std::size_t head) {
          const std::size_t width = norm.x.columns;
          const bool of_key = head == static_cast<std::size_t>(heads.queries);
          norm.dx = d_groups.columns_from(head * width, width);
          norm.dy = norm.dx;
          [[maybe_unused]] const auto add_to = [&](const auto& into) {
            const auto sums = kernels::span_of(into.tensor.mutable_local()).from(of_key ? width : 0, width);
            const bool add = into.beta != 0 || (head > 0 && !of_key);
            if constexpr (summed) {
              norm.d_gain = sums;
              norm.add_gain = add;
            } else {
              kernels::norm_gain_sums<false>(qkv.execution(), norm, sums.data, add, into.fault);
            }
          };
          (add_to(slot), ...);
          kernels::norm_backward<false, summed>(qkv.execution(), norm);
        });
    return out;
  }
};

} // namespace operation

/// @brief y = x / rms(x) * gain for each head of queries and each of keys (Henry et al., arXiv 2010.04245,
/// with RMSNorm); values stay as they are.
/// @param qkv [batch, sequence, kv_heads, (queries + 1) * head width + value width], not Partial, heads whole
/// @param gain [2 * head width], replicated: of queries, then of keys
/// @throws InvalidArgument if these extents do not agree.
template <Operand Qkv, Operand Gain>
[[nodiscard]] auto head_norm(Qkv&& qkv, Gain&& gain, HeadShape heads, double epsilon,
                             SourceLocation where = SourceLocation::current()) {
  return detail::norm_value(operation::HeadNorm{heads, epsilon}, where, std::forward<Qkv>(qkv),
                            std::forward<Gain>(gain));
}

/// @brief head_norm() with a trained gain, of queries, keys and values in layout `Qkv`.
template <LayoutType Qkv, class Plan = ModelPlan<>> class HeadNorm {
public:
  using Gain = Parameter<Layout<1>, GainGradientLayout<Qkv>, typename Plan::element, typename Plan::zero,
                         typename Plan::target>;

  template <class Mesh>
  HeadNorm(const Mesh& mesh, HeadShape heads, double epsilon,
           SourceLocation where = SourceLocation::current())
      : gain_(mesh, {2 * heads.width}, Initial::ones(), ParameterRole::gain, where), heads_(heads),
        epsilon_(epsilon) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    return head_norm(std::forward<X>(x), gain_, heads_, epsilon_, where);
  }
  [[nodiscard]] auto members() { return shardwright::members("", gain_); }

private:
  Gain gain_;
  HeadShape heads_;
  double epsilon_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
