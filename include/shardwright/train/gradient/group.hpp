// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The parameters whose gradients are reduced together: those of a model, or of one pipeline stage.

#include <shardwright/core/error.hpp>
#include <shardwright/train/gradient/buckets.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

[[noreturn]] inline void reject_lost_model() {
  reject_use(
      "GradAccumulator: the model must outlive it, but the model, or a parameter of it, is destroyed (declare the model before its accumulator, and make a new accumulator for a new model)");
}

/// Buckets for each element type, and whether the current pass is the last one of the step that adds
/// gradients.
class GradientGroup {
public:
  GradientGroup() = default;
  GradientGroup(const GradientGroup&) = delete;
  GradientGroup& operator=(const GradientGroup&) = delete;
  ~GradientGroup() {
    if (of_stage_ != nullptr)
      *of_stage_ = nullptr;
  }

  /// Makes a stage's pointer point to this group, as long as both live.
  void attach(GradientGroup*& of_stage) noexcept {
    if (of_stage != nullptr)
      of_stage->of_stage_ = nullptr;
    of_stage = this;
    of_stage_ = &of_stage;
  }
  /// Declares that the stage is destroyed, or one of the parameters.
  void lose_stage() noexcept {
    of_stage_ = nullptr;
    lost_ = true;
  }
  void lose_model() noexcept { lost_ = true; }
  [[nodiscard]] bool lost() const noexcept { return lost_; }

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
  template <class> static constexpr char type = 0;
  struct Entry {
    const char* type;
    std::unique_ptr<AnyBuckets> buckets;
  };

  std::vector<Entry> buckets_;
  std::size_t bucket_bytes_ = default_bucket_bytes;
  bool last_pass_ = false;
  GradientGroup** of_stage_ = nullptr;
  bool lost_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
