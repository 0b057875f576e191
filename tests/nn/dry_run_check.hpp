// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the calls that a dry run predicts of a training, against the pool's peak and the
/// calls of the training itself: to the byte, and one by one.

#include "nn/small_training.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/call_log.hpp>
#include <shardwright/train/dry_run.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nn_test {

using Counting = sw::Counting<sw::DefaultTarget>;

/// @brief A training on the ranks of a world, up to its last step.
using Training = std::function<void(const sw::HostCommunicator& world, const AtStep& at_step)>;

/// @brief Runs `train` and expects what was predicted of this rank. Collective.
inline void expect_predicted(const sw::DryRun& predicted, const sw::HostCommunicator& world,
                             const Training& train, const std::string& what,
                             shardwright_test::Findings& findings) {
  const auto log = std::make_shared<sw::CallLog>();
  sw::PoolStatistics pool;
  std::vector<sw::RecordedCall> calls;
  train(sw::logged(world, log), [&](int, const sw::PoolStatistics& now) {
    pool = now;
    calls = log->calls();
  });
  const std::string where = what + " rank " + std::to_string(world.rank());
  findings.expect(pool.peak_bytes > 0 &&
                      predicted.memory.total() == static_cast<std::int64_t>(pool.peak_bytes),
                  where, ": ", pool.peak_bytes, " bytes measured, ", predicted.memory.total(), " predicted");
  findings.expect(predicted.memory.requested() == static_cast<std::int64_t>(pool.requested_at_peak), where,
                  ": ", pool.requested_at_peak, " bytes asked for at the peak, ",
                  predicted.memory.requested(), " predicted");
  const auto [made, wanted] =
      std::mismatch(calls.begin(), calls.end(), predicted.calls.begin(), predicted.calls.end());
  const auto text = [](auto at, auto end) {
    return at == end ? std::string("none") : at->group + " " + sw::detail::text_of(*at);
  };
  findings.expect(calls == predicted.calls, where, ": ", calls.size(), " calls made, ",
                  predicted.calls.size(), " predicted; the first that differ are ", text(made, calls.end()),
                  " and ", text(wanted, predicted.calls.end()));
}

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
