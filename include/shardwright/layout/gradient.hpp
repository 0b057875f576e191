// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts in which gradients are passed back, the adjoint of a transition, tied layouts, layouts on a
/// mesh.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/detail/propagated.hpp>

#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Axis, bool partial, ReduceOp op> struct GradientOver {
  static_assert(!partial || op != ReduceOp::average,
                "Gradient: an Avg needs a scale of 1/N in its gradient (scale by 1/N and use Partial<Sum>)");
  static_assert(
      !partial || (op != ReduceOp::maximum && op != ReduceOp::minimum && op != ReduceOp::product),
      "Gradient: Max, Min and Product have no gradient layout (redistribute the value before it is used)");
  static_assert(!partial || op != ReduceOp::ordered_sum,
                "Gradient: an OrderedSum has no gradient layout (use a Partial<Sum> on a tape)");
};

template <class Value, class Axes> struct GradientChecks;
template <class Value, class... Axes>
struct GradientChecks<Value, AxisList<Axes...>>
    : GradientOver<Axes, Value::template is_partial<Axes>,
                   Value::value.op(Value::template index_of<Axes>)>... {};

template <class Value> struct GradientOf {
  static_assert(sizeof(GradientChecks<Value, typename Value::axis_list>) != 0);
  static_assert(
      !has_halos<Value>,
      "Gradient: a layout with halos has no gradient layout, as the gradients of copies belong to their owners (call add_halos on the tensor of gradients, and use the layout without halos on the tape)");
  struct Holder {
    static constexpr bool valid = !has_halos<Value> && [] {
      for (int axis = 0; axis < Value::axis_list::size; ++axis)
        if (Value::value.is_partial(axis) && Value::value.op(axis) != ReduceOp::sum)
          return false;
      return true;
    }();
    using table = typename Value::axis_list;
    static constexpr LayoutValue value = [] {
      LayoutValue layout = Value::value;
      for (int axis = 0; axis < max_axes; ++axis)
        layout.clear_partial(axis);
      return layout;
    }();
  };
  using type = typename LayoutOrInvalid<Holder, Holder::valid>::type;
};
template <> struct GradientOf<InvalidLayout> { using type = InvalidLayout; };

template <bool equal> struct TiedCheck {
  static_assert(
      equal,
      "TiedLayouts: tied weights must have the same layout (give both the same, or redistribute before the second use)");
};

template <class First, class Second> struct Tied {
  static constexpr bool equal = std::is_same_v<First, Second>;
  static_assert(sizeof(TiedCheck < equal || any_invalid < First, Second >>) != 0);
  using type = std::conditional_t<equal, First, InvalidLayout>;
};

template <class LayoutAxes, class MeshAxes> struct AxesOnMesh;
template <class... Axes, class MeshAxes> struct AxesOnMesh<AxisList<Axes...>, MeshAxes> {
  template <class A> using On = AxisOnMesh<A, (axis_index(MeshAxes::names, A::name) >= 0)>;
  static constexpr bool value = (true && ... && On<Axes>::allowed);
};

} // namespace detail

/// @brief Layout in which the gradient of a value of layout `Value` is passed back: Shard stays Shard;
/// Partial and Replicate become Replicate.
template <LayoutType Value> using Gradient = typename detail::GradientOf<Value>::type;

/// @brief The one layout of two tied weights; unequal ones are an error.
template <LayoutType First, LayoutType Second> using TiedLayouts = typename detail::Tied<First, Second>::type;

/// @brief True if a layout may be used on a mesh (an AxisList in any order). Axes that the mesh lacks have
/// extent 1, except those that divide the model: an error names the axis.
template <LayoutType Placed, class MeshAxes>
inline constexpr bool fits_mesh = detail::AxesOnMesh<typename Placed::axis_list, MeshAxes>::value;

} // namespace shardwright::inline SHARDWRIGHT_ABI
