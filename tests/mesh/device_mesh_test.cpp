// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/device/driven_transports.hpp>
#include <shardwright/device/stream_objects.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <string>
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

/// A target whose device is busy for a while, and which counts the blocks that are freed meanwhile.
struct BusyTarget {
  using execution_space = Kokkos::Serial;
  using memory_space = Kokkos::HostSpace;
  static constexpr bool host_accessible = false;
  static inline thread_local int polls_to_come = 0;
  static inline thread_local int freed = 0;
  static inline thread_local int freed_at_work = 0;

  [[nodiscard]] static execution_space make_execution_space() {
    return HostTarget<Kokkos::Serial>::make_execution_space();
  }
  [[nodiscard]] static bool idle(const execution_space&) {
    return polls_to_come == 0 || --polls_to_come == 0;
  }
  [[nodiscard]] static void* allocate(const execution_space&, const char* label, std::size_t bytes) {
    return Kokkos::kokkos_malloc<memory_space>(label, bytes);
  }
  static void deallocate(const execution_space&, const char*, void* data, std::size_t) noexcept {
    ++freed;
    freed_at_work += polls_to_come > 0 ? 1 : 0;
    Kokkos::kokkos_free<memory_space>(data);
  }
  [[nodiscard]] static DeviceCommunicator connect(const HostCommunicator&, const execution_space&) {
    return {};
  }
  [[nodiscard]] static detail::StreamObjects::Stream stream(const execution_space&, int device = 0) {
    static const char handle = 0; // which the next mesh's stream has, too, as CUDA may reuse it
    return {&handle, device};
  }
  static void end_stream(const execution_space& execution) noexcept {
    detail::StreamObjects::own().end(stream(execution));
  }
};

/// What a library keeps for a stream.
struct Workspace {
  static inline thread_local int living = 0;
  Workspace() { ++living; }
  ~Workspace() { --living; }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

/// The communicator of another mesh, with a call that takes a while.
struct BusyTransport final : detail::DecoratedTransport<HostCommunicator> {
  using detail::DecoratedTransport<HostCommunicator>::DecoratedTransport;
  bool drive(bool) override { return polls_to_come == 0 || --polls_to_come == 0; }
  [[nodiscard]] std::shared_ptr<Transport> around(HostCommunicator part) const override {
    return std::make_shared<BusyTransport>(std::move(part));
  }
  int polls_to_come = 5;
};

/// Runs a program that must fail; returns the sentence of the first cause.
template <class Failure, class Program> std::string failure_of(int ranks, Program program) {
  LaunchOptions options;
  options.ranks = ranks;
  options.deadline = std::chrono::seconds(20);
  try {
    launch_ranks(options, program);
  } catch (const Failure& error) {
    return error.what();
  }
  return "no failure of the type";
}

static_assert(
    std::is_same_v<decltype(DeviceMesh{std::declval<HostCommunicator>(), extent<dp>(2), extent<tp, 4>()}),
                   DeviceMesh<dp, StaticExtent<tp, 4>>>);
static_assert(DeviceMesh<dp, StaticExtent<tp, 4>>::static_extent<tp> == 4);
static_assert(DeviceMesh<dp, StaticExtent<tp, 4>>::static_extent<dp> == 0);
static_assert(DeviceMesh<dp, tp>::has<dp> && !DeviceMesh<dp, tp>::has<cp>);

} // namespace

TEST_CASE("ranks take row-major coordinates, the last axis being the innermost") {
  CHECK(on_ranks(6, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(3)};
          findings.expect(mesh.extent<dp>() == 2 && mesh.extent<tp>() == 3, "extents");
          findings.expect(mesh.coordinate<dp>() == world.rank() / 3, "dp of rank ", world.rank());
          findings.expect(mesh.coordinate<tp>() == world.rank() % 3, "tp of rank ", world.rank());
          findings.expect(mesh.size() == 6 && mesh.rank() == world.rank(), "size and rank");
        }) == "");
}

