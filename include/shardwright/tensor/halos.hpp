// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief In-place halo updates: copies from the owners, and the adjoint, sums into the owners.

#include <shardwright/core/source_location.hpp>
#include <shardwright/tensor/halo/exchange.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Tensor> struct HasHalos {
  static constexpr bool value = has_halos<typename Tensor::layout>;
  static_assert(
      value,
      "Halo: the layout of the tensor must have halos (name one in its Shard: Shard<0, x, Halo<1>>, and redistribute to it)");
};

} // namespace detail

/// @brief Copies the owners' current values into the halos, corners included: the step between two sweeps of
/// a stencil.
///
/// Collective over the axes that shard the dimensions with halos; one round, in which a rank communicates
/// only with its neighbours. Elements beyond the ends of the tensor are unchanged. Makes no heap allocation
/// after the first call. Cost: `Transition<WithoutHalos<L>, L>::bytes`.
/// @throws InvalidArgument on every rank if a halo is wider than a block that fills it; LifecycleError while
/// a read-only handle shares the memory; the typed errors of communicators.
template <AnyShardedTensor Tensor>
void refresh_halos(Tensor& tensor, SourceLocation where = SourceLocation::current()) {
  tensor.require_memory(where);
  if constexpr (detail::HasHalos<Tensor>::value)
    detail::exchange_halos(tensor, detail::halo_plan(tensor, where), where);
}

/// @brief Adds each halo element to its owner's element, and sets all halos to 0: the adjoint of filling
/// them.
///
/// With H = redistribute to the layout with halos and H' = add_halos, then redistribute to the one without:
/// <H x, y> = <x, H' y>. Elements beyond the ends have no owner, and are dropped. Owners add in a fixed
/// order. Cost as refresh_halos.
/// @throws as refresh_halos
template <AnyShardedTensor Tensor>
void add_halos(Tensor& tensor, SourceLocation where = SourceLocation::current()) {
  tensor.require_memory(where);
  if constexpr (detail::HasHalos<Tensor>::value) {
    using Element = typename Tensor::value_type;
    using Target = typename Tensor::target;
    const detail::HaloPlan& plan = detail::halo_plan(tensor, where);
    Element* const block = tensor.mutable_data();
    detail::exchange_boxes<detail::AddElement>(tensor.resources(), plan, plan.borrowed, plan.lent, block,
                                               detail::SubjectShape::of(tensor.shape()), where);
    for (const auto* boxes : {&plan.borrowed.boxes, &plan.outside})
      for (const detail::ElementBox& box : *boxes)
        detail::visit_box<Target, detail::ClearElement, Element>(tensor.execution(), box, block, nullptr);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
