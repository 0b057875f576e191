// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums over a mesh in which every token and every element counts exactly once, whatever is
/// replicated.

#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/train/loss.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Whether this rank is the one among its copies that counts: at 0 on every axis that the layout does not
/// name.
template <LayoutType L>
[[nodiscard]] bool counts_once(const MeshCore& core) {
  for (int axis = 0; axis < core.axis_count(); ++axis)
    if (core.coordinate(axis) != 0 && axis_index(L::axes, core.name(axis)) < 0)
      return false;
  return true;
}

/// Sums numbers of all ranks; collective, in the group's fixed order. In a dry run, which has one rank, they
/// are 1.
template <std::size_t count>
void sum_over_ranks(HostCommunicator ranks, std::array<double, count>& numbers) {
  ranks.all_reduce_in_place(std::span<double>(numbers));
  if (MemoryListener::current() != nullptr)
    numbers.fill(1);
}

template <LayoutType L>
[[nodiscard]] MeanLoss mean_over(const MeshCore& core, LossSum<L> loss, TokenCount<L> tokens,
                                 const HostCommunicator& ranks) {
  const bool once = counts_once<L>(core);
  std::array<double, 2> totals{once ? loss.value : 0, once ? static_cast<double>(tokens.value) : 0};
  sum_over_ranks(ranks, totals);
  return {totals[0] / totals[1]};
}

} // namespace detail

/// @brief The mean loss per token over all ranks of the mesh; for evaluation, where no gradients are at hand.
///
/// Collective: one all_reduce of two numbers. 0 tokens give NaN.
/// @param ranks all ranks that hold a part of the model; those of the mesh where none are given
template <class Mesh, LayoutType L>
[[nodiscard]] MeanLoss mean_over_mesh(const Mesh& mesh, LossSum<L> loss, TokenCount<L> tokens,
                                      const HostCommunicator& ranks = {}) {
  return detail::mean_over(mesh.core(), loss, tokens, ranks.valid() ? ranks : mesh.world());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
