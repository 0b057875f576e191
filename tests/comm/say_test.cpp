// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/standard_error.hpp"

#include <shardwright/comm/say.hpp>

namespace sw = shardwright;

TEST_CASE("a report begins a new line where progress may be shown", "[comm]") {
  CHECK(sw::detail::report_line("rank 1 failed", false) == "shardwright: rank 1 failed\n");
  CHECK(sw::detail::report_line("rank 1 failed", true) == "\nshardwright: rank 1 failed\n");
  std::string written;
  {
    const shardwright_test::StandardError errors;
    sw::detail::say("rank 1 failed");
    written = errors.text();
  }
  CHECK(written.ends_with("shardwright: rank 1 failed\n"));
}
