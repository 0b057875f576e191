// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The order that GPipe, 1F1B, ZB-H1 and ZB-H2 share: some forward passes, then backward and forward
/// passes in turn.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/phase_cursor.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// `warm_up` forwards, then a backward and a forward in turn while there are any, of one chunk.
[[nodiscard]] constexpr PhaseCursor warm_up_order(int stage, int microbatches, int warm_up) {
  using namespace phase_words;
  const int m = microbatches;
  const int warm = std::min(warm_up, m);
  return {{m, {stage, 0}}, {{warm, {F()}}, {m - warm, {B(), F()}}, {warm, {B()}}}};
}

/// The same with B split into I and W: every W follows `lag` I's later, and the last `lag` W's end the order.
[[nodiscard]] constexpr PhaseCursor warm_up_order(int stage, int microbatches, int warm_up, int lag) {
  using namespace phase_words;
  const int m = microbatches;
  const int warm = std::min(warm_up, m);
  const int late = std::min(lag, m);
  const int steady = m - warm;
  return {{m, {stage, 0}},
          {{warm, {F()}},
           {std::min(steady, late), {I(), F()}},
           {steady - late, {I(), W(), F()}},
           {late - steady, {I()}},
           {m - std::max(steady, late), {I(), W()}},
           {late, {W()}}}};
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
