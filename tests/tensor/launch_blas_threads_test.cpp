// SPDX-License-Identifier: Apache-2.0
// In the same program as tests of matrix products, which link the BLAS.
#include "support/catch.hpp"
#include "support/launch_ranks.hpp"

#include <shardwright/core/blas_threads.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/tensor/kernels/product/blas.hpp>

#include <atomic>
#include <cstdlib>
#include <string>

using namespace shardwright;
using shardwright_test::launch_thread_ranks;

namespace {

/// Three threads for the BLAS, without a variable that sets them; the old state is restored at the end of the
/// test.
class ThreeThreads {
public:
  explicit ThreeThreads(const detail::BlasThreads& blas) : blas_(blas), count_(blas.count()) {
    if (const char* value = std::getenv(blas.variable)) {
      value_ = value;
      is_set_ = true;
    }
    unsetenv(blas.variable);
    blas.set(3);
  }
  ~ThreeThreads() {
    blas_.set(count_);
    if (is_set_)
      setenv(blas_.variable, value_.c_str(), 1);
    else
      unsetenv(blas_.variable);
  }
  ThreeThreads(const ThreeThreads&) = delete;
  ThreeThreads& operator=(const ThreeThreads&) = delete;

private:
  const detail::BlasThreads& blas_;
  int count_;
  bool is_set_ = false;
  std::string value_;
};

/// The number of BLAS threads that rank 0 finds.
int threads_inside(const detail::BlasThreads& blas, const LaunchOptions& options) {
  std::atomic<int> found = 0;
  launch_thread_ranks(options, [&](HostCommunicator world) {
    world.barrier();
    if (world.rank() == 0)
      found = blas.count();
    world.barrier();
  });
  return found;
}

} // namespace

TEST_CASE("launch gives the BLAS one thread per rank, and restores the number afterwards") {
  const auto* const blas = detail::linked_blas();
  if (blas == nullptr) {
    WARN("no BLAS that is known");
    return;
  }
  const ThreeThreads before(*blas);
  REQUIRE(blas->count() == 3);

  CHECK(threads_inside(*blas, {.ranks = 4}) == 1);
  CHECK(blas->count() == 3);

  SECTION("a single rank keeps what is there") { CHECK(threads_inside(*blas, {.ranks = 1}) == 3); }
  SECTION("the option sets another number") {
    CHECK(threads_inside(*blas, {.ranks = 2, .blas_threads = 2}) == 2);
  }
  SECTION("0 leaves it alone") { CHECK(threads_inside(*blas, {.ranks = 2, .blas_threads = 0}) == 3); }
  SECTION("the variable of the BLAS leaves it alone") {
    setenv(blas->variable, "3", 1);
    CHECK(threads_inside(*blas, {.ranks = 2}) == 3);
  }
  SECTION("a launch inside a launch changes nothing") {
    std::atomic<int> inner = 0;
    std::atomic<int> after = 0;
    launch_thread_ranks({.ranks = 2}, [&](HostCommunicator world) {
      if (world.rank() == 0) {
        inner = threads_inside(*blas, {.ranks = 2});
        after = blas->count();
      }
      world.barrier();
    });
    CHECK(inner == 1);
    CHECK(after == 1);
  }
  SECTION("a program that throws") {
    CHECK_THROWS_AS(launch_thread_ranks({.ranks = 2}, [](HostCommunicator) { throw InvalidArgument("no"); }),
                    InvalidArgument);
  }
  CHECK(blas->count() == 3);
}

TEST_CASE("launch rejects a negative number of BLAS threads") {
  CHECK_THROWS_AS(launch_thread_ranks({.ranks = 2, .blas_threads = -1}, [](HostCommunicator) {}),
                  InvalidArgument);
}
