// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds microbatches of a step with a loss and no gradient, or with a gradient and no loss.

#include <shardwright/core/error.hpp>
#include <shardwright/train/step/loss.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The recordings whose sums a step has been given. It knows them only if each sum was of one recording:
/// those that a program makes up, or adds up itself, are not compared.
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
  /// @param fewest backward passes that gave a parameter a gradient
  /// @param most the same of the parameter that got the most
  /// @throws LifecycleError if the recordings are fewer or more.
  void require_between(int fewest, int most) const {
    if (!known_)
      return;
    const auto added = static_cast<int>(added_.size());
    if (added < fewest)
      throw LifecycleError("GradAccumulator: the sums of every microbatch must be added, but " +
                           std::to_string(fewest) + " backward passes gave gradients, and sums of only " +
                           std::to_string(added) +
                           " of them were added (call add() for each microbatch that has a backward pass)");
    if (added > most)
      throw LifecycleError(
          "GradAccumulator: every microbatch must have its backward pass before finish(), but sums of " +
          std::to_string(added) + " were added, and only " + std::to_string(most) +
          " backward passes gave gradients (call backward() for each microbatch that is added, and add no evaluation)");
  }
  /// The next step begins; keeps its memory.
  void restart() noexcept {
    added_.clear();
    known_ = true;
  }

private:
  std::vector<PassOfTape> added_;
  bool known_ = true;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
