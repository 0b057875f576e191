// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/write_text.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>

#include <sys/resource.h>

using namespace shardwright;
using namespace shardwright_test;
namespace fs = std::filesystem;

namespace {

std::string sentence_of(const fs::path& path, const std::string& text) {
  try {
    write_text(path, text);
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

std::ptrdiff_t files_in(const fs::path& directory) {
  return std::distance(fs::directory_iterator(directory), fs::directory_iterator());
}

/// No file of this process grows beyond `bytes` as long as it lives, as on a disk that is full.
class FullDisk {
public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

} // namespace

TEST_CASE("write_text: the text replaces what a file holds, and its permissions stay") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "text";
  write_text(path, "a longer text\n");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  write_text(path, "short\n");
  CHECK(bytes_of(path) == "short\n");
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(files_in(scratch.root()) == 1);
}

TEST_CASE("write_text: after a failure the file holds what it held, and nothing lies beside it") {
  const Scratch scratch;
  const fs::path path = scratch.write("text", "before");
  {
    const FullDisk full(1000);
    CHECK_THAT(sentence_of(path, std::string(100'000, 'x')),
               ContainsSubstring("text must be writable, but File too large"));
  }
  CHECK(bytes_of(path) == "before");
  CHECK(files_in(scratch.root()) == 1);
  CHECK_THAT(sentence_of("/nowhere/at/all", "text"),
             ContainsSubstring("give a path in a directory that exists"));
  CHECK_THAT(sentence_of(scratch.root(), "text"), ContainsSubstring("must be writable"));
}

TEST_CASE("write_text: a link keeps pointing to its file, and a device is written as it is") {
  const Scratch scratch;
  const fs::path path = scratch.write("below/text", "before");
  fs::create_symlink(path, scratch.root() / "link");
  write_text(scratch.root() / "link", "after");
  CHECK(fs::is_symlink(scratch.root() / "link"));
  CHECK(bytes_of(path) == "after");
  write_text("/dev/null", "anything");
#ifdef __linux__
  CHECK_THAT(sentence_of("/dev/full", "text"), ContainsSubstring("No space left on device"));
#endif
}
