// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Linear: a matrix product with a trained matrix.

#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/nn/model_plan.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/operation_node.hpp>

#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The trace shows both layouts.
template <class Given, class Wanted>
struct ModuleInput {
  static_assert(std::is_same_v<Given, Wanted>, "Module: the input must be in the layout that the module is made for (read it with .as<In>(), or change the module's In)");
  static constexpr bool value = std::is_same_v<Given, Wanted>;
};

} // namespace detail

/// @brief y = x W, with x read in layout `In` and W in layout `Weight`: a column-parallel or row-parallel layer by its
/// layouts alone.
///
/// W is [width, outputs...] with any number of output dimensions; y has the layout MatmulLayout<In, Weight>.
template <LayoutType In, LayoutType Weight, class Plan = ModelPlan<>>
class Linear {
public:
  using Out = MatmulLayout<In, Weight>;
  using Matrix = Parameter<Weight, MatmulLayout<In, Gradient<Out>, MatmulForm::left_transposed>, typename Plan::element,
                           typename Plan::zero, typename Plan::target>;

  /// @param shape of W
  template <class Mesh>
  Linear(const Mesh& mesh, const typename Matrix::Shape& shape, const Initial& initial,
         SourceLocation where = SourceLocation::current())
      : weight_(mesh, shape, initial, where) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    static_cast<void>(detail::ModuleInput<typename std::remove_cvref_t<X>::layout, In>::value);
    return matmul(std::forward<X>(x), weight_, where);
  }
  [[nodiscard]] Matrix& weight() noexcept { return weight_; }
  [[nodiscard]] auto members() { return shardwright::members("", weight_); }

private:
  Matrix weight_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
