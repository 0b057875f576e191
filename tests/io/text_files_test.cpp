// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/io/text_files.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <sys/stat.h>

namespace {

using namespace shardwright;
using namespace shardwright_test;
namespace fs = std::filesystem;

std::string sentence_of(const std::vector<fs::path>& paths, const TextLimits& limits = {}) {
  try {
    (void)read_text_files(paths, limits);
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

} // namespace

TEST_CASE(
    "text_files: directories are walked in sorted order without hidden, built, binary and linked files") {
  const Scratch scratch;
  (void)scratch.write("zeta.txt", "zeta ");
  (void)scratch.write("alpha/two.txt", "two ");
  (void)scratch.write("alpha/one.txt", "one ");
  (void)scratch.write("alpha/empty.txt", "");
  (void)scratch.write("picture.bin", std::string("text\0more", 9));
  for (const char* hidden : {".git/config", ".hidden.txt", "build/made.txt", "build-debug/made.txt",
                             "_build/made.txt", "node_modules/made.txt"})
    (void)scratch.write(hidden, "must not be read");
  (void)scratch.write("elsewhere/CMakeCache.txt", "must not be read, either");
  (void)scratch.write("builders/kept.txt", "kept ");
  (void)scratch.write("zz_copy.txt", "one ");
  fs::create_symlink(scratch.root() / "zeta.txt", scratch.root() / "alpha/link.txt");
  fs::create_directory_symlink(scratch.root(), scratch.root() / "alpha/loop");

  const TextFiles text = read_text_files({scratch.root()});
  CHECK(text.bytes == "one two kept zeta ");
  REQUIRE(text.files.size() == 4);
  CHECK(text.files[1].path == scratch.root() / "alpha/two.txt");
  CHECK(text.files[1].begin == 4);
  CHECK(text.skipped == 3);
  CHECK_THAT(text.locate(9), EndsWith("builders/kept.txt at offset 1"));
  CHECK_THAT(text.locate(18), EndsWith("zeta.txt at offset 5"));
}

TEST_CASE("text_files: named files are read in the order given, and equal files once") {
  const Scratch scratch;
  const fs::path b = scratch.write("b.txt", "bbb");
  const fs::path a = scratch.write("a.txt", "aa");
  const TextFiles text = read_text_files({b, a, b, scratch.root()});
  CHECK(text.bytes == "bbbaa");
  CHECK(text.skipped == 3);
}

TEST_CASE("text_files: files longer than one read are read completely") {
  const Scratch scratch;
  std::string bytes;
  while (bytes.size() < 200000)
    bytes += std::to_string(bytes.size()) + "\n";
  CHECK(read_text_files({scratch.write("long.txt", bytes)}).bytes == bytes);
}

TEST_CASE("text_files: missing, empty, binary and unreadable files are named with their offset") {
  const Scratch scratch;
  CHECK_THAT(sentence_of({}), ContainsSubstring("at least one file"));
  CHECK_THAT(sentence_of({scratch.root() / "absent.txt"}),
             ContainsSubstring("absent.txt must exist") && ContainsSubstring("No such file"));
  CHECK_THAT(sentence_of({scratch.write("empty.txt", "")}),
             ContainsSubstring("empty.txt: the file is empty"));
  std::string binary(70000, 'x');
  binary[66000] = '\0';
  CHECK_THAT(sentence_of({scratch.write("binary.txt", binary)}),
             ContainsSubstring("binary.txt at offset 66000: a zero byte"));
  fs::create_directories(scratch.root() / "only_binary");
  (void)scratch.write("only_binary/data", std::string(4, '\0'));
  CHECK_THAT(sentence_of({scratch.root() / "only_binary"}),
             ContainsSubstring("must hold readable text (1 files seen"));
#ifdef __linux__
  // Reading address 0 of this process fails for every user, root included.
  CHECK_THAT(sentence_of({"/proc/self/mem"}),
             ContainsSubstring("/proc/self/mem at offset 0: cannot be read"));
#endif
}

TEST_CASE("text_files: named pipes and devices are rejected at once, those in a directory are skipped") {
  const Scratch scratch;
  const fs::path pipe = scratch.root() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(sentence_of({pipe}), ContainsSubstring("pipe: it must be a regular file, not a pipe"));
  CHECK_THAT(sentence_of({"/dev/zero"}), ContainsSubstring("/dev/zero: it must be a regular file"));
  (void)scratch.write("words.txt", "words");
  CHECK(read_text_files({scratch.root()}).bytes == "words");
}

TEST_CASE("text_files: more bytes or files than the limits allow are an error") {
  const Scratch scratch;
  (void)scratch.write("a.txt", "12345");
  (void)scratch.write("below/b.txt", "678");
  CHECK(read_text_files({scratch.root()}, {.bytes = 8, .files = 2}).bytes == "12345678");
  CHECK_THAT(sentence_of({scratch.root()}, {.bytes = 7}),
             ContainsSubstring("together must hold at most 7 bytes") && ContainsSubstring("b.txt is beyond"));
  CHECK_THAT(sentence_of({scratch.root()}, {.bytes = 4}),
             ContainsSubstring("a.txt: it must hold at most 4 bytes"));
  CHECK_THAT(sentence_of({scratch.root()}, {.files = 1}), ContainsSubstring("must hold at most 1 files"));
}
