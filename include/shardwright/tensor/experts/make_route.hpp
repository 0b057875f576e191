// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Makes the route of a dispatch: the owners of the experts, the counts of all ranks, the position of
/// every row.

#include <shardwright/core/error.hpp>
#include <shardwright/core/kept_memory.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/experts/route.hpp>
#include <shardwright/tensor/kernels/experts/rows.hpp>
#include <shardwright/tensor/kernels/experts/sort_by_expert.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The experts of a layer, and the number of rows for which a rank has room.
struct ExpertSet {
  std::int64_t experts = 0; ///< Of the whole layer.
  /// The largest number of rows that a rank may receive in one dispatch. If balanced, a rank receives its
  /// tokens times slots; if all tokens choose the experts of one rank, that times the ranks that own experts.
  std::int64_t most_rows = 0;
};

namespace detail {

/// The experts of each rank of the owners' group, ranked in mesh order.
struct ExpertOwners {
  unsigned mask = 0;
  KeptVector<DimensionBlock> blocks;
  std::size_t own = 0;
};

/// @param order mesh axes, outermost first, as they split the experts
[[nodiscard]] inline ExpertOwners owners_of(const MeshCore& core, std::span<const int> order,
                                            std::int64_t experts) {
  ExpertOwners out{.blocks = KeptVector<DimensionBlock>(core.kept_memory())};
  std::int64_t ranks = 1;
  for (const int axis : order) {
    out.mask |= 1u << static_cast<unsigned>(axis);
    ranks *= core.extent(axis);
  }
  std::array<int, MeshCore::max_axes + 1> place{}; // of an axis that the mesh lacks, too
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto below = static_cast<int>(rank);
    bool own = true;
    for (int axis = core.axis_count() - 1; axis >= 0; --axis)
      if ((out.mask >> static_cast<unsigned>(axis) & 1u) != 0) {
        place[static_cast<std::size_t>(axis)] = below % core.extent(axis);
        below /= core.extent(axis);
        own = own && place[static_cast<std::size_t>(axis)] == core.coordinate(axis);
      }
    DimensionBlock block{0, experts};
    for (const int axis : order)
      block = chunk_of(block, core.extent(axis), place[static_cast<std::size_t>(axis)]);
    if (own)
      out.own = out.blocks.size();
    out.blocks.push_back(block);
  }
  return out;
}

/// How many pairs chose each expert. @throws InvalidArgument for an expert that does not exist.
[[nodiscard]] inline KeptVector<std::int64_t> count_choices(const char* operation,
                                                            std::span<const std::int32_t> choices,
                                                            std::int64_t slots, std::int64_t experts,
                                                            const MeshCore& core, SourceLocation where) {
  KeptVector<std::int64_t> counts(static_cast<std::size_t>(experts), core.kept_memory());
  for (std::size_t pair = 0; pair < choices.size(); ++pair) {
    const std::int32_t expert = choices[pair];
    if (expert < -1 || expert >= experts)
      reject_operation(operation,
                       "every choice must be an expert below " + std::to_string(experts) +
                           ", or -1 for none, but token " +
                           std::to_string(static_cast<std::int64_t>(pair) / slots) + " of this rank has " +
                           std::to_string(expert) + " (take them from the router of these experts)",
                       core, where);
    if (expert >= 0)
      ++counts[static_cast<std::size_t>(expert)];
  }
  return counts;
}

/// The assumption of a dry run: pairs are spread evenly, and this rank receives as many rows as it has room
/// for.
[[nodiscard]] inline KeptVector<std::int64_t> spread_evenly(std::int64_t rows, std::size_t parts,
                                                            const KeptMemory& memory) {
  KeptVector<std::int64_t> out(parts, memory);
  for (std::size_t i = 0; i < parts; ++i)
    out[i] = chunk_of({0, rows}, static_cast<std::int64_t>(parts), static_cast<std::int64_t>(i)).size;
  return out;
}

/// @param all counts of every rank of the group, [ranks, experts]
inline void require_room(const MeshCore& core, const ExpertOwners& owners, const ExpertSet& set,
                         std::span<const std::int64_t> all, SourceLocation where) {
  for (std::size_t rank = 0; rank < owners.blocks.size(); ++rank) {
    std::int64_t rows = 0;
    for (std::size_t from = 0; from < owners.blocks.size(); ++from)
      for (std::int64_t e = 0; e < owners.blocks[rank].size; ++e)
        rows += all[from * static_cast<std::size_t>(set.experts) +
                    static_cast<std::size_t>(owners.blocks[rank].offset + e)];
    if (rows > set.most_rows)
      reject_operation(
          "dispatch",
          "a rank may receive at most " + std::to_string(set.most_rows) + " rows, but the owner of experts " +
              std::to_string(owners.blocks[rank].offset) + " to " +
              std::to_string(owners.blocks[rank].offset + owners.blocks[rank].size - 1) + " would receive " +
              std::to_string(rows) +
              " (raise most_rows if there is memory, balance the router, or use smaller microbatches)",
          core, where);
  }
}

