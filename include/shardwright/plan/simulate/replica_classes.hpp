// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Replicas of a pipeline that behave alike, so that only one of each kind need be simulated.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/plan/cost/collective_time.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/configuration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The division of a mesh's ranks into replicas.
///
/// A replica is a pipeline of cells, one per stage. A cell is the ranks of a stage that proceed together
/// layer by layer: those of tp, of cp, and of the data ranks over which experts are distributed. A block is a
/// set of replicas with chips in one innermost domain: as few as some domain has, if they differ.
struct ReplicaShape {
  std::int64_t stages = 1;
  std::int64_t replicas = 1;
  std::int64_t cell_chips = 1;
  std::int64_t block = 1;             ///< Replicas with chips in one domain.
  std::int64_t stages_per_domain = 1; ///< Stages with chips in one domain.
  std::int64_t stage_stride = 1;      ///< Ranks from one stage to the next.
  std::int64_t data_stride = 1;       ///< Ranks from one data rank to the next.
  std::int64_t data_ranks = 1;
  std::int64_t each = 1;  ///< Data ranks of a replica: neighbours,
  bool scattered = false; ///< or else as far apart as there are replicas.

  [[nodiscard]] std::int64_t chips() const noexcept { return stages * replicas * cell_chips; }
  [[nodiscard]] std::int64_t stage_of(std::int64_t rank) const noexcept {
    return rank / stage_stride % stages;
  }
  [[nodiscard]] std::int64_t replica_of(std::int64_t rank) const noexcept {
    const std::int64_t data_rank = rank / data_stride % data_ranks;
    return scattered ? data_rank % replicas : data_rank / each;
  }
  [[nodiscard]] std::int64_t first_rank(std::int64_t replica, std::int64_t stage) const noexcept {
    return stage * stage_stride + (scattered ? replica : replica * each) * data_stride;
  }
};

/// The places of a plan's replicas on its cluster.
[[nodiscard]] inline ReplicaShape replica_shape(const ClusterSpec& cluster, const PlanConfiguration& plan) {
  ReplicaShape out;
  out.stages = plan.pp;
  const PlacedAxes placed(plan);
  out.stage_stride = static_cast<std::int64_t>(placed[PlanAxis::pp].stride);
  out.data_stride = static_cast<std::int64_t>(placed[PlanAxis::dp].stride);
  out.data_ranks = plan.dp;
  // Experts, or their copies, are distributed over the innermost ranks of a stage, some of which are data
  // ranks.
  std::int64_t inner = plan.experts_outside ? plan.expert_dp() : plan.ep, taken = 1;
  for (const PlanAxis axis : axes_of(plan.order))
    if (axis != PlanAxis::pp) {
      const std::int64_t part = std::gcd<std::int64_t>(inner, plan.extent(axis));
      taken = axis == PlanAxis::dp ? part : taken;
      inner /= part;
    }
  out.scattered = plan.experts_outside && plan.ep > 1;
  out.replicas = plan.ep == 1 ? plan.dp : out.scattered ? taken : plan.dp / taken;
  out.each = plan.dp / out.replicas;
  out.cell_chips = static_cast<std::int64_t>(plan.tp) * plan.cp * out.each;
  const std::int64_t domain = cluster.domains[0].chips;
  const auto inside = [&](PlanAxis axis) {
    return static_cast<std::int64_t>(least_inside(placed[axis], domain));
  };
  const std::int64_t near = inside(PlanAxis::dp);
  out.block = out.scattered ? std::min(near, out.replicas) : std::max<std::int64_t>(1, near / out.each);
  out.stages_per_domain = inside(PlanAxis::pp);
  return out;
}

/// The factors of a cell's slowest chip and links.
struct SlowCell {
  double factor = 1;
  double link = 1;

  friend auto operator<=>(const SlowCell&, const SlowCell&) = default;
};

/// The slow cells of a replica by stage.
using SlowCells = std::map<std::int64_t, SlowCell>;

