// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief NCCL's result codes without NCCL's header, and the typed error that each one becomes.

#include <shardwright/core/error.hpp>

#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The values of ncclResult_t.
enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7
};

[[nodiscard]] constexpr bool failed(NcclResult result) noexcept {
  return result != NcclResult::success && result != NcclResult::in_progress;
}

/// What to do about a code, for the end of a sentence.
[[nodiscard]] constexpr const char* advice_on(NcclResult result) noexcept {
  switch (result) {
  case NcclResult::unhandled_cuda_error:
    return "an earlier kernel may have failed: run compute-sanitizer, or set NCCL_DEBUG=INFO";
  case NcclResult::system_error:
    return "check the network, shared memory and file limits; NCCL_DEBUG=INFO names the call that failed";
  case NcclResult::internal_error:
    return "set NCCL_DEBUG=INFO, and look for memory that was written out of bounds";
  case NcclResult::invalid_argument:
    return "pass memory of this rank's own GPU";
  case NcclResult::invalid_usage:
    return "give every rank a GPU of its own and the same NCCL version";
  case NcclResult::remote_error:
    return "see the messages of the rank that ended or lost its network";
  case NcclResult::success:
  case NcclResult::in_progress:
    break;
  }
  return "set NCCL_DEBUG=INFO";
}

/// Throws the error of a code: InvalidArgument and LifecycleError for what the caller did, PeerFailed for
/// another rank's end, TransportError for the rest. `text` is NCCL's own.
[[noreturn]] inline void throw_nccl(NcclResult result, const std::string& what, const std::string& text,
                                    ErrorContext context) {
  const std::string sentence =
      what + ": NCCL must succeed, but it reported \"" + text + "\" (" + advice_on(result) + ")";
  switch (result) {
  case NcclResult::invalid_argument:
    throw InvalidArgument(sentence, std::move(context));
  case NcclResult::invalid_usage:
    throw LifecycleError(sentence, std::move(context));
  case NcclResult::remote_error:
    throw PeerFailed(-1, sentence, std::move(context));
  default:
    throw TransportError(static_cast<int>(result), sentence, std::move(context));
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