/// Positions of sent and received rows, from the counts: `runs` are the received rows that are contiguous in
/// their expert's group, one run for each rank and expert.
inline void place_rows(ExpertRoute& route, const ExpertOwners& owners, std::span<const std::int64_t> counts,
                       std::span<const std::int64_t> all, KeptVector<kernels::RowRun>& runs) {
  const std::size_t ranks = owners.blocks.size();
  const std::size_t experts = counts.size();
  KeptVector<std::size_t> first(experts + 1, runs.get_allocator());
  for (std::size_t e = 0; e < experts; ++e)
    first[e + 1] = first[e] + static_cast<std::size_t>(counts[e]);
  const DimensionBlock own = owners.blocks[owners.own];
  std::size_t received = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const DimensionBlock& block = owners.blocks[rank];
    const std::size_t begin = first[static_cast<std::size_t>(block.offset)];
    route.sent_rows.push_back(
        contiguous_block(begin, first[static_cast<std::size_t>(block.offset + block.size)] - begin));
    std::size_t rows = 0;
    for (std::int64_t e = 0; e < own.size; ++e)
      rows += static_cast<std::size_t>(all[rank * experts + static_cast<std::size_t>(own.offset + e)]);
    route.received_rows.push_back(contiguous_block(received, rows));
    received += rows;
  }
  KeptVector<std::int32_t> next(runs.get_allocator()); // grouped row of the next received one, by expert
  route.first_rows.push_back(0);
  for (std::int64_t e = 0; e < own.size; ++e) {
    next.push_back(static_cast<std::int32_t>(route.first_rows.back()));
    std::int64_t rows = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      rows += all[rank * experts + static_cast<std::size_t>(own.offset + e)];
    route.first_rows.push_back(route.first_rows.back() + rows);
  }
  if (ranks == 1)
    return;
  runs.reserve(ranks * next.size());
  std::int32_t row = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::int64_t e = 0; e < own.size; ++e) {
      const auto count =
          static_cast<std::int32_t>(all[rank * experts + static_cast<std::size_t>(own.offset + e)]);
      runs.push_back({row, next[static_cast<std::size_t>(e)], count});
      next[static_cast<std::size_t>(e)] += count;
      row += count;
    }
}

template <class Target, class Element>
[[nodiscard]] BufferHandle on_target(TargetResources<Target>& resources, const KeptVector<Element>& numbers,
                                     SourceLocation where) {
  BufferHandle out(resources.take(numbers.size() * sizeof(Element), where));
  copy_to_target<Target>(resources.execution(), numbers.data(), static_cast<Element*>(out.data()),
                         numbers.size());
  return out;
}

/// Sorts the pairs by expert in the target's memory, for `route`, and counts those of each expert.
/// @throws InvalidArgument for an expert that does not exist
template <class Target>
[[nodiscard]] KeptVector<std::int64_t> order_pairs(TargetResources<Target>& resources, ExpertRoute& route,
                                                   std::span<const std::int32_t> choices,
                                                   SourceLocation where) {
  const auto experts = static_cast<std::int32_t>(route.experts);
  const auto& execution = resources.execution();
  const KeptMemory& memory = resources.core().kept_memory();
  const auto take = [&](std::size_t bytes) { return BufferHandle(resources.take(bytes, where)); };
  KeptVector<std::int32_t> bins(static_cast<std::size_t>(experts) + 2, memory);
  route.pairs = take(choices.size_bytes());
  route.places = take(choices.size_bytes());
  const BufferHandle counts = take(bins.size() * sizeof(std::int32_t));
  const BufferHandle work = take(kernels::sort_by_expert_workspace(execution, choices.size(), experts));
  if constexpr (counts_only<Target>) {
    return spread_evenly(static_cast<std::int64_t>(choices.size()), static_cast<std::size_t>(experts),
                         memory);
  } else {
    kernels::sort_by_expert(execution, choices.data(), choices.size(), experts,
                            static_cast<std::int32_t*>(route.pairs.data()),
                            static_cast<std::int32_t*>(route.places.data()),
                            static_cast<std::int32_t*>(counts.data()), work.data());
    copy_to_host<Target>(execution, static_cast<const std::int32_t*>(counts.data()), bins.data(),
                         bins.size());
    if (bins.back() != 0) { // the error names the token
      KeptVector<std::int32_t> here(choices.size(), memory);
      copy_to_host<Target>(execution, choices.data(), here.data(), here.size());
      return count_choices("dispatch", here, route.slots, route.experts, resources.core(), where);
    }
    return KeptVector<std::int64_t>(bins.begin(), bins.end() - 2, memory);
  }
}

