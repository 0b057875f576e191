// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a random program on a tape: a closed list of typed pieces, whose order, sizes and branches are
/// those of the program.

#include "nn/random_batch.hpp"

#include <shardwright/nn/attention/self.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/layers/position_embedding.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/nn/losses/linear_cross_entropy.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/elementwise/functions.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/reshape.hpp>
#include <shardwright/tensor/softmax.hpp>
#include <shardwright/tensor/transpose.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace random_models {

template <class L> using Value = sw::Var<L, double>;
using AnyValue = std::variant<Value<Stream>, Value<Split>, Value<Width>>; // in the order of Kept

template <class Zero> using Plan = sw::ModelPlan<double, Zero>;

struct AttentionLayouts {
  using Tokens = Whole;
  using Qkv = sw::Layout<3, sw::Shard<1, tp>>;
  using Output = Row;
  using AttentionInput = sw::Layout<4, Rows, sw::Shard<2, tp>>;
  using Residual = Stream;
};

/// @brief Keeps products with `inputs` terms of the size of what they read, so that no program amplifies
/// roundings.
[[nodiscard]] inline sw::Initial initial(std::int64_t inputs) {
  return sw::Initial::normal(0.7 / std::sqrt(static_cast<double>(inputs)));
}

/// @brief A column-parallel and a row-parallel product.
class Mlp {
public:
  Mlp(const Mesh& mesh, std::int64_t width, std::int64_t hidden)
      : up_(mesh, {width, hidden}, initial(width)), down_(mesh, {hidden, width}, initial(hidden)) {}
  template <class X, class Mask> auto operator()(X&& x, const Mask& mask) {
    return down_(mask(sw::gelu_erf(up_(std::forward<X>(x)))));
  }
  auto members() { return sw::members("up", up_, "down", down_); }

private:
  sw::BiasedLinear<Stream, Column, Plan<sw::DataParallel>> up_;
  sw::Linear<sw::MatmulLayout<Stream, Column>, Row, Plan<sw::Zero3>> down_;
};

/// @brief The parts of a case's model, some under each ZeRO stage.
class Model {
  template <class Type> using Some = std::vector<std::unique_ptr<Type>>;

public:
  Model(const Mesh& mesh, const Case& drawn) {
    const std::int64_t width = drawn.width;
    const sw::Initial row = sw::Initial::normal(0.5), matrix = initial(width);
    const double epsilon = 0.1;
    const auto make = [&](Part kind, auto& parts, auto... arguments) {
      using Type = typename std::remove_reference_t<decltype(parts)>::value_type::element_type;
      for (int i = 0; i < drawn.parts[static_cast<std::size_t>(kind)]; ++i)
        parts.push_back(std::make_unique<Type>(arguments...));
    };
    make(Part::table, tables, mesh, drawn.vocabulary, width, row);
    make(Part::mlp, mlps, mesh, width, drawn.hidden);
    make(Part::attention, attentions, mesh,
         sw::AttentionSizes{width, drawn.heads, drawn.heads, width / drawn.heads}, matrix, matrix);
    make(Part::layer_norm, layer_norms, mesh, width, epsilon);
    make(Part::rms_norm, rms_norms, mesh, width, epsilon);
    make(Part::stream_positions, stream_positions, mesh, drawn.sequence, width, row);
    make(Part::split_positions, split_positions, mesh, drawn.sequence + 2, width, row);
    make(Part::width_positions, width_positions, mesh, drawn.sequence, width, row);
    make(Part::square, squares, mesh, std::array<std::int64_t, 2>{width, width}, matrix);
    make(Part::dropout, dropouts, drawn.rate);
  }
  auto members() {
    return sw::members("tables", tables, "mlps", mlps, "attentions", attentions, "layer_norms", layer_norms,
                       "rms_norms", rms_norms, "stream_positions", stream_positions, "split_positions",
                       split_positions, "width_positions", width_positions, "squares", squares, "dropouts",
                       dropouts);
  }

