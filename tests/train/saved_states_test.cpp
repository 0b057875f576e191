// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/train/pipeline/saved_states.hpp>

#include <set>

namespace sw = shardwright;

TEST_CASE("states are reused, are never held by two microbatches, and count their peak") {
  sw::detail::SavedStates<int> states(2, 6);
  std::set<const int*> known;
  for (int round = 0; round < 3; ++round) {
    states.reset_peak();
    for (int first = 0; first < 6; first += 3) {
      std::set<const int*> held;
      for (int i = first; i < first + 3; ++i)
        for (int chunk = 0; chunk < 2; ++chunk) {
          int& state = states.take(chunk, i);
          state = 10 * i + chunk;
          CHECK(held.insert(&state).second);
        }
      for (int i = first + 2; i >= first; --i)
        for (int chunk = 0; chunk < 2; ++chunk) {
          CHECK(states.at(chunk, i) == 10 * i + chunk);
          states.give_back(chunk, i);
        }
      known.insert(held.begin(), held.end());
    }
    CHECK(states.peak() == 6);
    CHECK(known.size() == 6);
  }
}
