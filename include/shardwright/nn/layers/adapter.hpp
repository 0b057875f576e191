// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The low-rank adapter of a layer with frozen weights.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/adapter_layouts.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/tensor/add_slice.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/operation_node.hpp>
#include <shardwright/train/tape/parameter_operand.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief How A of an adapter begins, keyed by its path and the global element: normal numbers of variance
/// 1 / rank, or uniform ones of variance 1 / (3 in), from -1 / sqrt(in) to 1 / sqrt(in), as of Kaiming (He et
/// al., arXiv 1502.01852) with PEFT's slope sqrt(5).
enum class LoraInitial : std::uint8_t { normal, kaiming_uniform };

/// @brief The low-rank adapters of a model (Hu et al., arXiv 2106.09685): y = base(x) + factor (x A) B, with
/// A [in, rank] and B [rank, out].
///
/// A B begins as zeros: an adapted model begins as its base.
struct LoraOptions {
  std::int64_t rank = 16;
  double alpha = 32;
  bool rank_stabilized = false; ///< The factor is alpha / sqrt(rank) (Kalajdzievski, arXiv 2312.03732).
  double dropout = 0;           ///< Of x, before A; tokens' ids, the x of an embedding, are not dropped.
  LoraInitial initial = LoraInitial::normal; ///< Of A. An embedding's A begins as zeros, B as N(0, 1).
  bool tables = false;                       ///< Whether embeddings and heads that match get one, too.
  /// @brief Which layers get an adapter, by path, such as "layers.3.mlp.up"; the same on all ranks. By
  /// default all but routers, whose choices would change with every step.
  std::function<bool(std::string_view path)> matches = [](std::string_view path) {
    return path.find("router") == path.npos;
  };

  /// @brief Adds them to the modules below a part that match; returns how many. Before initialize().
  /// @throws InvalidArgument for options that fit no adapter, or a tied table with another use in the part.
  template <class Part> std::size_t add_to(Part& part, const std::string& path) const;
  /// @brief @throws InvalidArgument if none was added to a whole model.
  static void require_some(std::size_t count) {
    if (count == 0)
      throw InvalidArgument(
          "Lora: at least one layer of the model must get an adapter, but matches chooses none (it gets paths such as layers.3.mlp.up, of layers with frozen weights; embeddings and heads need LoraOptions::tables, too)");
  }
  /// @brief The initial values of A. @param in inputs of the whole layer, on all ranks
  [[nodiscard]] Initial initial_of(std::int64_t in) const {
    if (initial == LoraInitial::kaiming_uniform)
      return Initial::uniform(1 / std::sqrt(static_cast<double>(in)));
    return Initial::normal(1 / std::sqrt(static_cast<double>(rank)));
  }
  /// @brief alpha / rank, or the rank-stabilized factor.
  [[nodiscard]] double factor() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rank_stabilized ? std::sqrt(r) : r);
  }
};

