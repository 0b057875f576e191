// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Enforces that only one thread of a rank at a time calls MPI, and the main thread alone if MPI
/// provides no more.

#include <shardwright/comm/mpi/environment.hpp>

#include <atomic>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Guards a call: one thread of this rank at a time.
class MpiCallGuard {
public:
  /// @param funneled Whether that must be the thread that initialised MPI.
  /// @param site Returns the MpiCallSite, for an error.
  template <class Site> MpiCallGuard(bool funneled, Site site) {
    if (inside_.exchange(true, std::memory_order_acquire))
      fail(site(),
           ": the calls of one MPI rank must come from one thread at a time (make them from one thread)");
    if (!funneled || on_main_thread())
      return;
    inside_.store(false, std::memory_order_release);
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    fail(site(), ": calls must come from the thread that initialised MPI, because MPI provides " +
                     std::string(level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED") +
                     " (make them there, or initialise MPI by MPI_Init_thread with MPI_THREAD_SERIALIZED)");
  }
  ~MpiCallGuard() { inside_.store(false, std::memory_order_release); }
  MpiCallGuard(const MpiCallGuard&) = delete;
  MpiCallGuard& operator=(const MpiCallGuard&) = delete;

  /// Whether this is the thread that initialised MPI. Asks MPI once for each thread.
  static bool on_main_thread() noexcept {
    static thread_local const bool main = [] {
      int flag = 0;
      MPI_Is_thread_main(&flag);
      return flag != 0;
    }();
    return main;
  }

private:
  [[noreturn]] static void fail(const MpiCallSite& site, const std::string& sentence) {
    throw LifecycleError(std::string(name_of(site.operation)) + sentence, site.context());
  }

  inline static std::atomic<bool> inside_{false}; ///< Shared by all worlds: there is one MPI.
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
