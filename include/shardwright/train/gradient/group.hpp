// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The gradients that are reduced together: those of a model, or of one pipeline stage.

#include <shardwright/train/gradient/buckets.hpp>
#include <shardwright/train/gradient/parameter_gradient.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Gradients, and their buckets for each element type. It stays in its place.
template <class Target> class GradientGroup {
public:
  GradientGroup() = default;
  GradientGroup(const GradientGroup&) = delete;
  GradientGroup& operator=(const GradientGroup&) = delete;
  ~GradientGroup() = default;
  using Gradients = std::vector<std::unique_ptr<AnyParameterGradient<Target>>>;

  /// Adds the gradient of a parameter. @throws LifecycleError if another group holds it. Out of line: a model
  /// has several parameters of one type.
  template <class P> [[gnu::noinline]] void hold(P& parameter) {
    hold<typename P::gradient_element>(parameter, parameter.gradient_layouts(), parameter.resources());
  }
  /// Compiled for the numbers of raw gradients, not for each layout.
  template <class Number>
  [[gnu::noinline]] void hold(ParameterBase& parameter, const GradientLayouts& layouts,
                              TargetResources<Target>& resources) {
    add(std::make_unique<ParameterGradient<Number, Target>>(parameter, layouts, resources,
                                                            buckets<SummedNumber<Number>>(resources)));
  }
  /// Notes the stage of its parameters, which it must not outlive, even if there are none.
  void follow(std::weak_ptr<const void> stage) { stage_ = std::move(stage); }

  [[nodiscard]] const Gradients& gradients() const noexcept { return gradients_; }
  /// Whether the stage is destroyed, or one of the parameters.
  [[nodiscard]] bool lost() const {
    return (stage_ && stage_->expired()) ||
           std::any_of(gradients_.begin(), gradients_.end(), [](const auto& each) { return each->lost(); });
  }

  /// Bytes at which a bucket is sent. The same on all ranks; not to be changed while gradients are in flight.
  void set_bucket_bytes(std::size_t bytes) noexcept { bucket_bytes_ = bytes; }

private:
  struct Entry {
    const char* type;
    std::shared_ptr<void> buckets;
  };

  [[gnu::noinline]] void add(std::unique_ptr<AnyParameterGradient<Target>> gradient) {
    gradients_.push_back(std::move(gradient));
  }
  template <class Element>
  [[nodiscard]] GradientBuckets<Element, Target>& buckets(TargetResources<Target>& resources) {
    using Buckets = GradientBuckets<Element, Target>;
    for (const Entry& entry : buckets_)
      if (entry.type == &type_identity<Buckets>)
        return *static_cast<Buckets*>(entry.buckets.get());
    const auto made = std::make_shared<Buckets>(resources, bucket_bytes_);
    buckets_.push_back({&type_identity<Buckets>, made});
    return *made;
  }

  std::size_t bucket_bytes_ = default_bucket_bytes;
  std::vector<Entry> buckets_;
  Gradients gradients_; // after the buckets that hold them
  std::optional<std::weak_ptr<const void>> stage_;
};

#if defined(SHARDWRIGHT_COMPILED)
extern template class GradientGroup<DefaultTarget>;
extern template void GradientGroup<DefaultTarget>::hold<float>(ParameterBase&, const GradientLayouts&,
                                                               TargetResources<DefaultTarget>&);
extern template void GradientGroup<DefaultTarget>::hold<double>(ParameterBase&, const GradientLayouts&,
                                                                TargetResources<DefaultTarget>&);
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
