// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The dry run of a training of train_gpt over any layouts and element type.

#include "dry_run.hpp"
#include "run_parts.hpp"

#include <shardwright/train/dry_run.hpp>

namespace train_gpt {

/// @brief Two steps. Only the second counts, as the first has no optimizer state yet.
template <class Layouts, class Element, class Target>
void count_steps(const sw::HostCommunicator& world, const Options& options) {
  RunParts<Layouts, Element, sw::Counting<Target>> run(world, options);
  using Batch = typename decltype(run)::Batch;
  std::vector<Batch> batches;
  const auto read = [&](std::int64_t step) {
    batches.clear();
    for (std::size_t pass = 0; pass < run.plan.accumulation(); ++pass) {
      auto ids = run.make_ids(run.plan.microbatch());
      auto targets = run.make_ids(run.plan.microbatch());
      batches.push_back({ids.share(), targets.share(), run.origin(step, pass)});
    }
    return std::span<const Batch>(batches);
  };
  for (int step = 0; step < 2; ++step) {
    sw::count_anew();
    static_cast<void>(run.training.step(read, options.learning_rate));
  }
}

/// @brief The dry run of a training, with parameters of `Element`, sharded by `Zero`, and attention over
/// cp by `Context`.
template <class Element, class Zero, class Context = sw::AllToAllContext, class Target = sw::DefaultTarget>
[[nodiscard]] sw::DryRun dry_run_as(const Options& options, int rank) {
  return sw::dry_run(options.ranks, rank, [&](const sw::HostCommunicator& world) {
    if constexpr (has_plain_layouts<Element, Context, Target>)
      if (!options.sequence_parallel)
        return count_steps<sw::DecoderLayouts<false, Zero, Context>, Element, Target>(world, options);
    count_steps<sw::DecoderLayouts<true, Zero, Context>, Element, Target>(world, options);
  });
}

/// @brief The same with experts in the layers.
template <class Element> [[nodiscard]] sw::DryRun dry_run_experts(const Options& options, int rank) {
  return sw::dry_run(options.ranks, rank, [&](const sw::HostCommunicator& world) {
    count_steps<sw::MoeLayouts<>, Element, sw::DefaultTarget>(world, options);
  });
}

} // namespace train_gpt
