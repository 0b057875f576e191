// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The feed-forward parts of a transformer: Mlp and SwiGlu.

#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/swiglu.hpp>
#include <shardwright/tensor/elementwise/functions.hpp>
#include <shardwright/train/members.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief down(function(up(x))): a column-parallel product, an elementwise function, a row-parallel product.
/// `Layouts` gives the layouts, `Function` the formula (tensor/elementwise/function.hpp):
///
/// Tokens is that of x, Up and Down those of the matrices [width, hidden] and [hidden, width], Residual that
/// of the result. Without biases the result is the product itself, Partial over the axes that shard the
/// hidden dimension; with them it is in layout Residual.
template <class Layouts, class Plan = ModelPlan<>, class Function = operation::GeluTanh, bool biased = true>
class Mlp {
  using In = typename Layouts::Tokens;
  using Hidden = MatmulLayout<In, typename Layouts::Up>;

public:
  template <class Mesh>
  Mlp(const Mesh& mesh, std::int64_t width, std::int64_t hidden, const Initial& up, const Initial& down,
      SourceLocation where = SourceLocation::current())
      : up_(mesh, {width, hidden}, up, where), down_(mesh, {hidden, width}, down, where) {}

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    return down_(Elementwise<Function>()(up_(std::forward<X>(x), where), where), where);
  }
  [[nodiscard]] auto members() { return shardwright::members("up", up_, "down", down_); }

private:
  detail::MaybeBiased<biased, In, typename Layouts::Up, Plan> up_;
  detail::MaybeBiased<biased, Hidden, typename Layouts::Down, Plan, typename Layouts::Residual> down_;
};

/// @brief down(silu(gate(x)) * up(x)) without biases (Shazeer, arXiv 2002.05202), gate and up as one product.
///
/// `Layouts`: as Mlp, with GateUp for the matrix [width, 2, hidden]. The result is Partial over the axes that
/// shard the hidden dimension; frozen on a Reproducible target it is in layout Residual.
template <class Layouts, class Plan = ModelPlan<>> class SwiGlu {
  using In = typename Layouts::Tokens;
  using Hidden = SwigluLayout<MatmulLayout<In, typename Layouts::GateUp>>;

public:
  template <class Mesh>
  SwiGlu(const Mesh& mesh, std::int64_t width, std::int64_t hidden, const Initial& gate_up,
         const Initial& down, SourceLocation where = SourceLocation::current())
      : gate_up_(mesh, {width, 2, hidden}, gate_up, where), down_(mesh, {hidden, width}, down, where) {
    gate_up_.name_outputs(1, {{"gate", 1}, {"up", 1}});
  }

  template <detail::TapeOperand X>
  [[nodiscard]] auto operator()(X&& x, SourceLocation where = SourceLocation::current()) {
    return down_(swiglu(gate_up_(std::forward<X>(x), where), where), where);
  }
  [[nodiscard]] auto members() { return shardwright::members("gate_up", gate_up_, "down", down_); }

private:
  Linear<In, typename Layouts::GateUp, Plan> gate_up_;
  Linear<Hidden, typename Layouts::Down, Plan, typename Layouts::Residual> down_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
