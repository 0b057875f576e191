// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Mesh axes as tag types, and sorted lists of them.

#include <shardwright/core/config.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Base of every axis tag: `struct tp : axis_tag<tp> { static constexpr std::string_view name = "tp";
/// };`
template <class Tag> struct axis_tag { using axis_type = Tag; };

/// @brief A tag type that names one axis of a mesh; two axes of one mesh or layout have different names.
template <class Tag>
concept Axis = std::derived_from<Tag, axis_tag<Tag>> && requires {
  { Tag::name } -> std::convertible_to<std::string_view>;
};

/// @brief True for an axis along which ranks hold different parts of a model: its tag has a member
/// `divides_model` that is true.
///
/// It must not be named on a mesh that lacks it: that is the mesh of one part, and the ranks along the axis
/// are elsewhere. Any other axis that a mesh lacks has extent 1.
template <Axis A>
inline constexpr bool divides_model = [] {
  if constexpr (requires { A::divides_model; })
    return static_cast<bool>(A::divides_model);
  else
    return false;
}();

/// @brief The usual axes; programs add their own tags in their own namespace.
namespace axis {

/// @brief Data parallel.
struct dp : axis_tag<dp> {
  static constexpr std::string_view name = "dp";
};
/// @brief Data parallel over replicas of a shard group (the outer axis of HSDP).
struct dpr : axis_tag<dpr> {
  static constexpr std::string_view name = "dpr";
};
/// @brief Tensor parallel.
struct tp : axis_tag<tp> {
  static constexpr std::string_view name = "tp";
};
/// @brief Pipeline parallel.
struct pp : axis_tag<pp> {
  static constexpr std::string_view name = "pp";
  static constexpr bool divides_model = true;
};
/// @brief Context parallel.
struct cp : axis_tag<cp> {
  static constexpr std::string_view name = "cp";
};
/// @brief Expert parallel.
struct ep : axis_tag<ep> {
  static constexpr std::string_view name = "ep";
};
/// @brief Data parallel over the copies of an expert.
struct edp : axis_tag<edp> {
  static constexpr std::string_view name = "edp";
};

} // namespace axis

namespace detail {

/// In place of a type that is not an axis, after its error sentence.
struct no_axis : axis_tag<no_axis> {
  static constexpr std::string_view name = "no_axis";
};

/// A type that a program names as an axis. The trace shows it.
template <class Tag> struct NamedAxis {
  static constexpr bool value = Axis<Tag>;
  static_assert(
      value,
      "Mesh: an axis must be an axis tag (derive the tag from axis_tag and give it a name: struct foo : axis_tag<foo> { static constexpr std::string_view name = \"foo\"; })");
};

/// An axis that a program names on a mesh.
template <class Tag, bool present> struct AxisOnMesh {
  static constexpr bool allowed = [] {
    if constexpr (Axis<Tag>)
      return present || !divides_model<Tag>;
    else
      return true;
  }();
  static_assert(
      allowed,
      "Mesh: an axis that divides the model, such as pp, must not be named on a mesh that lacks it, since ranks along it hold other parts of the model (name other axes, or use the mesh that has it)");
};

} // namespace detail

/// @brief A list of axes.
template <class... Axes> struct AxisList {
  static constexpr int size = sizeof...(Axes);
  /// Names in the list's order.
  static constexpr std::array<std::string_view, sizeof...(Axes)> names{Axes::name...};
};

/// @brief Position of a name in a table of names, or -1.
[[nodiscard]] constexpr int axis_index(std::span<const std::string_view> names, std::string_view name) {
  int index = 0;
  for (const std::string_view& candidate : names) {
    if (candidate == name)
      return index;
    ++index;
  }
  return -1;
}

namespace detail {

template <int index, class A> struct IndexedAxis { using type = A; };
template <class Indices, class... Axes> struct IndexedAxes;
template <int... indices, class... Axes>
struct IndexedAxes<std::integer_sequence<int, indices...>, Axes...> : IndexedAxis<indices, Axes>... {};
template <int index, class A> IndexedAxis<index, A> pick_axis(const IndexedAxis<index, A>*);

template <class List> struct Indexed;
template <class... Axes> struct Indexed<AxisList<Axes...>> {
  using type = IndexedAxes<std::make_integer_sequence<int, sizeof...(Axes)>, Axes...>;
};

} // namespace detail

/// @brief The axis at a position of a list.
template <int index, class List>
using AxisAt = typename decltype(detail::pick_axis<index>(
    static_cast<const typename detail::Indexed<List>::type*>(nullptr)))::type;

namespace detail {

/// Positions of the names in sorted order, each name once.
template <std::size_t size> struct AxisOrder {
  std::array<int, size + 1> positions{};
  int count = 0;
};
template <std::size_t size>
constexpr AxisOrder<size> sorted_order(const std::array<std::string_view, size>& names) {
  AxisOrder<size> order;
  int position = 0;
  for (const std::string_view& name : names) {
    int place = order.count;
    bool known = false;
    while (place > 0 && !known) {
      const std::string_view& other = names.data()[order.positions[static_cast<std::size_t>(place - 1)]];
      known = other == name;
      if (other < name)
        break;
      --place;
    }
    if (!known) {
      for (int i = order.count++; i > place; --i)
        order.positions[static_cast<std::size_t>(i)] = order.positions[static_cast<std::size_t>(i - 1)];
      order.positions[static_cast<std::size_t>(place)] = position;
    }
    ++position;
  }
  return order;
}

template <class List> struct OrderOf { static constexpr auto value = sorted_order(List::names); };
template <class List, class Indices> struct PickAxes;
template <class List, int... indices> struct PickAxes<List, std::integer_sequence<int, indices...>> {
  using type = AxisList<AxisAt<OrderOf<List>::value.positions[indices], List>...>;
};

template <class List> struct SortAxes {
  using type = typename PickAxes<List, std::make_integer_sequence<int, OrderOf<List>::value.count>>::type;
};
template <> struct SortAxes<AxisList<>> { using type = AxisList<>; };
template <class A> struct SortAxes<AxisList<A>> { using type = AxisList<A>; };

template <class... Lists> struct JoinAxes { using type = AxisList<>; };
template <class... First> struct JoinAxes<AxisList<First...>> { using type = AxisList<First...>; };
template <class... First, class... Second, class... Rest>
struct JoinAxes<AxisList<First...>, AxisList<Second...>, Rest...> {
  using type = typename JoinAxes<AxisList<First..., Second...>, Rest...>::type;
};

template <class First, class Second> struct UniteAxes {
  using type = typename SortAxes<typename JoinAxes<First, Second>::type>::type;
};
template <class Same> struct UniteAxes<Same, Same> { using type = Same; };

} // namespace detail

/// @brief The axes sorted by name, each once.
template <class... Axes> using SortedAxes = typename detail::SortAxes<AxisList<Axes...>>::type;

/// @brief The axes of two sorted lists, sorted, each once.
template <class First, class Second> using UnionOfAxes = typename detail::UniteAxes<First, Second>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI
