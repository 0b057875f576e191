// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief MPI's own header, and its error codes as TransportError.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/error.hpp>

#if !defined(OMPI_SKIP_MPICXX)
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstdint>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The call that an error belongs to; the strings are only made when an error is.
struct MpiCallSite {
  int world_rank = -1;
  const std::string* group = nullptr;
  Operation operation = Operation::barrier;
  std::uint64_t sequence = 0;
  SourceLocation where{};

  [[nodiscard]] ErrorContext context() const {
    return {
        world_rank, group == nullptr ? std::string() : *group, std::string(name_of(operation)), sequence, {},
        where};
  }
};

/// MPI's text for a code.
inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    return "unknown error " + std::to_string(code);
  return std::string(text, static_cast<std::size_t>(length));
}

/// Throws TransportError unless the code is MPI_SUCCESS; `function` is the MPI function that returned it.
inline void check_mpi(int code, const char* function, const MpiCallSite* site = nullptr) {
  if (code == MPI_SUCCESS)
    return;
  throw TransportError(code,
                       std::string(function) + ": MPI must succeed, but it reported \"" +
                           mpi_error_text(code) + "\" (check the network and the other ranks' messages)",
                       site == nullptr ? ErrorContext{} : site->context());
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
