// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/core/quoted_text.hpp>

#include <string>
#include <string_view>

using shardwright::detail::quoted_text;

TEST_CASE("quoted_text: long texts end in dots, and nothing reaches a terminal as a command") {
  CHECK(quoted_text("0X0") == "'0X0'");
  CHECK(quoted_text("") == "''");
  CHECK(quoted_text(std::string(60, 'a')) == "'" + std::string(60, 'a') + "'");
  CHECK(quoted_text(std::string(61, 'a')) == "'" + std::string(60, 'a') + "...'");
  CHECK(quoted_text(std::string_view("\x1b[2J\0\n\x7f", 7)) == "'?[2J???"
                                                               "'");
  CHECK(quoted_text("\xc3\xa4") == "'\xc3\xa4'");
}
