// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The searches that the reasons for a plan and the points of a sweep have in common.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/search/simulated.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/search/state.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <list>
#include <mutex>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A search that has ended: the plan that it chose, and the candidates that it remembers.
struct FinishedSearch {
  Plan best{};
  detail::SearchState state{};
};

/// @brief The searches of one model: each runs once, whichever thread asks for it first.
///
/// Unlike `search`, they choose among the last candidates by simulated steps, of up to 10,000 forward passes
/// in all, and give the plan the time of its own.
class Searches {
public:
  explicit Searches(const ModelSpec& model) : model_(model) {}

  [[nodiscard]] const ModelSpec& model() const noexcept { return model_; }

  /// @brief The search of a situation; waits if it runs in another thread.
  [[nodiscard]] const FinishedSearch& of(const Situation& at, const SearchSpace& space = {}) {
    Entry& entry = entry_of(at, space);
    std::call_once(entry.once, [&] {
      const detail::PlanSearch all(model_, entry.at.cluster, entry.at.run, space);
      const detail::SearchTables tables = all.tables();
      all.advance(tables, entry.ended.state, std::numeric_limits<std::int64_t>::max());
      detail::simulate_candidates(all.input(), entry.ended.state);
      entry.ended.best = all.result(tables, entry.ended.state);
      entry.known = true;
    });
    return entry.ended;
  }

  /// @brief The same for plans without a pipeline.
  [[nodiscard]] const FinishedSearch& without_pipeline(const Situation& at, SearchSpace space = {}) {
    space.pp = 1;
    space.chunks = {}; // stages of a pipeline
    return of(at, space);
  }

  /// @brief Returns whether there is a best plan, and it has no pipeline.
  ///
  /// Takes less time than a search if it has one, unless that search has run: the plans without are searched
  /// first, and the search of all plans ends at the first plan that, simulated, is faster than these by more
  /// than the tolerance.
  [[nodiscard]] bool needs_no_pipeline(const Situation& at, const SearchSpace& space = {}) {
    constexpr std::int64_t at_once = 256; // evaluations
    const double least = 1 + space.tolerance;
    if ((space.pp && *space.pp != 1) || space.chunks.value_or(1) > 1)
      return false;
    if (const Entry& entry = entry_of(at, space); entry.known)
      return entry.ended.best.found() && entry.ended.best.configuration.pp == 1;
    const FinishedSearch& without = without_pipeline(at, space);
    if (!without.best.found())
      return false;
    const detail::PlanSearch all(model_, at.cluster, at.run, space);
    const detail::SearchTables tables = all.tables();
    detail::SearchState state; // knows the plans without a pipeline from the start
    state.best_seconds = without.state.best_seconds;
    state.fastest = without.state.fastest;
    for (double simulated = state.best_seconds; !state.done;) {
      all.advance(tables, state, at_once);
      if (state.best_seconds == simulated || without.state.best_seconds <= state.best_seconds * least)
        continue;
      simulated = state.best_seconds;
      for (const detail::SearchCandidate& one : state.fastest)
        if (one.measure == simulated &&
            without.state.best_seconds > detail::simulated_seconds(all.input(), one) * least)
          return false;
    }
    detail::simulate_candidates(all.input(), state);
    return all.result(tables, state).configuration.pp == 1;
  }

private:
  struct Entry {
    Situation at{};
    SearchSpace space{};
    FinishedSearch ended{};
    std::atomic<bool> known = false;
    std::once_flag once{};
  };

  [[nodiscard]] Entry& entry_of(const Situation& at, const SearchSpace& space) {
    const std::scoped_lock lock(mutex_);
    for (Entry& one : entries_)
      if (one.at == at && one.space == space)
        return one;
    Entry& added = entries_.emplace_back();
    added.at = at;
    added.space = space;
    return added;
  }
  ModelSpec model_;
  std::mutex mutex_; ///< Of the list.
  std::list<Entry> entries_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