/// Blocks of tokens that no rank shares with another, on a Reproducible target.
struct LeavesOfTokens {
  std::int64_t tokens = 0; ///< Of a leaf.
  std::int64_t most = 0;   ///< Leaves of a rank.
};

/// How many pairs of each leaf of this rank chose each expert, [leaves, experts]. @pre the choices are valid
[[nodiscard]] inline KeptVector<std::int64_t> count_leaves(std::span<const std::int32_t> choices,
                                                           std::int64_t slots, std::int64_t experts,
                                                           const LeavesOfTokens& leaves,
                                                           const KeptMemory& memory) {
  KeptVector<std::int64_t> out(static_cast<std::size_t>(leaves.most * experts), memory);
  for (std::size_t pair = 0; pair < choices.size(); ++pair)
    if (choices[pair] >= 0)
      ++out[static_cast<std::size_t>(static_cast<std::int64_t>(pair) / (slots * leaves.tokens) * experts +
                                     choices[pair])];
  return out;
}

/// The counts of all ranks from those of their leaves, [ranks, leaves, experts].
[[nodiscard]] inline KeptVector<std::int64_t> sums_of_leaves(const KeptVector<std::int64_t>& of_leaves,
                                                             std::size_t ranks, std::size_t experts) {
  KeptVector<std::int64_t> out(ranks * experts, of_leaves.get_allocator());
  const std::size_t of_rank = of_leaves.size() / ranks;
  for (std::size_t i = 0; i < of_leaves.size(); ++i)
    out[i / of_rank * experts + i % experts] += of_leaves[i];
  return out;
}

/// The numbers of all ranks of the group, by rank.
[[nodiscard]] inline KeptVector<std::int64_t> gather_numbers(MeshCore& core, const ExpertOwners& owners,
                                                             const KeptVector<std::int64_t>& own,
                                                             SourceLocation where) {
  KeptVector<std::int64_t> all(own, core.kept_memory());
  if (const std::size_t ranks = owners.blocks.size(); ranks > 1) {
    all.resize(ranks * own.size());
    core.communicator(owners.mask).all_gather(own, all, {}, where);
  }
  return all;
}

/// Checks the counts of all ranks of the group, [ranks, experts]; in a dry run, spreads them evenly.
template <class Target>
void settle_counts(MeshCore& core, const ExpertOwners& owners, const ExpertSet& set,
                   KeptVector<std::int64_t>& all, SourceLocation where) {
  if constexpr (counts_only<Target>) {
    const std::size_t ranks = owners.blocks.size();
    const auto experts = static_cast<std::size_t>(set.experts);
    const DimensionBlock own = owners.blocks[owners.own];
    const auto rows =
        spread_evenly(set.most_rows, ranks * static_cast<std::size_t>(own.size), core.kept_memory());
    for (std::size_t i = 0; ranks > 1 && i < rows.size(); ++i)
      all[i % ranks * experts + static_cast<std::size_t>(own.offset) + i / ranks] = rows[i];
  } else {
    require_room(core, owners, set, all, where);
  }
}

/// Checks that the rows of each leaf are no more than products add as floats.
/// @throws InvalidArgument, on all owners, for an expert that gets more of one
inline void require_short_leaves(const MeshCore& core, std::span<const std::int64_t> of_leaves,
                                 std::int64_t experts, SourceLocation where) {
  for (std::size_t i = 0; i < of_leaves.size(); ++i)
    if (of_leaves[i] > most_leaf)
      reject_operation("dispatch",
                       "on a Reproducible target each expert must get at most " + std::to_string(most_leaf) +
                           " rows of a leaf of tokens, but expert " +
                           std::to_string(static_cast<std::int64_t>(i) % experts) + " gets " +
                           std::to_string(of_leaves[i]) +
                           ", because tokens name it more than once (choose distinct experts for a token)",
                       core, where);
}

