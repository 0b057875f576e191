// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The dry run of a training of train_gpt over any layouts, element type and target.

#include "text_task.hpp"
#include "training.hpp"

#include <trainer/dry_run.hpp>

namespace train_gpt {

/// @brief The dry run of train_as with the same arguments.
template <class Element, class Zero, class Context = sw::AllToAllContext, class Target = sw::DefaultTarget>
[[nodiscard]] sw::DryRun dry_run_as(const Options& options, int rank) {
  using Counted = sw::Counting<Target>;
  if constexpr (has_plain_layouts<Element, Context, Target>)
    if (!options.sequence_parallel)
      return trainer::dry_run_of<TextTask<sw::DecoderLayouts<false, Zero, Context>, Element, Counted>>(
          options, rank);
  return trainer::dry_run_of<TextTask<sw::DecoderLayouts<true, Zero, Context>, Element, Counted>>(options,
                                                                                                  rank);
}

/// @brief The same of adapters beside frozen weights.
template <class Element, class Zero, class Form = void, class Target = sw::DefaultTarget>
[[nodiscard]] sw::DryRun dry_run_lora(const Options& options, int rank) {
  using Counted = sw::Counting<Target>;
  return trainer::dry_run_of<
      TextTask<sw::FrozenLayouts<sw::DecoderLayouts<true, Zero>, Form>, Element, Counted, true>>(options,
                                                                                                 rank);
}

/// @brief The same with experts in the layers.
template <class Element, class Zero, class Target = sw::DefaultTarget>
[[nodiscard]] sw::DryRun dry_run_experts(const Options& options, int rank) {
  return trainer::dry_run_of<TextTask<sw::MoeLayouts<Zero>, Element, sw::Counting<Target>>>(options, rank);
}

/// @brief Of adapters, with experts in the layers.
template <class Element, class Zero, class Target = sw::DefaultTarget>
[[nodiscard]] sw::DryRun dry_run_experts_lora(const Options& options, int rank) {
  using Counted = sw::Counting<Target>;
  return trainer::dry_run_of<TextTask<sw::FrozenLayouts<sw::MoeLayouts<Zero>>, Element, Counted, true>>(
      options, rank);
}

} // namespace train_gpt
