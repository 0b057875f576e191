// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The reason why a group of thread ranks has ended, as a value that every waiter can turn into its
/// own error.

#include <shardwright/core/error.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <typeinfo>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The original cause of a failure; later failures are consequences and are not kept.
struct Failure {
  enum class Kind : std::uint8_t {
    failed,    ///< A rank's program threw.
    left,      ///< A rank ended its program, or dropped its handle, while others continued.
    abandoned, ///< A rank dropped a Pending without waiting for it.
    deadline,  ///< A rank waited too long for others.
    mismatch,  ///< The ranks issued different calls.
    aborted,   ///< A rank called abort().
    finished   ///< launch() has returned.
  };
  Kind kind = Kind::failed;
  int rank = -1; ///< World rank that caused or detected it.
  std::string sentence;
  std::vector<int> missing;   ///< World ranks that were missing at a deadline.
  std::uint64_t sequence = 0; ///< Collective in which the deadline passed; 0 for a message.
  bool unwinding = false; ///< Detected while an exception was propagating: that exception is the real cause.
};

using FailurePointer = std::shared_ptr<const Failure>;

/// The failure as a sentence about its rank: "rank 1 failed: ...".
[[nodiscard]] inline std::string cause_of(const Failure& failure) {
  const std::string rank = "rank " + std::to_string(failure.rank);
  switch (failure.kind) {
  case Failure::Kind::failed:
    return rank + " failed: " + failure.sentence;
  case Failure::Kind::left:
    return rank + " left: " + failure.sentence;
  case Failure::Kind::abandoned:
    return rank + " dropped a started call: " + failure.sentence;
  case Failure::Kind::deadline:
    return rank + " gave up waiting: " + failure.sentence;
  case Failure::Kind::mismatch:
    return rank + " found that the ranks disagree: " + failure.sentence;
  case Failure::Kind::aborted:
    return rank + " called abort: " + failure.sentence;
  case Failure::Kind::finished:
    return "launch() has returned";
  }
  return failure.sentence;
}

/// The failure sentence of a rank that could not allocate.
inline constexpr const char* out_of_memory = "it ran out of memory (std::bad_alloc)";

/// The text of any exception.
[[nodiscard]] inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc& exception) { // the library's own errors say more than the type's name
    return typeid(exception) == typeid(std::bad_alloc) ? out_of_memory : exception.what();
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

/// "rank 3" or "ranks 1, 4 and 5".
[[nodiscard]] inline std::string ranks_text(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    out += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
