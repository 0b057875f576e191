// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Linear layers, with or without a bias.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/adapter.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The trace shows both layouts.
template <class Given, class Wanted> struct ModuleInput {
  static_assert(
      std::is_same_v<Given, Wanted>,
      "Module: the input must be in the layout that the module is made for (read it with .as<In>(), or change the module's In)");
  static constexpr bool value = std::is_same_v<Given, Wanted>;
};

template <class Result> struct BiasInput {
  static_assert(
      !Result::value.has_partial(),
      "BiasedLinear: the bias must be added to a complete product, as each rank of a Partial one would add it (name the layout to which the product is redistributed first, such as the stream's)");
  static constexpr bool value = !Result::value.has_partial();
};

} // namespace detail

template <LayoutType In, LayoutType Weight, class Plan, LayoutType Result> class Linear;

namespace detail {
template <LayoutType In, LayoutType Weight, class Plan>
using PlainLinear = Linear<In, Weight, Plan, MatmulLayout<In, Weight>>;

/// For the two layers of an adapter.
struct LinearKind : MatrixKind {
  template <LayoutType In, LayoutType Weight, class Plan> using Down = PlainLinear<In, Weight, Plan>;
  template <LayoutType In, LayoutType Weight, class Plan> using Up = PlainLinear<In, Weight, Plan>;
};
} // namespace detail

/// @brief y = x W, with x read in layout `In` and W in layout `Weight`: a column-parallel or row-parallel
/// layer, depending on the layouts.
///
/// W is [width, outputs...] with any number of output dimensions; y has the layout MatmulLayout<In, Weight>.
/// If the plan is frozen, adapt() may add a low-rank adapter. If it is frozen on a Reproducible target, a
/// Partial y is redistributed to layout `Result`, or completed.
template <LayoutType In, LayoutType Weight, class Plan = ModelPlan<>,
          LayoutType Result = MatmulLayout<In, Weight>>
class Linear {
  using Product = MatmulLayout<In, Weight>;

public:
  using Out = typename detail::AdaptedLayout<Product, Result, Plan>::type;
  using Matrix = Parameter<Weight, MatmulLayout<In, Gradient<Product>, MatmulForm::left_transposed>,
                           typename Plan::element, typename Plan::matrix_zero, typename Plan::target>;

  /// @param shape of W
  template <class Mesh>
  Linear(const Mesh& mesh, const typename Matrix::GivenShape& shape, const Initial& initial,
         SourceLocation where = SourceLocation::current())
      : weight_(mesh, shape, initial, where) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    static_cast<void>(detail::ModuleInput<typename std::remove_cvref_t<X>::layout, In>::value);
    return adapter_.sum_with(
        [&](auto&& read) {
          if constexpr (Matrix::trained)
            return matmul(std::forward<decltype(read)>(read), weight_, where);
          else
            return apply(detail::LayerProduct<false>{}, where, std::forward<decltype(read)>(read), weight_);
        },
        std::forward<X>(x), where);
  }
  [[nodiscard]] Matrix& weight() noexcept { return weight_; }
  /// @brief Adds an adapter to frozen weights; called by adapt().
  [[nodiscard]] std::size_t adapt(const LoraOptions& options, const std::string& path,
                                  detail::AddedAdapters& added) requires(!Matrix::trained) {
    return adapter_.add(weight_, options, path, added);
  }
  /// @brief Names the parts of an output dimension, which then have adapters of their own, as queries, keys
  /// and values do: at most three names, literals, with their extents.
  /// @param dimension of W, not sharded, which the parts fill: adapt() checks it
  /// @throws InvalidArgument for more parts of frozen weights.
  void name_outputs(std::size_t dimension,
                    std::initializer_list<std::pair<std::string_view, std::int64_t>> parts) {
    adapter_.split(dimension, parts);
  }
  /// @brief Called by merge_adapters() and unmerge_adapters().
  void merge_adapter(bool merged) requires(!Matrix::trained) { adapter_.merge(weight_, merged); }
  [[nodiscard]] auto members() { return adapter_.members_with(weight_); }

private:
  Matrix weight_;
  [[no_unique_address]] detail::AdapterOf<detail::LinearKind, In, Weight, Plan, Out> adapter_;
};

/// @brief y = x W + b, where the product is redistributed to layout `Result` before the bias is added: to
/// that of the stream for a row-parallel product, which is Partial.
template <LayoutType In, LayoutType Weight, class Plan = ModelPlan<>,
          LayoutType Result = MatmulLayout<In, Weight>>
class BiasedLinear {
  static constexpr int kept = Weight::tensor_rank - 1; // dimensions of b

public:
  using Out = Result;
  using Product = Linear<In, Weight, Plan, Result>;
  using BiasGradient = LeadingSumLayout<Gradient<Out>, Out::tensor_rank - kept>;
  using Bias = Parameter<Gradient<BiasGradient>, BiasGradient, typename Plan::element, typename Plan::zero,
                         typename Plan::target>;
  static_assert(detail::BiasInput<Out>::value);

  /// @param shape of W; b, zeros at first, has its output dimensions
  template <class Mesh>
  BiasedLinear(const Mesh& mesh, const typename Product::Matrix::GivenShape& shape, const Initial& initial,
               SourceLocation where = SourceLocation::current())
      : product_(mesh, shape, initial, where),
        bias_(mesh, outputs(shape.shape), Initial::zeros(), ParameterRole::bias, where) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    return add(product_(std::forward<X>(x), where).template as<Out>(), bias_, where);
  }
  [[nodiscard]] typename Product::Matrix& weight() noexcept { return product_.weight(); }
  [[nodiscard]] Bias& bias() noexcept { return bias_; }
  /// @brief As Linear's.
  void name_outputs(std::size_t dimension,
                    std::initializer_list<std::pair<std::string_view, std::int64_t>> parts) {
    product_.name_outputs(dimension, parts);
  }
  [[nodiscard]] auto members() { return shardwright::members("weight", product_, "bias", bias_); }

private:
  [[nodiscard]] static typename Bias::Shape outputs(const typename Product::Matrix::Shape& shape) {
    typename Bias::Shape out{};
    std::copy(shape.begin() + 1, shape.end(), out.begin());
    return out;
  }

  Product product_;
  Bias bias_;
};

namespace detail {

/// A product with a bias or without one.
template <bool biased, LayoutType In, LayoutType Weight, class Plan,
          LayoutType Result = MatmulLayout<In, Weight>>
using MaybeBiased =
    std::conditional_t<biased, BiasedLinear<In, Weight, Plan, Result>, Linear<In, Weight, Plan, Result>>;

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
