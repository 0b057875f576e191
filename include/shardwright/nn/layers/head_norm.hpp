// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief RMSNorm of each head of queries and keys separately, before attention.

#include <shardwright/core/element.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/nn/attention.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/norm_output.hpp>
#include <shardwright/nn/layers/rms_norm.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>
#include <shardwright/tensor/kernels/rms_norm.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/members.hpp>

#include <Kokkos_Core.hpp>

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

/// Calls `visit(head, columns, gains, rows)` for each query head of a group and for its key: its columns in
/// the matrix of groups, those of its gain, and those of its rows' numbers.
template <class Visit> void each_normed_head(HeadShape heads, std::size_t rows, const Visit& visit) {
  using Range = Kokkos::pair<std::size_t, std::size_t>;
  const auto width = static_cast<std::size_t>(heads.width), queries = static_cast<std::size_t>(heads.queries);
  for (std::size_t head = 0; head <= queries; ++head) {
    const std::size_t gain = head < queries ? 0 : width;
    visit(head, Range(head * width, (head + 1) * width), Range(gain, gain + width),
          Range(head * rows, (head + 1) * rows));
  }
}

template <class Tensor, class Gain>
void require_head_gain(const Tensor& qkv, const Gain& gain, HeadShape heads, SourceLocation where) {
  static_cast<void>(NormGainOf<Tensor, Gain>::value);
  static_cast<void>(local_attention_shape(qkv, heads, where));
  if (gain.shape()[0] != 2 * heads.width)
    reject_operation("head_norm",
                     "the gain must be [2 * head width], of queries and of keys, but its extent is " +
                         std::to_string(gain.shape()[0]) + " with heads of " + std::to_string(heads.width) +
                         " (make it as long)",
                     qkv.core(), where);
}

} // namespace detail

/// @brief y = x / rms(x) * gain for each head of queries and each of keys (Henry et al., arXiv 2010.04245,
/// with RMSNorm); values stay as they are.
/// @param qkv [batch, sequence, kv_heads, (queries + 1) * head width + value width], not Partial, heads whole
/// @param gain [2 * head width], replicated: of queries, then of keys
/// @throws InvalidArgument if these extents do not agree.
template <AnyShardedTensor Qkv, AnyShardedTensor Gain>
[[nodiscard]] auto head_norm(const Qkv& qkv, const Gain& gain, HeadShape heads, double epsilon,
                             SourceLocation where = SourceLocation::current()) {
  using L = typename Qkv::layout;
  using Element = typename Qkv::value_type;
  using Target = typename Qkv::target;
  detail::require_head_gain(qkv, gain, heads, where);
  NormOutput<ShardedTensor<L, Element, Target>, detail::HeadInverseRms<L, Element, Target>> out{
      qkv.clone(where),
      {qkv.resources(), {qkv.shape()[0], qkv.shape()[1], qkv.shape()[2] * (heads.queries + 1)}}};
  const auto groups = detail::mutable_matrix_at(out.normed, 3);
  const auto inverse = detail::mutable_vector_of(out.statistics);
  detail::each_normed_head(
      heads, groups.extent(0), [&](std::size_t, const auto& columns, const auto& gains, const auto& rows) {
        const auto head = Kokkos::subview(groups, Kokkos::ALL, columns);
        kernels::rms_norm_forward(qkv.execution(), head, Kokkos::subview(gain.local(), gains), epsilon, head,
                                  Kokkos::subview(inverse, rows));
      });
  return out;
}

