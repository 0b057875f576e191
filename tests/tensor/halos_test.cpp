// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/heap_count.hpp"
#include "support/ranks.hpp"
#include "tensor/halo_cases.hpp"

#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/reduce.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace {

using namespace tensor_test;
using shardwright_test::on_ranks;

TEST_CASE("halos equal their owners' elements on every mesh") {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 8}) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            check_meshes<double>(world, findings);
          }) == "");
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            check_meshes<float>(world, findings);
          }) == "");
  }
}

TEST_CASE("a halo wider than a block that fills it is an error on every rank") {
  const std::string found = on_ranks(4, [](const HostCommunicator& world, Findings& findings) {
    const DeviceMesh mesh{world, extent<x>(4)};
    const auto fails = [&](auto layout, std::int64_t length, const std::string& part) {
      ShardedTensor<WithoutHalos<decltype(layout)>> plain(mesh, {length});
      try {
        static_cast<void>(redistribute<decltype(layout)>(plain));
        findings.expect(false, "no error of ", length);
      } catch (const InvalidArgument& error) {
        findings.expect(std::string(error.what()).find(part) != std::string::npos, error.what());
      }
    };
    // Blocks of 3, 3, 3 and 1.
    fails(
        Layout<1, Shard<0, x, Halo<1, 2>>>{}, 10,
        "that of dimension 0 is 2 wide and block 3 of 4 has 1 element (shard the dimension over fewer ranks");
    fails(Layout<1, Shard<0, x, Halo<4>>>{}, 10, "is 4 wide and block 0 of 4 has 3 elements");
    // The last block fills only the halo of the block before it; on its other side there is none.
    ShardedTensor<Layout<1, Shard<0, x>>> plain(mesh, {10});
    fill_numbers(plain, 1);
    findings.expect(holds_numbers(redistribute<Layout<1, Shard<0, x, Halo<3, 1>>>>(plain), 1, 0), "3 before");
    fails(Layout<1, Shard<0, x, PeriodicHalo<3, 1>>>{}, 10, "is 3 wide and block 3 of 4 has 1 element");
    fails(Layout<1, Shard<0, x, Halo<1>>>{}, 6, "block 3 of 4 has 0 elements");
  });
  CHECK(found == "");
}

TEST_CASE("the owned elements of a block are a view without its halos") {
  for (const int ranks : {1, 3, 4}) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            using Haloed = Layout<2, Shard<0, x, Halo<2, 1>>, Shard<1, y, PeriodicHalo<1>>>;
            const int rows = world.size() == 4 ? 2 : world.size();
            const DeviceMesh mesh{world, extent<x>(rows), extent<y>(world.size() / rows)};
            ShardedTensor<WithoutHalos<Haloed>, double> plain(mesh, {9, 8});
            fill_numbers(plain, 1);
            auto haloed = redistribute<Haloed>(plain).clone();
            const auto given = haloed.clone();

            const auto read = std::as_const(haloed).owned();
            const auto [height, width] = haloed.owned_shape();
            findings.expect(read.extent(0) == static_cast<std::size_t>(height) &&
                                read.extent(1) == static_cast<std::size_t>(width),
                            "extents");
            for (std::size_t i = 0; i < read.extent(0); ++i)
              for (std::size_t j = 0; j < read.extent(1); ++j)
                findings.expect(read(i, j) == plain.local()(i, j), "element ", i, ", ", j);

            const auto write = haloed.mutable_owned();
            for (std::size_t i = 0; i < write.extent(0); ++i)
              for (std::size_t j = 0; j < write.extent(1); ++j)
                write(i, j) += 100;
            for_each_element(haloed, [&](std::size_t i, const auto&, bool own) {
              findings.expect(haloed.data()[i] == given.data()[i] + (own ? 100 : 0), "written ", i);
            });
          }) == "");
  }
}

