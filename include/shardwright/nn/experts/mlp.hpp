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
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

template <LayoutType Rows, LayoutType Weight, class Plan> class GroupedLinear;

namespace detail {
/// For the two layers of an adapter.
struct GroupedLinearKind : MatrixKind {
  static constexpr std::size_t contracted = 1;
  template <LayoutType Rows, LayoutType Weight, class Plan> using Down = GroupedLinear<Rows, Weight, Plan>;
  template <LayoutType Rows, LayoutType Weight, class Plan> using Up = GroupedLinear<Rows, Weight, Plan>;
  template <class Result, class B> using Inner = Result; // neither is sharded in its columns
  /// out_e = a_e b_e of each expert e of this rank: the rows of all a_e, grouped by expert. Low-precision
  /// products are rounded.
  template <class Out, class A, class B> static void multiply(Out& out, const A& a, const B& b) {
    std::vector<std::int64_t> first_rows;
    for (std::int64_t expert = 0; expert <= a.local_shape()[0]; ++expert)
      first_rows.push_back(expert * a.local_shape()[1]);
    ShardedTensor<typename Out::layout, typename A::value_type, typename Out::target> product(out.resources(),
                                                                                              out.shape());
    kernels::grouped_matmul(out.execution(), std::span<const std::int64_t>(first_rows), matrix_at(a, 2),
                            b.local(), kernels::Transpose::no, mutable_matrix_at(product, 2),
                            ProductsOn<kernels::FastProducts, typename Out::target>{});
    out = convert<typename Out::value_type>(std::move(product));
  }
};
} // namespace detail

/// @brief y_e = x_e W_e for the rows of each expert e, with weights [experts, in, out] in layout `Weight`,
/// and rows in layout `Rows`.
///
/// The weights' gradient is Partial<Sum> over the axes that split the tokens and own no experts. It is
/// reduced like any parameter's gradient, and divided only by the count of all tokens. If the plan is frozen,
/// adapt() may add a low-rank adapter for each expert; on a Reproducible target the result is then complete.
template <LayoutType Rows, LayoutType Weight, class Plan = ModelPlan<>> class GroupedLinear {
public:
  using Out =
      typename detail::AdaptedLayout<GroupedLayout<Rows, Weight>, GroupedLayout<Rows, Weight>, Plan>::type;
  using Matrices = Parameter<Weight, GroupedWeightGradientLayout<Rows, Gradient<Out>>, typename Plan::element,
                             typename Plan::matrix_zero, typename Plan::target>;

  /// @param shape [experts, in, out]
  template <class Mesh>
  GroupedLinear(const Mesh& mesh, const typename Matrices::GivenShape& shape, const Initial& initial,
                SourceLocation where = SourceLocation::current())
      : weight_(mesh, shape, initial, where) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& rows, SourceLocation where = SourceLocation::current()) {
    static_cast<void>(detail::ModuleInput<typename std::remove_cvref_t<X>::layout, Rows>::value);
    return adapter_.sum_with(
        [&](auto&& read) { return grouped(std::forward<decltype(read)>(read), weight_, where); },
        std::forward<X>(rows), where);
  }
  [[nodiscard]] Matrices& weight() noexcept { return weight_; }
  /// @brief Adds an adapter to frozen weights; called by adapt().
  [[nodiscard]] std::size_t adapt(const LoraOptions& options, const std::string& path,
                                  detail::AddedAdapters& added) requires(!Matrices::trained) {
    return adapter_.add(weight_, options, path, added);
  }
  /// @brief Called by merge_adapters() and unmerge_adapters().
  void merge_adapter(bool merged) requires(!Matrices::trained) { adapter_.merge(weight_, merged); }
  [[nodiscard]] auto members() { return adapter_.members_with(weight_); }

private:
  Matrices weight_;
  [[no_unique_address]] detail::AdapterOf<detail::GroupedLinearKind, Rows, Weight, Plan, Out> adapter_;
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
/// tokens: the result is then Partial over them. On a Reproducible target these ranks add their parts of each
/// row before tokens add their rows: an all_reduce of rows, not of tokens. Parameters: gate and up [experts,
/// width, hidden], down [experts, hidden, width].
template <LayoutType Tokens, class Owners, class Inner = AxisList<>, class Plan = ModelPlan<>>
class ExpertMlp;
template <LayoutType Tokens, class... Owners, class Inner, class Plan>
class ExpertMlp<Tokens, AxisList<Owners...>, Inner, Plan> {
  using Weights = detail::ExpertWeights<AxisList<Owners...>, Inner>;
  using Rows = DispatchLayout<Tokens, AxisList<Owners...>>;
  using Up = GroupedLinear<Rows, typename Weights::Up, Plan>;
  using Down = GroupedLinear<typename Up::Out, typename Weights::Down, Plan>;
  /// Whether ranks add their parts of a row before a token adds its rows.
  static constexpr bool completes =
      is_reproducible<typename Plan::target> && !std::is_same_v<typename Down::Out, Rows>;

public:
  using target = typename Plan::target;
  using Out = CombineLayout<std::conditional_t<completes, Rows, typename Down::Out>, Tokens>;

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
    auto returned = down_(std::move(hidden), where);
    if constexpr (completes)
      return combine(std::move(returned).template as<Rows>(where), std::forward<Gates>(gates), where);
    else
      return combine(std::move(returned), std::forward<Gates>(gates), where);
  }
  [[nodiscard]] auto members() { return shardwright::members("gate", gate_, "up", up_, "down", down_); }

private:
  ExpertSet set_;
  Up gate_;
  Up up_;
  Down down_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
