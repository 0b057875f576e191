// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tensors over memory that the program owns: a Kokkos::View as a rank's block.

#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Whether memory is a view that can hold a block of the layout on the target.
template <class L, class Where, class View> struct OverView {
  static constexpr bool is_view = Kokkos::is_view<View>::value;
  static constexpr bool value = false;
  static_assert(
      is_view,
      "tensor_over: the memory must be a Kokkos::View (wrap a pointer and its extents in an unmanaged one)");
};
template <class L, class Where, class View>
requires(bool(Kokkos::is_view<View>::value)) struct OverView<L, Where, View> {
  using Order = typename View::array_layout;
  static constexpr bool has_rank = static_cast<int>(View::rank) == L::tensor_rank;
  static constexpr bool row_major = L::tensor_rank <= 1 || std::is_same_v<Order, Kokkos::LayoutRight> ||
                                    std::is_same_v<Order, Kokkos::LayoutStride>;
  static constexpr bool in_place = std::is_same_v<typename View::memory_space, typename Where::memory_space>;
  static_assert(
      has_rank,
      "tensor_over: the view must have as many dimensions as the layout (give the layout the view's rank, or reshape the view)");
  static_assert(
      row_major,
      "tensor_over: the view must be row-major, as blocks of tensors are (make it with Kokkos::LayoutRight, or copy its elements into a tensor)");
  static_assert(
      in_place,
      "tensor_over: the view must lie in the memory space of the tensor's target (name a target of that space after the layout, or copy the elements there)");
  static constexpr bool value = has_rank && row_major && in_place;
};

/// Names a view without a layout.
template <class View> struct LayoutOver {
  static_assert(
      !std::is_same_v<View, View>,
      "tensor_over: the layout must be named, because memory does not tell how ranks share it (write tensor_over<Layout<2, Shard<0, dp>>>(mesh, view, {extents}))");
};

/// Whether the elements are contiguous in row-major order.
template <class View, std::size_t rank>
[[nodiscard]] bool is_packed(const View& view, const std::array<std::int64_t, rank>& extents) {
  std::size_t stride = 1;
  for (std::size_t d = rank; d-- > 0; stride *= static_cast<std::size_t>(extents[d]))
    if (extents[d] > 1 && static_cast<std::size_t>(view.stride(d)) != stride)
      return false;
  return true;
}

/// Kernels and calls of devices move up to this many bytes at once.
inline constexpr std::uintptr_t device_alignment = 16;

} // namespace detail

/// @brief Extents of this rank's block of a tensor of `shape` in a layout, halos included: those that a view
/// for `tensor_over` must have. No communication.
/// @throws InvalidArgument for a negative extent.
template <LayoutType L, class... Axes>
[[nodiscard]] std::array<std::int64_t, static_cast<std::size_t>(L::tensor_rank)>
block_shape(const DeviceMesh<Axes...>& mesh, const detail::GivenShape<L>& given,
            SourceLocation where = SourceLocation::current()) {
  const auto& shape = given.shape;
  static_cast<void>(fits_mesh<L, typename DeviceMesh<Axes...>::axis_list>);
  detail::check_shape(shape, 1, where);
  return detail::local_shape_of<L>(mesh.core(), shape);
}

/// @brief A tensor of `shape` whose block on this rank is the program's own `view`: nothing is copied, and
/// writing the tensor writes the view. A view of const elements gives a read-only handle.
///
/// The view is row-major and contiguous, in the target's memory space, with the extents that `block_shape`
/// returns; on a device its first element is aligned to 16 bytes. Reads and writes of the view on an
/// execution instance other than the tensor's `execution()` must be fenced by the program.
///
/// The tensor never frees the memory, and neither the pool's statistics nor a dry run count it. It must
/// outlive the tensor and whatever shares it: handles, tapes, pending transitions, replayed steps, and
/// results of `redistribute` and `reshape` that move nothing. A later use is not detected. Operations never
/// reuse it for other tensors: `redistribute` of such a moved-in tensor allocates new memory, where one from
/// the pool would be reduced in place. `clone()` gives a tensor that needs no view.
///
/// Not collective, no communication; every rank creates the tensor, as with its constructor.
/// @throws InvalidArgument if the view has other extents, strides or alignment; the same as ShardedTensor's
/// constructor for a shape.
template <LayoutType L, Target Where = DefaultTarget, class View, class... Axes>
[[nodiscard]] auto tensor_over(const DeviceMesh<Axes...>& mesh, const View& view,
                               const detail::GivenShape<L>& given_shape,
                               SourceLocation where = SourceLocation::current()) {
  const auto& shape = given_shape.shape;
  static_cast<void>(fits_mesh<L, typename DeviceMesh<Axes...>::axis_list>);
  if constexpr (detail::OverView<L, Where, View>::value) {
    using Element = typename View::value_type;
    using Tensor = ShardedTensor<L, Element, Where>;
    detail::MeshCore& core = mesh.core();
    detail::check_shape(shape, sizeof(Element), where);
    const auto block = detail::local_shape_of<L>(core, shape);
    typename Tensor::Shape given{};
    for (std::size_t d = 0; d < given.size(); ++d)
      given[d] = static_cast<std::int64_t>(view.extent(d));
    if (given != block)
      detail::reject_operation("tensor_over",
                               "the view must have the extents of this rank's block, which are " +
                                   detail::text_of(block) + ", but it has " + detail::text_of(given) +
                                   " (allocate it with those that block_shape gives)",
                               core, where);
    const bool empty = detail::product(block) == 0;
    if (!empty && !detail::is_packed(view, block))
      detail::reject_operation(
          "tensor_over",
          "the elements of the view must be contiguous in row-major order, but it is a part of a larger one, padded or transposed (copy them into a tensor)",
          core, where);
    auto* const data = const_cast<std::remove_const_t<Element>*>(view.data());
    if constexpr (!Where::host_accessible)
      if (reinterpret_cast<std::uintptr_t>(data) % detail::device_alignment != 0)
        detail::reject_operation(
            "tensor_over",
            "the first element of the view must be aligned to 16 bytes on a device (start the view elsewhere, or copy the elements into a tensor)",
            core, where);
    auto& resources = core.template resources<Where>();
    detail::agreed_shape(core, shape, where);
    return detail::TensorAccess::in_memory<Tensor>(detail::BufferHandle(resources.borrow(data)), shape);
  }
}

/// @brief Rejects a tensor without a layout, with an error sentence.
template <int = 0, class Mesh, class View, class... Others>
requires requires { typename Mesh::axis_list; }
void tensor_over(const Mesh&, const View&, const Others&...) {
  static_cast<void>(detail::LayoutOver<View>{});
}
template <int = 0, class Mesh, class View, std::size_t rank>
requires requires { typename Mesh::axis_list; }
void tensor_over(const Mesh&, const View&, const std::int64_t (&)[rank]) {
  static_cast<void>(detail::LayoutOver<View>{});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
