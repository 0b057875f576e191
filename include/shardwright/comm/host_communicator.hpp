// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The communicator for host memory that programs and meshes use, over any transport chosen at run
/// time.

#include <shardwright/comm/decorated_transport.hpp>

#include <concepts>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The interface of a transport to its HostCommunicator, with one virtual call per communication.
class HostTransport : public Transport<HostTransport> {};

/// @brief A handle to a group of thread ranks or MPI ranks, possibly decorated; copies refer to the same
/// group.
class HostCommunicator : public CommunicatorHandle<HostCommunicator, HostTransport> {
public:
  static constexpr std::string_view handle_name = "HostCommunicator";

  using CommunicatorHandle::CommunicatorHandle;

  /// @brief Wraps any communicator for host memory.
  template <Communicator C>
  requires(!std::derived_from<C, HostCommunicator>)
      HostCommunicator(C communicator) // NOLINT(google-explicit-constructor): a run-time choice of transport
      : CommunicatorHandle(detail::TransportOf<C, HostTransport>::made_of(std::move(communicator))) {
    static_assert(
        std::is_same_v<MemoryOf<C>, HostMemory>,
        "HostCommunicator: the communicator must carry host memory, but this one carries device memory (keep the host communicator that the device one was made of)");
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
