// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Makes a group of ranks that does not belong to a mesh usable for a target's memory.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/target.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A communicator of the same ranks that can access a target's memory: on a host target, the group itself.
/// Collective over the group on a device target, ordered with the instance of `core`.
template <class Where>
[[nodiscard]] CommunicatorOf<Where> device_communicator_for(MeshCore& core, const HostCommunicator& group) {
  if constexpr (Where::host_accessible)
    return group;
  else
    return Where::connect(group, core.resources<Where>().execution());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
