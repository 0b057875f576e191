// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The other side: a group of Open MPI processes that sleep until they are asked for one turn of a
/// case.

#include "measurement.hpp"

#include <memory>
#include <string>

namespace collectives {

/// @brief Runs in the processes that mpirun starts, until the parent says stop.
/// @param path shared control block.
int run_mpi_peer(const std::string& path);

/// @brief The parent's handle to the processes of a world of one size.
class MpiPeer {
public:
  /// @brief Starts `mpirun -n ranks`; @throws std::runtime_error if it does not come up within 30 s.
  MpiPeer(const std::string& program, int ranks, std::uint64_t most_bytes);
  ~MpiPeer();
  MpiPeer(const MpiPeer&) = delete;
  MpiPeer& operator=(const MpiPeer&) = delete;

  /// @brief Median time of one turn; all processes sleep before and after.
  [[nodiscard]] double turn(const Case& test);
  /// @brief One turn of a case with `seconds`, as rank 0 sees it.
  [[nodiscard]] Sustained sustained_turn(const Case& test);

  /// @brief Whether this program was built with MPI and mpirun is on the path.
  [[nodiscard]] static bool available();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace collectives
