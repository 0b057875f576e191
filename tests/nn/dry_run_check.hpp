// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the calls that a dry run predicts for a small training, compared with those of the
/// training itself.

#include "nn/small_training.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"

#include <shardwright/train/dry_run.hpp>

#include <string>

namespace nn_test {

using Counting = sw::Counting<sw::DefaultTarget>;

using shardwright_test::expect_predicted;

/// @brief Trains without a pipeline, one microbatch in a step, with every kind of recomputation. Collective.
template <class Layouts, class Element>
void check_prediction(const sw::HostCommunicator& world, shardwright_test::Findings& findings,
                      Problem problem, const Way& way) {
  problem.steps = 3;
  for (const auto kind : {sw::Recompute::none, sw::Recompute::selective, sw::Recompute::full}) {
    problem.config.recompute.kind = kind;
    const sw::DryRun predicted =
        sw::dry_run(way.ranks(), world.rank(), [&](const sw::HostCommunicator& pretended) {
          static_cast<void>(train_with<Layouts, Element, Counting>(pretended, problem, way, {}));
        });
    expect_predicted(
        predicted, world,
        [&](const sw::HostCommunicator& logged, const AtStep& at_step) {
          static_cast<void>(train_with<Layouts, Element>(logged, problem, way, at_step));
        },
        way.text() + " " + std::string(sw::name_of(kind)), findings);
  }
}

} // namespace nn_test
