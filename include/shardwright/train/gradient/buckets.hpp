// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Buckets that combine small gradients into one collective.

#include <shardwright/comm/pending.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/transition/block_copy.hpp>
#include <shardwright/tensor/transition/prepared_collective.hpp>
#include <shardwright/train/gradient/background_calls.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes of gradients at which a bucket is sent. A larger gradient is sent by itself, without a copy.
inline constexpr std::size_t default_bucket_bytes = std::size_t{1} << 20;

namespace detail {

/// Buckets of one queue in flight at the same time; one more waits for the oldest.
inline constexpr std::size_t most_buckets_under_way = 4;

/// Receives the result of a gradient's collective.
template <class Element, class Target> class BucketMember {
public:
  /// @param at the result, inside `memory`, which contains nothing else if it is `alone`
  virtual void take(BufferHandle memory, const Element* at, bool alone) = 0;

protected:
  ~BucketMember() = default;
};

/// The buckets of one kind of sum, in the order in which they were closed.
///
/// Members are added in the same order on all ranks of the mesh, buckets are closed by size, and only a few
/// are in flight. So every group makes the same collectives in the same order, and every step uses the same
/// memory. The order in which a collective combines the ranks' parts of an element does not depend on the
/// rest of the bucket.
template <class Element, class Target> class BucketQueue {
public:
  using Member = BucketMember<Element, Target>;

  /// @param bucket_bytes see GradientBuckets
  BucketQueue(TargetResources<Target>& resources, const std::size_t& bucket_bytes)
      : resources_(&resources), bucket_bytes_(bucket_bytes) {}

  /// Adds a gradient to the collective; the owner of the member's `take` must call finish() in time.
  void add(Member& member, const PreparedCollective& collective, BufferHandle memory) {
    const std::size_t bytes = collective.count_before * sizeof(Element);
    if (bytes >= bucket_bytes_) {
      std::unique_ptr<Bucket> alone = take_bucket();
      alone->entries.push_back({&member, &collective, std::move(memory)});
      start(std::move(alone));
      return;
    }
    if (open_ && !open_->entries.front().collective->joins(collective))
      flush();
    if (!open_)
      open_ = take_bucket();
    open_->entries.push_back({&member, &collective, std::move(memory)});
    open_->bytes += bytes;
    if (open_->bytes >= bucket_bytes_)
      flush();
  }

  /// Sends off the open bucket.
  void flush() {
    if (open_)
      start(std::exchange(open_, nullptr));
  }

  /// Sends the open bucket and waits for all.
  void finish() {
    flush();
    while (first_ < started_.size())
      hand_back();
  }

private:
  struct Entry {
    Member* member;
    const PreparedCollective* collective;
    BufferHandle memory;
  };
  struct Bucket {
    Bucket() = default;
    Bucket(const Bucket&) = delete;
    Bucket& operator=(const Bucket&) = delete;
    [[gnu::noinline]] ~Bucket() {} // NOLINT(modernize-use-equals-default)
    std::vector<Entry> entries;
    std::size_t bytes = 0;
    std::vector<StridedBlock> blocks;
    BufferHandle in, out;
    std::optional<Pending> pending; // last, so that it ends before the memory that it works on
  };

  [[nodiscard]] std::unique_ptr<Bucket> take_bucket() {
    if (spare_.empty())
      return std::make_unique<Bucket>();
    std::unique_ptr<Bucket> out = std::move(spare_.back());
    spare_.pop_back();
    return out;
  }
  [[nodiscard]] BufferHandle memory_of(std::size_t elements) {
    return BufferHandle(resources_->take(elements * sizeof(Element)));
  }

  void start(std::unique_ptr<Bucket> bucket) {
    const MemoryFor purpose(MemoryKind::gradients);
    const PreparedCollective& collective = *bucket->entries.front().collective;
    CollectiveCall call = collective.call;
    call.element = element_type_of<Element>();
    if (bucket->entries.size() == 1)
      bucket->in = std::move(bucket->entries.front().memory);
    else
      pack(*bucket, call);
    bucket->out = call.operation == Operation::all_reduce ? bucket->in : memory_of(call.count);
    call.in = bucket->in.data();
    call.out = bucket->out.data();
    order_call_after<Target>(resources_->execution());
    bucket->pending.emplace(
        start_background<Target>(resources_->core(), collective.mask, Background::reductions, call));
    started_.push_back(std::move(bucket));
    while (started_.size() - first_ > most_buckets_under_way)
      hand_back();
  }

  /// Copies the members' blocks together, those of one rank of the group side by side.
  void pack(Bucket& bucket, CollectiveCall& call) {
    std::size_t before = 0;
    std::size_t after = 0;
    for (const Entry& entry : bucket.entries) {
      before += entry.collective->count_before;
      after += entry.collective->count_after;
    }
    bucket.in = memory_of(before);
    call.count = after;
    auto* const to = static_cast<Element*>(bucket.in.data());
    std::size_t at = 0;
    const auto append = [&](Entry& entry, const StridedBlock& block) {
      copy_block<Target>(resources_->execution(), static_cast<const Element*>(entry.memory.data()), block,
                         to + at);
      at += block.count();
    };
    if (call.operation == Operation::all_reduce) {
      for (Entry& entry : bucket.entries)
        append(entry, contiguous_block(0, entry.collective->count_before));
    } else {
      bucket.blocks.clear();
      const unsigned mask = bucket.entries.front().collective->mask;
      const int ranks = resources_->core().background(mask, Background::reductions).size();
      for (int rank = 0; rank < ranks; ++rank) {
        const std::size_t begin = at;
        for (Entry& entry : bucket.entries)
          append(entry, entry.collective->call.in_block(rank));
        bucket.blocks.push_back(contiguous_block(begin, at - begin));
      }
      call.in_blocks = bucket.blocks;
    }
    order_call_after<Target>(
        resources_->execution()); // before the host writes to memory that returns to the pool
    for (Entry& entry : bucket.entries)
      entry.memory = BufferHandle();
  }

  /// Waits for the oldest bucket and distributes its results.
  void hand_back() {
    std::unique_ptr<Bucket> bucket = std::move(started_[first_++]);
    if (first_ == started_.size()) {
      started_.clear();
      first_ = 0;
    }
    bucket->pending->wait();
    bucket->pending.reset();
    bucket->in = BufferHandle();
    const bool alone = bucket->entries.size() == 1;
    const auto* at = static_cast<const Element*>(bucket->out.data());
    for (const Entry& entry : bucket->entries) {
      entry.member->take(alone ? std::move(bucket->out) : bucket->out, at, alone);
      at += entry.collective->count_after;
    }
    bucket->out = BufferHandle();
    bucket->entries.clear();
    bucket->bytes = 0;
    spare_.push_back(std::move(bucket));
  }

  TargetResources<Target>* resources_;
  const std::size_t& bucket_bytes_;
  std::unique_ptr<Bucket> open_;
  std::vector<std::unique_ptr<Bucket>> started_; // from first_ on
  std::size_t first_ = 0;
  std::vector<std::unique_ptr<Bucket>> spare_;
};

/// Reduces a stage's gradients during its backward pass.
///
/// Two queues: one over the axes that shard (or would shard), and one over the rest, such as replicas of a
/// shard group. Every rank of the mesh adds the same gradients in the same order. Allocates nothing in steady
/// state.
template <class Element, class Target> class GradientBuckets final {
public:
  /// @param bucket_bytes at which a bucket is sent: the same on all ranks, and not changed while gradients
  /// are in flight
  GradientBuckets(TargetResources<Target>& resources, const std::size_t& bucket_bytes)
      : over_shards(resources, bucket_bytes), over_rest(resources, bucket_bytes) {}

  /// Declares that a gradient may still grow in this step.
  void expect_gradient() noexcept { ++growing_; }
  /// Declares that one is complete; with the last, the open bucket is sent.
  void gradient_complete() {
    if (--growing_ == 0)
      over_shards.flush();
  }
  /// Sends the open buckets and waits for everything.
  void finish() {
    over_shards.finish();
    over_rest.finish();
  }

  BucketQueue<Element, Target> over_shards, over_rest;

private:
  int growing_ = 0;
};

#if defined(SHARDWRIGHT_COMPILED)
extern template class BucketQueue<float, DefaultTarget>;
extern template class BucketQueue<double, DefaultTarget>;
#endif

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
