// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/large_file.hpp>
#include <shardwright/io/safetensors/write.hpp>
#include <shardwright/io/write_text.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif

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

TEST_CASE("every writer keeps links and devices, and writes pipes and standard output in place") {
  const Scratch scratch;
  const std::vector<float> numbers{1, 2};
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> writers{
      {"text", [](const fs::path& path) { write_text(path, "after"); }},
      {"tensors",
       [&](const fs::path& path) {
         safetensors::write(path, {safetensors::source<float>("a", {2}, numbers)});
       }},
      {"large", [](const fs::path& path) {
         detail::LargeFile file(path);
         file.write("after");
         file.commit();
       }}};
  for (const auto& [name, write] : writers) {
    CAPTURE(name);
    const auto said = [&write = write](const fs::path& path) -> std::string {
      try {
        write(path);
      } catch (const DataError& error) {
        return error.what();
      }
      return {};
    };
    const fs::path root = scratch.root() / name;
    const fs::path path = scratch.write(name + "/below/text", "before");
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    fs::create_symlink("below/text", root / "link");
    fs::create_symlink(root / "link", root / "second");
    write(root / "second");
    const std::string after = bytes_of(path);
    CHECK_THAT(after, !ContainsSubstring("before"));
    CHECK(fs::is_symlink(root / "second"));
    CHECK(fs::is_symlink(root / "link"));
    CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));

    fs::create_symlink("below/new", root / "ahead"); // to a file that is not there yet
    write(root / "ahead");
    CHECK(fs::is_symlink(root / "ahead"));
    CHECK(bytes_of(root / "below/new") == after);
    CHECK(files_in(root / "below") == 2);
    fs::create_symlink("round", root / "round");
    CHECK_THAT(said(root / "round"), ContainsSubstring("round must be writable, but"));

    // Without a reader opening a pipe would wait; with one, the bytes pass in their order.
    const fs::path pipe = root / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THAT(said(pipe), ContainsSubstring("pipe must be writable, but No such device"));
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    write(pipe);
    std::string read(after.size() + 10, ' ');
    read.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(reader, read.data(), read.size()), 0)));
    ::close(reader);
    CHECK(read == after);
    CHECK(fs::is_fifo(pipe));

#ifdef __linux__
    // A device of the test's own, never the machine's: a writer that is wrong replaces what it is given.
    const fs::path full = root / "full";
    if (::mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) == 0 && ::access(full.c_str(), W_OK) == 0) {
      const std::string sentence = said(full);
      if (sentence.find("Permission denied") == sentence.npos) // a file system without devices
        CHECK_THAT(sentence, ContainsSubstring("full must be writable, but No space left on device"));
      CHECK(fs::is_character_file(full));
    }
#endif

    // The file that the program prints to keeps what was printed, before and after.
    const fs::path printed = root / "printed";
    std::fflush(stdout);
    const int real = ::dup(STDOUT_FILENO);
    const int file = ::open(printed.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDOUT_FILENO);
    std::string failure;
    const bool wrote = ::write(STDOUT_FILENO, "one ", 4) == 4;
    failure = said("/dev/stdout");
    const bool again = ::write(STDOUT_FILENO, " two", 4) == 4;
    ::dup2(real, STDOUT_FILENO);
    ::close(real);
    ::close(file);
    CHECK(failure == "");
    CHECK((wrote && again));
    CHECK(bytes_of(printed) == "one " + after + " two");
  }
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
