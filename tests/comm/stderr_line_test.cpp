// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/standard_error.hpp"

#include <shardwright/comm/stderr_line.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace sw = shardwright;

TEST_CASE("a report begins a new line if progress may be shown", "[comm]") {
  CHECK(sw::detail::report_line("rank 1 failed", false) == "shardwright: rank 1 failed\n");
  CHECK(sw::detail::report_line("rank 1 failed", true) == "\nshardwright: rank 1 failed\n");
  std::string written;
  {
    const shardwright_test::StandardError errors;
    sw::detail::write_stderr_line("rank 1 failed");
    written = errors.text();
  }
  CHECK(written.ends_with("shardwright: rank 1 failed\n"));
}

TEST_CASE("a terminal behind either of the two streams counts as reached by reports", "[comm]") {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY), plain = ::open("/dev/null", O_WRONLY);
  REQUIRE((terminal >= 0 && plain >= 0));
  const auto seen = [](int output, int errors) {
    std::fflush(stdout);
    const int output_before = ::dup(STDOUT_FILENO), errors_before = ::dup(STDERR_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    const bool out = sw::detail::on_terminal();
    ::dup2(output_before, STDOUT_FILENO);
    ::dup2(errors_before, STDERR_FILENO);
    ::close(output_before);
    ::close(errors_before);
    return out;
  };
  CHECK(seen(terminal, plain));
  CHECK(seen(plain, terminal));
  CHECK_FALSE(seen(plain, plain));
  ::close(terminal);
  ::close(plain);
}
