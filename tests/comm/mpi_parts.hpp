// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The communicator suite for MPI, whose libraries have different numbers of tags.

#include "comm/communicator_suite.hpp"

#include <mpi.h>

#include <algorithm>

namespace communicator_suite {

/// The parts, with as many tags as messages have here: a third of the library's, but no more than elsewhere.
inline const auto& mpi_parts() {
  void* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
  tags = std::min(sw::message_tags, *static_cast<int*>(bound) / 3);
  return parts();
}

} // namespace communicator_suite