TEST_CASE("every set of axes has a group whose ranks are numbered in mesh order") {
  CHECK(on_ranks(8, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<cp>(2), extent<tp>(2)};
          const int d = mesh.coordinate<dp>();
          const int c = mesh.coordinate<cp>();
          const int t = mesh.coordinate<tp>();
          findings.expect(mesh.communicator<>().size() == 1, "no axes");
          findings.expect(mesh.communicator<dp>().size() == 2 && mesh.communicator<dp>().rank() == d, "dp");
          findings.expect(mesh.communicator<tp>().rank() == t, "tp");
          findings.expect(mesh.communicator<dp, tp>().size() == 4 &&
                              mesh.communicator<dp, tp>().rank() == 2 * d + t,
                          "dp,tp");
          findings.expect(mesh.communicator<tp, dp>().rank() == 2 * d + t,
                          "the order of the request is nothing");
          findings.expect(mesh.communicator<dp, cp, tp>().rank() == 4 * d + 2 * c + t, "all axes");
          std::array<int, 4> ranks{};
          mesh.communicator<dp, tp>().all_gather(std::array{world.rank()}, ranks);
          findings.expect(ranks == std::array{2 * c, 2 * c + 1, 2 * c + 4, 2 * c + 5}, "members of dp,tp");
          findings.expect(mesh.communicator<dp, tp>().name() == "dp,tp", "name of the group");
        }) == "");
}

TEST_CASE("axes of extent 1 add nothing to a group") {
  CHECK(on_ranks(3, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(1), extent<tp>(3), extent<cp>(1)};
          findings.expect(&mesh.communicator<tp>() == &mesh.communicator<dp, tp>(), "tp is dp,tp");
          findings.expect(mesh.communicator<dp>().size() == 1, "dp alone");
          findings.expect(mesh.communicator<tp>().size() == 3, "tp");
        }) == "");
}

TEST_CASE("copies of a mesh share its groups and pools, and outlive it") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          auto* const mesh = new DeviceMesh{world, extent<dp>(2)};
          DeviceMesh copy = *mesh;
          const DeviceMesh other{world, extent<dp>(2)};
          findings.expect(&copy.core() == &mesh->core() && &copy.core() != &other.core(), "identity");
          delete mesh;
          std::array<int, 2> ranks{};
          copy.communicator<dp>().all_gather(std::array{world.rank()}, ranks);
          findings.expect(ranks == std::array{0, 1}, "the copy works");
          copy = other;
          findings.expect(&copy.core() == &other.core(), "assignment");
        }) == "");
}

TEST_CASE("a product that is not the number of ranks names both and the nearest meshes") {
  const std::string message = failure_of<InvalidArgument>(
      4, [](const HostCommunicator& world) { const DeviceMesh mesh(world, extent<dp>(2), extent<tp>(3)); });
  CHECK_THAT(message, ContainsSubstring("dp=2,tp=3"));
  CHECK_THAT(message, ContainsSubstring("6"));
  CHECK_THAT(message, ContainsSubstring("4"));
  CHECK_THAT(message, ContainsSubstring("dp=2,tp=2"));
}

TEST_CASE("zero, negative and overflowing extents are rejected") {
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-2}}) {
    const std::string message = failure_of<InvalidArgument>(
        2, [wrong](const HostCommunicator& world) { const DeviceMesh mesh(world, extent<dp>(wrong)); });
    CHECK_THAT(message, ContainsSubstring("dp") && ContainsSubstring(std::to_string(wrong)));
  }
  CHECK_THAT(failure_of<InvalidArgument>(1,
                                         [](const HostCommunicator& world) {
                                           const DeviceMesh mesh(world, extent<dp>(std::int64_t{1} << 40),
                                                                 extent<tp>(std::int64_t{1} << 40));
                                         }),
             ContainsSubstring("must be less than 2^31"));
}

TEST_CASE("ranks that pass different meshes get an error before any group is formed") {
  const std::string extents = failure_of<ConfigurationMismatch>(4, [](const HostCommunicator& world) {
    const bool odd = world.rank() == 3;
    const DeviceMesh mesh(world, extent<dp>(odd ? 4 : 2), extent<tp>(odd ? 1 : 2));
  });
  CHECK_THAT(extents, ContainsSubstring("rank 3 differs from rank 0"));
  CHECK_THAT(extents, ContainsSubstring("dp=4,tp=1 against dp=2,tp=2"));
  const std::string names = failure_of<ConfigurationMismatch>(2, [](const HostCommunicator& world) {
    if (world.rank() == 1)
      const DeviceMesh mesh(world, extent<dp>(2));
    else
      const DeviceMesh mesh(world, extent<tp>(2));
  });
  CHECK_THAT(names, ContainsSubstring("names or the order of the axes"));
}