  Some<sw::Embedding<Ids, Row, Plan<sw::Zero1>>> tables;
  Some<Mlp> mlps;
  Some<sw::Attention<AttentionLayouts, Plan<sw::Zero2>>> attentions;
  Some<sw::LayerNorm<Stream, Plan<sw::Zero1>>> layer_norms;
  Some<sw::RmsNorm<Split, Plan<sw::DataParallel>>> rms_norms;
  Some<sw::PositionEmbedding<Stream, Plan<sw::Zero3>>> stream_positions;
  Some<sw::PositionEmbedding<Split, Plan<sw::DataParallel>>> split_positions;
  Some<sw::PositionEmbedding<Width, Plan<sw::Zero1>>> width_positions;
  Some<sw::Linear<Width, Row, Plan<sw::Zero3>>> squares;
  Some<sw::Dropout> dropouts;
};

/// @brief Losses by the axes over which ranks hold different tokens.
struct Losses {
  template <class... Axes>
  using Over = std::optional<sw::CountedLoss<sw::Layout<0, sw::Partial<sw::Sum, Axes...>>>>;
  Over<dp, cp> tokens;
  Over<dp, tp> columns;
  Over<dp, cp, tp> both;

  template <class Loss> void add(const Loss& loss) {
    const auto join = [&](auto& to) {
      if constexpr (std::is_same_v<typename std::remove_reference_t<decltype(to)>::value_type, Loss>) {
        if (to)
          *to += loss;
        else
          to = loss;
      }
    };
    join(tokens);
    join(columns);
    join(both);
  }
  template <class Visitor> void each(const Visitor& visit) const {
    if (tokens)
      visit(*tokens);
    if (columns)
      visit(*columns);
    if (both)
      visit(*both);
  }
};

/// @brief One pass of a program.
class Pass {
public:
  Pass(Model& model, sw::Tape<>& tape, const Mesh& mesh, const Case& drawn, const Batch& batch)
      : model_(model), tape_(tape), mesh_(mesh), drawn_(drawn), batch_(batch) {}

  [[nodiscard]] Losses run() {
    steps(drawn_.steps);
    return losses_;
  }

private:
  void steps(const std::vector<Step>& list) {
    for (const Step& step : list)
      if (step.is_loss())
        add_loss(step);
      else
        values_.emplace_back(result_of(step));
  }

  [[nodiscard]] AnyValue take(int value, bool last) {
    std::optional<AnyValue>& held = values_[static_cast<std::size_t>(value)];
    AnyValue out = *held;
    if (last)
      held.reset();
    return out;
  }
  /// Calls read(x), where x is a value read in layout `L` by the operation itself.
  template <class L, class Read> static auto in(AnyValue&& value, const Read& read) {
    return std::visit([&](auto& x) { return read(std::move(x).template as<L>()); }, value);
  }
  /// A value in layout `L`, on its own.
  template <class L> [[nodiscard]] static Value<L> as(AnyValue&& value) {
    return in<L>(std::move(value), [](auto&& x) { return sw::as_var(std::forward<decltype(x)>(x)); });
  }
  template <class To, class X> [[nodiscard]] static Value<To> changed(X&& x) {
    if constexpr (std::is_same_v<typename std::remove_cvref_t<X>::layout, To>)
      return std::forward<X>(x);
    else
      return sw::as_var(std::forward<X>(x).template as<To>());
  }
  template <class X> [[nodiscard]] static AnyValue keep(const Step& step, X&& x) {
    switch (step.keep) {
    case Kept::stream:
      return changed<Stream>(std::forward<X>(x));
    case Kept::split:
      return changed<Split>(std::forward<X>(x));
    default:
      return changed<Width>(std::forward<X>(x));
    }
  }
  /// The same with the layout that a step reads in: calls with(value of that layout).
  template <class With> [[nodiscard]] AnyValue chosen(const Step& step, const With& with) {
    AnyValue x = take(step.x, step.x_last);
    switch (step.read) {
    case Kept::stream:
      return keep(step, with(as<Stream>(std::move(x))));
    case Kept::split:
      return keep(step, with(as<Split>(std::move(x))));
    default:
      return keep(step, with(as<Width>(std::move(x))));
    }
  }
  template <class X> [[nodiscard]] Value<typename X::layout> masked(const Step& step, X x) {
    if (step.mask < 0)
      return x;
    return (*model_.dropouts[static_cast<std::size_t>(step.mask)])(std::move(x));
  }
  template <class Parts> [[nodiscard]] static auto& part(Parts& parts, const Step& step) {
    return *parts[static_cast<std::size_t>(step.part)];
  }
  /// Numbers that are not trained, equal on all meshes.
  template <class L>
  [[nodiscard]] sw::ShardedTensor<L, double> frozen(const std::array<std::int64_t, L::tensor_rank>& shape) {
    sw::ShardedTensor<L, double> out(mesh_, shape);
    const double size = 1 / std::sqrt(static_cast<double>(shape[0]));
    sw::load_rows(out, [size](std::int64_t row, std::span<double> to) {
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = size * wave(row, 2 * i, 0.9);
    });
    return out;
  }

