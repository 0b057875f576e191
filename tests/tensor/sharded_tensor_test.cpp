// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/heap_count.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::launch_ranks;
using shardwright_test::on_ranks;

using Rows = Layout<2, Shard<0, dp>>;
using PartialRows = Layout<2, Partial<Sum, dp>>;
using Whole = Layout<2>;

// An owner moves and does not copy; a handle copies; nothing converts by itself.
static_assert(std::is_nothrow_move_constructible_v<ShardedTensor<Rows>>);
static_assert(!std::is_copy_constructible_v<ShardedTensor<Rows>> &&
              !std::is_copy_assignable_v<ShardedTensor<Rows>>);
static_assert(std::is_copy_constructible_v<ShardedTensor<Rows, const float>>);
static_assert(!std::is_convertible_v<ShardedTensor<Rows>, ShardedTensor<Rows, const float>>);
static_assert(!std::is_constructible_v<ShardedTensor<Whole>, ShardedTensor<Rows>>);
static_assert(!std::is_constructible_v<ShardedTensor<Rows, double>, ShardedTensor<Rows>>);

template <class Failure, class Action> std::string message_of(Action action) {
  try {
    action();
  } catch (const Failure& error) {
    return error.what();
  }
  return "no failure of the type";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a tensor knows its whole and its block") {
  CHECK(on_ranks(6, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(3)};
          ShardedTensor<Layout<3, Shard<0, dp>, Shard<2, tp>>, double> x(mesh, {3, 4, 7});
          const std::int64_t d = mesh.coordinate<dp>();
          const std::int64_t t = mesh.coordinate<tp>();
          using Shape = decltype(x)::Shape;
          findings.expect(x.shape() == Shape{3, 4, 7} && x.size() == 84, "whole");
          findings.expect(x.local_shape() == Shape{d == 0 ? 2 : 1, 4, t == 2 ? 1 : 3}, "block");
          findings.expect(x.local_offset() == Shape{2 * d, 0, 3 * t}, "offset");
          findings.expect(x.local().extent(2) == static_cast<std::size_t>(x.local_shape()[2]), "view");
          findings.expect(x.local_matrix().extent(0) == static_cast<std::size_t>(4 * x.local_shape()[0]),
                          "matrix");
          fill(x, 2.5);
          findings.expect(x.mutable_local()(0, 3, 0) == 2.5 && x.local_matrix()(3, 0) == 2.5, "elements");
          ShardedTensor<Layout<0>> number(mesh, {});
          findings.expect(number.local_size() == 1 && number.size() == 1,
                          "a tensor of rank 0 holds one element");
        }) == "");
}

TEST_CASE("clones have separate memory, handles share it") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          ShardedTensor<Rows> x(mesh, {4, 3});
          fill(x, 1.0f);
          auto copy = x.clone();
          fill(copy, 2.0f);
          findings.expect(x.data()[0] == 1.0f && copy.data()[0] == 2.0f, "clone");
          {
            const auto handle = x.share();
            const auto second = handle; // NOLINT(performance-unnecessary-copy-initialization): handles count
            findings.expect(second.data() == x.data(), "share");
            const std::string message = message_of<LifecycleError>([&] { fill(x, 3.0f); });
            findings.expect(
                contains(message, "must not be written while a read-only handle shares its memory"), message);
          }
          fill(x, 3.0f);
          findings.expect(x.data()[0] == 3.0f, "writable again");
        }) == "");
}

TEST_CASE("using a tensor that was moved from is an error") {
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(1)};
          ShardedTensor<Rows> x(mesh, {4, 3});
          const ShardedTensor<Rows> y = std::move(x);
          // NOLINTBEGIN(bugprone-use-after-move): that is the case
          findings.expect(!x.valid() && y.valid(), "valid");
          for (const std::string& message :
               {message_of<LifecycleError>([&] { static_cast<void>(x.data()); }),
                message_of<LifecycleError>([&] { static_cast<void>(x.share()); }),
                message_of<LifecycleError>([&] { static_cast<void>(x.local()); }),
                message_of<LifecycleError>([&] { static_cast<void>(scale(x, 2.0)); }),
                message_of<LifecycleError>([&] { static_cast<void>(x * 2.0); }),
                message_of<LifecycleError>([&] { static_cast<void>(redistribute<Whole>(x)); }),
                message_of<LifecycleError>([&] { fill_zero(x); })})
            findings.expect(contains(message, "this one was moved from") &&
                                contains(message, "rank 0, layout Layout<2, Shard<0, dp>>, at ") &&
                                contains(message, "sharded_tensor_test.cpp:"),
                            message);
          // NOLINTEND(bugprone-use-after-move)
        }) == "");
}

