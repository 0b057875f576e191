// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The searches that the reasons for a plan and the points of a sweep have in common.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/search/space.hpp>
#include <shardwright/plan/search/state.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The searches of one model: each runs once, whichever thread asks for it first.
class Searches {
public:
  explicit Searches(const ModelSpec& model) : model_(model) {}

  [[nodiscard]] const ModelSpec& model() const noexcept { return model_; }

  /// @brief The search of a situation, as `finished_search` does it; waits if it runs in another thread.
  [[nodiscard]] const FinishedSearch& of(const Situation& at, const SearchSpace& space = {}) {
    Entry& entry = entry_of(at, space);
    std::call_once(entry.once, [&] {
      entry.ended = finished_search(model_, at.cluster, at.run, space);
      const std::scoped_lock lock(mutex_);
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
  /// first, and the search of all plans ends at the first plan that is faster than these by more than the
  /// tolerance.
  [[nodiscard]] bool needs_no_pipeline(const Situation& at, const SearchSpace& space = {}) {
    constexpr std::int64_t at_once = 256; // evaluations
    if ((space.pp && *space.pp != 1) || space.chunks.value_or(1) > 1)
      return false;
    if (knows(at, space))
      return of(at, space).best.found() && of(at, space).best.configuration.pp == 1;
    const FinishedSearch& without = without_pipeline(at, space);
    if (!without.best.found())
      return false;
    const detail::PlanSearch all(model_, at.cluster, at.run, space);
    const detail::SearchTables tables = all.tables();
    detail::SearchState state; // knows the plans without a pipeline from the start
    state.best_seconds = without.state.best_seconds;
    state.fastest = without.state.fastest;
    while (!state.done) {
      all.advance(tables, state, at_once);
      if (without.state.best_seconds > state.best_seconds * (1 + space.tolerance))
        return false;
    }
    return all.result(tables, state).configuration.pp == 1;
  }

private:
  struct Entry {
    Situation at{};
    SearchSpace space{};
    FinishedSearch ended{};
    bool known = false;
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
  [[nodiscard]] bool knows(const Situation& at, const SearchSpace& space) {
    const std::scoped_lock lock(mutex_);
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& one) { return one.known && one.at == at && one.space == space; });
  }

  ModelSpec model_;
  std::mutex mutex_; ///< Of the list, and of what is known.
  std::list<Entry> entries_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
