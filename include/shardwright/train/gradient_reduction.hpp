// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The transition from a gradient's accumulator to its parameter's layout, started and ended apart.

#include <shardwright/tensor/redistribute.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// An accumulator on its way to its parameter's layout; kept from step to step, so that a steady state
/// allocates nothing.
template <class Accumulator, class Gradient>
class GradientReduction {
  using Run = TransitionRun<typename Gradient::value_type, typename Gradient::target>;
  using Steps = Transition<typename Accumulator::layout, typename Gradient::layout>;

public:
  [[nodiscard]] bool started() const noexcept { return result_.has_value(); }

  /// Starts the first collective; an all_reduce works in place.
  void start(Accumulator accumulator) {
    const BoundTransition bound = bind_transition<Steps>(accumulator.core());
    if (bound.trivial()) {
      result_.emplace(TensorAccess::take<Gradient>(std::move(accumulator)));
      return;
    }
    const auto* const from = accumulator.data();
    if (bound.is_all_reduce()) {
      result_.emplace(TensorAccess::take<Gradient>(std::move(accumulator)));
    } else {
      result_.emplace(accumulator.resources(), accumulator.shape());
      source_.emplace(std::move(accumulator));
    }
    if (!run_)
      run_ = std::make_unique<std::optional<Run>>();
    run_->emplace(result_->resources(), bound, result_->shape(), from, result_->mutable_data(),
                  SourceLocation::current());
    (*run_)->start();
  }

  /// Waits for the collective and runs what is left.
  [[nodiscard]] Gradient finish() {
    if (run_ && *run_)
      (*run_)->complete();
    if (run_)
      run_->reset();
    source_.reset();
    return *std::exchange(result_, std::nullopt);
  }

private:
  std::optional<Accumulator> source_;
  std::optional<Gradient> result_;
  std::unique_ptr<std::optional<Run>> run_; // last, so that it ends before the memory that it works on
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