TEST_CASE("invalid shapes are rejected before memory is allocated") {
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(1)};
          const std::string negative = message_of<InvalidArgument>([&] {
            const ShardedTensor<Rows> x(mesh, {4, -3});
          });
          findings.expect(contains(negative, "at least 0, but -3 was given"), negative);
          const std::string large = message_of<InvalidArgument>([&] {
            const ShardedTensor<Rows> x(mesh, {1L << 40, 1L << 40});
          });
          findings.expect(contains(large, "must fit 63 bits"), large);
          findings.expect(contains(large, "sharded_tensor_test.cpp:"), large);
          findings.expect(mesh.pool_statistics().allocations == 0, "nothing was allocated");
#if SHARDWRIGHT_TEST_COUNTS_HEAP
          const std::string memory = message_of<Error>([&] {
            const ShardedTensor<Rows> x(mesh, {1L << 30, 1L << 28});
          });
          findings.expect(contains(memory, "out of memory for a block of"), memory);
          findings.expect(contains(memory, " that rank 0 asked for, with "), memory);
          findings.expect(contains(memory, "sharded_tensor_test.cpp:"), memory);
          const std::string named = message_of<Error>([&] {
            const detail::MemoryOfPart part("block 2");
            const detail::MemoryFor purpose(MemoryKind::activations, "softmax");
            const ShardedTensor<Rows> x(mesh, {1L << 30, 1L << 28});
          });
          findings.expect(contains(named, " asked for as activations of softmax in block 2, with "), named);
#endif
        }) == "");
}

#if SHARDWRIGHT_TEST_COUNTS_HEAP
TEST_CASE("a rank that runs out of memory says what was expected, and its peers are released") {
  std::string own;
  std::string peer;
  const auto program = [&](HostCommunicator world) {
    const DeviceMesh mesh{world, extent<dp>(2)};
    mesh.set_memory_note("the table of what was expected");
    try {
      ShardedTensor<Layout<1, Shard<0, dp>>> small(mesh, {8});
      fill(small, 1.0F);
      if (world.rank() == 1) // without the mesh, which would compare the shapes in a checked build
        const ShardedTensor<Layout<1>> x(small.resources(), {1L << 58});
      static_cast<void>(redistribute<Layout<1>>(small));
    } catch (const Error& error) {
      (world.rank() == 1 ? own : peer) = error.what();
      throw;
    }
  };
  CHECK_THROWS_AS(launch_ranks({.ranks = 2}, program), Error);
  CHECK(contains(own, "out of memory for a block of"));
  CHECK(contains(own, " that rank 1 asked for, with 64 bytes in use"));
  CHECK(contains(own, " [rank 1, at "));
  CHECK(contains(own, "sharded_tensor_test.cpp:"));
  CHECK(contains(own, "\nthe table of what was expected"));
  CHECK(contains(peer, "every rank of the group must take part, but rank 1"));
}
#endif

TEST_CASE(
    "blocks are rounded up to eight sizes per power of two, and requested bytes are counted separately") {
  for (std::size_t bytes = 1; bytes < 20000; ++bytes) {
    const auto block = pool_block(bytes);
    REQUIRE(block.bytes >= bytes);
    REQUIRE((block.bytes == 256 || 8 * block.bytes <= 9 * bytes + 8));
    REQUIRE(pool_block(block.bytes).size_class == block.size_class);
  }
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(1)};
          {
            const ShardedTensor<Layout<1>> x(mesh, {257});
            const PoolStatistics& pool = mesh.pool_statistics();
            findings.expect(pool.requested_bytes == 1028 && pool.used_bytes == 1152, pool.requested_bytes,
                            " of ", pool.used_bytes);
          }
          const ShardedTensor<Layout<1>> y(mesh, {100});
          const PoolStatistics& pool = mesh.pool_statistics();
          findings.expect(pool.requested_bytes == 400 && pool.used_bytes == 416, "after the first has ended");
          findings.expect(pool.requested_at_peak == 1028 && pool.peak_bytes == 1152, "the peak stays");
          mesh.core().resources<DefaultTarget>().reset_peak();
          findings.expect(pool.requested_at_peak == 400 && pool.peak_bytes == 416, "until it is forgotten");
        }) == "");
}

