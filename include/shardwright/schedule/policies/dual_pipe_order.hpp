// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The eight steps that DualPipe and DualPipeV share.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/phase_cursor.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The order of a rank that is `depth` ranks away from the ends that microbatches enter.
///
/// Chunk 0 is the one entered at the near end. `half` is how many ranks a microbatch passes from an end to
/// the innermost rank, depth 0 .. half-1. W's are taken in the order of their I's.
/// Source: DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1, and its published program.
/// @pre chunks.microbatches >= 2 * half
[[nodiscard]] constexpr PhaseCursor dual_pipe_order(RankChunks chunks, int half, int depth) {
  using namespace phase_words;
  const int m = chunks.microbatches;
  const int h = depth;
  const int out = half - h - 1; // ranks further in
  const int in = h + 1;
  const bool innermost = out == 0;
  const int main = m - 2 * half + h + 1; // rounds of two overlapped pairs
  const bool odd = h % 2 == 1;
  chunks.deferred_alternating = in; // I's of step 6, whose W's are still to come
  chunks.deferred_first = odd ? 1 : 0;
  const Phase first_round =
      innermost ? Phase{1, {F(0), B(1), with(F(1)), B(0)}} : Phase{1, {with(F(0)), B(1), with(F(1)), B(0)}};
  const Phase turn = odd ? Phase{0, {}} : Phase{1, {B(1), I(0)}};
  return {chunks,
          {{2 * out, {F(0)}},
           {in, {F(0), F(1)}},
           {out, {I(1), W(1), F(1)}},
           first_round,
           {main - 1, {with(F(0)), B(1), with(F(1)), B(0)}},
           {out, {B(1), with(F(1)), B(0)}},
           {in / 2, {B(1), B(0)}},
           turn,
           {in / 2, {I(1), I(0)}},
           {out, {W(oldest), I(0)}},
           {in, {W(oldest)}}}};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
