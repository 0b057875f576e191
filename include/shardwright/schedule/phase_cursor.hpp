// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order of one rank as a table of phases, each a short pattern that repeats, and a cursor over
/// it.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>

#include <cstdint>
#include <initializer_list>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A pass of the next microbatch of one chunk.
struct PhaseItem {
  Pass pass = Pass::forward;
  std::int8_t chunk = 0;      ///< -1 in a W: the chunk whose input gradient has waited longest for it.
  bool overlaps_next = false; ///< Runs together with the item after it.
};

/// Names for writing patterns: `{F(0), I(1), W(1)}`, and `{with(F(0)), B(1)}` for an overlapped pair.
namespace phase_words {

/// A pass through a chunk: forward, backward, input gradient, weight gradient; `with(item)` runs together
/// with the next one.
[[nodiscard]] constexpr PhaseItem F(int chunk = 0) {
  return {Pass::forward, static_cast<std::int8_t>(chunk)};
}
[[nodiscard]] constexpr PhaseItem B(int chunk = 0) {
  return {Pass::backward, static_cast<std::int8_t>(chunk)};
}
[[nodiscard]] constexpr PhaseItem I(int chunk = 0) {
  return {Pass::input_gradient, static_cast<std::int8_t>(chunk)};
}
[[nodiscard]] constexpr PhaseItem W(int chunk = 0) {
  return {Pass::weight_gradient, static_cast<std::int8_t>(chunk)};
}
[[nodiscard]] constexpr PhaseItem with(PhaseItem item) { return {item.pass, item.chunk, true}; }
inline constexpr int oldest = -1; ///< `W(oldest)`

} // namespace phase_words

/// A pattern of up to six items and its number of repetitions; below one means never.
struct Phase {
  int repeats = 0;
  int length = 0;
  PhaseItem items[6] = {};

  constexpr Phase() = default;
  constexpr Phase(int times, std::initializer_list<PhaseItem> pattern) : repeats(times) {
    for (const PhaseItem& item : pattern)
      items[length++] = item;
  }
};

/// The chunks of a rank as its phases number them.
struct RankChunks {
  int microbatches = 0;         ///< Per chunk; items beyond them are skipped.
  int stage[2] = {};            ///< Stage of each chunk.
  int first_microbatch[2] = {}; ///< Microbatch that each chunk begins with.
  int deferred_alternating =
      0;                  ///< This many deferred I's alternate between the chunks; later ones are chunk 0's.
  int deferred_first = 0; ///< Chunk of the first deferred I.
};

/// Iterates over the phases of one rank and numbers the microbatches of every pass and chunk in turn.
///
/// Needs a few hundred bytes however many steps there are, so that a proof needs no stored schedule.
class PhaseCursor {
public:
  constexpr PhaseCursor() = default;
  constexpr PhaseCursor(const RankChunks& chunks, std::initializer_list<Phase> phases) : chunks_(chunks) {
    for (const Phase& phase : phases)
      if (phase.repeats > 0)
        phases_[count_++] = phase;
  }

  /// The next step of the rank; false at its end.
  constexpr bool next(Step& step) {
    for (int left_out = 0; phase_ < count_;) {
      const int phase = phase_;
      const PhaseItem item = take();
      step.overlapped = item.overlaps_next;
      if (number(item, step.first) && (!item.overlaps_next || number(take(), step.second)))
        return true;
      // A round with nothing left stays empty, as most rounds are with few microbatches on many ranks.
      left_out = phase == phase_ && item.chunk >= 0 ? left_out + 1 : 0;
      if (left_out == phases_[phase].length) {
        ++phase_;
        repeat_ = item_ = left_out = 0;
      }
    }
    return false;
  }

private:
  constexpr PhaseItem take() {
    const Phase& phase = phases_[phase_];
    const PhaseItem item = phase.items[item_];
    if (++item_ == phase.length)
      phase_ += repeat_ + 1 == phase.repeats ? 1 : 0,
          repeat_ = repeat_ + 1 == phase.repeats ? 0 : repeat_ + 1, item_ = 0;
    return item;
  }

  /// Gives an item the next microbatch of its pass and chunk; false if there are no more.
  constexpr bool number(PhaseItem item, Action& action) {
    const int chunk = item.chunk >= 0                            ? item.chunk
                      : deferred_ < chunks_.deferred_alternating ? (chunks_.deferred_first + deferred_++) % 2
                                                                 : 0;
    int* done = done_[chunk];
    const int index = item.pass == Pass::forward           ? done[0]++
                      : item.pass == Pass::weight_gradient ? done[2]++
                      : item.pass == Pass::backward        ? (++done[2], done[1]++)
                                                           : done[1]++;
    action = {item.pass, chunks_.stage[chunk], chunks_.first_microbatch[chunk] + index};
    return index < chunks_.microbatches;
  }

  RankChunks chunks_{};
  Phase phases_[11] = {};
  int count_ = 0;
  int phase_ = 0;
  int repeat_ = 0;
  int item_ = 0;
  int deferred_ = 0;
  int done_[2][3] = {}; // forwards, input gradients and weight gradients of each chunk
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
