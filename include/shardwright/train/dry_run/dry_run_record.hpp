// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The record of a dry run: calls between ranks, memory by kind, floating-point operations.

#include <shardwright/core/config.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/train/dry_run/call_log.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes by kind, of one rank at its pool's peak.
struct MemoryTable {
  std::array<std::int64_t, detail::memory_kinds> bytes{};
  std::int64_t rounding = 0; ///< Bytes by which the pool's blocks exceed the requests.

  [[nodiscard]] constexpr std::int64_t operator[](MemoryKind kind) const {
    return bytes[static_cast<std::size_t>(kind)];
  }
  /// @brief Total requested.
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

/// @brief Bytes that kernels move, by label: every argument once, and once more if it is read and written. A
/// kernel that does not state its bytes has 0.
using KernelBytes = std::map<std::string, double, std::less<>>;

namespace detail {

/// The record of a dry run on this thread so far. Pools created in the dry run keep writing to it for as long
/// as they live, so they share ownership.
class DryRunRecord final : public MemoryListener {
public:
  /// The record of this thread's dry run; null outside a dry run.
  [[nodiscard]] static DryRunRecord* current() noexcept {
    return static_cast<DryRunRecord*>(MemoryListener::current());
  }

  [[nodiscard]] std::uint32_t take(std::size_t requested, std::size_t bytes) override {
    const MemoryPurpose& purpose = memory_purpose();
    const std::uint32_t holder = holder_of(purpose);
    add(holder, static_cast<std::int64_t>(requested), static_cast<std::int64_t>(bytes));
    if (now_.total() > peak_.total()) {
      peak_ = now_;
      bytes_at_peak_ = bytes_;
    }
    return holder;
  }
  void give_back(std::uint32_t holder, std::size_t requested, std::size_t bytes) noexcept override {
    add(holder, -static_cast<std::int64_t>(requested), -static_cast<std::int64_t>(bytes));
  }

  void add_kernel(std::string_view label, double bytes) override {
    auto at = kernel_bytes.find(label);
    if (at == kernel_bytes.end())
      at = kernel_bytes.emplace(label, 0).first;
    at->second += bytes;
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

  KernelBytes kernel_bytes;
  std::shared_ptr<CallLog> log = std::make_shared<CallLog>();

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

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
