// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Serialises the registration of devices and kernels with Kokkos between threads.

#include <shardwright/core/config.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Kokkos records devices, and the properties of each kernel on each of them, in maps without a lock. A
/// thread that may add to one, by creating an instance or by the first launch of a kernel on a device, holds
/// this lock exclusively.
[[nodiscard]] inline std::shared_mutex& kokkos_maps() {
  static std::shared_mutex mutex;
  return mutex;
}

/// The devices on which a kernel has been launched.
class KernelNotes {
public:
  static constexpr int most_devices = 64;

  /// Calls `launch`, which launches the kernel on this device. If the process sees `several`, another thread
  /// may add to a map at any time, so lookups need the lock, too.
  template <class Launch> void run(int device, bool several, const Launch& launch) {
    const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(device);
    if ((noted_.load(std::memory_order_acquire) & bit) == 0) {
      const std::lock_guard adds(kokkos_maps());
      launch();
      noted_.fetch_or(bit, std::memory_order_release);
    } else if (several) {
      const std::shared_lock looks(kokkos_maps());
      launch();
    } else {
      launch();
    }
  }

private:
  std::atomic<std::uint64_t> noted_{0}; // a bit for each
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
