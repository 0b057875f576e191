// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A group of ranks that is not one of a mesh, for calls on a target's memory.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/target.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The same ranks as a communicator that reaches the memory of a target: the group itself on a host target.
/// Collective over the group on a device target, ordered with the instance of `core`.
template <class Where>
[[nodiscard]] CommunicatorOf<Where> reach(MeshCore& core, const HostCommunicator& group) {
  if constexpr (Where::host_accessible)
    return group;
  else
    return Where::connect(group, core.resources<Where>().execution());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
