// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The time by which a pipeline takes longer because its stages are uneven.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/pass_chains.hpp>
#include <shardwright/plan/cost/pipeline_shape.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/plan/spec/model.hpp>
#include <shardwright/plan/spec/run.hpp>
#include <shardwright/schedule/pass_costs.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Seconds of one microbatch on a stage: on average, on the fullest, on the last with the head.
struct StageSeconds {
  double mean = 0;
  PassCosts of_fullest{0, 0, 0}, of_last{0, 0, 0}; ///< Without `reduction`.
  /// Time by which stages of the rank with the head are shorter than those of the fullest ranks.
  double beside_last = 0;
  double reduction = 0; ///< Of the gradients, after each microbatch's input gradients; `mean` holds it.

  [[nodiscard]] constexpr double fullest() const noexcept { return of_fullest.sum() + reduction; }
  [[nodiscard]] constexpr double last() const noexcept { return of_last.sum() + reduction; }
  /// Of the weight gradient of the heaviest.
  [[nodiscard]] constexpr double weight() const noexcept {
    return (of_last.sum() > of_fullest.sum() ? of_last : of_fullest).weight_gradient;
  }
};

/// Microbatches whose extra time on the last rank with one more layer does not lengthen the step, because the
/// others wait at that time, too: in 1F1B, before the first backward pass reaches that rank and after its
/// last forward pass. The second rank is the first to get one more layer; the first and the last rank are the
/// last.
[[nodiscard]] constexpr double idle_microbatches(const ModelSpec& model,
                                                 const PlanConfiguration& plan) noexcept {
  const int more = model.stacked_layers() % plan.pp;
  const bool waits = plan.schedule == PlanSchedule::one_f_one_b || plan.schedule == PlanSchedule::zb_h1 ||
                     takes_chunks(plan.schedule);
  return more == 0 || !waits ? 0 : plan.pp - 1 - std::min(more, plan.pp - 2);
}

/// Returns whether interleaved stages have the same number of layers if the embedding and the head each
/// count as one. Programs then take the layer from the first and the last stage, and no stage waits for
/// another of its rank; else a rank's layers are taken as spread evenly over its stages.
[[nodiscard]] constexpr bool ends_are_layers(const ModelSpec& model, const PlanConfiguration& plan) noexcept {
  const int stages = plan.pp * plan.chunks;
  return takes_chunks(plan.schedule) && model.stacked_layers() % stages == stages - 2;
}

/// Time that the rank with the head waits for the fullest stages in the interleaved zero bubble: beside
/// nearly all microbatches of the first group; beside the later ones only for what exceeds most of a stage's
/// forward pass, because their inputs come that much earlier. Derived from simulations.
[[nodiscard]] constexpr double waiting_beside_head(const PlanConfiguration& plan, double microbatches,
                                                   const StageSeconds& stages) noexcept {
  const double group = microbatches / std::max(1, static_cast<int>(microbatches) / plan.pp);
  const double earlier = 0.8 * stages.of_fullest.forward / plan.chunks;
  return 0.9 * (group - 1) * stages.beside_last +
         (microbatches - group) * std::max(0.0, stages.beside_last - earlier);
}

