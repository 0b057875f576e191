// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Enforces that only one thread of a rank at a time calls MPI.

#include <shardwright/comm/mpi/environment.hpp>

#include <atomic>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Guards a call: one thread of this rank at a time.
class MpiInside {
public:
  /// @param funneled Whether that must be the thread that initialised MPI.
  MpiInside(bool funneled, const MpiCallSite& site) {
    if (inside_.exchange(true, std::memory_order_acquire))
      throw LifecycleError(
          std::string(name_of(site.operation)) +
              ": the calls of one MPI rank must come from one thread at a time (make them from one thread)",
          site.context());
    if (!funneled || is_main_thread())
      return;
    inside_.store(false, std::memory_order_release);
    throw LifecycleError(
        std::string(name_of(site.operation)) +
            ": calls must come from the thread that initialised MPI, because MPI provides MPI_THREAD_FUNNELED (make them there, or initialise MPI with MPI_THREAD_SERIALIZED)",
        site.context());
  }
  ~MpiInside() { inside_.store(false, std::memory_order_release); }
  MpiInside(const MpiInside&) = delete;
  MpiInside& operator=(const MpiInside&) = delete;

private:
  static bool is_main_thread() noexcept {
    int flag = 0;
    MPI_Is_thread_main(&flag);
    return flag != 0;
  }

  inline static std::atomic<bool> inside_{false}; ///< Shared by all worlds: there is one MPI.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
