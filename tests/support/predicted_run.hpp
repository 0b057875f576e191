// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory and the calls that a dry run predicts of a training, against the pool's peak and the
/// calls of the training itself: to the byte, and one by one.

#include "support/logged.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/train/dry_run.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright_test {

namespace sw = shardwright;

/// @brief Calls without the lengths of what only the ranks of a pipeline know: their parameters and names.
[[nodiscard]] inline std::vector<sw::RecordedCall> comparable(std::vector<sw::RecordedCall> calls) {
  for (sw::RecordedCall& call : calls)
    for (const char* file : {"train/pipeline/model.hpp", "train/checks/replica_check.hpp"})
      if (call.where.line != 0 && std::string(call.where.file).ends_with(file))
        call.bytes = 0;
  return calls;
}

/// @brief Whether a dry run predicts the calls of the whole program, or those of its last step.
enum class Counted { program, last_step };

/// @brief Runs `train(world, at_step)`, where at_step(step, pool) is called on every rank after a step, and
/// expects what was predicted of this rank up to the last call. Collective.
template <Counted counted = Counted::program, class Train>
void expect_predicted(const sw::DryRun& predicted, const sw::HostCommunicator& world, Train train,
                      const std::string& what, Findings& findings) {
  const auto log = std::make_shared<sw::CallLog>();
  sw::PoolStatistics pool;
  std::vector<sw::RecordedCall> calls;
  train(logged(world, log), [&](int, const sw::PoolStatistics& now) {
    pool = now;
    calls = log->calls();
    if constexpr (counted == Counted::last_step)
      log->clear();
  });
  const std::string where = what + " rank " + std::to_string(world.rank());
  findings.expect(pool.peak_bytes > 0 &&
                      predicted.memory.total() == static_cast<std::int64_t>(pool.peak_bytes),
                  where, ": ", pool.peak_bytes, " bytes measured, ", predicted.memory.total(), " predicted");
  findings.expect(predicted.memory.requested() == static_cast<std::int64_t>(pool.requested_at_peak), where,
                  ": ", pool.requested_at_peak, " bytes asked for at the peak, ",
                  predicted.memory.requested(), " predicted");
  calls = comparable(std::move(calls));
  const std::vector<sw::RecordedCall> expected = comparable(predicted.calls);
  const auto [made, wanted] = std::mismatch(calls.begin(), calls.end(), expected.begin(), expected.end());
  const auto text = [](auto at, auto end) {
    return at == end ? std::string("none") : at->group + " " + sw::detail::text_of(*at);
  };
  findings.expect(calls == expected, where, ": ", calls.size(), " calls made, ", expected.size(),
                  " predicted; the first that differ are ", text(made, calls.end()), " and ",
                  text(wanted, expected.end()));
}

} // namespace shardwright_test
