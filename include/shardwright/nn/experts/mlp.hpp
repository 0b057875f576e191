// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The experts of a layer: dispatch, a gated MLP for each expert, combine.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/experts/dispatch.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/experts/grouped_product.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/operation_node.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief y_e = x_e W_e for the rows of each expert e, with weights [experts, in, out] in layout `Weight`,
/// and rows in layout `Rows`.
///
/// The weights' gradient is Partial<Sum> over the axes that split the tokens and own no experts. It is
/// reduced like any parameter's gradient, and divided only by the count of all tokens.
template <LayoutType Rows, LayoutType Weight, class Plan = ModelPlan<>> class GroupedLinear {
public:
  using Out = GroupedLayout<Rows, Weight>;
  using Matrices = Parameter<Weight, GroupedWeightGradientLayout<Rows, Gradient<Out>>, typename Plan::element,
                             typename Plan::zero, typename Plan::target>;

  /// @param shape [experts, in, out]
  template <class Mesh>
  GroupedLinear(const Mesh& mesh, const typename Matrices::GivenShape& shape, const Initial& initial,
                SourceLocation where = SourceLocation::current())
      : weight_(mesh, shape, initial, where) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& rows, SourceLocation where = SourceLocation::current()) {
    static_cast<void>(detail::ModuleInput<typename std::remove_cvref_t<X>::layout, Rows>::value);
    return grouped(std::forward<X>(rows), weight_, where);
  }
  [[nodiscard]] Matrices& weight() noexcept { return weight_; }
  [[nodiscard]] auto members() { return shardwright::members("", weight_); }

private:
  Matrices weight_;
};

namespace detail {

template <class Owners, class Inner> struct ExpertWeights;
template <class... Owners, class... Inner> struct ExpertWeights<AxisList<Owners...>, AxisList<Inner...>> {
  using Up = Layout<3, Shard<0, Owners...>, Shard<2, Inner...>>;
  using Down = Layout<3, Shard<0, Owners...>, Shard<1, Inner...>>;
};
template <class... Owners> struct ExpertWeights<AxisList<Owners...>, AxisList<>> {
  using Up = Layout<3, Shard<0, Owners...>>;
  using Down = Up;
};

} // namespace detail

/// @brief Sizes of the experts of one layer.
struct ExpertSizes {
  std::int64_t width = 0;
  std::int64_t hidden = 0; ///< Of each expert.
  ExpertSet set{};
};

/// @brief The sum over a token's experts of gate times down(silu(gate_matrix(x)) * up(x)), without biases
/// (Shazeer, arXiv 2002.05202; Shazeer et al., arXiv 1701.06538, equation 1).
///
/// Tokens come in layout `Tokens`, [tokens..., width]; the AxisList `Owners` names axes that split them and
/// own the experts, and `Inner` those over which each expert's hidden dimension is sharded, which replicate
/// tokens: the result is then Partial over them. Parameters: gate and up [experts, width, hidden], down
/// [experts, hidden, width].
template <LayoutType Tokens, class Owners, class Inner = AxisList<>, class Plan = ModelPlan<>>
class ExpertMlp;
template <LayoutType Tokens, class... Owners, class Inner, class Plan>
class ExpertMlp<Tokens, AxisList<Owners...>, Inner, Plan> {
  using Weights = detail::ExpertWeights<AxisList<Owners...>, Inner>;
  using Rows = DispatchLayout<Tokens, AxisList<Owners...>>;
  using Up = GroupedLinear<Rows, typename Weights::Up, Plan>;
  using Down = GroupedLinear<typename Up::Out, typename Weights::Down, Plan>;

public:
  using target = typename Plan::target;
  using Out = CombineLayout<typename Down::Out, Tokens>;

  template <class Mesh>
  ExpertMlp(const Mesh& mesh, const ExpertSizes& sizes, const Initial& up, const Initial& down,
            SourceLocation where = SourceLocation::current())
      : set_(sizes.set), gate_(mesh, {sizes.set.experts, sizes.width, sizes.hidden}, up, where),
        up_(mesh, {sizes.set.experts, sizes.width, sizes.hidden}, up, where),
        down_(mesh, {sizes.set.experts, sizes.hidden, sizes.width}, down, where) {}

  /// @param experts int32 [tokens..., slots], -1 for none @param gates [tokens..., slots]
  template <detail::TapeOperand X, AnyShardedTensor Experts, detail::TapeOperand Gates>
  [[nodiscard]] auto operator()(X&& x, const Experts& experts, Gates&& gates,
                                SourceLocation where = SourceLocation::current()) {
    static_cast<void>(detail::ModuleInput<typename std::remove_cvref_t<X>::layout, Tokens>::value);
    auto rows = dispatch<Owners...>(std::forward<X>(x), experts, set_, where);
    // Its result is as large as both products, and cheaper to recompute than to keep.
    auto activate = recompute([&](auto gate) { return silu(std::move(gate), where); }, Recompute::selective);
    auto gated = activate(gate_(rows, where));
    auto hidden = multiply(std::move(gated), up_(std::move(rows), where), where);
    return combine(down_(std::move(hidden), where), std::forward<Gates>(gates), where);
  }
  [[nodiscard]] auto members() { return shardwright::members("gate", gate_, "up", up_, "down", down_); }

private:
  ExpertSet set_;
  Up gate_;
  Up up_;
  Down down_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
