// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/checked_output.hpp>

#include <cstdio>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

using namespace shardwright;
using namespace shardwright_test;

namespace {

/// The exit code and the error sentence of a program with `path` as its standard output.
std::pair<int, std::string> end_with(const char* path, int code, const std::function<void()>& print) {
  std::fflush(stdout);
  std::cout.flush();
  const int before = ::dup(STDOUT_FILENO);
  const int file = ::open(path, O_WRONLY);
  REQUIRE((before >= 0 && file >= 0));
  ::dup2(file, STDOUT_FILENO);
  const std::ostringstream said;
  std::streambuf* const standard_error = std::cerr.rdbuf(said.rdbuf());
  print();
  const int ends_with = checked_output("program", code);
  std::cerr.rdbuf(standard_error);
  ::dup2(before, STDOUT_FILENO);
  std::clearerr(stdout);
  std::cout.clear();
  ::close(before);
  ::close(file);
  return {ends_with, said.str()};
}

} // namespace

TEST_CASE("a program whose output is written exits with its own code", "[checked_output]") {
  const auto print = [] { std::printf("text\n"); };
  for (const int code : {0, 3})
    CHECK(end_with("/dev/null", code, print) == std::pair(code, std::string()));
}

TEST_CASE("a program whose output is lost reports it and fails", "[checked_output]") {
  if (::access("/dev/full", W_OK) != 0)
    return;
  const std::function<void()> with_printf = [] { std::printf("text\n"); };
  const std::function<void()> with_stream = [] { std::cout << "text\n"; };
  const std::function<void()> earlier = [] {
    std::printf("text\n");
    static_cast<void>(std::fflush(stdout));
  };
  for (const std::function<void()>& print : {with_printf, with_stream, earlier}) {
    const auto [code, sentence] = end_with("/dev/full", 0, print);
    CHECK(code == 1);
    CHECK_THAT(sentence,
               ContainsSubstring("program: standard output must accept all output, but a part was lost"));
  }
  CHECK_THAT(end_with("/dev/full", 0, with_printf).second, ContainsSubstring("No space left on device"));
  CHECK(end_with("/dev/full", 3, with_printf).first == 3);
  CHECK(end_with("/dev/full", 0, [] {}) == std::pair(0, std::string()));
}
