// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A target that is written like a GPU's and runs on the host: memory that counts as a device's, with
/// communicators of the peer transport.

#include "support/fake_runtime.hpp"

#include <shardwright/device/device_clock.hpp>
#include <shardwright/device/peers/transport.hpp>
#include <shardwright/mesh/target.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright_test {

/// @brief The device path of the library on Kokkos::Serial, compared bitwise with the host's.
struct MimicTarget {
  using execution_space = Kokkos::Serial;
  using memory_space = Kokkos::HostSpace;
  static constexpr bool host_accessible = false;

  [[nodiscard]] static execution_space make_execution_space() {
    return shardwright::HostTarget<Kokkos::Serial>::make_execution_space();
  }
  /// @brief How often this thread has waited for the device so far.
  [[nodiscard]] static std::int64_t& host_waits() {
    thread_local std::int64_t waits = 0;
    return waits;
  }
  static void note_host_wait() { ++host_waits(); }
  /// @brief The device of the objects that this thread makes.
  [[nodiscard]] static int& device() {
    thread_local int device = 0;
    return device;
  }
  /// @brief What this thread holds by `allocate`.
  [[nodiscard]] static std::int64_t& held_bytes() {
    thread_local std::int64_t bytes = 0;
    return bytes;
  }
  [[nodiscard]] static void* allocate(const execution_space&, const char* label, std::size_t bytes) {
    held_bytes() += static_cast<std::int64_t>(bytes);
    return Kokkos::kokkos_malloc<memory_space>(label, bytes);
  }
  static void deallocate(const execution_space&, const char*, void* data, std::size_t bytes) noexcept {
    held_bytes() -= static_cast<std::int64_t>(bytes);
    Kokkos::kokkos_free<memory_space>(data);
  }
  /// @brief Kernels of the Serial backend have run when they return.
  [[nodiscard]] static bool idle(const execution_space&) { return true; }
  [[nodiscard]] static shardwright::DeviceCommunicator connect(const shardwright::HostCommunicator& group,
                                                               const execution_space&) {
    return connector()(group);
  }
  /// @brief What carries the calls of meshes that are made from now on; for a change between two launches.
  using Connector = shardwright::DeviceCommunicator (*)(const shardwright::HostCommunicator& group);
  [[nodiscard]] static Connector& connector() {
    static Connector used = by_peers;
    return used;
  }
  /// @brief Peer kernels, over a runtime that does at once what it is asked for.
  [[nodiscard]] static shardwright::DeviceCommunicator by_peers(const shardwright::HostCommunicator& group) {
    const FakeRuntime runtime = FakeRuntime().on(device());
    const FakeRuntime::Stream stream(device());
    return shardwright::timed_like(
        group,
        shardwright::DeviceCommunicator(
            shardwright::PeerTransport<FakeRuntime>::connect(group, runtime, stream)),
        runtime, stream);
  }
};

static_assert(shardwright::Target<MimicTarget>);

} // namespace shardwright_test
