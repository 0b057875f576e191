// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Handles steps with non-finite loss or gradients: all ranks skip them, or stop and name the origin.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/failure.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/tensor/non_finite_elements.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/step/non_finite.hpp>
#include <shardwright/train/step/record.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A non-finite loss or gradient, and the ranks that have it.
struct NonFinitePlace {
  std::string name; ///< Name of the gradient's parameter; empty for the loss.
  std::vector<int> ranks;
  std::int64_t elements =
      0; ///< Number of non-finite elements, on all of these ranks together; negative: not known.

  /// @brief "the gradient of layers.0.down on ranks 2 and 3 (17 elements)", "the loss on rank 1".
  [[nodiscard]] std::string text() const {
    return (name.empty() ? "the loss" : "the gradient of " + name) + " on " + detail::ranks_text(ranks) +
           (name.empty() || elements < 0
                ? ""
                : " (" + std::to_string(elements) + (elements == 1 ? " element)" : " elements)"));
  }
};

/// @brief A step's loss or gradients are not finite, and the run must not continue; thrown on every rank.
class NonFiniteStep : public Error {
public:
  NonFiniteStep(const std::string& sentence, std::vector<NonFinitePlace> places, ErrorContext context = {})
      : Error(sentence, std::move(context)), places_(std::move(places)) {}
  [[nodiscard]] const std::vector<NonFinitePlace>& places() const noexcept { return places_; }

private:
  std::vector<NonFinitePlace> places_;
};

/// @brief During its lifetime, raw gradients are checked before they are summed over ranks, so that
/// find_non_finite names the ranks where bad values arise. For repeating a non-finite step: it reads every
/// raw gradient once more.
template <ParameterSet Model> class WatchRawGradients {
public:
  explicit WatchRawGradients(const GradAccumulator<Model>& gradients) : gradients_(gradients) { watch(true); }
  ~WatchRawGradients() { watch(false); }
  WatchRawGradients(const WatchRawGradients&) = delete;
  WatchRawGradients& operator=(const WatchRawGradients&) = delete;

private:
  void watch(bool on) {
    gradients_.for_each_gradient([on](auto& gradient) { gradient.watch(on); });
  }
  const GradAccumulator<Model>& gradients_;
};

namespace detail {

/// Joins the places of all ranks; `own` has names, each followed by a number of elements. Collective.
[[nodiscard]] std::vector<NonFinitePlace> places_of_all(const std::vector<std::string>& own,
                                                        const HostCommunicator& ranks);

} // namespace detail

/// @brief Finds where a finished step is not finite: the loss first and then parameters in the order of the
/// ranks.
///
/// Collective over `ranks`, which must be all ranks that hold a part of the model. Gradients are checked
/// after the reductions, where a bad sum over data ranks shows on all of these ranks, or, in a step under
/// WatchRawGradients, before them. A non-finite loss shows on its own rank. Cost: one read of the gradients
/// and a few hundred bytes for each rank.
template <ParameterSet Model>
[[nodiscard]] std::vector<NonFinitePlace> find_non_finite(const GradAccumulator<Model>& gradients,
                                                          const HostCommunicator& ranks) {
  std::vector<std::string> own;
  if (!std::isfinite(gradients.local_loss()))
    own.insert(own.end(), {"", "1"});
  gradients.for_each_gradient([&](const auto& gradient) {
    if (const std::int64_t elements = gradient.non_finite(); elements != 0)
      own.insert(own.end(), {gradient.parameter().name(), std::to_string(elements)});
  });
  return detail::places_of_all(own, ranks);
}

