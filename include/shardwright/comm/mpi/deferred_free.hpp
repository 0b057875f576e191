// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief MPI communicators that this process has left and may not free yet.

#include <shardwright/core/config.hpp>

#if !defined(OMPI_SKIP_MPICXX)
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <chrono>
#include <thread>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Frees a communicator once all of its ranks have left it.
///
/// MPI reuses the identifier of a freed communicator. If it were freed here while a rank still sends on it,
/// such as one that finds out too late that this rank has left, the message would reach a later communicator:
/// Open MPI 4 then crashes, or delivers it. A communicator that a rank never leaves is never freed.
class DeferredFree {
public:
  /// Leaves a communicator. If memory is short, it is never freed.
  static void leave(MPI_Comm comm) noexcept {
    try {
      Left left{comm, MPI_REQUEST_NULL};
      left_.reserve(left_.size() + 1);
      if (MPI_Ibarrier(comm, &left.barrier) != MPI_SUCCESS)
        return;
      left_.push_back(left);
      if (!hooked_)
        hook();
    } catch (...) { // NOLINT(bugprone-empty-catch): it stays
    }
    free_some();
  }

  /// Frees those that all ranks have left.
  static void free_some() noexcept {
    for (std::size_t i = 0; i < left_.size();) {
      int done = 0;
      if (MPI_Test(&left_[i].barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) {
        ++i;
        continue;
      }
      MPI_Comm_free(&left_[i].comm);
      left_[i] = left_.back();
      left_.pop_back();
    }
  }

private:
  struct Left {
    MPI_Comm comm;
    MPI_Request barrier;
  };

  /// MPI_Finalize begins by freeing the attributes of MPI_COMM_SELF. By then all ranks that did not fail have
  /// left, and the last messages of their barriers are in flight.
  static void hook() noexcept {
    int key = MPI_KEYVAL_INVALID;
    const auto at_end = [](MPI_Comm, int, void*, void*) -> int {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      for (free_some(); !left_.empty() && std::chrono::steady_clock::now() < end; free_some())
        std::this_thread::yield();
      return MPI_SUCCESS;
    };
    hooked_ = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &key, nullptr) == MPI_SUCCESS &&
              MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr) == MPI_SUCCESS;
  }

  inline static std::vector<Left> left_;
  inline static bool hooked_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
