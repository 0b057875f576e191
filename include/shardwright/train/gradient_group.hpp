// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The parameters whose gradients are reduced together: those of a model, or of one pipeline stage.

#include <shardwright/train/gradient_buckets.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Buckets for each element type, and whether the current pass is the last one of the step that adds
/// gradients.
class GradientGroup {
public:
  /// Bytes at which a bucket is sent. The same on all ranks; not to be changed while gradients are in flight.
  void set_bucket_bytes(std::size_t bytes) {
    bucket_bytes_ = bytes;
    for (const Entry& entry : buckets_)
      entry.buckets->set_bucket_bytes(bytes);
  }

  /// Declares that the next pass with weight gradients is the last of the step: reductions start as soon as
  /// each gradient is complete.
  void begin_last_pass() noexcept { last_pass_ = true; }
  /// Declares that this pass is over: the remaining buckets are sent.
  void end_last_pass() {
    last_pass_ = false;
    for (const Entry& entry : buckets_)
      entry.buckets->flush();
  }
  [[nodiscard]] bool last_pass() const noexcept { return last_pass_; }

  /// The buckets of one element type.
  template <class Element, class Target>
  [[nodiscard]] GradientBuckets<Element, Target>& buckets(TargetResources<Target>& resources) {
    using Buckets = GradientBuckets<Element, Target>;
    for (const Entry& entry : buckets_)
      if (entry.type == &type<Buckets>)
        return static_cast<Buckets&>(*entry.buckets);
    buckets_.push_back({&type<Buckets>, std::make_unique<Buckets>(resources, bucket_bytes_)});
    return static_cast<Buckets&>(*buckets_.back().buckets);
  }

private:
  template <class>
  static constexpr char type = 0;
  struct Entry {
    const char* type;
    std::unique_ptr<AnyBuckets> buckets;
  };

  std::vector<Entry> buckets_;
  std::size_t bucket_bytes_ = default_bucket_bytes;
  bool last_pass_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