namespace detail {

/// The mesh of a parameter, for others that are split over no other axes.
template <class P> struct MeshOf {
  using axis_list = typename P::stored_layout::axis_list;
  MeshCore& mesh;
  [[nodiscard]] MeshCore& core() const noexcept { return mesh; }
};

/// factor (x A) B: two layers, such as Linear, for a weight that has its input in dimension `contracted`. If
/// A is an embedding, x are ids with their tape, a Lookup; as in PEFT, A is then zeros at first and B is not,
/// so that words that no batch has keep their rows. B reads x A in layout `Inner`.
template <class A, class Inner, class B, std::size_t contracted> class Lora {
  static constexpr bool looks_up = requires { typename A::Table; };

public:
  /// @param weight that is adapted, or of which a part of `shape` is
  template <class P>
  Lora(const P& weight, const typename P::Shape& shape, const LoraOptions& options)
      : factor_(options.factor()), dropout_(looks_up ? 0 : options.dropout),
        a_(MeshOf<P>{weight.resources().core()}, shape_of_a(shape, options.rank),
           looks_up ? Initial::zeros() : options.initial_of(shape[contracted]), weight.where()),
        b_(MeshOf<P>{weight.resources().core()}, shape_of_b(shape, options.rank),
           looks_up ? Initial::normal(1) : Initial::zeros(), weight.where()) {}

  template <TapeOperand X> [[nodiscard]] auto operator()(X&& x, SourceLocation where) {
    return b_(scale(inner(std::forward<X>(x), where).template as<Inner>(where), factor_, where), where);
  }
  /// y with that added to its indices from `at` on, of a dimension of outputs, in its memory.
  template <class Y, class X>
  [[nodiscard]] auto add_to(Y&& y, X&& x, std::size_t dimension, std::int64_t at, SourceLocation where) {
    auto read = inner(std::forward<X>(x), where);
    return apply(AddProduct{dimension, at, factor_}, where, std::forward<Y>(y),
                 std::move(read).template as<Inner>(where), b_.weight());
  }
  [[nodiscard]] auto members() {
    return shardwright::members("lora.a", a_, "lora.b", b_, "lora.dropout", dropout_);
  }
  /// The same with y and x that are no longer on a tape, in an evaluation.
  template <class Y, TapeOperand X>
  [[nodiscard]] Y add_to_value(Y y, X&& x, std::size_t dimension, std::int64_t at, SourceLocation where) {
    const auto read = inner(std::forward<X>(x), where);
    const WeightReading reading(b_.weight());
    return AddProduct{dimension, at, factor_}.forward(where, std::move(y), read.value(),
                                                      b_.weight().weight());
  }
  [[nodiscard]] double factor() const noexcept { return factor_; }
  [[nodiscard]] auto& a() noexcept { return a_.weight(); }
  [[nodiscard]] auto& b() noexcept { return b_.weight(); }

private:
  template <class Shape> [[nodiscard]] static auto shape_of_a(const Shape& weight, std::int64_t rank) {
    std::array<std::int64_t, contracted + 2> out{};
    std::copy_n(weight.begin(), contracted + 1, out.begin());
    out[contracted + 1] = rank;
    return out;
  }
  template <class Shape> [[nodiscard]] static Shape shape_of_b(Shape weight, std::int64_t rank) {
    weight[contracted] = rank;
    return weight;
  }

  template <class X> [[nodiscard]] auto inner(X&& x, SourceLocation where) {
    if constexpr (looks_up)
      return x.in(a_, where);
    else if constexpr (can_drop<typename std::remove_cvref_t<X>::layout>)
      return down(dropout_(std::forward<X>(x), where), where);
    else
      return down(std::forward<X>(x), where);
  }

  template <class X> [[nodiscard]] auto down(X&& x, SourceLocation where) {
    if constexpr (contracted == 0)
      return apply(LayerProduct<true>{}, where, std::forward<X>(x), a_.weight());
    else
      return a_(std::forward<X>(x), where);
  }

  double factor_;
  Dropout dropout_;
  A a_;
  B b_;
};

/// Calls that take adapters out again.
using AddedAdapters = std::vector<std::function<void()>>;

/// Parts of an output dimension of a weight, each with an adapter of its own.
struct OutputParts {
  struct Part {
    std::string_view name; ///< Follows the path of the weight; literal. Empty for the whole.
    std::int64_t at = 0;
    std::int64_t extent = 0; ///< 0: all.
  };
  static constexpr std::size_t most = 3;
  std::size_t dimension; ///< Of the weight, which must not be sharded if there are several parts.
  std::size_t count = 1;
  std::array<Part, most> part{};
};

/// What the kinds of modules with one matrix [in, out...] have in common.
struct MatrixKind {
  static constexpr std::size_t contracted = 0; ///< The dimension of the input.
  static constexpr bool is_table = false;
  /// The layout and the shape of the matrix that takes the input, given those of the weight.
  template <LayoutType Weight> using Matrix = Weight;
  template <class Shape> [[nodiscard]] static const Shape& matrix(const Shape& weight) { return weight; }
  /// The layout of x A, completed for a result A B of a layout.
  template <class Result, class B> using Inner = MatmulLayout<Result, B, MatmulForm::right_transposed>;
  /// out = A B, in the form of the weight, not rounded.
  template <class Out, class A, class B> static void multiply(Out& out, const A& a, const B& b) {
    matmul_into(out, a, b);
  }
};

/// The adapters of a module of a Kind, which names the layers Down, of A, and Up, of B, with a frozen weight,
/// if it has any. It gives its product in layout `Result`.
template <class Kind, class In, class Weight, class Plan, class Result> class Adapter {
  static constexpr std::size_t contracted = Kind::contracted;
  using Layouts = LoraLayouts<typename Kind::template Matrix<Weight>, contracted>;
  using Trained = ModelPlan<typename Plan::element, typename Plan::zero::Trained, typename Plan::target>;
  using A = typename Kind::template Down<In, typename Layouts::A, Trained>;
  using Inner =
      typename AdapterInner<Kind, typename A::Out, Result, typename Layouts::B, typename Plan::target>::type;
  using B = typename Kind::template Up<Inner, typename Layouts::B, Trained>;
  static constexpr bool allows_dropout = can_drop<In>; // ids have none

public:
  void split(std::size_t dimension, std::initializer_list<std::pair<std::string_view, std::int64_t>> named) {
    if (named.size() > OutputParts::most)
      throw InvalidArgument("Linear: name_outputs must get at most " + std::to_string(OutputParts::most) +
                            " parts, but it gets " + std::to_string(named.size()) +
                            " (make it several layers)");
    parts_ = OutputParts{.dimension = dimension, .count = 0};
    std::int64_t at = 0;
    for (const auto& [name, extent] : named) {
      parts_.part.at(parts_.count++) = {name, at, extent};
      at += extent;
    }
  }

  /// Adds those whose paths are chosen, and how to take them out again; returns how many.
  /// @throws InvalidArgument for options that fit no adapter, or parts that do not fit the weight;
  /// LifecycleError for a second one.
  template <class P>
  [[nodiscard]] std::size_t add(const P& weight, const LoraOptions& options, const std::string& path,
                                AddedAdapters& added) {
    if (options.rank < 1)
      throw InvalidArgument("Lora: the rank must be at least 1, but it is " + std::to_string(options.rank) +
                            " (8 to 64 are usual)");
    if (Kind::is_table && !options.tables)
      return 0;
    require_parts(weight, path);
    std::size_t count = 0;
    for (std::size_t i = 0; i < parts_.count; ++i) {
      const OutputParts::Part& part = parts_.part[i];
      const std::string own = path_below(path, part.name);
      if (!options.matches(own))
        continue;
      if (options.dropout != 0 && !allows_dropout)
        throw InvalidArgument(
            "Lora: dropout must not be asked for " + own +
            ", whose input is an incomplete sum or the rows of experts (set it to 0, or exclude this layer)");
      if (lora_[i])
        throw LifecycleError("Lora: a layer must have one adapter, but " + own +
                             " has one already (adapt a model once)");
      added.push_back([this, i] { lora_[i].reset(); });
      lora_[i].emplace(weight, shape_of(part, weight), options);
      ++count;
    }
    return count;
  }

  /// base(x), and the adapters' part of it.
  template <class Base, class X> [[nodiscard]] auto sum_with(const Base& base, X&& x, SourceLocation where) {
    const auto product = [&](auto&& read) {
      auto y = base(std::forward<decltype(read)>(read));
      if constexpr (std::is_same_v<typename decltype(y)::layout, Result>)
        return y;
      else
        return as_var(std::move(y).template as<Result>(where), where);
    };
    if (merged_ ||
        std::none_of(lora_.begin(), lora_.end(), [](const auto& each) { return each.has_value(); }))
      return product(std::forward<X>(x));
    auto y = product(x);
    if constexpr (contracted > 0) { // rows of experts
      return shardwright::add(std::move(y), (*lora_[0])(std::forward<X>(x), where), where);
    } else {
      for (std::size_t i = 0; i < parts_.count; ++i)
        if (lora_[i])
          y = lora_[i]->add_to(std::move(y), x, parts_.dimension, parts_.part[i].at, where);
      return y;
    }
  }
  /// value = base(x), and the adapters' part of it, in an evaluation.
  template <class Y, class X> [[nodiscard]] Y add_to_value(Y y, const X& x, SourceLocation where) {
    for (std::size_t i = 0; i < parts_.count; ++i)
      if (lora_[i] && !merged_)
        y = lora_[i]->add_to_value(std::move(y), x, parts_.dimension, parts_.part[i].at, where);
    return y;
  }
  template <class P> [[nodiscard]] auto members_with(P& weight) {
    const auto& part = parts_.part;
    return shardwright::members("", weight, part[0].name, lora_[0], part[1].name, lora_[1], part[2].name,
                                lora_[2]);
  }

  /// Adds A B to the weight, or takes it out again.
  /// @throws LifecycleError if that has been done.
  template <class P> void merge(P& weight, bool merged) {
    for (std::size_t i = 0; i < parts_.count; ++i)
      if (lora_[i])
        merge_part(weight, i, merged);
    merged_ = merged;
  }

private:
  template <class P> void require_parts(const P& weight, const std::string& path) const {
    if (parts_.count == 1 && parts_.part[0].extent == 0)
      return; // the whole
    if (parts_.dimension <= contracted || parts_.dimension >= weight.shape().size())
      throw InvalidArgument("Lora: name_outputs of " + path +
                            " must name parts of an output dimension, but " +
                            std::to_string(parts_.dimension) + " is none (they follow dimension " +
                            std::to_string(contracted) + ", the input)");
    if (!P::compute_layout::value.shard(static_cast<int>(parts_.dimension)).empty())
      throw InvalidArgument("Lora: name_outputs of " + path +
                            " must name parts of a dimension that is not sharded, but dimension " +
                            std::to_string(parts_.dimension) +
                            " is (give the parts a dimension of their own, before the sharded one)");
    std::int64_t sum = 0;
    bool positive = true;
    for (std::size_t i = 0; i < parts_.count; ++i) {
      positive = positive && parts_.part[i].extent > 0;
      sum += parts_.part[i].extent;
    }
    const std::int64_t extent = weight.shape()[parts_.dimension];
    if (!positive || sum != extent)
      throw InvalidArgument("Lora: name_outputs of " + path +
                            " must name parts of at least 1 that fill the " + std::to_string(extent) +
                            " elements of dimension " + std::to_string(parts_.dimension) +
                            ", but their sum is " + std::to_string(sum) + " (correct their extents)");
  }
  template <class P>
  [[nodiscard]] typename P::Shape shape_of(const OutputParts::Part& part, const P& weight) const {
    typename P::Shape out = Kind::matrix(weight.shape());
    if (part.extent > 0)
      out[parts_.dimension] = part.extent;
    return out;
  }
  template <class P> void merge_part(P& weight, std::size_t i, bool merged) {
    if (merged_ == merged)
      throw LifecycleError("Lora: the adapter of " + weight.name() + " must be " +
                           (merged ? "merged once, but it is merged already (unmerge it first)"
                                   : "merged before it is unmerged (merge it first)"));
    static_assert(
        !P::quantized,
        "Lora: adapters must not be merged into quantized weights, which would round them again (merge them into the same model with FrozenLayouts, or unquantized weights from a file)");
    using Number = typename P::accumulation_element;
    auto own = redistribute<typename P::stored_layout>(product(weight, i));
    double factor = merged ? lora_[i]->factor() : -lora_[i]->factor();
    if constexpr (is_reproducible<typename P::target>) { // so that no element's product and sum are fused
      own = scale(std::move(own), factor);
      factor = 1;
    }
    weight.fill_weights([&](auto& weights) {
      if constexpr (!std::is_same_v<typename P::element, Number>)
        weights = convert<Number>(weight.stored());
      add_to_slice(weights, own, parts_.dimension, parts_.part[i].at, factor);
    });
  }
  /// A B, not rounded.
  template <class P> [[nodiscard]] auto product(const P& weight, std::size_t i) {
    auto& a = lora_[i]->a();
    auto& b = lora_[i]->b();
    const WeightReading of_a(a);
    const WeightReading of_b(b);
    ShardedTensor<typename P::compute_layout, typename P::accumulation_element, typename P::target> out(
        weight.resources(), Kind::matrix(shape_of(parts_.part[i], weight)));
    Kind::multiply(out, a.weight(), b.weight());
    return out;
  }

  OutputParts parts_{.dimension = contracted + 1};
  std::array<std::optional<Lora<A, Inner, B, contracted>>, OutputParts::most> lora_;
  bool merged_ = false;
};

/// That of a module with a trained weight: none.
struct NoAdapter {
  static void split(std::size_t, std::initializer_list<std::pair<std::string_view, std::int64_t>>) {}
  template <class Base, class X>
  [[nodiscard]] static auto sum_with(const Base& base, X&& x, SourceLocation /*where*/) {
    return base(std::forward<X>(x));
  }
  template <class Y, class X>
  [[nodiscard]] static Y add_to_value(Y y, const X& /*x*/, SourceLocation /*where*/) {
    return y;
  }
  template <class P> [[nodiscard]] static auto members_with(P& weight) {
    return shardwright::members("", weight);
  }
};

/// The adapter of a module of a Kind with input In, a weight, whose plan says whether it is frozen, and a
/// result.
template <class Kind, class In, class Weight, class Plan, class Result>
using AdapterOf =
    std::conditional_t<trains<typename Plan::zero>, NoAdapter, Adapter<Kind, In, Weight, Plan, Result>>;

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
