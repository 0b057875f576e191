// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Moves rows along the route of a dispatch: to the experts and back.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/block_copy.hpp>
#include <shardwright/tensor/expert_route.hpp>
#include <shardwright/tensor/kernels/expert_rows.hpp>
#include <shardwright/tensor/operation_checks.hpp>

#include <cstddef>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Blocks of rows as blocks of elements.
[[nodiscard]] inline KeptVector<StridedBlock> widened(const KeptVector<StridedBlock>& rows,
                                                      std::size_t width) {
  KeptVector<StridedBlock> out(rows.get_allocator());
  out.reserve(rows.size());
  for (const StridedBlock& block : rows)
    out.push_back(contiguous_block(block.offset * width, block.count() * width));
  return out;
}

/// One all_to_all over the owners.
template <class Target, class Element>
void exchange_rows(TargetResources<Target>& resources, const ExpertRoute& route, bool back, const Element* in,
                   Element* out, std::size_t width, SourceLocation where) {
  const auto sent = widened(route.sent_rows, width);
  const auto gained = widened(route.gained_rows, width);
  const std::size_t here = static_cast<std::size_t>(route.sent()) * width;
  const std::size_t there = static_cast<std::size_t>(route.rows()) * width;
  order_call_after<Target>(resources.execution());
  resources.core()
      .template communicator<Target>(route.owners)
      .all_to_all(std::span<const Element>(in, back ? there : here),
                  std::span<Element>(out, back ? here : there), back ? gained : sent, back ? sent : gained,
                  where);
}

/// Rows of this rank's tokens at their experts: `rows` [route.rows(), width] from `tokens` [tokens, width],
/// or, with `per_pair`, from [tokens * slots, width].
template <class Target, class Element>
void send_rows(TargetResources<Target>& resources, const ExpertRoute& route, const Element* tokens,
               bool per_pair, Element* rows, std::size_t width, SourceLocation where) {
  const auto& execution = resources.execution();
  const auto sent = static_cast<std::size_t>(route.sent());
  const auto gained = static_cast<std::size_t>(route.rows());
  const std::size_t divisor = per_pair ? 1 : static_cast<std::size_t>(route.slots);
  const auto gather = [&](Element* to) {
    kernels::detail::run_lanes(
        "sw::gather_rows", execution, sent,
        kernels::detail::GatherRows<Element>{tokens, route.pair(), divisor, to, width});
  };
  if (!route.exchanges())
    return gather(rows);
  const BufferHandle leaving = new_block<Element>(resources, sent * width, where);
  const BufferHandle arrived = new_block<Element>(resources, gained * width, where);
  gather(static_cast<Element*>(leaving.data()));
  exchange_rows(resources, route, false, static_cast<const Element*>(leaving.data()),
                static_cast<Element*>(arrived.data()), width, where);
  kernels::detail::run_lanes("sw::group_rows", execution, gained,
                             kernels::detail::ScatterRows<Element>{
                                 static_cast<const Element*>(arrived.data()), route.group(), rows, width});
}

/// Calls use(rows) with the experts' rows where they were sent from, [route.sent(), width] in that order.
template <class Target, class Element, class Use>
void return_rows(TargetResources<Target>& resources, const ExpertRoute& route, const Element* rows,
                 std::size_t width, SourceLocation where, const Use& use) {
  if (!route.exchanges())
    return use(rows);
  const auto gained = static_cast<std::size_t>(route.rows());
  BufferHandle leaving = new_block<Element>(resources, gained * width, where);
  const BufferHandle arrived =
      new_block<Element>(resources, static_cast<std::size_t>(route.sent()) * width, where);
  kernels::detail::run_lanes("sw::pack_rows", resources.execution(), gained,
                             kernels::detail::GatherRows<Element>{
                                 rows, route.group(), 1, static_cast<Element*>(leaving.data()), width});
  exchange_rows(resources, route, true, static_cast<const Element*>(leaving.data()),
                static_cast<Element*>(arrived.data()), width, where);
  leaving = BufferHandle();
  use(static_cast<const Element*>(arrived.data()));
}

/// Two tensors of rows of one dispatch; arrays have an overload of this name.
inline void require_equal_extents(const char* operation, const char* sentence, const RaggedShape& shape,
                                  std::size_t, const RaggedShape& other, std::size_t, std::size_t,
                                  const MeshCore& core, SourceLocation where) {
  if (!shape.one_dispatch(other))
    reject_operation(
        operation,
        "both operands must be rows of one dispatch, but they are of two (dispatch the tokens once, and compute both from those rows)",
        core, where);
  if (shape != other)
    reject_extents(operation, sentence, shape, other, core, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
