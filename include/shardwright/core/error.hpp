// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The typed errors of the library and the context that each one carries.

#include <shardwright/core/config.hpp>
#include <shardwright/core/source_location.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The rank, call and place of a failure. Members that do not apply keep their defaults.
struct ErrorContext {
  int rank = -1;              ///< Rank that throws, in its world.
  std::string group{};        ///< Communicator, such as "world" or the axes "dp,tp".
  std::string operation{};    ///< Operation, such as "all_reduce".
  std::uint64_t sequence = 0; ///< Number of the operation on its communicator, from 1; 0 if none applies.
  std::string layout{};       ///< Requested layout.
  SourceLocation where{};     ///< Line of the user's call.

  /// @brief The members that are set, as "rank 1, group dp, all_reduce #7, at file:line".
  [[nodiscard]] std::string text() const;
};

/// @brief Base of every error of the library; `what()` is the sentence followed by the context.
class Error : public std::runtime_error {
public:
  explicit Error(const std::string& sentence, ErrorContext context = {});

  /// @brief Rank, group, operation, sequence number, layout and source line.
  [[nodiscard]] const ErrorContext& context() const noexcept { return context_; }

private:
  ErrorContext context_;
};

/// @brief An argument is out of range, null, overlapping, of the wrong shape, or does not divide.
class InvalidArgument : public Error {
public:
  using Error::Error;
};

/// @brief Ranks that must agree on a configuration, seed or shape do not.
class ConfigurationMismatch : public Error {
public:
  using Error::Error;
};

/// @brief Ranks entered different collectives, or one collective with different arguments.
class CollectiveMismatch : public Error {
public:
  using Error::Error;
};

/// @brief Used before it was ready, twice, or after its end (pending operations, communicators,
/// accumulators).
class LifecycleError : public Error {
public:
  using Error::Error;
};

/// @brief A peer threw, left or died; the text names the original cause, not its consequences.
class PeerFailed : public Error {
public:
  PeerFailed(int peer, const std::string& sentence, ErrorContext context = {})
      : Error(sentence, std::move(context)), peer_(peer) {}

  /// @brief Rank that failed first, in its world.
  [[nodiscard]] int peer() const noexcept { return peer_; }

private:
  int peer_;
};

/// @brief A wait exceeded its deadline; names the ranks that did not arrive and the last operation of each.
class DeadlineExceeded : public Error {
public:
  DeadlineExceeded(std::vector<int> missing, const std::string& sentence, ErrorContext context = {})
      : Error(sentence, std::move(context)), missing_(std::move(missing)) {}

  /// @brief The awaited ranks, in their world.
  [[nodiscard]] const std::vector<int>& missing() const noexcept { return missing_; }

private:
  std::vector<int> missing_;
};

/// @brief The transport below (MPI, NCCL, the operating system) reported an error code.
class TransportError : public Error {
public:
  TransportError(int code, const std::string& sentence, ErrorContext context = {})
      : Error(sentence, std::move(context)), code_(code) {}

  /// @brief The transport's own code.
  [[nodiscard]] int code() const noexcept { return code_; }

private:
  int code_;
};

/// @brief A device's runtime or a library on it (CUDA, cuBLAS) reported an error code.
class DeviceError : public Error {
public:
  DeviceError(int code, const std::string& sentence, ErrorContext context = {})
      : Error(sentence, std::move(context)), code_(code) {}

  /// @brief The library's own code.
  [[nodiscard]] int code() const noexcept { return code_; }

private:
  int code_;
};

/// @brief Input data is empty, short, unreadable or out of its range.
class DataError : public Error {
public:
  using Error::Error;
};

namespace detail {

/// Throws a LifecycleError. Out of line, because throw expressions are slow to compile.
[[noreturn]] void reject_use(const char* sentence);

} // namespace detail

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::string ErrorContext::text() const {
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (rank >= 0)
    add("rank " + std::to_string(rank));
  if (!group.empty())
    add("group " + group);
  if (!operation.empty())
    add(operation + (sequence == 0 ? "" : " #" + std::to_string(sequence)));
  if (!layout.empty())
    add("layout " + layout);
  if (const std::string place = where.text_after("at "); !place.empty())
    add(place);
  return out;
}

namespace detail {

/// The sentence of an error, and its context if there is any.
[[nodiscard]] inline std::string with_context(const std::string& sentence, const ErrorContext& context) {
  const std::string where = context.text();
  return where.empty() ? sentence : sentence + " [" + where + "]";
}

} // namespace detail

SHARDWRIGHT_INLINE Error::Error(const std::string& sentence, ErrorContext context)
    : std::runtime_error(detail::with_context(sentence, context)), context_(std::move(context)) {}

[[gnu::noinline]] SHARDWRIGHT_INLINE void detail::reject_use(const char* sentence) {
  throw LifecycleError(sentence);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