namespace detail {

struct GuardState {
  std::int64_t skipped_in_a_row = 0;
  bool halted = false;
};

/// The verdict on a step. On a device no step is taken after one that ends the run, so that parameters and
/// optimizer stay as that step found them until the host learns of it.
struct JudgeStep {
  NonFinite non_finite;
  EmptyBatch empty;
  std::int64_t most_in_a_row;
  [[nodiscard]] SHARDWRIGHT_FUNCTION bool stops(const GradientSummary& step) const {
    return step.tokens == 0 ? empty == EmptyBatch::stop : non_finite == NonFinite::stop;
  }
  SHARDWRIGHT_FUNCTION void operator()(GradientSummary& step, GuardState& guard) const {
    if (step.unknown_ids > 0) { // the report is an error
      guard.halted = true;
    } else if (step.finite()) {
      guard.skipped_in_a_row = 0;
    } else if (!step.overflowed && !guard.halted) {
      guard.halted = ++guard.skipped_in_a_row == most_in_a_row || stops(step);
    }
    step.take = step.take && !guard.halted;
    step.halted = guard.halted;
    step.skipped_in_a_row = guard.skipped_in_a_row;
  }
};

} // namespace detail

/// @brief Admits finite steps and treats others as configured; all ranks decide alike, because the loss and
/// the norm of a GradientSummary are the same on all.
///
/// A step whose batch has no valid token has no gradient: it is skipped, or ends the run if so configured. A
/// finite step costs nothing. For dynamic loss scaling, choose `skip`, and update the DynamicLossScale first:
/// a step that it marks as overflowed is not admitted, and does not count. On a device the verdict is made
/// there, and the host learns of it from the step's report: a non-finite step is not taken, and if the run
/// must stop, neither is any later step. Then `end_run` throws.
class StepGuard {
public:
  /// @param ranks all ranks that hold a part of the model
  /// @param most_in_a_row skipped steps in a row after which the run stops anyway; 0: never
  StepGuard(NonFinite choice, HostCommunicator ranks, std::int64_t most_in_a_row = 10,
            EmptyBatch empty = EmptyBatch::skip)
      : rule_{choice, empty, most_in_a_row}, ranks_(std::move(ranks)) {}

  /// @brief Returns whether the optimizer may take the step; if not, restart the accumulator and continue.
  ///
  /// Collective only if the summary is not finite. Call it between finish() and restart() of the accumulator.
  /// @throws NonFiniteStep on every rank if the choice is to stop, or after too many skipped steps; DataError
  /// if the step is one without tokens.
  template <ParameterSet Model>
  [[nodiscard]] bool admit(const GradAccumulator<Model>& accumulator, const GradientSummary& summary,
                           std::int64_t step) {
    GradientSummary judged = summary;
    rule_(judged, state_);
    if (summary.finite())
      return true;
    ++skipped_;
    if (std::exchange(state_.halted, false))
      end_run(accumulator, judged, step);
    without_tokens_ = summary.tokens == 0;
    if (!without_tokens_)
      places_ = find_non_finite(accumulator, ranks_);
    return false;
  }

  /// @brief The same on a device, which makes the decision: always returns true. Does not wait.
  template <ParameterSet Model, class Target>
  [[nodiscard]] bool admit(const GradAccumulator<Model>&, const DeviceSummary<Target>& summary,
                           std::int64_t) {
    if (!device_state_) {
      device_state_ = detail::BufferHandle(summary.resources().take(sizeof(detail::GuardState)));
      detail::run_once("sw::guard_start", summary.execution(),
                       kernels::StoreValue<detail::GuardState>{device_state(), state_});
    }
    using Judge = detail::ApplyToStep<detail::JudgeStep, detail::GuardState>;
    detail::run_once("sw::guard", summary.execution(), Judge{rule_, summary.record(), device_state()});
    return true;
  }

  /// @brief Ends the run because of a step that is not finite, and says where, or of one without tokens: the
  /// gradients must be those of that step. Collective over the ranks; reads the gradients and waits.
  /// @param summary with the verdict
  /// @throws NonFiniteStep on every rank, or DataError for a step without tokens.
  template <ParameterSet Model>
  [[noreturn]] void end_run(const GradAccumulator<Model>& accumulator, const GradientSummary& summary,
                            std::int64_t step) {
    without_tokens_ = summary.tokens == 0;
    if (!without_tokens_)
      places_ = find_non_finite(accumulator, ranks_);
    reject(summary, step);
  }