TEST_CASE("destinations of another shape or mesh are rejected on every rank before data moves") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          ShardedTensor<PartialRows> x(mesh, {4, 3});
          fill_zero(x);
          ShardedTensor<Whole> wrong(mesh, {3, 4});
          const std::string shapes = message_of<InvalidArgument>([&] { redistribute_into(x, wrong); });
          findings.expect(contains(shapes, "must have the shape [4, 3], but it has [3, 4]"), shapes);
          const DeviceMesh other{world, extent<dp>(2)};
          ShardedTensor<Whole> elsewhere(other, {4, 3});
          const std::string meshes = message_of<InvalidArgument>([&] { redistribute_into(x, elsewhere); });
          findings.expect(contains(meshes, "must be on one mesh"), meshes);
        }) == "");
}

TEST_CASE("trivial transitions on a mesh share memory and allocate nothing") {
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(1), extent<tp>(1)};
          const ShardedTensor<Layout<2, Shard<0, dp>, Partial<Sum, tp>>> x(mesh, {64, 8});
          const std::size_t blocks = mesh.pool_statistics().allocations;
          const std::size_t before = shardwright_test::heap_allocations();
          const auto a = redistribute<Layout<2, Shard<0, dp, tp>>>(x);
          const auto b = redistribute<Layout<2, Shard<1, tp>>>(a);
          const auto c = redistribute<Whole>(b);
          const std::size_t after = shardwright_test::heap_allocations();
          findings.expect(c.data() == x.data(), "one memory");
          findings.expect(after == before && mesh.pool_statistics().allocations == blocks, "no allocation");
        }) == "");
}

TEST_CASE("a detour that only an axis of extent 1 requires is not taken") {
  using From = Layout<1, Shard<0, dp, tp>>;
  using To = Layout<1, Shard<0, tp, dp>>;
  static_assert(Transition<From, To>::collectives > 0);
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(1), extent<tp>(2)};
          const ShardedTensor<From> x(mesh, {6});
          const auto y = redistribute<To>(x);
          findings.expect(y.data() == x.data(), "the blocks are the same: nothing moves");
        }) == "");
}

TEST_CASE("a steady state allocates nothing") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          ShardedTensor<Layout<2, Partial<Sum, dp, tp>>> parts(mesh, {32, 8});
          fill_zero(parts);
          ShardedTensor<Layout<2, Shard<1, tp>>> into(mesh, {32, 8});
          const auto step = [&] {
            const auto scattered = redistribute<Layout<2, Shard<0, dp, tp>>>(parts); // reduce_scatter
            const auto moved = redistribute<Layout<2, Shard<0, dp>, Shard<1, tp>>>(scattered); // all_to_all
            const auto whole = redistribute<Whole>(moved);                                     // all_gather
            redistribute_into(whole, into);                                                    // slice
            const auto sum = redistribute<Layout<2, Shard<0, dp>, Partial<Sum, tp>>>(parts);
            const auto finished = redistribute<Layout<2, Shard<0, dp>>>(sum.clone()); // all_reduce in place
          };
          step();
          step();
          const PoolStatistics warm = mesh.pool_statistics();
          const std::size_t before = shardwright_test::heap_allocations();
          for (int i = 0; i < 10; ++i)
            step();
          const std::size_t after = shardwright_test::heap_allocations();
          findings.expect(after == before, after - before, " allocations in ten steps on rank ",
                          world.rank());
          findings.expect(mesh.pool_statistics().allocations == warm.allocations, "the pool grows");
          findings.expect(mesh.pool_statistics().peak_bytes == warm.peak_bytes, "the peak grows");
          findings.expect(mesh.pool_statistics().used_bytes == warm.used_bytes, "memory is not given back");
        }) == "");
}

TEST_CASE("an asynchronous transition keeps its source alive and unwritten until the wait") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          auto source =
              std::make_unique<ShardedTensor<PartialRows>>(mesh, ShardedTensor<PartialRows>::Shape{300, 5});
          for (std::size_t i = 0; i < source->local_size(); ++i)
            source->mutable_data()[i] = static_cast<float>(i);
          auto pending = redistribute_async<Rows>(*source);
          const std::string message = message_of<LifecycleError>([&] { fill_zero(*source); });
          findings.expect(contains(message, "must not be written while"), message);
          source.reset(); // the transition owns the memory that it needs
          const auto rows = pending.wait();
          const auto first = static_cast<std::size_t>(rows.local_offset()[0]) * 5;
          bool right = rows.local_size() > 0;
          for (std::size_t i = 0; i < rows.local_size(); ++i)
            right = right && rows.data()[i] == 2.0f * static_cast<float>(first + i);
          findings.expect(right, "the sum of both ranks");
          const std::string again = message_of<LifecycleError>([&] { static_cast<void>(pending.wait()); });
          findings.expect(contains(again, "wait() was called twice"), again);
        }) == "");
}

