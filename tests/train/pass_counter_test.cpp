// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/train/pass_counter.hpp>

#include <array>

namespace sw = shardwright;

namespace {

template <sw::ForwardPass Pass>
void count(Pass pass, sw::PassCounter<int>& counter) {
  const std::array amounts{1, 20};
  counter.add(pass, amounts);
}

} // namespace

TEST_CASE("a counter counts first passes, and neither replays nor evaluations") {
  sw::PassCounter<int> counter(2);
  count(sw::Replay{}, counter);
  count(sw::Evaluation{}, counter);
  CHECK(counter.values()[1] == 0);
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    count(sw::FirstPass{}, counter);
    count(sw::Replay{}, counter);
  }
  CHECK(counter.values()[0] == 3);
  CHECK(counter.values()[1] == 60);
  counter.restart();
  CHECK(counter.values()[1] == 0);
}

TEST_CASE("a counter wants one amount for each of its numbers") {
  sw::PassCounter<int> counter(3);
  CHECK_THROWS_WITH(count(sw::FirstPass{}, counter),
                    shardwright_test::ContainsSubstring("each of its 3 numbers, but got 2"));
}
