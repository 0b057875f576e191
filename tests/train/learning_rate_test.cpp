// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/train/optimizer/learning_rate.hpp>

#include <cmath>

TEST_CASE("the rate rises linearly, falls along half a cosine, and stays at the minimum") {
  const shardwright::WarmupCosine rate{.peak = 1.0, .minimum = 0.2, .warmup_steps = 4, .total_steps = 24};
  CHECK(rate(0) == 0.25);
  CHECK(rate(1) == 0.5);
  CHECK(rate(3) == 1.0);
  CHECK(rate(4) == 1.0); // the top of the cosine
  CHECK(std::abs(rate(14) - 0.6) < 1e-15);
  CHECK(std::abs(rate(9) - (0.2 + 0.4 * (1 + std::sqrt(0.5)))) < 1e-15);
  CHECK(std::abs(rate(24) - 0.2) < 1e-15);
  CHECK(std::abs(rate(1000) - 0.2) < 1e-15);
  for (int step = 5; step <= 24; ++step)
    CHECK(rate(step) < rate(step - 1));
}

TEST_CASE("a schedule without warm-up starts at its peak, and one that is all warm-up ends there") {
  const shardwright::WarmupCosine plain{.peak = 2.0, .minimum = 0.0, .warmup_steps = 0, .total_steps = 10};
  CHECK(plain(0) == 2.0);
  CHECK(std::abs(plain(5) - 1.0) < 1e-15);
  const shardwright::WarmupCosine short_run{.peak = 2.0, .minimum = 1.0, .warmup_steps = 4, .total_steps = 4};
  CHECK(short_run(3) == 2.0);
  CHECK(short_run(5) == 1.0);
  CHECK(shardwright::WarmupCosine{}(1) == shardwright::WarmupCosine{}.minimum); // a run of one step
}
