// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/standard_error.hpp"

#include <shardwright/comm/say.hpp>

namespace sw = shardwright;

TEST_CASE("text of other processes cannot steer a terminal", "[comm]") {
  CHECK(sw::detail::printable("disk \x1b[2J\r\a\x7f full") == "disk \\x1b[2J\\x0d\\x07\\x7f full");
  CHECK(sw::detail::printable("a table\n\tof two lines") == "a table\n\tof two lines");
  // The second set of control characters, as UTF-8 has it, and a letter that ends alike.
  CHECK(sw::detail::printable("\xc2\x9b"
                              "2J") == "\xc2\\x9b"
                                       "2J");
  CHECK(sw::detail::printable("\xc3\x9f \xe2\x82\xac") == "\xc3\x9f \xe2\x82\xac");
}

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