/// Sets the first rows of leaves, once the first rows of experts are known.
inline void place_leaves(ExpertRoute& route, const ExpertOwners& owners,
                         std::span<const std::int64_t> of_leaves, std::int64_t leaves) {
  const DimensionBlock own = owners.blocks[owners.own];
  const auto parts = static_cast<std::int64_t>(owners.blocks.size()) * leaves;
  std::int64_t row = 0;
  for (std::int64_t e = own.offset; e < own.offset + own.size; ++e)
    for (std::int64_t part = 0; part < parts; ++part)
      if (const std::int64_t rows = of_leaves[static_cast<std::size_t>(part * route.experts + e)]; rows > 0) {
        route.leaf_rows.push_back(row);
        row += rows;
      }
  route.leaf_rows.push_back(row);
}

/// The same for a dry run, which knows no choices.
inline void place_longest_leaves(ExpertRoute& route) {
  for (std::size_t e = 0; e + 1 < route.first_rows.size(); ++e)
    for (std::int64_t row = route.first_rows[e]; row < route.first_rows[e + 1]; row += most_leaf)
      route.leaf_rows.push_back(row);
  route.leaf_rows.push_back(route.rows());
}

/// The route of tokens whose choices are `choices`, [tokens, slots] in the memory of the target. Only the
/// counts are copied to the host, which waits for them. Collective over the owners: all ranks learn all
/// counts, so that all of them detect if one lacks room.
/// @throws InvalidArgument for an expert that does not exist, or if a rank would receive too many rows; on a
/// Reproducible target, also if tokens name one expert so often that its rows of a leaf exceed most_leaf.
template <class Target>
[[nodiscard]] std::shared_ptr<const ExpertRoute>
make_expert_route(TargetResources<Target>& resources, std::span<const std::int32_t> choices,
                  std::int64_t slots, std::span<const int> order, std::int64_t spread, const ExpertSet& set,
                  const LeavesOfTokens& leaves, SourceLocation where) {
  MeshCore& core = resources.core();
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  if (set.experts < 1 || set.experts > most - 2 || choices.size() > std::size_t(most) || set.most_rows > most)
    reject_operation(
        "dispatch",
        "there must be at least one expert, and the number of rows must fit in 32 bits, but there are " +
            std::to_string(set.experts) + " experts, " + std::to_string(choices.size()) +
            " choices of this rank and room for " + std::to_string(set.most_rows) +
            " rows (use smaller microbatches)",
        core, where);
  const ExpertOwners owners = owners_of(core, order, set.experts);
  const KeptMemory& memory = core.kept_memory();
  auto route = std::allocate_shared<ExpertRoute>(KeptAllocator<ExpertRoute>(memory), memory);
  route->experts = set.experts;
  route->slots = slots;
  route->tokens = slots == 0 ? 0 : static_cast<std::int64_t>(choices.size()) / slots;
  route->owners = owners.mask;
  route->ranks = static_cast<std::int64_t>(owners.blocks.size());
  route->spread = spread;
  const auto counts = order_pairs(resources, *route, choices, where);
  KeptVector<std::int64_t> all(memory), of_leaves(memory);
  if constexpr (is_reproducible<Target>) {
    const auto known = counts_only<Target> ? std::span<const std::int32_t>() : choices;
    of_leaves = gather_numbers(core, owners, count_leaves(known, slots, set.experts, leaves, memory), where);
    require_short_leaves(core, of_leaves, set.experts, where);
    all = owners.blocks.size() == 1 ? counts : sums_of_leaves(of_leaves, owners.blocks.size(), counts.size());
  } else {
    all = gather_numbers(core, owners, counts, where);
  }
  settle_counts<Target>(core, owners, set, all, where);
  KeptVector<kernels::RowRun> runs(memory);
  place_rows(*route, owners, counts, all, runs);
  if constexpr (counts_only<Target> && is_reproducible<Target>)
    place_longest_leaves(*route);
  else if constexpr (is_reproducible<Target>)
    place_leaves(*route, owners, of_leaves, leaves.most);
  if (route->exchanges()) {
    const BufferHandle table = on_target(resources, runs, where);
    route->groups =
        BufferHandle(resources.take(static_cast<std::size_t>(route->rows()) * sizeof(std::int32_t), where));
    kernels::run_lanes("sw::number_rows", resources.execution(), runs.size(),
                       kernels::NumberRuns{static_cast<const kernels::RowRun*>(table.data()),
                                           static_cast<std::int32_t*>(route->groups.data())});
  }
  return route;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
