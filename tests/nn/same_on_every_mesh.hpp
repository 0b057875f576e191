// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Whole training runs on every mesh, compared with one rank, in either precision.

#include "nn/small_training.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace nn_test {

// ThreadSanitizer makes every step tens of times slower.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool slow = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool slow = true;
#else
inline constexpr bool slow = false;
#endif
#else
inline constexpr bool slow = false;
#endif

/// @brief Meshes of 2, 3 and 4 ranks; the sizes that they divide depend on the number of ranks.
inline std::vector<Way> ways() {
  if (slow)
    return {{.dp = 3, .tp = 1, .accumulation = 3},
            {.dp = 1, .tp = 3, .sequence_parallel = true},
            {.dp = 2, .tp = 2, .sequence_parallel = true}};
  return {
      {.dp = 2, .tp = 1},
      {.dp = 1, .tp = 2},
      {.dp = 1, .tp = 2, .sequence_parallel = true},
      {.dp = 2, .tp = 1, .sequence_parallel = true, .accumulation = 3},
      {.dp = 3, .tp = 1},
      {.dp = 3, .tp = 1, .accumulation = 3}, // 4 rows over 3 ranks: the last one has none
      {.dp = 1, .tp = 3},
      {.dp = 1, .tp = 3, .sequence_parallel = true, .accumulation = 3},
      {.dp = 4, .tp = 1},
      {.dp = 2, .tp = 2},
      {.dp = 2, .tp = 2, .sequence_parallel = true},
      {.dp = 2, .tp = 2, .accumulation = 3},
      {.dp = 1, .tp = 4, .accumulation = 3},
      {.dp = 1, .tp = 4, .sequence_parallel = true},
      {.cp = 2},
      {.accumulation = 3, .cp = 3},
      {.dp = 2, .cp = 2},
      {.tp = 2, .sequence_parallel = true, .cp = 2},
  };
}

inline Problem problem_of(const Way& way, bool tied) {
  Problem problem;
  problem.config = way.ranks() == 3 ? config_of_three() : config_of_four();
  problem.config.tied_embedding = tied;
  if (slow)
    problem.steps = 3;
  return problem;
}

/// @brief A run on one mesh beside the run of one rank.
struct MeshComparison {
  std::string text;  ///< The mesh.
  bool same_ranks;   ///< Whether its ranks have bitwise the same outcome.
  bool same_tokens;  ///< Whether it counts as many tokens in every step.
  double losses = 0; ///< Largest relative differences, infinite if something is not a number.
  double norms = 0;
  double parameters = 0;
};

/// @brief The runs on every mesh beside those of one rank.
struct MeshComparisons {
  bool learns = true; ///< Whether the loss falls, so that comparing the runs is meaningful.
  std::vector<MeshComparison> meshes;
};

template <class Element> [[nodiscard]] MeshComparisons compare_meshes() {
  MeshComparisons out;
  for (const bool tied : {false, true}) {
    const Outcome of_four = train_on_threads<Element>(problem_of({}, tied), {}).front();
    const Outcome of_three = train_on_threads<Element>(problem_of({.dp = 3}, tied), {}).front();
    out.learns = out.learns && of_four.losses.back() < (slow ? 0.97 : 0.8) * of_four.losses.front();
    for (const Way& way : ways()) {
      const Outcome& one = way.ranks() == 3 ? of_three : of_four;
      const std::vector<Outcome> all = train_on_threads<Element>(problem_of(way, tied), way);
      const Outcome& run = all.front();
      out.meshes.push_back({.text = way.text() + (tied ? " tied" : " untied"),
                            .same_ranks = std::all_of(all.begin(), all.end(),
                                                      [&](const Outcome& other) { return other == run; }),
                            .same_tokens = run.tokens == one.tokens,
                            .losses = largest_difference(run.losses, one.losses),
                            .norms = largest_difference(run.norms, one.norms),
                            .parameters = largest_parameter_difference(run, one)});
    }
  }
  return out;
}

/// @brief The meshes on which two runs do not agree bitwise: none, since reductions have a fixed order,
/// whichever rank arrives first.
template <class Element> [[nodiscard]] std::string meshes_that_do_not_repeat() {
  std::string out;
  for (const Way& way : {Way{.dp = 2, .tp = 2, .sequence_parallel = true},
                         Way{.dp = 2, .tp = 2, .accumulation = 3}, Way{.dp = 3, .tp = 1}})
    if (train_on_threads<Element>(problem_of(way, true), way) !=
        train_on_threads<Element>(problem_of(way, true), way))
      out += way.text() + "; ";
  return out;
}

} // namespace nn_test