TEST_CASE("if a rank never creates the mesh, the others fail within the deadline") {
  LaunchOptions options;
  options.ranks = 3;
  options.deadline = std::chrono::milliseconds(200);
  CHECK_THROWS_AS(launch_ranks(options,
                               [](const HostCommunicator& world) {
                                 if (world.rank() != 1)
                                   const DeviceMesh mesh(world, extent<dp>(3));
                               }),
                  Error);
}

TEST_CASE("the pool of a mesh reuses blocks") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          auto& pool = mesh.core().resources<DefaultTarget>();
          void* first = nullptr;
          {
            const detail::BufferHandle handle(pool.take(1000));
            const detail::BufferHandle copy =
                handle; // NOLINT(performance-unnecessary-copy-initialization): counted
            first = handle.data();
            findings.expect(handle.shared() && copy.data() == first, "two handles of one block");
            findings.expect(mesh.pool_statistics().used_bytes >= 1000, "in use");
          }
          findings.expect(mesh.pool_statistics().used_bytes == 0, "given back");
          const detail::BufferHandle again(pool.take(1010));
          findings.expect(again.data() == first, "the same block serves a size of its class");
          findings.expect(mesh.pool_statistics().allocations == 1, "one allocation");
        }) == "");
}

TEST_CASE("blocks of a pool are at most an eighth larger than requested") {
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(1)};
          auto& pool = mesh.core().resources<DefaultTarget>();
          for (std::size_t bytes = 256; bytes < 100000; bytes += 1 + bytes / 7) {
            const detail::BufferHandle handle(pool.take(bytes));
            const std::size_t given = mesh.pool_statistics().used_bytes;
            findings.expect(given >= bytes && given <= bytes + bytes / 8 + 1, bytes, " gives ", given);
          }
          const PoolStatistics before = mesh.pool_statistics();
          findings.expect(before.peak_bytes < before.reserved_bytes,
                          "the peak counts memory that was in use at the same time");
        }) == "");
}

TEST_CASE("a device's pool keeps its memory while the device is working") {
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          {
            const DeviceMesh mesh{world, extent<dp>(1)};
            const detail::BufferHandle handle(mesh.core().resources<BusyTarget>().take(1000));
            BusyTarget::polls_to_come = 5;
          }
          findings.expect(BusyTarget::freed == 1 && BusyTarget::freed_at_work == 0, "freed when all is done");
        }) == "");
}

TEST_CASE("what libraries keep for a mesh's stream ends with the mesh") {
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          const auto of = [](const Kokkos::Serial& execution, int device) {
            return &detail::StreamObjects::own().of<Workspace>(BusyTarget::stream(execution, device),
                                                               [] { return std::make_shared<Workspace>(); });
          };
          for (int i = 0; i < 3; ++i) {
            const DeviceMesh mesh{world, extent<dp>(1)};
            const auto& execution = mesh.core().resources<BusyTarget>().execution();
            const Workspace* const own = of(execution, 0);
            findings.expect(own == of(execution, 0) && own != of(execution, 1), "one for each stream");
            findings.expect(Workspace::living == 2, "living: ", Workspace::living);
          }
          findings.expect(Workspace::living == 1, "that of another device's stream is left");
        }) == "");
}

TEST_CASE("a mesh ends after the calls of the rank's other meshes, for which CUDA has no deadline") {
  CHECK(on_ranks(1, [](HostCommunicator world, Findings& findings) {
          const auto transports = detail::DrivenTransports::of_this_rank();
          BusyTransport other(world);
          transports->enter(other);
          int polls_at_end = -1;
          {
            const DeviceMesh mesh{world, extent<dp>(1)};
            const auto end = [&](int*) { polls_at_end = other.polls_to_come; };
            static_cast<void>(detail::StreamObjects::own().of<int>(
                BusyTarget::stream(mesh.core().resources<BusyTarget>().execution()),
                [&] { return std::shared_ptr<int>(&polls_at_end, end); }));
          }
          transports->leave(other);
          findings.expect(polls_at_end == 0, "polls that its call still needed: ", polls_at_end);
        }) == "");
}
