// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/core/foreign_text.hpp>

#include <string>
#include <string_view>

using shardwright::detail::printable;
using shardwright::detail::quoted_text;

TEST_CASE("quoted_text: long texts end in dots, and nothing reaches a terminal as a command") {
  CHECK(quoted_text("0X0") == "'0X0'");
  CHECK(quoted_text("") == "''");
  CHECK(quoted_text(std::string(60, 'a')) == "'" + std::string(60, 'a') + "'");
  CHECK(quoted_text(std::string(61, 'a')) == "'" + std::string(60, 'a') + "...'");
  CHECK(quoted_text(std::string_view("\x1b[2J\0\n\x7f", 7)) == "'\\x1b[2J\\x00\\x0a\\x7f'");
  CHECK(quoted_text("\xc3\xa4") == "'\xc3\xa4'");
}

TEST_CASE("text of other processes cannot steer a terminal") {
  CHECK(printable("disk \x1b[2J\r\a\x7f full") == "disk \\x1b[2J\\x0d\\x07\\x7f full");
  CHECK(printable("a table\n\tof two lines") == "a table\n\tof two lines");
  // The second set of control characters, as UTF-8 encodes it, and a letter that ends with the same byte.
  CHECK(printable("\xc2\x9b"
                  "2J") == "\xc2\\x9b"
                           "2J");
  CHECK(printable("\xc3\x9f \xe2\x82\xac") == "\xc3\x9f \xe2\x82\xac");
}
