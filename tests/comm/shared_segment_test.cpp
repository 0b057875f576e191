// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/comm/mpi/shared_segment.hpp>
#include <shardwright/core/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstddef>
#include <string>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using sw::detail::SharedSegment;

const std::string segment_name = "/shardwright-segment-test-" + std::to_string(::getpid());

/// One byte more than the file system of shared memory can hold; 0 if it has no limit.
std::size_t too_much() {
  struct statvfs all {};
  REQUIRE(::statvfs("/dev/shm", &all) == 0);
  return all.f_blocks == 0 ? 0 : static_cast<std::size_t>(all.f_blocks) * all.f_frsize + 1;
}

bool exists() {
  const int file = ::shm_open(segment_name.c_str(), O_RDWR, 0);
  if (file >= 0)
    ::close(file);
  return file >= 0;
}

} // namespace

TEST_CASE("a segment has the memory that it wants only if there is room", "[comm]") {
  const std::size_t more = too_much();
  if (more == 0)
    return;
  {
    const SharedSegment small(segment_name, 4096, 8192, true);
    CHECK(small.has_more());
    const SharedSegment same(segment_name, 4096, 8192, false);
    static_cast<char*>(small.memory())[12'287] = 'x';
    CHECK(static_cast<const char*>(same.memory())[12'287] == 'x');
    small.unlink();
  }
  const SharedSegment large(segment_name, 4096, more, true);
  CHECK_FALSE(large.has_more());
  static_cast<char*>(large.memory())[4095] = 'x';
  large.unlink();
  CHECK_FALSE(exists());
}

TEST_CASE("a segment without room for what it needs is an error, and leaves no name behind", "[comm]") {
  const std::size_t bytes = too_much();
  if (bytes == 0)
    return;
  CHECK_THROWS_WITH(
      SharedSegment(segment_name, bytes, 0, true),
      ContainsSubstring("posix_fallocate: the ranks of one node need a shared-memory segment") &&
          ContainsSubstring("mount /dev/shm with room for it"));
  CHECK_FALSE(exists());
}
