// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What a rank's memory holds at its fullest, by kind, and a ledger of blocks that finds that moment.

#include <shardwright/core/config.hpp>
#include <shardwright/core/pool_block.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What memory is for.
enum class MemoryKind : std::uint8_t {
  parameters,
  gathered_weights, ///< Copies in the layout that products read, where weights are stored in another.
  gradients,        ///< Accumulators, and finished gradients.
  optimizer_state,  ///< Moments.
  master_weights,
  batches,     ///< Token ids and targets of a step.
  stream,      ///< Residual stream: inputs of norms and of layers.
  attention,   ///< What an attention block keeps for its gradients.
  mlp,         ///< What an MLP keeps for its gradients.
  head,        ///< What final norm, scores and embedding keep.
  messages,    ///< Of the pipeline, received ahead or not yet sent off.
  temporaries, ///< Results on their way into the next operation, and workspaces.
};

inline constexpr std::size_t memory_kinds = 12;

[[nodiscard]] constexpr std::string_view name_of(MemoryKind kind) noexcept {
  constexpr std::array<std::string_view, memory_kinds> names{
      "parameters", "gathered weights", "gradients", "optimizer state", "master weights", "batches",
      "stream",     "attention",        "MLP",       "head, embedding", "messages",       "temporaries"};
  return names[static_cast<std::size_t>(kind)];
}

/// @brief Bytes by kind; of one rank at the moment when its pool has most in use.
struct MemoryTable {
  std::array<std::int64_t, memory_kinds> bytes{};
  std::int64_t rounding = 0; ///< What blocks of the pool hold beyond what was asked for.

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

/// @brief Follows blocks that are taken and given back as a pool would, without any memory behind them.
///
/// Blocks must end before the ledger does. Not shared between threads.
class MemoryLedger {
  struct Held;

public:
  /// @brief A block in use; copies share it, and the last one gives it back.
  using Block = std::shared_ptr<const Held>;

  MemoryLedger() = default;
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  /// @brief A block of `bytes` bytes.
  [[nodiscard]] Block take(MemoryKind kind, std::int64_t bytes) {
    add(kind, bytes, 1);
    if (now_.total() > peak_.total())
      peak_ = now_;
    return std::make_shared<const Held>(*this, kind, bytes);
  }

  [[nodiscard]] const MemoryTable& now() const noexcept { return now_; }
  /// @brief The moment when most was in use so far.
  [[nodiscard]] const MemoryTable& peak() const noexcept { return peak_; }

private:
  struct Held {
    Held(MemoryLedger& owner, MemoryKind what, std::int64_t size) : ledger(owner), kind(what), bytes(size) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { ledger.add(kind, bytes, -1); }
    MemoryLedger& ledger;
    MemoryKind kind;
    std::int64_t bytes;
  };

  void add(MemoryKind kind, std::int64_t bytes, std::int64_t sign) {
    now_.bytes[static_cast<std::size_t>(kind)] += sign * bytes;
    now_.rounding +=
        sign * (static_cast<std::int64_t>(pool_block(static_cast<std::size_t>(bytes)).bytes) - bytes);
  }

  MemoryTable now_, peak_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