TEST_CASE("started transitions run while others are started, and may be waited for in any order") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          ShardedTensor<Layout<1, Partial<Sum, tp>>> a(mesh, {1000});
          ShardedTensor<Layout<1, Shard<0, dp>>> b(mesh, {1001});
          fill_zero(a);
          for (std::size_t i = 0; i < a.local_size(); ++i)
            a.mutable_data()[i] = static_cast<float>(i % 17);
          fill(b, 4.0f);
          auto first = redistribute_async<Layout<1>>(a);
          auto second = redistribute_async<Layout<1>>(b);
          const auto gathered = second.wait();
          const auto summed = first.wait();
          findings.expect(gathered.local_size() == 1001 && gathered.data()[1000] == 4.0f, "second");
          findings.expect(summed.data()[16] == 32.0f, "first");
        }) == "");
}

TEST_CASE("a rank that fails before a transition wakes the others, and the first cause is reported") {
  LaunchOptions options;
  options.ranks = 3;
  options.deadline = std::chrono::seconds(20);
  std::atomic<int> woken{0};
  const std::string message = message_of<DataError>([&] {
    launch_ranks(options, [&](HostCommunicator world) {
      const DeviceMesh mesh{world, extent<dp>(3)};
      ShardedTensor<PartialRows> x(mesh, {6, 2});
      fill_zero(x);
      if (world.rank() == 1)
        throw DataError("the loader of rank 1 found no file");
      try {
        static_cast<void>(redistribute<Whole>(x));
      } catch (const PeerFailed& error) {
        if (error.peer() == 1)
          ++woken;
        throw;
      }
    });
  });
  CHECK_THAT(message, ContainsSubstring("the loader of rank 1 found no file"));
  CHECK(woken == 2);
}

TEST_CASE("if a rank does not arrive, the others fail at their deadline, naming it, the call and the line") {
  LaunchOptions options;
  options.ranks = 2;
  options.deadline = std::chrono::milliseconds(300);
  std::string late;
  static_cast<void>(message_of<Error>([&] {
    launch_ranks(options, [&](HostCommunicator world) {
      const DeviceMesh mesh{world, extent<dp>(2)};
      ShardedTensor<PartialRows> x(mesh, {6, 2});
      fill_zero(x);
      if (world.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        return;
      }
      try {
        static_cast<void>(redistribute<Whole>(x));
      } catch (const DeadlineExceeded& error) {
        late = error.what();
        CHECK(error.missing() == std::vector<int>{1});
        throw;
      }
    });
  }));
  CHECK_THAT(late, ContainsSubstring("all_reduce"));
  CHECK_THAT(late, ContainsSubstring("sharded_tensor_test.cpp:"));
}

TEST_CASE("ranks that request different transitions get an error that shows both") {
  LaunchOptions options;
  options.ranks = 2;
  options.deadline = std::chrono::seconds(20);
  const std::string message = message_of<CollectiveMismatch>([&] {
    launch_ranks(options, [&](HostCommunicator world) {
      const DeviceMesh mesh{world, extent<dp>(2)};
      ShardedTensor<PartialRows> x(mesh, {6, 2});
      fill_zero(x);
      if (world.rank() == 0)
        static_cast<void>(redistribute<Whole>(x));
      else
        static_cast<void>(redistribute<Rows>(x));
    });
  });
  CHECK_THAT(message, ContainsSubstring("all_reduce") && ContainsSubstring("reduce_scatter"));
}

TEST_CASE("a started transition that is dropped fails its group instead of hanging it") {
  LaunchOptions options;
  options.ranks = 2;
  options.deadline = std::chrono::seconds(5);
  CHECK_THROWS_AS(launch_ranks(options,
                               [&](HostCommunicator world) {
                                 const DeviceMesh mesh{world, extent<dp>(2)};
                                 ShardedTensor<PartialRows> x(mesh, {600, 20});
                                 fill_zero(x);
                                 {
                                   auto pending = redistribute_async<Whole>(x);
                                   if (world.rank() == 0)
                                     static_cast<void>(pending.wait());
                                 }
                                 for (int i = 0; i < 3; ++i)
                                   static_cast<void>(redistribute<Rows>(x));
                               }),
                  Error);
}
