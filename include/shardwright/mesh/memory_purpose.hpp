// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The purposes of memory allocations, and the interface by which pools report to a dry run.

#include <shardwright/core/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The purposes of memory.
enum class MemoryKind : std::uint8_t {
  parameters,
  gathered_weights, ///< Copies in the layout that operations read, if weights are stored in another one.
  gradients,        ///< Of parameters: raw, in buckets, and reduced.
  optimizer_state,
  master_weights,
  activations, ///< Values and gradients of operations on tapes.
  messages,    ///< Of a pipeline, received ahead of time or not yet sent.
  other        ///< The program's own, such as batches, and workspaces outside of tapes.
};

namespace detail {

/// Number of enumerators of MemoryKind.
inline constexpr std::size_t memory_kinds = 8;

} // namespace detail

[[nodiscard]] constexpr std::string_view name_of(MemoryKind kind) noexcept {
  constexpr std::array<std::string_view, detail::memory_kinds> names{
      "parameters",     "gathered weights", "gradients", "optimizer state",
      "master weights", "activations",      "messages",  "other"};
  return names[static_cast<std::size_t>(kind)];
}

namespace detail {

/// The current purpose of this thread's allocations.
struct MemoryPurpose {
  MemoryKind kind = MemoryKind::other;
  std::string_view part;      ///< Of the model.
  std::string_view operation; ///< On a tape.
};
[[nodiscard]] inline MemoryPurpose& memory_purpose() noexcept {
  thread_local MemoryPurpose purpose;
  return purpose;
}
/// " as activations of softmax in block 2"; empty if no purpose is set.
[[nodiscard]] inline std::string text_of(const MemoryPurpose& purpose) {
  std::string out;
  if (purpose.kind != MemoryKind::other || !purpose.operation.empty())
    out.append(" as ").append(name_of(purpose.kind));
  if (!purpose.operation.empty())
    out.append(" of ").append(purpose.operation);
  if (!purpose.part.empty())
    out.append(" in ").append(purpose.part);
  return out;
}
/// Sets the purpose of allocations during its lifetime.
class MemoryFor {
public:
  explicit MemoryFor(MemoryKind kind, std::string_view operation = {}) noexcept : before_(memory_purpose()) {
    memory_purpose().kind = kind;
    memory_purpose().operation = operation;
  }
  ~MemoryFor() { memory_purpose() = before_; }
  MemoryFor(const MemoryFor&) = delete;
  MemoryFor& operator=(const MemoryFor&) = delete;

private:
  MemoryPurpose before_;
};

/// Sets the part of a model for which memory is allocated during its lifetime; the name must outlive it.
class MemoryOfPart {
public:
  explicit MemoryOfPart(std::string_view part) noexcept
      : before_(std::exchange(memory_purpose().part, part)) {}
  ~MemoryOfPart() { memory_purpose().part = before_; }
  MemoryOfPart(const MemoryOfPart&) = delete;
  MemoryOfPart& operator=(const MemoryOfPart&) = delete;

private:
  std::string_view before_;
};

/// The interface by which pools report to a dry run on their thread. The record of the dry run derives from
/// it, so that pools in other programs do not depend on it.
class MemoryListener : public std::enable_shared_from_this<MemoryListener> {
public:
  MemoryListener() = default;
  MemoryListener(const MemoryListener&) = delete;
  MemoryListener& operator=(const MemoryListener&) = delete;
  virtual ~MemoryListener() = default;

  /// The observer of this thread's dry run; null outside a dry run.
  [[nodiscard]] static MemoryListener*& current() noexcept {
    thread_local MemoryListener* listener = nullptr;
    return listener;
  }
  /// The same, sharing ownership.
  [[nodiscard]] static std::shared_ptr<MemoryListener> of_current() {
    return current() == nullptr ? nullptr : current()->weak_from_this().lock();
  }

  /// Reports an allocation; returns the number with which its release must be reported.
  [[nodiscard]] virtual std::uint32_t take(std::size_t requested, std::size_t bytes) = 0;
  virtual void give_back(std::uint32_t holder, std::size_t requested, std::size_t bytes) noexcept = 0;
  /// Reports a kernel that did not run, or bytes that it would have moved.
  virtual void add_kernel(std::string_view label, double bytes) = 0;

  double flops = 0; ///< Of kernels that did not run.
};

/// Counts the bytes that a kernel which does not run would move; 0 only names it.
inline void count_bytes(std::string_view kernel, double bytes) {
  if (MemoryListener* const listener = MemoryListener::current())
    listener->add_kernel(kernel, bytes);
}

/// Counts the floating-point operations of a kernel that does not run.
inline void count_flops(double operations) noexcept {
  if (MemoryListener* const listener = MemoryListener::current())
    listener->flops += operations;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
