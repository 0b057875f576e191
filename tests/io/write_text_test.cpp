// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/large_file.hpp>
#include <shardwright/io/write_text.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

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

/// While it lives, no file of this process grows beyond `bytes`, as on a disk that is full.
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

TEST_CASE("write_text: the text replaces a file's contents, and its permissions stay") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "text";
  write_text(path, "a longer text\n");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  write_text(path, "short\n");
  CHECK(bytes_of(path) == "short\n");
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(files_in(scratch.root()) == 1);
}

TEST_CASE("write_text: after a failure the file is unchanged, and nothing is left beside it") {
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

TEST_CASE("write_text: a link keeps pointing to its file, and a device is written in place") {
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

TEST_CASE("a large file contains the pieces written to it, whatever their sizes and places in memory") {
  using shardwright::detail::LargeFile;
  const Scratch scratch;
  constexpr std::size_t chunk = LargeFile::chunk, page = LargeFile::page, least = LargeFile::least_in_place;
  std::string memory(2 * chunk + 5 + 2 * page, ' ');
  for (std::size_t i = 0; i < memory.size(); i += 7)
    memory[i] = static_cast<char>(i * 2654435761U >> 13U);
  const std::size_t to_page = page - reinterpret_cast<std::uintptr_t>(memory.data()) % page;
  for (const std::size_t from : {to_page, to_page + 8})
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, page, chunk, chunk + page, 2 * chunk + 5})
      for (const std::size_t piece : {chunk / 3, least, least + page, 3 * chunk}) {
        CAPTURE(from, size, piece);
        const std::string_view text = std::string_view(memory).substr(from, size);
        const fs::path path = scratch.root() / "large";
        LargeFile file(path);
        for (std::size_t at = 0; at < size; at += piece) {
          const std::string_view part = text.substr(at, piece);
          CHECK(file.takes_in_place(part) == (from == to_page && at % page == 0 && part.size() >= least));
          file.write(part);
        }
        CHECK_FALSE(fs::exists(path));
        file.commit();
        CHECK_FALSE(file.bypasses());
        CHECK(bytes_of(path) == text);
        fs::remove(path);
      }
}

TEST_CASE("a large file that does not fit leaves nothing behind") {
  const Scratch scratch;
  constexpr std::size_t chunk = shardwright::detail::LargeFile::chunk;
  const std::string memory(2 * chunk + 100 + 8192, 'x');
  const std::size_t to_page = 4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
  // Also in the middle of a disk block, and in the tail that goes through the page cache.
  for (const std::size_t room : {chunk + 4096, chunk + 1000, 2 * chunk + 10})
    for (const std::size_t from : {to_page, to_page + 8}) {
      const FullDisk full(room);
      std::string sentence;
      try {
        shardwright::detail::LargeFile file(scratch.root() / "large");
        file.write(std::string_view(memory).substr(from, 2 * chunk + 100));
        file.commit();
      } catch (const DataError& error) {
        sentence = error.what();
      }
      CAPTURE(room, from);
      CHECK_THAT(sentence, ContainsSubstring("large must be writable, but File too large"));
      CHECK(files_in(scratch.root()) == 0);
    }
}
