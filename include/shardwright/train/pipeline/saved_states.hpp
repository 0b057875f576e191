// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The saved states of a rank's microbatches in flight.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// States by chunk and microbatch. There are as many as were ever in flight at the same time, and they are
/// reused.
template <class Saved> class SavedStates {
public:
  SavedStates(int chunks, int microbatches)
      : chunks_(static_cast<std::size_t>(chunks)), microbatches_(static_cast<std::size_t>(microbatches)),
        used_(chunks_.size() * microbatches_) {}

  Saved& take(int chunk, int microbatch) {
    Chunk& states = chunks_[static_cast<std::size_t>(chunk)];
    if (states.free.empty()) {
      states.free.reserve(states.all.size() + 1);
      states.free.push_back(&states.all.emplace_back());
    }
    Saved* const state = states.free.back();
    states.free.pop_back();
    peak_ = std::max(peak_, ++in_flight_);
    return *(used_[place(chunk, microbatch)] = state);
  }

  [[nodiscard]] Saved& at(int chunk, int microbatch) const { return *used_[place(chunk, microbatch)]; }

  void give_back(int chunk, int microbatch) {
    chunks_[static_cast<std::size_t>(chunk)].free.push_back(&at(chunk, microbatch));
    --in_flight_;
  }

  /// Peak number of states in use since reset_peak.
  [[nodiscard]] int peak() const noexcept { return peak_; }
  void reset_peak() noexcept { peak_ = in_flight_; }

private:
  struct Chunk {
    std::deque<Saved> all;
    std::vector<Saved*> free;
  };

  [[nodiscard]] std::size_t place(int chunk, int microbatch) const noexcept {
    return static_cast<std::size_t>(chunk) * microbatches_ + static_cast<std::size_t>(microbatch);
  }

  std::vector<Chunk> chunks_;
  std::size_t microbatches_;
  std::vector<Saved*> used_;
  int in_flight_ = 0;
  int peak_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