  /// @brief Says why a step was not admitted: no token counted, or what was not finite: the loss, and then
  /// the parameters that the backward pass reaches first, since an error there spreads to earlier ones. The
  /// same on every rank.
  [[nodiscard]] std::string sentence() const;
  /// @brief Skipped steps in a row up to now, on the host.
  [[nodiscard]] std::int64_t in_a_row() const noexcept { return state_.skipped_in_a_row; }
  /// @brief Restores the number of skipped steps in a row; before the first step.
  void set_in_a_row(std::int64_t steps) noexcept { state_.skipped_in_a_row = steps; }
  /// @brief Steps that were not admitted, on the host.
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_; }
  /// @brief The non-finite places in the last of these steps.
  [[nodiscard]] const std::vector<NonFinitePlace>& places() const noexcept { return places_; }

private:
  [[noreturn]] void reject(const GradientSummary& summary, std::int64_t step) const;
  [[nodiscard]] detail::GuardState* device_state() const {
    return static_cast<detail::GuardState*>(device_state_.data());
  }

  detail::JudgeStep rule_;
  detail::GuardState state_; // on a host
  HostCommunicator ranks_;
  std::int64_t skipped_ = 0;
  std::vector<NonFinitePlace> places_;
  bool without_tokens_ = false;       // the last of them
  detail::BufferHandle device_state_; // of the device whose steps it admits
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::vector<NonFinitePlace> detail::places_of_all(const std::vector<std::string>& own,
                                                                     const HostCommunicator& ranks) {
  std::vector<NonFinitePlace> out;
  const auto all = gather_texts(ranks, own);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (std::size_t i = 0; i < all[rank].size(); i += 2) {
      const std::string& name = all[rank][i];
      auto place =
          std::find_if(out.begin(), out.end(), [&](const auto& known) { return known.name == name; });
      if (place == out.end())
        place = out.insert(out.end(), NonFinitePlace{name, {}, 0});
      place->ranks.push_back(static_cast<int>(rank));
      place->elements += std::stoll(all[rank][i + 1]);
    }
  std::stable_partition(out.begin(), out.end(),
                        [](const NonFinitePlace& place) { return place.name.empty(); });
  return out;
}

SHARDWRIGHT_INLINE void StepGuard::reject(const GradientSummary& summary, std::int64_t step) const {
  const bool skips = !rule_.stops(summary);
  const std::string before = "step " + std::to_string(step) + ": ";
  const std::string row =
      skips ? ", the last of " + std::to_string(summary.skipped_in_a_row) + " skipped steps in a row"
            : std::string();
  const ErrorContext context{
      .rank = ranks_.world_rank(), .group = ranks_.name(), .operation = "non-finite check"};
  if (without_tokens_)
    throw DataError(before + sentence() + row + " (look at the targets of the batch)", context);
  throw NonFiniteStep(before + sentence() + row +
                          " (lower the learning rate, lengthen its warm-up, or look at the batch)",
                      places_, context);
}

SHARDWRIGHT_INLINE std::string StepGuard::sentence() const {
  if (without_tokens_)
    return "the global batch must have a token that counts, but all of its targets are masked";
  constexpr std::size_t shown = 3;
  std::string out = std::string("loss and gradients must be finite, but not finite ") +
                    (places_.size() == 1 ? "is " : "are ");
  const std::size_t losses = !places_.empty() && places_[0].name.empty() ? 1 : 0;
  for (std::size_t i = 0; i < std::min(shown, places_.size()); ++i)
    out += (i == 0 ? "" : "; ") + places_[i < losses ? i : places_.size() - 1 - (i - losses)].text();
  if (places_.size() > shown)
    out += "; and " + std::to_string(places_.size() - shown) + " more";
  return places_.empty() ? out + "only their sums over all ranks" : out;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