TEST_CASE("elementwise functions keep halos, reductions ignore them") {
  for (const int ranks : {1, 3, 4}) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            using Haloed = Layout<2, Shard<0, x, Halo<1>>, Shard<1, y, PeriodicHalo<2>>>;
            using Plain = WithoutHalos<Haloed>;
            const int rows = world.size() == 4 ? 2 : world.size();
            const DeviceMesh mesh{world, extent<x>(rows), extent<y>(world.size() / rows)};
            ShardedTensor<Plain, double> plain(mesh, {9, 8});
            fill_numbers(plain, 1);
            const auto haloed = redistribute<Haloed>(plain);

            const auto equal = [&](const auto& tensor, const auto& wanted, const char* what) {
              const auto other = redistribute<Haloed>(wanted);
              bool good = tensor.local_size() == other.local_size();
              for (std::size_t i = 0; good && i < tensor.local_size(); ++i)
                good = tensor.data()[i] == other.data()[i];
              findings.expect(good, what);
            };
            equal(add(haloed, scale(haloed, 3)), add(plain, scale(plain, 3)), "add and scale");
            equal(multiply(haloed, haloed), multiply(plain, plain), "multiply");
            equal(relu(haloed), relu(plain), "relu");
            auto sum = haloed.clone();
            axpy(2, haloed, sum);
            auto plain_sum = plain.clone();
            axpy(2, plain, plain_sum);
            equal(sum, plain_sum, "axpy");

            const auto number = [](const auto& tensor) { return item(redistribute<Layout<0>>(tensor)); };
            findings.expect(number(dot(haloed, sum)) == number(dot(plain, plain_sum)), "dot");
            findings.expect(item(norm(haloed)) == item(norm(plain)), "norm");
            findings.expect(number(shardwright::sum(haloed)) == number(shardwright::sum(plain)), "sum");
            findings.expect(number(mean(haloed)) == number(mean(plain)), "mean");
            findings.expect(number(reduce_all<Max>(haloed)) == number(reduce_all<Max>(plain)), "max");
            const auto by_row = redistribute<Layout<1>>(reduce<Sum, 1>(haloed));
            const auto wanted = redistribute<Layout<1>>(reduce<Sum, 1>(plain));
            for (std::size_t i = 0; i < 9; ++i)
              findings.expect(by_row.data()[i] == wanted.data()[i], "row ", i);
          }) == "");
  }
}

TEST_CASE("a refresh of halos allocates nothing") {
  for (const int ranks : {1, 2, 4}) {
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            using Haloed = Layout<2, Shard<0, x, Halo<1>>, Shard<1, y, PeriodicHalo<1>>>;
            const DeviceMesh mesh{world, extent<x>(world.size() == 1 ? 1 : 2),
                                  extent<y>((world.size() + 1) / 2)};
            ShardedTensor<Haloed, double> haloed(mesh, {32, 24});
            ShardedTensor<WithoutHalos<Haloed>, double> plain(mesh, {32, 24});
            fill_numbers(haloed, 1);
            const auto step = [&] {
              refresh_halos(haloed);
              add_halos(haloed);
              redistribute_into(haloed, plain);
              redistribute_into(plain, haloed);
            };
            step();
            step();
            const std::size_t before = shardwright_test::heap_allocations();
            const std::size_t blocks = haloed.resources().statistics().allocations;
            for (int i = 0; i < 20; ++i)
              step();
            if constexpr (shardwright_test::counts_heap)
              findings.expect(shardwright_test::heap_allocations() == before,
                              "allocations: ", shardwright_test::heap_allocations() - before);
            findings.expect(haloed.resources().statistics().allocations == blocks, "blocks of the pool");
          }) == "");
  }
}

TEST_CASE("halos of a tensor are not written while a handle shares it") {
  CHECK(on_ranks(1, [](const HostCommunicator& world, Findings& findings) {
          const DeviceMesh mesh{world, extent<x>(1)};
          ShardedTensor<Layout<1, Shard<0, x, PeriodicHalo<1>>>> tensor(mesh, {4});
          fill_numbers(tensor, 1);
          const auto handle = tensor.share();
          try {
            refresh_halos(tensor);
            findings.expect(false, "no error");
          } catch (const LifecycleError&) {
            findings.expect(true, "");
          }
        }) == "");
}

} // namespace