/// Time by which the heaviest stage works longer than the mean one. DualPipe runs one half of the
/// microbatches through the last stage of each rank and one half through its first; both have one more layer
/// only if half of all ranks do. In the interleaved schedule, the other stages of the rank with the head wait
/// for the fullest stages of their chunks.
[[nodiscard]] constexpr double heaviest_seconds(const ModelSpec& model, const RunSpec& run,
                                                const PlanConfiguration& plan,
                                                const StageSeconds& stages) noexcept {
  if (plan.pp <= 1)
    return 0;
  const double microbatches = microbatches_of(run, plan);
  double last = stages.last(), fullest = stages.fullest(), of_last = microbatches - 1, waiting = 0;
  const double of_fullest = of_last - std::min(of_last, idle_microbatches(model, plan));
  if (plan.schedule == PlanSchedule::dual_pipe) { // a rank has stages from both ends
    const int layers = model.stacked_layers() / plan.pp, more = model.stacked_layers() % plan.pp;
    const double light = more == 0 ? fullest : fullest * layers / (layers + 1);
    last = (last + light) / 2;
    fullest = 2 * more >= plan.pp - 1 ? fullest : (fullest + light) / 2;
  } else if (takes_chunks(plan.schedule)) {
    const double early = std::min(1.0, of_last / (plan.pp - 1));
    if (plan.schedule == PlanSchedule::interleaved_zb)
      waiting = early * waiting_beside_head(plan, microbatches, stages);
    else
      last += early * stages.beside_last;
    of_last += early * (1 - 1.0 / plan.chunks);
  }
  return std::max({0.0, of_last * (last - stages.mean) + waiting, of_fullest * (fullest - stages.mean)});
}

/// Seconds of a bubble in which the heaviest stage works: if its rank has stages from both ends of the model,
/// or the pipeline fills its bubble with weight gradients. Derived from simulations.
[[nodiscard]] constexpr double filled_seconds(const ModelSpec& model, const PlanConfiguration& plan,
                                              int microbatches, const PassCosts& passes,
                                              const StageSeconds& stages, double bubble) noexcept {
  const double p = plan.pp;
  const double uneven = (model.stacked_layers() % plan.pp) / p; // the share of ranks with one more layer
  const double fullest = stages.fullest(), last = stages.last();
  const bool middle = fullest >= last;
  switch (plan.schedule) {
  case PlanSchedule::zb_h2:
    return 0.53 * (1 - uneven) * std::min(1.0, microbatches / (2 * p)) * bubble;
  case PlanSchedule::dual_pipe:
    return (0.28 + 1.1 / p) * (middle ? std::min(0.55, 1 - uneven) : 1 - uneven) * bubble;
  case PlanSchedule::dual_pipe_v: {
    // Ranks with one more layer matter less, the more layers the head is longer than they are; and no rank
    // works while it waits for input gradients that take longer than forward passes.
    const double layer = fullest / (model.stacked_layers() / plan.pp + 1);
    const double longer = middle ? 0 : (last - fullest) / layer;
    const double paired = (p - 1) * (2 * passes.forward + passes.input_gradient - passes.weight_gradient) / 2;
    return (0.7 - 0.5 / p) * (1 - uneven * std::max(0.0, 1 - longer / 2)) * std::min(bubble, paired);
  }
  default:
    return 0;
  }
}

/// Time by which the last stage delays a pipeline that fills its bubble with weight gradients, if it works
/// `longer` on a microbatch than the mean stage, `weight` of that on its weight gradient: either it never
/// waits from its first input on, or its weight gradients fit beside the gradients that are on their way
/// back.
[[nodiscard]] constexpr double held_up_by_last(const PlanConfiguration& plan, int microbatches,
                                               const PassCosts& passes, double longer, double weight,
                                               double bubble) noexcept {
  const double delayed = plan.schedule == PlanSchedule::zb_h1 ? std::min(plan.pp, microbatches) - 1
                                                              : std::min(microbatches, 2 * plan.pp - 1) - 1;
  return std::max(microbatches * longer + (plan.pp - 1) * passes.forward - bubble,
                  (microbatches - 1) * longer - delayed * weight);
}