/// Replicas that behave alike.
struct ReplicaClass {
  std::int64_t first = 0; ///< Replica that stands for them.
  std::int64_t count = 0;
  int block = 0;             ///< Number of its kind of block.
  std::int64_t in_block = 1; ///< The number of them that share a block.
  SlowCells slow{};
};

/// The slow cells of each replica that has some.
/// @throws InvalidArgument naming a straggler that does not exist.
[[nodiscard]] inline std::map<std::int64_t, SlowCells>
slow_replicas(const ReplicaShape& shape, const std::vector<Straggler>& stragglers) {
  std::map<std::int64_t, SlowCells> out;
  const std::int64_t chips = shape.chips();
  for (const Straggler& one : stragglers) {
    if (one.rank < 0 || one.rank >= chips)
      throw InvalidArgument("Straggler: the rank must be from 0 to " + std::to_string(chips - 1) +
                            ", but it is " + std::to_string(one.rank));
    if (!(one.factor >= 1) || !(one.link >= 1) || one.factor > 1e6 || one.link > 1e6)
      throw InvalidArgument("Straggler: a factor must be from 1 to a million (2 is half as fast)");
    SlowCell& cell = out[shape.replica_of(one.rank)][shape.stage_of(one.rank)];
    cell = {std::max(cell.factor, one.factor), std::max(cell.link, one.link)};
  }
  return out;
}

/// Finds the classes of replicas. Replicas are alike if the same stages are slow in them and, with `blocks`,
/// in those that share their domain's egress. The participants of collectives and messages are then alike
/// too: a collective joins all replicas of a stage, a message two stages of one.
/// @throws InvalidArgument naming a straggler that does not exist.
[[nodiscard]] inline std::vector<ReplicaClass>
replica_classes(const ReplicaShape& shape, const std::vector<Straggler>& stragglers, bool fold, bool blocks) {
  const std::map<std::int64_t, SlowCells> slow = slow_replicas(shape, stragglers);
  const auto slow_of = [&slow](std::int64_t replica) {
    const auto found = slow.find(replica);
    return found == slow.end() ? SlowCells{} : found->second;
  };
  const std::int64_t block = blocks ? shape.block : 1;
  std::vector<ReplicaClass> out;
  if (!fold) {
    for (std::int64_t replica = 0; replica < shape.replicas; ++replica)
      out.push_back({replica, 1, static_cast<int>(replica / block), 1, slow_of(replica)});
    return out;
  }
  std::set<std::int64_t> others; // blocks that are not both whole and healthy
  for (const auto& [replica, cells] : slow)
    others.insert(replica / block);
  if (shape.replicas % block != 0)
    others.insert(shape.replicas / block);
  std::int64_t healthy = 0;
  while (others.contains(healthy))
    ++healthy;
  const std::int64_t all = (shape.replicas + block - 1) / block;
  if (const auto alike = all - static_cast<std::int64_t>(others.size()); alike > 0)
    out.push_back({healthy * block, alike * block, 0, block, {}});
  std::map<std::vector<SlowCells>, std::pair<std::int64_t, std::int64_t>> kinds; // first block, and number
  for (const std::int64_t first : others) {
    std::vector<SlowCells> kind;
    for (std::int64_t replica = first * block; replica < std::min((first + 1) * block, shape.replicas);
         ++replica)
      kind.push_back(slow_of(replica));
    std::sort(kind.begin(), kind.end());
    ++kinds.try_emplace(std::move(kind), first, 0).first->second.second;
  }
  int number = 1;
  for (const auto& [kind, alike] : kinds) {
    std::map<SlowCells, ReplicaClass> members;
    for (std::size_t i = 0; i < kind.size(); ++i) {
      const std::int64_t replica = alike.first * block + static_cast<std::int64_t>(i);
      const SlowCells own = slow_of(replica);
      ReplicaClass& one = members.try_emplace(own, ReplicaClass{replica, 0, number, 0, own}).first->second;
      one.count += alike.second;
      ++one.in_block;
    }
    for (const auto& [own, one] : members)
      out.push_back(one);
    ++number;
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
