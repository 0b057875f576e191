// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Creates the MPI communicator of a subgroup, for which the other ranks are not needed.

#include <shardwright/comm/mpi/group.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The sentence about members of a new communicator that have not arrived, although all had met before.
[[nodiscard]] inline std::string late_subgroup_sentence(const MpiWorld& world, const MpiCallSite& site,
                                                        std::uint64_t group_id,
                                                        const std::vector<int>& members) {
  std::vector<int> late;
  for (const int rank : members) {
    const MpiLastCall last = world.node().last_call(rank);
    if (world.node().halted(rank) || last.group_id != group_id || last.operation != Operation::split ||
        last.stage != MpiLastCall::Stage::inside)
      late.push_back(rank);
  }
  return "MPI_Comm_create_group: all ranks of the new group must arrive within the deadline of " +
         time_text(world.options().deadline) + ", but " +
         (late.empty() ? "not all did" : ranks_text(late) + " did not: " + world.reports_of(late)) +
         "; the process ends, because this call of MPI cannot be interrupted (look for the reason there) [" +
         site.context().text() + "]";
}

/// Collective over `members`, ranks of the group: the MPI communicator of these alone, in this order.
///
/// MPI creates it without a deadline, so the members meet before. If one of them is stopped, or leaves
/// because its world ends, between the meeting and this call, the others cannot leave MPI: their processes
/// end at the deadline, with a sentence.
[[nodiscard]] inline MPI_Comm create_mpi_subgroup(MpiGroup& group, const std::vector<int>& members,
                                                  const MpiCallSite& site) {
  MpiWorld& world = group.world();
  DeferredFree::free_some();
  std::vector<int> world_ranks;
  for (const int member : members)
    world_ranks.push_back(group.world_rank(member));
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group part = MPI_GROUP_NULL;
  MPI_Comm out = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(group.channel().comm, &all), "MPI_Comm_group", &site);
  check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &part), "MPI_Group_incl",
            &site);
  world.publish_wait(Operation::split, world_ranks);
  {
    const Watch watch(world.options().deadline, [&] {
      if (world.node().first_to_tell())
        write_stderr_line(late_subgroup_sentence(world, site, group.id(), world_ranks));
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(500)); // so that the line is output
      std::_Exit(1);
      return false;
    });
    // Open MPI 4 does it by messages of the group under this tag.
    check_mpi(MPI_Comm_create_group(group.channel().comm, part, world.unused_tag(), &out),
              "MPI_Comm_create_group", &site);
  }
  world.publish_end(nullptr);
  MPI_Group_free(&part);
  MPI_Group_free(&all);
  check_mpi(MPI_Comm_set_errhandler(out, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", &site);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
