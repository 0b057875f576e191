// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/read_text.hpp>

#include <filesystem>
#include <string>

#include <sys/stat.h>

using namespace shardwright;
using namespace shardwright_test;

namespace {

std::string sentence_of(const std::filesystem::path& path, std::size_t most) {
  try {
    (void)read_text(path, most);
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

} // namespace

TEST_CASE("read_text: a file is read whole, up to the limit and no further") {
  const Scratch scratch;
  std::string bytes(200'001, 'x');
  bytes[70'000] = '\0';
  const std::filesystem::path path = scratch.write("file", bytes);
  CHECK(read_text(path, bytes.size()) == bytes);
  CHECK_THAT(sentence_of(path, bytes.size() - 1), ContainsSubstring("it must hold at most 200000 bytes"));
  CHECK(read_text(scratch.write("empty", ""), 0).empty());
  CHECK(!read_text("/proc/self/status", 1 << 16).empty()); // whose size the system reports as 0
  CHECK_THAT(sentence_of("/proc/self/status", 10), ContainsSubstring("at most 10 bytes"));
}

TEST_CASE("read_text: anything but a regular file is rejected without waiting") {
  const Scratch scratch;
  const std::filesystem::path pipe = scratch.root() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(sentence_of(pipe, 9), ContainsSubstring("it must be a regular file, not a pipe"));
  CHECK_THAT(sentence_of("/dev/zero", 9), ContainsSubstring("it must be a regular file"));
  CHECK_THAT(sentence_of(scratch.root(), 9), ContainsSubstring("it is a directory (name a file in it)"));
  CHECK_THAT(sentence_of(scratch.root() / "absent", 9),
             ContainsSubstring("absent: the file must exist (correct its name, or write it first)"));
}
