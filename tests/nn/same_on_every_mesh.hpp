// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The assertions on whole training runs that hold in both precisions.

#include "nn/small_training.hpp"
#include "support/catch.hpp"

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

/// @brief Meshes of 2, 3 and 4 ranks; the sizes that fit them follow from the number of ranks.
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

/// @brief Asserts that a run on every mesh agrees with one rank: losses relative to within `tolerance`, norms
/// of gradients to 100 and parameters to 1000 times that, token counts exactly; and its ranks to the bit.
template <class Element>
void check_every_mesh(double tolerance) {
  for (const bool tied : {false, true}) {
    const Outcome of_four = train_on_threads<Element>(problem_of({}, tied), {}).front();
    const Outcome of_three = train_on_threads<Element>(problem_of({.dp = 3}, tied), {}).front();
    // It learns, so that the comparison says something.
    CHECK(of_four.losses.back() < (slow ? 0.97 : 0.8) * of_four.losses.front());
    for (const Way& way : ways()) {
      INFO(way.text() << (tied ? " tied" : " untied"));
      const Outcome& one = way.ranks() == 3 ? of_three : of_four;
      const std::vector<Outcome> all = train_on_threads<Element>(problem_of(way, tied), way);
      const Outcome& run = all.front();
      for (const Outcome& other : all)
        CHECK(other == run);
      CHECK(run.tokens == one.tokens);
      const double losses = largest_difference(run.losses, one.losses);
      const double norms = largest_difference(run.norms, one.norms);
      const double parameters = largest_parameter_difference(run, one);
      INFO("losses differ by " << losses << ", norms by " << norms << ", parameters by " << parameters);
      CHECK(losses <= tolerance);
      CHECK(norms <= 100 * tolerance);
      CHECK(parameters <= 1000 * tolerance);
    }
  }
}

/// @brief Asserts that two runs on one mesh agree to the bit: reductions have a fixed order, whichever rank
/// comes first.
template <class Element>
void check_repetition() {
  for (const Way& way : {Way{.dp = 2, .tp = 2, .sequence_parallel = true},
                         Way{.dp = 2, .tp = 2, .accumulation = 3}, Way{.dp = 3, .tp = 1}}) {
    INFO(way.text());
    CHECK(train_on_threads<Element>(problem_of(way, true), way) ==
          train_on_threads<Element>(problem_of(way, true), way));
  }
}

} // namespace nn_test
