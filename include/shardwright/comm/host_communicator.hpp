// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The communicator for host memory that programs and meshes use, over any transport chosen at run
/// time.

#include <shardwright/comm/communicator_handle.hpp>

#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A handle to a group of thread ranks or MPI ranks, possibly decorated; copies refer to the same
/// group.
class HostCommunicator : public CommunicatorHandle<HostCommunicator> {
public:
  static constexpr std::string_view handle_name = "HostCommunicator";
  static constexpr bool host_memory = true;

  using CommunicatorHandle::CommunicatorHandle;

  /// @brief Never compiles: it explains why the other kind of communicator cannot be converted.
  template <class Other>
  requires(!Other::host_memory) HostCommunicator(const Other&) { // NOLINT(google-explicit-constructor)
    static_assert(
        Other::host_memory,
        "HostCommunicator: the communicator must carry host memory, but this one carries device memory (keep the host communicator that the device one was made of)");
  }
};

#if defined(SHARDWRIGHT_COMPILED)
extern template class CommunicatorHandle<HostCommunicator>;
extern template class detail::TypedCall<HostCommunicator>;
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