/// @brief The gradient of head_norm()'s input, in the memory of `gradient`; adds the gain's gradient to
/// `slot`.
template <LayoutType L, class Element, class Target, class E, class G, class Statistics, class Slot>
[[nodiscard]] ShardedTensor<L, Element, Target>
head_norm_gradient(ShardedTensor<L, Element, Target>&& gradient, const ShardedTensor<L, E, Target>& qkv,
                   const ShardedTensor<Layout<1>, G, Target>& gain, const Statistics& statistics,
                   HeadShape heads, const Slot& slot) {
  ShardedTensor<L, Element, Target> out = std::move(gradient);
  const auto x = detail::matrix_at(qkv, 3);
  const auto dy = detail::mutable_matrix_at(out, 3);
  const auto inverse = detail::vector_of(statistics);
  const auto d_gain = slot.tensor.mutable_local();
  auto workspace = detail::workspace_of<AccumulationElement<Element>>(
      qkv.resources(), kernels::rms_norm_workspace(x.extent(0), static_cast<std::size_t>(heads.width)));
  detail::each_normed_head(
      heads, x.extent(0), [&](std::size_t number, const auto& columns, const auto& gains, const auto& rows) {
        const auto head = Kokkos::subview(x, Kokkos::ALL, columns);
        const auto d_head = Kokkos::subview(dy, Kokkos::ALL, columns);
        const auto rms = Kokkos::subview(inverse, rows);
        const bool is_first = number == 0 || number == static_cast<std::size_t>(heads.queries);
        kernels::rms_norm_backward_gain(qkv.execution(), head, rms, d_head, Kokkos::subview(d_gain, gains),
                                        workspace.mutable_local(), slot.beta != 0 || !is_first);
        kernels::rms_norm_backward_input(qkv.execution(), head, Kokkos::subview(gain.local(), gains), rms,
                                         d_head, d_head);
      });
  return out;
}

namespace operation {

/// @brief head_norm() with its gradients.
struct HeadNorm {
  static constexpr std::string_view name = "head_norm";
  static constexpr std::array<std::string_view, 0> differs_along{};
  static constexpr std::array<detail::GradientReads, 1> gradients_read{{{.left = true}}};
  static constexpr bool fuses_sum = true;
  template <LayoutType Qkv> using WeightGradient = GainGradientLayout<Qkv>;
  HeadShape heads;
  double epsilon;

  [[nodiscard]] std::array<GivenNumber, 1> numbers() const { return {GivenNumber("epsilon", epsilon)}; }
  template <class X, class Gain>
  [[nodiscard]] auto forward(SourceLocation where, const X& x, const Gain& gain) const {
    return detail::with_statistics(shardwright::head_norm(x, gain, heads, epsilon, where));
  }
  template <class X, class Gain>
  [[nodiscard]] auto forward_sum(const X& left, X&& right, const Gain& gain) const {
    auto sum = detail::owned(shardwright::add(left, std::move(right)));
    auto out = shardwright::head_norm(sum, gain, heads, epsilon);
    return std::pair{std::move(sum), detail::with_statistics(std::move(out))};
  }
  template <class G, class Statistics, class X, class... Weights>
  void gradients(G&& y_gradient, const Statistics& statistics, X& x, Weights&... weights) const {
    detail::give_norm_gradients(*this, std::forward<G>(y_gradient), statistics, x, weights...);
  }
  template <class G, class X, class Statistics, class Gain, class Slot>
  [[nodiscard]] auto gradient(G&& gradient, const X& x, const Statistics& statistics, const G* stream,
                              const Gain& gain, const Slot& slot) const {
    auto out = head_norm_gradient(detail::owned(std::move(gradient)), x, gain, statistics, heads, slot);
    if (stream != nullptr)
      add.into(out, out, *stream);
    return out;
  }
};

} // namespace operation

/// @brief head_norm() of a value on a tape with a gain that is a parameter.
template <detail::TapeOperand Qkv, class C, class R, class E, class Z, class T>
[[nodiscard]] auto head_norm(Qkv&& qkv, Parameter<C, R, E, Z, T>& gain, HeadShape heads, double epsilon,
                             SourceLocation where = SourceLocation::current()) {
  return apply(operation::HeadNorm{heads, epsilon}, where, std::forward<Qkv>(qkv), gain);
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