/// Seconds that the passes of ZB-V or DualPipe take at least, however even their sums are.
[[nodiscard]] constexpr double chain_seconds(const ModelSpec& model, const PlanConfiguration& plan,
                                             int microbatches, const StageSeconds& stages) noexcept {
  if (stages.of_last.forward <= 0) // a bound, for which only sums are known
    return 0;
  const bool v = plan.schedule == PlanSchedule::zb_v; // rank 0 has the head, else the last one
  const int layers = model.stacked_layers() / plan.pp, more = model.stacked_layers() % plan.pp;
  const double part = v ? 0.5 : 1; // of a rank's layers
  const auto stage_of = [&](double share) {
    const PassCosts& rank = stages.of_fullest;
    return PassCosts{rank.forward * share, rank.input_gradient * share + stages.reduction * part,
                     rank.weight_gradient * share};
  };
  const PassCosts longer = stage_of(part),
                  shorter = more == 0 ? longer : stage_of(part * layers / (layers + 1));
  PassCosts last = stages.of_last;
  last.input_gradient += stages.reduction;
  if (v) {
    last.forward -= shorter.forward;
    last.input_gradient -= shorter.input_gradient;
    last.weight_gradient -= shorter.weight_gradient;
  }
  const bool first_is_longer = !v && more == plan.pp - 1;
  const UnevenStages all{
      plan.pp, microbatches, more == 0 ? plan.pp - 1 : more, first_is_longer ? longer : shorter, last,
      longer,  shorter};
  return v ? ZbVChains{all}.seconds() : DualPipeChain{all}.seconds();
}

/// Time by which a pipeline takes longer than one of even stages if its heaviest stage works `heaviest`
/// longer.
/// @param passes of the mean stage, whose bubble it is
[[nodiscard]] constexpr double imbalance_seconds(const ModelSpec& model, const PlanConfiguration& plan,
                                                 int microbatches, const PassCosts& passes,
                                                 const StageSeconds& stages, double heaviest,
                                                 double bubble) noexcept {
  const bool few = plan.schedule == PlanSchedule::zb_h1,
             one_way = few || plan.schedule == PlanSchedule::zb_h2;
  if (plan.pp <= 1)
    return 0;
  double least = 0;
  if (plan.schedule == PlanSchedule::zb_v || plan.schedule == PlanSchedule::dual_pipe)
    least =
        std::max(0.0, chain_seconds(model, plan, microbatches, stages) - microbatches * stages.mean - bubble);
  if (plan.schedule == PlanSchedule::zb_v) // its heaviest rank waits at most for the whole bubble
    return std::max(least, heaviest - bubble);
  if (heaviest <= 0 && !few)
    return least;
  const int at = std::min(model.stacked_layers() % plan.pp, plan.pp - 2); // the last rank with one more layer
  if (one_way) { // it never waits from its first input on, or its first rank from its first gradient on
    const double longer = stages.fullest() - stages.mean, f = passes.forward, w = passes.weight_gradient;
    const double later = passes.input_gradient + w;
    least = microbatches * longer + at * f - bubble;
    if (few && microbatches < plan.pp && at > 0)
      least = std::max(least, (microbatches - 1) * (w - f) + microbatches * longer * later / (f + later) -
                                  passes.input_gradient);
    if (stages.last() > stages.fullest())
      return std::max({0.0, least,
                       held_up_by_last(plan, microbatches, passes, stages.last() - stages.mean,
                                       stages.weight() - w, bubble)});
  }
  double waiting = heaviest;
  // The heaviest stage waits for the passes of the others, and has more weight gradients to fill that time.
  const bool short_of_ranks = plan.schedule == PlanSchedule::interleaved_zb && microbatches < plan.pp;
  if (one_way || plan.schedule == PlanSchedule::dual_pipe || short_of_ranks) {
    PassCosts filled = passes;
    filled.weight_gradient = std::max(passes.weight_gradient, stages.weight());
    const int chunks = chunks_of(plan.schedule, plan.chunks);
    const double left =
        few ? bubble - std::min(at, microbatches - 1) * (filled.weight_gradient - passes.weight_gradient)
            : std::max(0.0, pipeline_shape(plan.schedule, plan.pp, microbatches, chunks, filled).bubble);
    waiting += left - bubble;
    bubble = left;
  }
  return std::max({0.0, least, waiting - filled_seconds(model, plan, microbatches, passes, stages, bubble)});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
