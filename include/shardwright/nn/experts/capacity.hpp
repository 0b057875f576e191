// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief within_capacity: drops choices of overloaded experts, identically on every mesh.

#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/experts/make_route.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class L> struct CapacityTokens {
  static constexpr bool value = [] {
    for (int d = 1; d < L::tensor_rank; ++d)
      if (!L::value.shard(d).empty())
        return false;
    return !L::value.has_partial();
  }();
  static_assert(
      value,
      "within_capacity: tokens must be split in their first dimension only, so that a rank's tokens follow those of the ranks before it (redistribute the choices, and dispatch in that layout)");
};

/// The numbers of within_capacity that all ranks must give alike.
[[nodiscard]] inline std::array<GivenNumber, 2> numbers_of_capacity(std::int64_t experts, double factor) {
  return {GivenNumber("number of experts", experts), GivenNumber("factor", factor)};
}

} // namespace detail

/// @brief Choices of experts after dropping, and the number of dropped ones on all ranks.
template <LayoutType L, class Target> struct KeptChoices {
  ShardedTensor<L, std::int32_t, Target> experts;
  std::int64_t capacity = 0; ///< The largest number of choices that each expert keeps.
  std::int64_t dropped = 0;
};

/// @brief Keeps the first choices of each expert, up to ceil(factor times all choices divided by experts), in
/// the order of the tokens of all ranks and of their slots; the others become -1, so that combine() ignores
/// them.
///
/// The capacity comes from all ranks' choices, and positions from a scan over them: both are the same on
/// every mesh. Padding is not counted. Collective over the axes that split the tokens: one all_gather of 8
/// bytes for each rank and expert. On a device the choices pass through the host, which waits.
/// @param chosen int32 [tokens..., slots] as for dispatch(), split in the first dimension
/// @throws InvalidArgument for an expert that does not exist, and for a factor that is not positive.
template <LayoutType L, class Id, class Target>
[[nodiscard]] KeptChoices<L, Target> within_capacity(const ShardedTensor<L, Id, Target>& chosen,
                                                     std::int64_t experts, double factor,
                                                     SourceLocation where = SourceLocation::current()) {
  static_assert(std::is_same_v<std::remove_const_t<Id>, std::int32_t>,
                "within_capacity: the chosen experts must be of type std::int32_t (convert them)");
  KeptChoices<L, Target> out{
      ShardedTensor<L, std::int32_t, Target>(chosen.resources(), chosen.shape(), where)};
  if constexpr (detail::CapacityTokens<L>::value) {
    detail::MeshCore& core = chosen.core();
    if (!(factor > 0) || experts < 1)
      detail::reject_operation("within_capacity",
                               "experts and the factor must be above 0, but they are " +
                                   std::to_string(experts) + " and " + std::to_string(factor) +
                                   " (1.25 is a usual factor)",
                               core, where);
    if constexpr (always_checked)
      detail::require_agreement(core, "within_capacity", detail::numbers_of_capacity(experts, factor),
                                detail::no_axes, where);
    detail::KeptVector<std::int32_t> choices(chosen.local_size(), core.kept_memory());
    detail::copy_to_host<Target>(chosen.execution(), chosen.data(), choices.data(), choices.size());
    if constexpr (counts_only<Target>)
      choices.assign(choices.size(), -1);
    const auto slots = chosen.shape()[static_cast<std::size_t>(L::tensor_rank - 1)];
    const auto own = detail::count_choices("within_capacity", choices, slots, experts, core, where);

    const detail::AxisBinding binding = detail::bind_axes(core, L::axes);
    detail::KeptVector<int> order(core.kept_memory());
    for (const int axis : L::value.shard(0))
      order.push_back(binding.mesh_axis[static_cast<std::size_t>(axis)]);
    const detail::ExpertOwners ranks = detail::owners_of(core, order, chosen.shape()[0]);
    auto all = own;
    if (ranks.blocks.size() > 1) {
      all.resize(ranks.blocks.size() * own.size());
      core.communicator(ranks.mask).all_gather(own, all, {}, where);
    }
    detail::KeptVector<std::int64_t> taken(own.size(), core.kept_memory());
    std::int64_t pairs = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      pairs += all[i];
      if (ranks.blocks[i / own.size()].offset < ranks.blocks[ranks.own].offset)
        taken[i % own.size()] += all[i];
    }
    out.capacity = static_cast<std::int64_t>(
        std::ceil(factor * static_cast<double>(pairs) / static_cast<double>(experts)));
    for (std::size_t e = 0; e < own.size(); ++e) {
      std::int64_t wanted = 0;
      for (std::size_t rank = 0; rank < ranks.blocks.size(); ++rank)
        wanted += all[rank * own.size() + e];
      out.dropped += wanted > out.capacity ? wanted - out.capacity : 0;
    }
    for (std::int32_t& expert : choices)
      if (expert >= 0 && taken[static_cast<std::size_t>(expert)]++ >= out.capacity)
        expert = -1;
    detail::copy_to_target<Target>(chosen.execution(), choices.data(), out.experts.mutable_data(),
                                   choices.size());
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
