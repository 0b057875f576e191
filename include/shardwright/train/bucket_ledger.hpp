// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory of gradients in buckets, counted without any collective.

#include <shardwright/train/gradient_buckets.hpp>
#include <shardwright/train/tensor_ledger.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// GradientBuckets with blocks in place of memory.
class BucketLedger {
public:
  using Block = MemoryLedger::Block;

  /// Takes back what a collective made of a gradient, as BucketMember does.
  class Member {
  public:
    virtual void take(int phase, Block memory, bool alone) = 0;

  protected:
    ~Member() = default;
  };

  BucketLedger(TensorLedger& tensors, std::int64_t bucket_bytes)
      : tensors_(&tensors), bucket_bytes_(bucket_bytes) {}

  void add(int phase, Member& member, const LedgerMove& move, Block memory) {
    Queue& queue = queues_[static_cast<std::size_t>(phase)];
    if (move.bytes_before >= bucket_bytes_) {
      Bucket alone;
      alone.entries.push_back({&member, move, std::move(memory)});
      return start(phase, std::move(alone));
    }
    if (queue.open && !queue.open->entries.front().move.shares_call(move))
      flush(phase);
    if (!queue.open)
      queue.open = Bucket();
    queue.open->entries.push_back({&member, move, std::move(memory)});
    queue.open->bytes += move.bytes_before;
    if (queue.open->bytes >= bucket_bytes_)
      flush(phase);
  }
  void flush() { flush(0); }
  void finish() {
    for (const int phase : {0, 1}) {
      flush(phase);
      hand_back(phase, 0);
    }
  }

private:
  struct Entry {
    Member* member;
    LedgerMove move;
    Block memory;
  };
  struct Bucket {
    std::vector<Entry> entries{};
    std::int64_t bytes = 0;
    Block in{}, out{};
  };
  struct Queue {
    std::optional<Bucket> open{};
    std::deque<Bucket> started{};
  };

  void flush(int phase) {
    if (auto& open = queues_[static_cast<std::size_t>(phase)].open)
      start(phase, *std::exchange(open, std::nullopt));
  }

  void start(int phase, Bucket bucket) {
    std::int64_t before = 0;
    std::int64_t after = 0;
    for (const Entry& entry : bucket.entries) {
      before += entry.move.bytes_before;
      after += entry.move.bytes_after;
    }
    if (bucket.entries.size() == 1) {
      bucket.in = std::move(bucket.entries.front().memory);
    } else {
      bucket.in = tensors_->ledger().take(MemoryKind::gradients, before);
      for (Entry& entry : bucket.entries)
        entry.memory = {};
    }
    const bool in_place = bucket.entries.front().move.kind == StepKind::all_reduce;
    bucket.out = in_place ? bucket.in : tensors_->ledger().take(MemoryKind::gradients, after);
    queues_[static_cast<std::size_t>(phase)].started.push_back(std::move(bucket));
    hand_back(phase, most_buckets_under_way);
  }

  /// Hands back all but the last `under_way`.
  void hand_back(int phase, std::size_t under_way) {
    auto& started = queues_[static_cast<std::size_t>(phase)].started;
    while (started.size() > under_way) {
      Bucket bucket = std::move(started.front());
      started.pop_front();
      bucket.in = {};
      const bool alone = bucket.entries.size() == 1;
      for (const Entry& entry : bucket.entries)
        entry.member->take(phase, alone ? std::move(bucket.out) : bucket.out, alone);
    }
  }

  TensorLedger* tensors_;
  std::int64_t bucket_bytes_;
  std::array<Queue, 2> queues_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
