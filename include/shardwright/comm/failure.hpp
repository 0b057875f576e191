// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Why a group of thread ranks has ended, as one value that every waiter can turn into its own error.

#include <shardwright/core/error.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <typeinfo>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The first cause of a failure; later ones are echoes and are not kept.
struct Failure {
  enum class Kind : std::uint8_t {
    failed,    ///< A rank's program threw.
    left,      ///< A rank ended its program, or gave up its handle, while others went on.
    abandoned, ///< A rank dropped a Pending without waiting for it.
    deadline,  ///< A rank waited too long for others.
    mismatch,  ///< The ranks issued different calls.
    aborted,   ///< A rank called abort().
    finished   ///< launch() has returned.
  };
  Kind kind = Kind::failed;
  int rank = -1; ///< World rank that caused it or found it.
  std::string sentence;
  std::vector<int> missing;   ///< World ranks that a deadline waited for.
  std::uint64_t sequence = 0; ///< Collective in which the deadline passed; 0 for a message.
  bool unwinding = false;     ///< Found while an exception was on its way: that exception is the real cause.
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

/// A rank that could not allocate, as the sentence of its failure.
inline constexpr const char* out_of_memory = "it ran out of memory (std::bad_alloc)";

/// The text of any exception.
[[nodiscard]] inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc& exception) { // the library's own errors say more than its name
    return typeid(exception) == typeid(std::bad_alloc) ? out_of_memory : exception.what();
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

/// "rank 2" or "ranks 2, 3".
[[nodiscard]] inline std::string ranks_text(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