  [[nodiscard]] AnyValue result_of(const Step& step) {
    switch (step.piece) {
    case Piece::mlp:
      return in<Stream>(take(step.x, step.x_last), [&](auto&& x) {
        return keep(step, part(model_.mlps, step)(std::forward<decltype(x)>(x), [&](auto hidden) {
                      return masked(step, std::move(hidden));
                    }));
      });
    case Piece::attention:
      return attend(step);
    case Piece::layer_norm:
      return in<Stream>(take(step.x, step.x_last), [&](auto&& x) {
        return keep(step, part(model_.layer_norms, step)(std::forward<decltype(x)>(x)));
      });
    case Piece::rms_norm:
      return in<Split>(take(step.x, step.x_last), [&](auto&& x) {
        return keep(step, masked(step, part(model_.rms_norms, step)(std::forward<decltype(x)>(x))));
      });
    case Piece::positions:
      switch (step.read) {
      case Kept::stream:
        return keep(step, part(model_.stream_positions, step)(as<Stream>(take(step.x, step.x_last))));
      case Kept::split:
        return keep(step, part(model_.split_positions, step)(as<Split>(take(step.x, step.x_last))));
      default:
        return keep(step, part(model_.width_positions, step)(as<Width>(take(step.x, step.x_last))));
      }
    case Piece::square:
      return in<Width>(take(step.x, step.x_last), [&](auto&& x) {
        return keep(step, part(model_.squares, step)(std::forward<decltype(x)>(x)));
      });
    case Piece::dropout:
      return chosen(step, [&](auto x) { return part(model_.dropouts, step)(std::move(x)); });
    case Piece::activate:
      return chosen(step, [&](auto x) { return sw::tanh(std::move(x)); });
    case Piece::softmax:
      return in<Split>(take(step.x, step.x_last), [&](auto&& x) {
        return keep(step, masked(step, sw::softmax(std::forward<decltype(x)>(x))));
      });
    case Piece::frozen_matrix:
      return keep(step, sw::matmul(as<Split>(take(step.x, step.x_last)),
                                   frozen<sw::Layout<2>>({drawn_.width, drawn_.width})));
    case Piece::frozen_gain:
      return keep(step, sw::multiply(as<Width>(take(step.x, step.x_last)),
                                     tape_.input(frozen<sw::Layout<1, sw::Shard<0, tp>>>({drawn_.width}))));
    case Piece::merge: {
      auto rows = masked(step, sw::merge_dimensions<0, 2>(as<Whole>(take(step.x, step.x_last))));
      return keep(step, sw::split_dimension<0>(sw::sigmoid(std::move(rows)),
                                               {batch_.ids.shape()[0], drawn_.sequence}));
    }
    case Piece::heads: {
      auto split = sw::split_dimension<2>(as<Width>(take(step.x, step.x_last)),
                                          {drawn_.heads, drawn_.width / drawn_.heads});
      auto heads = sw::softmax(sw::transpose<1, 2>(std::move(split)));
      return keep(step, sw::merge_dimensions<2, 2>(sw::transpose<1, 2>(std::move(heads))));
    }
    case Piece::region: {
      AnyValue x = take(step.x, step.x_last);
      return std::visit([&](auto& from) { return region(step, std::move(from)); }, x);
    }
    case Piece::add:
    case Piece::subtract:
    case Piece::multiply: {
      Value<Stream> y = as<Stream>(take(step.y, step.y_last));
      return in<Stream>(take(step.x, step.x_last), [&](auto&& x) {
        if (step.piece == Piece::add)
          return keep(step, sw::add(std::forward<decltype(x)>(x), std::move(y)));
        if (step.piece == Piece::subtract)
          return keep(step, sw::subtract(std::move(y), std::forward<decltype(x)>(x)));
        return keep(step, sw::tanh(sw::multiply(std::forward<decltype(x)>(x), std::move(y))));
      });
    }
    case Piece::embed:
      return keep(step, part(model_.tables, step)(tape_, batch_.ids));
    default:
      return keep(step, tape_.input(batch_.numbers));
    }
  }

