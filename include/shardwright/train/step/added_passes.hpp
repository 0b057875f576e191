// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds microbatches of a step with a loss and no gradient, or with a gradient and no loss.

#include <shardwright/core/error.hpp>
#include <shardwright/train/step/loss.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The recordings whose sums a step has been given, and those that gave its parameters gradients. They are
/// compared only if each sum was of one recording, not made up or added up by the program, and no gradient
/// came from another tape.
class AddedPasses {
public:
  /// @throws LifecycleError if a loss of the recording was added before.
  void add(const PassOfTape& pass) {
    known_ = known_ && pass.known();
    if (!known_)
      return;
    std::size_t at = added_.size(); // a plain loop: std::find_if over reverse iterators takes long to compile
    while (at > 0 && added_[at - 1].number != pass.number)
      --at;
    if (at == 0)
      added_.push_back(pass);
    else if ((added_[at - 1].losses & pass.losses) != 0)
      reject_use(
          "GradAccumulator: the sums of a loss must be added once, but these have been added already, and their gradient is in the step once (call add() once for each loss)");
    else
      added_[at - 1].join(pass);
  }
  /// Notes the recordings that gave a parameter its gradient, of which each of its `stages` has its own.
  void note_passes(std::span<const std::uint64_t> passes, std::size_t stages) {
    fewest_ = std::min(fewest_, passes.size() / stages);
    for (std::size_t i = 0; i < passes.size(); ++i) {
      known_ = known_ && passes[i] != 0;
      if (i < gave_.size() && gave_[i] == passes[i]) // usually: most parameters are used in each microbatch
        continue;
      std::size_t at = gave_.size();
      while (at > 0 && gave_[at - 1] != passes[i])
        --at;
      if (at == 0)
        gave_.push_back(passes[i]);
    }
  }
  /// Each recording that was added must have given a gradient to some parameter, and one that gave gradients
  /// to all must have been added.
  /// @throws LifecycleError if it is not so.
  void require_passes() const {
    if (!known_ || gave_.empty()) // a step without gradients is another error
      return;
    const std::size_t added = added_.size();
    if (added < fewest_)
      throw LifecycleError("GradAccumulator: the sums of every microbatch must be added, but " +
                           std::to_string(fewest_) + " backward passes gave gradients, and sums of only " +
                           std::to_string(added) +
                           " of them were added (call add() for each microbatch that has a backward pass)");
    if (added > gave_.size())
      throw LifecycleError(
          "GradAccumulator: every microbatch must have its backward pass before finish(), but sums of " +
          std::to_string(added) + " were added, and backward passes of only " + std::to_string(gave_.size()) +
          " gave gradients (call backward() for each microbatch that is added, and add no evaluation)");
  }
  /// The next step begins; keeps its memory.
  void restart() noexcept {
    added_.clear();
    gave_.clear();
    fewest_ = most;
    known_ = true;
  }

private:
  static constexpr std::size_t most = static_cast<std::size_t>(-1);
  std::vector<PassOfTape> added_;
  std::vector<std::uint64_t> gave_; // to any parameter
  std::size_t fewest_ = most;       // that gave a parameter gradients
  bool known_ = true;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
