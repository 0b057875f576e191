// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The record of a dry run: calls between ranks, memory by kind, floating-point operations.

#include <shardwright/comm/observe/call_log.hpp>
#include <shardwright/core/config.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The purposes of memory.
enum class MemoryKind : std::uint8_t {
  parameters,
  gathered_weights, ///< Copies in the layout that operations read, where weights are stored in another.
  gradients,        ///< Of parameters: raw, in buckets, and finished.
  optimizer_state,
  master_weights,
  activations, ///< Values and gradients of operations on tapes.
  messages,    ///< Of a pipeline, received ahead or not yet sent off.
  other        ///< The program's own, such as batches, and workspaces outside of tapes.
};

namespace detail {

/// Enumerators of MemoryKind.
inline constexpr std::size_t memory_kinds = 8;

} // namespace detail

[[nodiscard]] constexpr std::string_view name_of(MemoryKind kind) noexcept {
  constexpr std::array<std::string_view, detail::memory_kinds> names{
      "parameters",     "gathered weights", "gradients", "optimizer state",
      "master weights", "activations",      "messages",  "other"};
  return names[static_cast<std::size_t>(kind)];
}

/// @brief Bytes by kind, of one rank at the moment when its pool has most in use.
struct MemoryTable {
  std::array<std::int64_t, detail::memory_kinds> bytes{};
  std::int64_t rounding = 0; ///< Bytes of the pool's blocks beyond what was asked for.

  [[nodiscard]] constexpr std::int64_t operator[](MemoryKind kind) const {
    return bytes[static_cast<std::size_t>(kind)];
  }
  /// @brief Asked for in all.
  [[nodiscard]] constexpr std::int64_t requested() const {
    std::int64_t sum = 0;
    for (const std::int64_t each : bytes)
      sum += each;
    return sum;
  }
  /// @brief In use in the pool: PoolStatistics::peak_bytes.
  [[nodiscard]] constexpr std::int64_t total() const { return requested() + rounding; }

  friend constexpr bool operator==(const MemoryTable&, const MemoryTable&) = default;
};

/// @brief A holder of memory, and how much it holds.
struct MemoryHolder {
  MemoryKind kind = MemoryKind::other;
  std::string name; ///< Such as "layers.3 attention".
  std::int64_t bytes = 0;
};

namespace detail {

/// The purpose for which this thread takes memory now.
struct MemoryPurpose {
  MemoryKind kind = MemoryKind::other;
  std::string_view part;      ///< Of the model.
  std::string_view operation; ///< On a tape.
};
[[nodiscard]] inline MemoryPurpose& memory_purpose() noexcept {
  thread_local MemoryPurpose purpose;
  return purpose;
}
/// Says what memory is taken for while it lives.
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

/// Says which part of a model memory is taken for while it lives; the name must live as long.
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

/// The record of a dry run on this thread so far. Pools that were made in it write on for as long as
/// they live, so they share it.
class DryRunRecord : public std::enable_shared_from_this<DryRunRecord> {
public:
  /// The record of the dry run that this thread is in; null outside of one.
  [[nodiscard]] static DryRunRecord*& current() noexcept {
    thread_local DryRunRecord* record = nullptr;
    return record;
  }

  /// The same to keep.
  [[nodiscard]] static std::shared_ptr<DryRunRecord> of_current() {
    return current() == nullptr ? nullptr : current()->weak_from_this().lock();
  }

  /// A block was taken; the number under which it is to be given back.
  [[nodiscard]] std::uint32_t take(std::size_t requested, std::size_t bytes) {
    const MemoryPurpose& purpose = memory_purpose();
    const std::uint32_t holder = holder_of(purpose);
    add(holder, static_cast<std::int64_t>(requested), static_cast<std::int64_t>(bytes));
    if (now_.total() > peak_.total()) {
      peak_ = now_;
      bytes_at_peak_ = bytes_;
    }
    return holder;
  }
  void give_back(std::uint32_t holder, std::size_t requested, std::size_t bytes) noexcept {
    add(holder, -static_cast<std::int64_t>(requested), -static_cast<std::int64_t>(bytes));
  }

  [[nodiscard]] const MemoryTable& peak() const noexcept { return peak_; }
  /// The holders of memory at the peak, the largest first.
  [[nodiscard]] std::vector<MemoryHolder> holders_at_peak() const {
    std::vector<MemoryHolder> out;
    for (std::size_t i = 0; i < bytes_at_peak_.size(); ++i)
      if (bytes_at_peak_[i] > 0)
        out.push_back({names_[i].first, names_[i].second, bytes_at_peak_[i]});
    std::stable_sort(out.begin(), out.end(), [](const MemoryHolder& left, const MemoryHolder& right) {
      return left.bytes > right.bytes;
    });
    return out;
  }

  std::shared_ptr<CallLog> log = std::make_shared<CallLog>();
  double flops = 0;

private:
  [[nodiscard]] std::uint32_t holder_of(const MemoryPurpose& purpose) {
    std::string name(purpose.part);
    if (!purpose.operation.empty())
      name.append(name.empty() ? "" : " ").append(purpose.operation);
    const auto [at, made] =
        holders_.try_emplace({purpose.kind, std::move(name)}, static_cast<std::uint32_t>(names_.size()));
    if (made) {
      names_.push_back(at->first);
      bytes_.push_back(0);
    }
    return at->second;
  }
  void add(std::uint32_t holder, std::int64_t requested, std::int64_t bytes) noexcept {
    bytes_[holder] += requested;
    now_.bytes[static_cast<std::size_t>(names_[holder].first)] += requested;
    now_.rounding += bytes - requested;
  }

  using Holder = std::pair<MemoryKind, std::string>;
  std::map<Holder, std::uint32_t> holders_;
  std::vector<Holder> names_;
  std::vector<std::int64_t> bytes_, bytes_at_peak_; // by holder
  MemoryTable now_, peak_;
};

/// Notes floating-point operations of a kernel that does not run.
inline void count_flops(double operations) noexcept {
  if (DryRunRecord* const record = DryRunRecord::current())
    record->flops += operations;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