  [[nodiscard]] AnyValue attend(const Step& step) {
    auto x = as<Whole>(take(step.x, step.x_last));
    const sw::TokenPositions<sw::NaturalOrder> rows(drawn_.sequence, 1, 0);
    if (drawn_.folded) // then a mask of rows is not one of positions
      return keep(step, part(model_.attentions, step)(std::move(x), rows, sw::full));
    return keep(step, part(model_.attentions, step)(std::move(x), rows, sw::causal));
  }

  template <class X> [[nodiscard]] AnyValue region(const Step& step, X from) {
    return sw::recompute(
        [&](X x) {
          const std::size_t before = values_.size();
          values_.emplace_back(AnyValue(std::move(x)));
          steps(step.inner);
          AnyValue out = std::move(*values_.back());
          values_.resize(before);
          return out;
        },
        step.how)(std::move(from));
  }

  void add_loss(const Step& step) {
    AnyValue x = take(step.x, step.x_last);
    switch (step.piece) {
    case Piece::loss_stream:
      losses_.add(in<Stream>(std::move(x), [&](auto&& read) {
        return sw::mse(std::forward<decltype(read)>(read), batch_.stream);
      }));
      break;
    case Piece::loss_scores:
      losses_.add(sw::linear_cross_entropy(as<Stream>(std::move(x)), part(model_.tables, step).weight(),
                                           batch_.targets));
      break;
    case Piece::loss_split:
      losses_.add(in<Split>(std::move(x), [&](auto&& read) {
        return sw::mse(std::forward<decltype(read)>(read), batch_.split);
      }));
      break;
    case Piece::loss_width:
      losses_.add(in<Width>(std::move(x), [&](auto&& read) {
        return sw::mse(std::forward<decltype(read)>(read), batch_.width);
      }));
      break;
    default: {
      auto mean = sw::mean<1>(as<Stream>(std::move(x)));
      losses_.add(
          sw::mse(sw::tanh(masked(step, sw::as_var(std::move(mean).template as<Pooled>()))), batch_.pooled));
    }
    }
  }

  Model& model_;
  sw::Tape<>& tape_;
  const Mesh& mesh_;
  const Case& drawn_;
  const Batch& batch_;
  std::vector<std::optional<AnyValue>> values_;
  Losses losses_;
};

} // namespace random_models
