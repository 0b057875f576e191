// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Sums over a mesh that count every token and every element exactly once, despite replication.

#include <shardwright/core/exact_sum.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/train/step/loss.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A rank's number among its replicas, which differ only along axes that a layout does not name.
struct Replica {
  std::size_t number = 0;
  std::size_t count = 1;
};
/// @param axes of the layout
[[nodiscard]] Replica replica_of(const MeshCore& core, std::span<const std::string_view> axes);
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE Replica replica_of(const MeshCore& core, std::span<const std::string_view> axes) {
  Replica out;
  for (int axis = 0; axis < core.axis_count(); ++axis)
    if (axis_index(axes, core.name(axis)) < 0) {
      const auto extent = static_cast<std::size_t>(core.extent(axis));
      out.number = out.number * extent + static_cast<std::size_t>(core.coordinate(axis));
      out.count *= extent;
    }
  return out;
}
#endif

/// Whether this rank is the one among its replicas that counts.
template <LayoutType L> [[nodiscard]] bool counts_once(const MeshCore& core) {
  return replica_of(core, L::axes).number == 0;
}

/// Sums numbers of all ranks; collective, in the group's fixed order. In a dry run, which has one rank, they
/// are 1.
template <std::size_t count> void sum_over_ranks(HostCommunicator ranks, std::array<double, count>& numbers) {
  ranks.all_reduce_in_place(std::span<double>(numbers));
  if (MemoryListener::current() != nullptr)
    numbers.fill(1);
}

/// The same of exact sums, rounded once: one all_reduce of 72 integers for each.
template <std::size_t count>
[[nodiscard]] std::array<double, count> exact_sums_over_ranks(HostCommunicator ranks,
                                                              std::array<ExactSum, count> sums) {
  for (ExactSum& sum : sums)
    sum.normalize();
  ranks.all_reduce_in_place(
      std::span<std::int64_t>(reinterpret_cast<std::int64_t*>(sums.data()), count * ExactSum::words));
  std::array<double, count> out{};
  for (std::size_t i = 0; i < count; ++i)
    out[i] = MemoryListener::current() != nullptr ? 1 : sums[i].value();
  return out;
}

/// Whether `To` names every axis of `From`.
template <LayoutType To, LayoutType From>
inline constexpr bool names_axes_of = [] {
  for (const std::string_view name : From::axes)
    if (axis_index(To::axes, name) < 0)
      return false;
  return true;
}();

template <LayoutType L>
[[nodiscard]] MeanLoss mean_over(const MeshCore& core, LossSum<L> loss, TokenCount<L> tokens,
                                 const HostCommunicator& ranks) {
  const bool once = counts_once<L>(core);
  std::array<double, 2> totals{once ? loss.value : 0, once ? static_cast<double>(tokens.value) : 0};
  sum_over_ranks(ranks, totals);
  return {totals[0] / totals[1]};
}

} // namespace detail

/// @brief Converts a sum to one over the axes of `To`: its own axes, and others over which it is replicated,
/// along which only the first rank keeps it.
///
/// So losses of tokens can be added to losses of tokens that are split further, such as the balance loss of a
/// router that reads a stream split over tp: `as_sum_over<L>(mesh, losses) += balance`. No communication.
template <LayoutType To, class Mesh, LayoutType From>
requires(detail::names_axes_of<To, From>)
    [[nodiscard]] CountedLoss<To> as_sum_over(const Mesh& mesh, const CountedLoss<From>& sum) {
  for (std::size_t i = 0; i < To::axes.size(); ++i)
    if (axis_index(From::axes, To::axes[i]) < 0 &&
        mesh.core().coordinate(mesh.core().axis_index(To::axes[i])) != 0)
      return {{0, sum.loss.origin}, {0}};
  return {{sum.loss.value, sum.loss.origin}, {sum.tokens.value}};
}

/// @brief The mean loss per token over all ranks of the mesh; for evaluation without gradients.
///
/// Collective: one all_reduce of two numbers. 0 tokens give NaN.
/// @param ranks all ranks that hold a part of the model; by default those of the mesh
template <class Mesh, LayoutType L>
[[nodiscard]] MeanLoss mean_over_mesh(const Mesh& mesh, LossSum<L> loss, TokenCount<L> tokens,
                                      const HostCommunicator& ranks = {}) {
  return detail::mean_over(mesh.core(), loss, tokens, ranks.valid() ? ranks : mesh.world());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
