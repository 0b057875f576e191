// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Loss sums and token counts that stay in device memory for later kernels.

#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A sum of losses and a number of tokens, or nothing.
template <class Target> class DeviceSums {
public:
  DeviceSums() = default;
  explicit DeviceSums(Scalars<2, Target> sums) : sums_(std::move(sums)) {}

  /// Adds on the device, in the order of the calls.
  DeviceSums& operator+=(const DeviceSums& other) {
    if (!other.sums_)
      return *this;
    const auto& execution = other.sums_->resources().execution();
    if (!sums_) {
      sums_.emplace(other.sums_->resources());
      kernels::copy(execution, other.sums_->values(), sums_->view());
    } else {
      kernels::add(execution, sums_->values(), other.sums_->values(), sums_->view());
    }
    return *this;
  }

  /// Whether nothing was added.
  [[nodiscard]] bool empty() const noexcept { return !sums_; }
  /// Loss and tokens for kernels; null for nothing.
  [[nodiscard]] const double* data() const { return sums_ ? sums_->values().data() : nullptr; }
  /// The same on the host; waits for the device.
  [[nodiscard]] std::array<double, 2> numbers() const {
    return sums_ ? sums_->read() : std::array<double, 2>{};
  }

protected:
  /// @pre the device is done
  void require_known_ids() const {
    if (sums_)
      detail::require_known_ids(sums_->resources());
  }

private:
  std::optional<Scalars<2, Target>> sums_;
};

} // namespace detail

/// @brief A LossSum with its TokenCount in the memory of a device; move-only.
template <LayoutType L, class Target> class DeviceLoss : public detail::DeviceSums<Target> {
public:
  using layout = L;
  detail::SumOrigin origin{};

  DeviceLoss() = default; ///< No loss and no tokens.
  explicit DeviceLoss(detail::Scalars<2, Target> sums) : detail::DeviceSums<Target>(std::move(sums)) {}

  /// @brief The sums of both batches. @throws LifecycleError for tapes with different loss scales.
  DeviceLoss& operator+=(const DeviceLoss& other) {
    origin.join(other.origin, this->empty());
    detail::DeviceSums<Target>::operator+=(other);
    return *this;
  }
  /// @brief The numbers, once the device has them: waits for it.
  /// @throws DataError if this rank has met a token id beyond the vocabulary.
  [[nodiscard]] CountedLoss<L> read() const {
    const std::array<double, 2> host = this->numbers();
    this->require_known_ids();
    return {{host[0]}, {static_cast<std::int64_t>(std::llround(host[1]))}};
  }
};

/// @brief The loss type of a target: a number on the host, or one in device memory.
template <LayoutType L, class Target>
using CountedLossOn =
    std::conditional_t<bool(Target::host_accessible), CountedLoss<L>, DeviceLoss<L, Target>>;

namespace detail {

/// The origin of sums on a host or on a device.
template <class Sums> [[nodiscard]] auto& origin_of(Sums& sums) noexcept {
  if constexpr (requires { sums.origin; })
    return sums.origin;
  else
    return sums.loss.origin;
}

/// Wraps the sums that kernels have computed: loss and count.
template <LayoutType L, class Target>
[[nodiscard]] CountedLossOn<L, Target> counted_loss(Scalars<2, Target>&& totals) {
  if constexpr (Target::host_accessible) {
    const auto host = totals.read();
    return {{host[0], {.counted = true}}, {static_cast<std::int64_t>(std::llround(host[1]))}};
  } else {
    CountedLossOn<L, Target> out(std::move(totals));
    out.origin.counted = true;
    return out;
  }
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
