// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Every public operation on values of a tape, once, for the operations_gradient tests.
/// scripts/check_operations fails if one is missing.

#include "train/operation_check.hpp"

#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/dispatch.hpp>
#include <shardwright/nn/experts/route.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/head_norm.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/layers/position_embedding.hpp>
#include <shardwright/nn/layers/swiglu.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/nn/losses/linear_cross_entropy.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/elementwise/choices.hpp>
#include <shardwright/tensor/experts/grouped_product.hpp>
#include <shardwright/tensor/insert_columns.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/reshape.hpp>
#include <shardwright/tensor/slice.hpp>
#include <shardwright/tensor/softmax.hpp>
#include <shardwright/tensor/transpose.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/sum_loss.hpp>

namespace operations_test {

using Shape1 = std::array<std::int64_t, 1>;
using Shape2 = std::array<std::int64_t, 2>;
using Shape3 = std::array<std::int64_t, 3>;

// Functions of every element.

template <class Entry> struct Function : OfOne<Entry> {
  static constexpr Shape2 shape{5, 4};
  template <class L> static constexpr bool legal = nonlinear<L>;
};
struct GeluTanh : Function<GeluTanh> {
  static constexpr std::string_view name = "gelu_tanh";
  static auto call(auto x) { return sw::gelu_tanh(x); }
};
struct GeluErf : Function<GeluErf> {
  static constexpr std::string_view name = "gelu_erf";
  static auto call(auto x) { return sw::gelu_erf(x); }
};
struct Silu : Function<Silu> {
  static constexpr std::string_view name = "silu";
  static auto call(auto x) { return sw::silu(x); }
};
struct Relu : Function<Relu> {
  static constexpr std::string_view name = "relu";
  static auto call(auto x) { return sw::relu(x); }
};
struct Sigmoid : Function<Sigmoid> {
  static constexpr std::string_view name = "sigmoid";
  static auto call(auto x) { return sw::sigmoid(x); }
};
struct Tanh : Function<Tanh> {
  static constexpr std::string_view name = "tanh";
  static auto call(auto x) { return sw::tanh(x); }
};
struct Exp : Function<Exp> {
  static constexpr std::string_view name = "exp";
  static auto call(auto x) { return sw::exp(x); }
};
struct Log : Function<Log> {
  static constexpr std::string_view name = "log";
  static constexpr double low = 0.2;
  static auto call(auto x) { return sw::log(x); }
};
struct Sqrt : Function<Sqrt> {
  static constexpr std::string_view name = "sqrt";
  static constexpr double low = 0.2;
  static auto call(auto x) { return sw::sqrt(x); }
};
struct Square : Function<Square> {
  static constexpr std::string_view name = "square";
  static auto call(auto x) { return sw::square(x); }
};

struct Shifted : Function<Shifted> {
  static constexpr std::string_view name = "operator+, operator-";
  static auto call(auto x) { return 1.5 - (0.5 + (x * 2.0 + 2) - 3.0); }
};
struct Inverse : Function<Inverse> {
  static constexpr std::string_view name = "operator/";
  static constexpr double low = 0.5;
  static auto call(auto x) { return 2.0 / x; }
};

struct Clamp : Function<Clamp> {
  static constexpr std::string_view name = "clamp";
  static auto call(auto x) { return sw::clamp(x, -0.7, 0.8); }
};
struct Pow : Function<Pow> {
  static constexpr std::string_view name = "pow";
  static constexpr double low = 0.5;
  static auto call(auto x) { return sw::pow(x, 2.5) + sw::pow(x, -3); }
};

// Functions of rows.

template <class Entry> struct RowFunction : OfOne<Entry> {
  static constexpr Shape3 shape{5, 3, 4};
  template <class L> static constexpr bool legal = rowwise<L>;
};
struct Softmax : RowFunction<Softmax> {
  static constexpr std::string_view name = "softmax";
  static auto call(auto x) { return sw::softmax(x); }
};
struct LogSoftmax : RowFunction<LogSoftmax> {
  static constexpr std::string_view name = "log_softmax";
  static auto call(auto x) { return sw::log_softmax(x); }
};

// Linear ones.

template <class Entry> struct Linear : OfOne<Entry> {
  static constexpr Shape2 shape{5, 4};
  template <class L> static constexpr bool legal = linear<L>;
};
struct Scale : Linear<Scale> {
  static constexpr std::string_view name = "scale";
  static auto call(auto x) { return sw::scale(x, -2.5); }
};
struct Signs : Linear<Signs> {
  static constexpr std::string_view name = "operator-, operator*, operator/";
  static auto call(auto x) { return -(2.0 * x) + x * 3.0 - x / 4.0; }
};
struct Convert : Linear<Convert> {
  static constexpr std::string_view name = "convert";
  static constexpr sw::GradientCheck options{.step = 1,
                                             .tolerance = 1e-5}; // linear, up to the rounding to float
  static auto call(auto x) { return sw::convert<double>(sw::convert<float>(x)); }
};

// Reductions.

template <class Entry, int dimension> struct Reduction : OfOne<Entry> {
  static constexpr Shape3 shape{5, 3, 4};
  template <class L> static constexpr bool legal = accepts<sw::detail::ReductionRule<sw::Sum, dimension>, L>;
};
struct SumOver0 : Reduction<SumOver0, 0> {
  static constexpr std::string_view name = "sum, reduce";
  static auto call(auto x) { return sw::sum<0>(x); }
};
struct SumOver1 : Reduction<SumOver1, 1> {
  static constexpr std::string_view name = "sum, reduce";
  static auto call(auto x) { return sw::sum<1>(x); }
};
struct MaxOver1 : Reduction<MaxOver1, 1> {
  static constexpr std::string_view name = "reduce";
  template <class L> static constexpr bool legal = nonlinear<L>&& L::value.shard(1).empty();
  static auto call(auto x) { return sw::reduce<sw::Max, 1>(x) + sw::reduce<sw::Min, 1>(x); }
};
struct MeanOver2 : Reduction<MeanOver2, 2> {
  static constexpr std::string_view name = "mean";
  static auto call(auto x) { return sw::mean<2>(x); }
};
template <class Entry> struct ReductionOfAll : OfOne<Entry> {
  static constexpr Shape3 shape{5, 3, 4};
  template <class L> static constexpr bool legal = accepts<sw::detail::ReduceAllRule<sw::Sum>, L>;
};
struct SumOfAll : ReductionOfAll<SumOfAll> {
  static constexpr std::string_view name = "sum, reduce_all";
  static auto call(auto x) { return sw::sum(x); }
};
struct MeanOfAll : ReductionOfAll<MeanOfAll> {
  static constexpr std::string_view name = "mean";
  static auto call(auto x) { return sw::mean(x); }
};
struct SquaredNorm : Function<SquaredNorm> {
  static constexpr std::string_view name = "squared_norm";
  static auto call(auto x) { return sw::squared_norm(x); }
};
struct Norm : Function<Norm> {
  static constexpr std::string_view name = "norm";
  static auto call(auto x) { return sw::norm(x); }
};

// Other positions and extents.

template <class Entry> struct Rearrangement : OfOne<Entry> {
  static constexpr Shape3 shape{6, 3, 4};
  template <class L> static constexpr bool legal = true;
};
struct Transpose : Rearrangement<Transpose> {
  static constexpr std::string_view name = "transpose";
  static auto call(auto x) { return sw::transpose<0, 2>(x); }
};
struct Reshape : Rearrangement<Reshape> {
  static constexpr std::string_view name = "reshape";
  template <class L> static constexpr bool legal = L::value.shard(1).empty() && L::value.shard(2).empty();
  static auto call(auto x) {
    return sw::scale(sw::reshape(sw::scale(x, 2.0), {3, 24}), 3.0).template as<sw::Layout<2>>();
  }
};
struct Merge : Rearrangement<Merge> {
  static constexpr std::string_view name = "merge_dimensions";
  template <class L> static constexpr bool legal = L::value.shard(2).empty();
  static auto call(auto x) { return sw::merge_dimensions<1, 2>(x); }
};
struct Split : Rearrangement<Split> {
  static constexpr std::string_view name = "split_dimension";
  static constexpr Shape2 shape{6, 4};
  template <class L> static constexpr bool legal = L::value.shard(1).empty();
  static auto call(auto x) { return sw::split_dimension<0>(x, {3, 2}); }
};

struct Slice : Rearrangement<Slice> {
  static constexpr std::string_view name = "slice";
  template <class L> static constexpr bool legal = linear<L>&& L::value.shard(1).empty();
  static auto call(auto x) { return sw::slice<1>(x, 1, 2); }
};

// Parts of models.

struct RmsNorm : RowFunction<RmsNorm> {
  static constexpr std::string_view name = "rms_norm";
  template <class L> static void run(const auto& mesh, const auto& x) {
    auto gain = random_parameter<sw::Layout<1>, sw::GainGradientLayout<L>>(mesh, "gain", Shape1{4}, 2);
    static_cast<void>(sw::check_gradients([&](auto v) { return sw::rms_norm(v + v, gain, 1e-2); },
                                          sw::members("x", x, "gain", gain), {.directions = 1}));
  }
};
struct LayerNorm : RowFunction<LayerNorm> {
  static constexpr std::string_view name = "layer_norm";
  template <class L> static void run(const auto& mesh, const auto& x) {
    auto gain = random_parameter<sw::Layout<1>, sw::GainGradientLayout<L, sw::operation::layer_norm>>(
        mesh, "gain", Shape1{4}, 2);
    auto bias = random_parameter<sw::Layout<1>, sw::GainGradientLayout<L, sw::operation::layer_norm>>(
        mesh, "bias", Shape1{4}, 3);
    static_cast<void>(sw::check_gradients([&](auto v) { return sw::layer_norm(v + v, gain, bias, 1e-2); },
                                          sw::members("x", x, "gain", gain, "bias", bias),
                                          {.directions = 1}));
  }
};
struct Swiglu : OfOne<Swiglu> {
  static constexpr std::string_view name = "swiglu";
  static constexpr Shape3 shape{5, 2, 4};
  template <class L> static constexpr bool legal = nonlinear<L>&& L::value.shard(1).empty();
  static auto call(auto x) { return sw::swiglu(x); }
};
struct Dropout : RowFunction<Dropout> {
  static constexpr std::string_view name = "dropout";
  template <class L> static constexpr bool legal = nonlinear<L>;
  static auto call(auto x) { return sw::dropout(x, {.seed = 3, .tensor = 4, .rate = 0.4}); }
};
struct AddPositions : OfOne<AddPositions> {
  static constexpr std::string_view name = "add_positions";
  static constexpr Shape3 shape{5, 3, 4};
  template <class L> static constexpr bool legal = nonlinear<L>;
  template <class L> static void run(const auto& mesh, const auto& x) {
    auto table = random_parameter<sw::PositionTableLayout<L>, sw::PositionGradientLayout<L>>(mesh, "table",
                                                                                             Shape2{3, 4}, 2);
    static_cast<void>(sw::check_gradients([&](auto v) { return sw::add_positions(v, table); },
                                          sw::members("x", x, "table", table), {.directions = 1}));
  }
};
/// Ids of tokens in the layout of a stream's rows.
template <class L> [[nodiscard]] auto ids_on(const auto& mesh, std::int64_t count, int vocabulary) {
  sw::ShardedTensor<L, std::int32_t> ids(mesh, {count});
  for (std::size_t i = 0; i < ids.local_size(); ++i)
    ids.mutable_data()[i] = (static_cast<int>(ids.local_offset()[0]) + static_cast<int>(i)) * 3 % vocabulary;
  return ids;
}
struct Embed : OfOne<Embed> { // of the table
  static constexpr std::string_view name = "embed";
  static constexpr Shape2 shape{5, 4};
  template <class L> static constexpr bool legal = nonlinear<L>;
  template <class L> static void run(const auto& mesh, const auto& x) {
    using Ids = sw::Layout<1>;
    using Raw = sw::EmbeddingGradientLayout<Ids, sw::Gradient<sw::EmbeddingLayout<Ids, L>>, L>;
    const auto ids = ids_on<Ids>(mesh, 7, 5);
    sw::Parameter<L, Raw, double> table("table", x.clone());
    static_cast<void>(sw::check_gradients([&](sw::Tape<>& tape) { return sw::embed(tape, ids, table); },
                                          sw::members("table", table), {.directions = 1}));
  }
};
struct EmbedValue : OfOne<EmbedValue> { // rows of a value, by ids that are sharded
  static constexpr std::string_view name = "embed";
  static constexpr Shape2 shape{5, 4};
  template <class L> static constexpr bool legal = nonlinear<L>;
  static auto call(auto x) {
    constexpr bool replicated = std::is_same_v<typename decltype(x)::layout, sw::Layout<2>>;
    using Ids = std::conditional_t<replicated, sw::Layout<1, sw::Shard<0, tp>>, sw::Layout<1>>;
    sw::ShardedTensor<Ids, std::int32_t> ids(x.resources(), {7});
    for (std::size_t i = 0; i < ids.local_size(); ++i)
      ids.mutable_data()[i] = (static_cast<int>(ids.local_offset()[0]) + static_cast<int>(i)) * 3 % 5;
    return sw::embed(ids, x);
  }
};
struct CrossEntropy : OfOne<CrossEntropy> {
  static constexpr std::string_view name = "cross_entropy";
  static constexpr Shape2 shape{5, 4};
  template <class L> static constexpr bool legal = nonlinear<L>;
  template <class L> static void run(const auto& mesh, const auto& x) {
    using Ids = std::conditional_t<L::value.shard(0).empty(), sw::Layout<1>, sw::Layout<1, sw::Shard<0, tp>>>;
    const auto targets = ids_on<Ids>(mesh, 5, 4);
    static_cast<void>(sw::check_gradients(
        [&](auto v) { return sw::cross_entropy(v, targets, {.label_smoothing = 0.1, .ignored = 2}); },
        sw::members("x", x)));
  }
};
/// Rows of experts exist only between these; nn/expert_mlp_test.cpp has them in other layouts.
struct Experts {
  static constexpr std::string_view name = "dispatch, grouped, combine";
  template <class Mesh> static void check(const Mesh& mesh, Findings& findings) {
    using Tokens = sw::Layout<2, sw::Shard<0, tp>>;
    using Weights = sw::Layout<3, sw::Shard<0, tp>>;
    note<Tokens, Weights>(findings, name, [&] {
      const auto tokens = random_operand<Tokens>(mesh, Shape2{5, 4}, -1.5, 1.5, 1);
      const auto gates = random_operand<Tokens>(mesh, Shape2{5, 2}, -1.5, 1.5, 2);
      const auto weights = random_operand<Weights>(mesh, Shape3{4, 4, 3}, -1.5, 1.5, 3);
      sw::ShardedTensor<Tokens, std::int32_t> chosen(mesh, {5, 2});
      for (std::size_t i = 0; i < chosen.local_size(); ++i)
        chosen.mutable_data()[i] = static_cast<std::int32_t>((7 * i + 3) % 4);
      const auto experts = [&](auto x, auto g, auto w) {
        return sw::combine(sw::grouped(sw::dispatch<tp>(x, chosen, {.experts = 4, .most_rows = 10}), w), g);
      };
      static_cast<void>(
          sw::check_gradients(experts, sw::members("tokens", tokens, "gates", gates, "weights", weights)));
    });
  }
};
struct LinearCrossEntropy : OfOne<LinearCrossEntropy> { // of the table
  static constexpr std::string_view name = "linear_cross_entropy";
  static constexpr Shape2 shape{6, 4};
  template <class L> static constexpr bool legal = nonlinear<L>&& L::value.shard(1).empty();
  template <class L> static void run(const auto& mesh, const auto& x) {
    using Stream = sw::Layout<2>;
    using Scores = sw::MatmulLayout<Stream, L, sw::MatmulForm::right_transposed>;
    using Raw = sw::MatmulLayout<sw::Gradient<Scores>, Stream, sw::MatmulForm::left_transposed>;
    const auto targets = ids_on<sw::Layout<1>>(mesh, 5, 6);
    const auto stream = random_operand<Stream>(mesh, Shape2{5, 4}, -1, 1, 2);
    sw::Parameter<L, Raw, double> table("table", x.clone());
    static_cast<void>(sw::check_gradients([&](auto v) { return sw::linear_cross_entropy(v, table, targets); },
                                          sw::members("stream", stream, "table", table), {.directions = 1}));
  }
};
struct Mse : Function<Mse> {
  static constexpr std::string_view name = "mse";
  template <class L> static void run(const auto& mesh, const auto& x) {
    const auto target = random_operand<L>(mesh, Function<Mse>::shape, -1, 1, 2);
    static_cast<void>(sw::check_gradients([&](auto v) { return sw::mse(v, target); }, sw::members("x", x)));
  }
};
struct Route : RowFunction<Route> {
  static constexpr std::string_view name = "route";
  static auto call(auto x) { return sw::route(x, {.chosen = 2}).gates; }
};
struct Balance : RowFunction<Balance> {
  static constexpr std::string_view name = "balance_loss, stale_balance_loss, router_z_loss";
  template <class L> static void run(const auto& mesh, const auto& x) {
    const auto choice = sw::choose_experts(x, {.chosen = 2});
    sw::ExpertCounts<L> counts(mesh, 4);
    counts.add(sw::Tape<>().first_pass(), choice);
    const auto stale = counts.finish();
    static_cast<void>(sw::check_gradients(
        [&](auto v) {
          auto loss = sw::balance_loss<sw::EachSequence>(v, choice);
          loss += sw::stale_balance_loss(v, choice, stale);
          return loss += sw::router_z_loss(v, choice);
        },
        sw::members("x", x)));
  }
};
struct SumLoss : Function<SumLoss> {
  static constexpr std::string_view name = "sum_loss";
  static auto call(auto x) {
    auto loss = sw::sum(sw::exp(x));
    return sw::sum_loss(loss, sw::TokenCount<typename decltype(loss)::layout>{1});
  }
};
/// [batch, sequence, key heads, (queries + 2) * head width].
template <class Entry> struct OfHeads : OfOne<Entry> {
  static constexpr std::array<std::int64_t, 4> shape{2, 5, 3, 8};
  template <class L>
  static constexpr bool legal = nonlinear<L>&& L::value.shard(1).empty() && L::value.shard(3).empty();
};
struct Rotary : OfHeads<Rotary> {
  static constexpr std::string_view name = "rotary";
  template <class L> static void run(const auto& mesh, const auto& x) {
    const sw::RotaryTable<double, sw::DefaultTarget> angles(mesh, 5, 2, 100.0);
    const sw::TokenPositions<sw::NaturalOrder> positions(5, 1, 0);
    static_cast<void>(sw::check_gradients(
        [&](auto v) { return sw::rotary(v, angles, positions, sw::HeadShape{.queries = 2, .width = 2}); },
        sw::members("x", x)));
  }
};
struct HeadNorm : OfHeads<HeadNorm> {
  static constexpr std::string_view name = "head_norm";
  template <class L> static void run(const auto& mesh, const auto& x) {
    auto gain = random_parameter<sw::Layout<1>, sw::GainGradientLayout<L>>(mesh, "gain", Shape1{4}, 2);
    static_cast<void>(sw::check_gradients(
        [&](auto v) { return sw::head_norm(v + v, gain, sw::HeadShape{.queries = 2, .width = 2}, 1e-2); },
        sw::members("x", x, "gain", gain), {.directions = 1}));
  }
};
struct Attention : OfHeads<Attention> {
  static constexpr std::string_view name = "attention";
  static auto call(auto x) { return sw::attention(x, sw::HeadShape{.queries = 2, .width = 2}); }
};

// Two operands.

template <class Entry, class Rule> struct Arithmetic : OfTwo<Entry> {
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{5, 4};
  template <class Left, class Right> static constexpr bool legal = accepts<Rule, Left, Right>;
};
template <class Entry, class Rule> struct WithRow : Arithmetic<Entry, Rule> {
  static constexpr Shape1 right_shape{4};
};
struct Add : Arithmetic<Add, sw::detail::AddRule> {
  static constexpr std::string_view name = "add, operator+";
  static auto call(auto x, auto y) { return x + y; }
};
struct AddRow : WithRow<AddRow, sw::detail::AddRule> {
  static constexpr std::string_view name = "add, operator+";
  static auto call(auto x, auto y) { return x + y; }
};
struct Subtract : Arithmetic<Subtract, sw::detail::AddRule> {
  static constexpr std::string_view name = "subtract, operator-";
  static auto call(auto x, auto y) { return x - y; }
};
struct SubtractRow : WithRow<SubtractRow, sw::detail::AddRule> {
  static constexpr std::string_view name = "subtract, operator-";
  static auto call(auto x, auto y) { return x - y; }
};
struct Multiply : Arithmetic<Multiply, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "multiply, operator*";
  static auto call(auto x, auto y) { return x * y; }
};
struct MultiplyRow : WithRow<MultiplyRow, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "multiply, operator*";
  static auto call(auto x, auto y) { return x * y; }
};
template <class Left, class Right>
inline constexpr bool divisible = nonlinear<Right>&& accepts<sw::detail::MultiplyRule, Left, Right>;
struct Divide : Arithmetic<Divide, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "divide, operator/";
  static constexpr double low = 0.5;
  template <class Left, class Right> static constexpr bool legal = divisible<Left, Right>;
  static auto call(auto x, auto y) { return x / y; }
};
struct DivideRow : WithRow<DivideRow, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "divide, operator/";
  static constexpr double low = 0.5;
  template <class Left, class Right> static constexpr bool legal = divisible<Left, Right>;
  static auto call(auto x, auto y) { return x / y; }
};
struct Maximum : Arithmetic<Maximum, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "maximum";
  template <class Left, class Right>
  static constexpr bool legal =
      nonlinear<Left>&& nonlinear<Right>&& accepts<sw::detail::MultiplyRule, Left, Right>;
  static auto call(auto x, auto y) { return sw::maximum(x, y); }
};
/// Both operands in one layout, whose sums are allowed.
template <class Entry> struct Alike : OfTwo<Entry> {
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{5, 4};
  template <class Left, class Right> static constexpr bool legal = std::is_same_v<Left, Right>&& linear<Left>;
};
struct Where : Alike<Where> {
  static constexpr std::string_view name = "where";
  static auto call(auto x, auto y) {
    sw::ShardedTensor<sw::Gradient<typename decltype(x)::layout>, std::int32_t> mask(x.resources(),
                                                                                     x.shape());
    const auto offset = mask.local_offset(), local = mask.local_shape();
    for (std::size_t i = 0; i < mask.local_size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      mask.mutable_data()[i] = ((offset[0] + at / local[1]) * 4 + offset[1] + at % local[1]) % 3 == 0 ? 1 : 0;
    }
    return sw::where(mask, x, y);
  }
};
struct Concat : Alike<Concat> {
  static constexpr std::string_view name = "concat";
  static constexpr Shape2 right_shape{5, 3};
  template <class Left, class Right>
  static constexpr bool legal = Alike<Concat>::legal<Left, Right>&& Left::value.shard(1).empty();
  static auto call(auto x, auto y) { return sw::concat<1>(x, y); }
};
struct Dot : Arithmetic<Dot, sw::detail::MultiplyRule> {
  static constexpr std::string_view name = "dot";
  static auto call(auto x, auto y) { return sw::dot(x, y); }
};
struct Matmul : OfTwo<Matmul> {
  static constexpr std::string_view name = "matmul";
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{4, 3};
  template <class Left, class Right>
  static constexpr bool legal = accepts<sw::detail::MatmulRule<sw::MatmulForm::plain>, Left, Right>;
  static auto call(auto x, auto y) { return sw::matmul(x, y); }
};
struct MatmulTransposed : OfTwo<MatmulTransposed> {
  static constexpr std::string_view name = "matmul_transposed";
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{3, 4};
  template <class Left, class Right>
  static constexpr bool legal =
      accepts<sw::detail::MatmulRule<sw::MatmulForm::right_transposed>, Left, Right>;
  static auto call(auto x, auto y) { return sw::matmul_transposed(x, y); }
};
struct InsertColumns : OfTwo<InsertColumns> {
  static constexpr std::string_view name = "insert_columns";
  static constexpr Shape2 left_shape{5, 4};
  static constexpr Shape2 right_shape{5, 3};
  template <class Left, class Right> static constexpr bool legal = sw::detail::columns_fit<Left, Right>;
  static auto call(auto x, auto y) { return sw::insert_columns(x, y, 1); }
};
struct InsertShared : OfTwo<InsertShared> {
  static constexpr std::string_view name = "insert_columns";
  static constexpr Shape3 left_shape{3, 5, 4};
  static constexpr Shape2 right_shape{3, 2};
  template <class Left, class Right> static constexpr bool legal = sw::detail::columns_fit<Left, Right>;
  static auto call(auto x, auto y) { return sw::insert_columns(x, y, 4); }
};

/// @brief The list. Operations of one operand, and of parameters beside it, are checked on three ranks of one
/// axis, those of two operands on two axes.
using OnOneAxis =
    Operations<GeluTanh, GeluErf, Silu, Relu, Sigmoid, Tanh, Exp, Log, Sqrt, Square, Clamp, Pow, MaxOver1,
               Slice, EmbedValue, Shifted, Inverse, Softmax, LogSoftmax, Scale, Signs, Convert, SumOver0,
               SumOver1, MeanOver2, SumOfAll, MeanOfAll, SquaredNorm, Norm, Transpose, Reshape, Merge, Split,
               RmsNorm, LayerNorm, Swiglu, Dropout, AddPositions, Embed, CrossEntropy, LinearCrossEntropy,
               Mse, Route, Balance, SumLoss, Rotary, HeadNorm, Attention, Experts>;
using OnTwoAxes =
    Operations<Maximum, Where, Concat, Add, AddRow, Subtract, SubtractRow, Multiply, MultiplyRow, Divide,
               DivideRow, Dot, Matmul, MatmulTransposed, InsertColumns, InsertShared>;

} // namespace operations_test
