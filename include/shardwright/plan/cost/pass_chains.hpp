// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Bounds of the time of pipelines with uneven stages: chains of passes, each of which waits for the
/// one before.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/pass_costs.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Passes of a pipeline whose stages are as even as whole layers allow. The stage with the head is on another
/// rank than those with one more layer, or the other stages are even.
struct UnevenStages {
  int ranks = 2;
  int microbatches = 1;
  int longer = 0;    ///< Ranks 1 to this one have one more layer than those after it.
  PassCosts first{}; ///< Of the first stage.
  PassCosts last{};  ///< Of the one with the head.
  PassCosts more{};  ///< Of a stage of a rank with one more layer.
  PassCosts less{};  ///< Of one of the others.

  /// Passes of a rank's first stage.
  [[nodiscard]] constexpr const PassCosts& of(int rank) const noexcept {
    return rank == 0 ? first : rank <= longer ? more : less;
  }
  /// An input gradient on each rank after one, up to another.
  [[nodiscard]] constexpr double gradients(int after, int to) const noexcept {
    const int longer_ones = std::min(to, longer) - std::min(after, longer);
    return longer_ones * more.input_gradient + (to - after - longer_ones) * less.input_gradient;
  }
};

/// Chains of passes in ZB-V. No step is shorter than the longest of them, and few are much longer.
///
/// Rank 0 has the first stage and the one with the head: a short one and a long one. Their sum does not tell
/// the time, because ranks run passes of one stage only while the pipeline fills and drains: rank 0 waits for
/// the forward passes of the longer stages in the middle, and then they wait for its last stage.
///
/// F0, I0, W0 are the passes of a rank's first stage, F1, I1, W1 those of its second. All chains begin with
/// the forward passes before the first F1 of rank 0, and then follow its gradient. The order is that of
/// `ZBV::cursor`; it runs fewer microbatches than 2p - 1 as 2p - 1 of which the last are missing.
struct ZbVChains : UnevenStages {
  /// The longest of the chains, in seconds.
  [[nodiscard]] constexpr double seconds() const noexcept {
    const int end = ranks - 1, few = std::max(0, ranks - microbatches), turn = std::max(longer, few);
    const int later = std::clamp(turn - missing(), 1, longer); // where most weight gradients are left
    const double from_first =
        first_rank() + std::max({ending(0, end, 0), ending(0, turn, later), ending(0, few, 0)});
    const double from_longer = std::max(through(longer, 1), through(longer, std::max(1, ranks - longer))) +
                               std::max(ending(longer, end, 0), ending(longer, turn, later));
    return filling() + std::max({from_first, from_longer, through(end, 1) + ending(end, end, 0)});
  }

private:
  [[nodiscard]] static constexpr int positive(int number) noexcept { return std::max(0, number); }
  /// Microbatches that the order has places for.
  [[nodiscard]] constexpr int places() const noexcept { return std::max(microbatches, 2 * ranks - 1); }
  [[nodiscard]] constexpr int missing() const noexcept { return places() - microbatches; }
  /// Forward passes of the first microbatch, and of those that its ranks run before its F1: two for each rank
  /// but the first, on the longer ones as far as there are microbatches.
  [[nodiscard]] constexpr double filling() const noexcept {
    const int all = 2 * (ranks - 1), on_longer = std::min(all, (microbatches - 1) / 2 * 2 + 2 * longer);
    return first.forward + on_longer * more.forward + (all - on_longer) * less.forward;
  }
  /// Rank 0 from its first F1 to its last I1, without waiting.
  [[nodiscard]] constexpr double first_rank() const noexcept {
    return microbatches * (last.forward + last.input_gradient) + (microbatches - 1) * last.weight_gradient +
           positive(microbatches - 2 * ranks + 1) * first.forward +
           positive(microbatches - ranks) * (first.input_gradient + first.weight_gradient);
  }
  /// Rank 0's last stage with a number of microbatches, the gradient of the last of these down to another
  /// rank, and that one up to its last I1. It has run fewer F1 by then than the ranks before it.
  [[nodiscard]] constexpr double through(int rank, int begun) const noexcept {
    const int m = microbatches, of_first = std::min(m, begun), place = places();
    const PassCosts& stage = of(rank);
    const int forwards = std::max({0, m - rank - of_first, std::min(ranks - rank, m - 1) - of_first}) +
                         positive(m - 2 * ranks + 1 + rank);
    const int returned = positive(m - ranks + rank); // I0
    const int weights = std::min(m - 1, place - rank) - of_first + 1 + std::min(place - ranks, returned);
    return of_first * (last.forward + last.input_gradient) + (of_first - 1) * last.weight_gradient +
           gradients(0, rank) + forwards * stage.forward + (m - of_first + returned) * stage.input_gradient +
           weights * stage.weight_gradient;
  }
  /// The gradient of the last microbatch from a rank's I1 down to another rank and back, as I0, to a third
  /// one, which then runs what it has left.
  [[nodiscard]] constexpr double ending(int from, int turn, int end) const noexcept {
    const PassCosts& stage = of(end);
    const int left = std::min(microbatches, ranks - turn), before = positive(turn - missing());
    const double at_turn = before > 0 ? 0 : turn == 0 ? last.weight_gradient : of(turn).weight_gradient;
    const int weights = left + std::min(end, before) + positive(end - missing());
    return gradients(from, turn) + gradients(end, turn) + at_turn + left * stage.input_gradient +
           weights * stage.weight_gradient;
  }
};

/// A chain of passes in DualPipe through rank 0, which has the first stage and, for the other direction, the
/// one with the head. No step is shorter.
///
/// While the pipeline drains, rank 0 runs rounds of three passes instead of four: a microbatch of each
/// direction takes longer from there to a rank in the middle and back. The order is that of
/// `dual_pipe_order`.
struct DualPipeChain : UnevenStages {
  [[nodiscard]] constexpr double seconds() const noexcept {
    if (ranks < 4)
      return 0;
    const int half = ranks / 2, each = microbatches / 2;
    const PassCosts &second = of(1), &before_last = of(ranks - 2);
    const double filling = first.forward + (ranks - 3) * second.forward + before_last.forward;
    const double rank_0 = each * last.sum() + (each - ranks + 1) * first.forward +
                          (each - half) * (first.input_gradient + first.weight_gradient);
    // After its last pass of the last stage: what it has left, what the next rank has left, or the gradient
    // through all stages.
    const double left = std::max({half * (first.input_gradient + first.weight_gradient),
                                  before_last.input_gradient + before_last.weight_gradient +
                                      (half - 1) * (second.input_gradient + second.weight_gradient),
                                  gradients(0, ranks - 2) + first.input_gradient + first.weight_gradient});
    return filling + rank_0 + deviation() + left;
  }

private:
  /// The time by which the way to a rank in the middle and back is longer than as many rounds of rank 0. The
  /// ranks up to one of them have one stage with one more layer; those after it have none or two.
  [[nodiscard]] constexpr double deviation() const noexcept {
    const int most = ranks / 2 - 2;
    const bool none = 2 * longer < ranks;
    const int alike = std::clamp(none ? longer : ranks - 2 - longer, 0, most);
    const double round = last.sum() + first.sum() - first.forward;
    const double with_one = more.sum() + less.sum();
    const double near = alike * (with_one - round);
    const double far = (most - alike) * (2 * (none ? less : more).sum() - round);
    return std::max({0.0, near, near + far});
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
