// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/waiting.hpp>

#include <chrono>
#include <thread>

using shardwright::detail::Waiting;

TEST_CASE("a spin with slow polls ends after few of them", "[comm]") {
  Waiting waiting(std::chrono::milliseconds(20), Waiting::many_polls);
  CHECK_FALSE(waiting.slow());
  // As if each poll gave the core to another process for a time slice.
  for (int poll = 0; poll < 50; ++poll) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    waiting.pause();
  }
  CHECK(waiting.slow());
  CHECK(waiting.expired());
  waiting.reset();
  CHECK_FALSE(waiting.slow());
}
