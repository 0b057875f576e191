// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>

#include <cstdint>
#include <string>

// Ranks whose tensors differ in shape, although their calls move as many elements.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using sw::axis::dp;

using Mesh = sw::DeviceMesh<dp>;
using Rows = sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>, double>;

/// The errors of two ranks whose tensors have 8 rows and, on the second, 8 or 10.
template <class Use> [[nodiscard]] std::string told(std::int64_t rows_of_rank_1, Use use) {
  return failure_of<sw::CollectiveMismatch>([&] {
    static_cast<void>(
        shardwright_test::on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh(world, sw::extent<dp>(2));
          // Not made on the mesh, which compares shapes in a checked build.
          Rows x(mesh.core().resources<sw::DefaultTarget>(), {world.rank() == 1 ? rows_of_rank_1 : 8, 3});
          sw::fill(x, 1.0);
          findings.expect(use(x) == 24, "the sum of ones");
        }));
  });
}

} // namespace

TEST_CASE("a sum of tensors whose shapes differ between ranks names both shapes", "[tensor]") {
  const auto all = [](const Rows& x) { return sw::item(sw::redistribute<sw::Layout<0>>(sw::sum(x))); };
  const std::string said = told(10, all);
  INFO(said);
  CHECK(has(said, "the shapes of their tensors differ"));
  CHECK(has(said, "rank 0 issued all_reduce(sum, 1 float64, of [8, 3])"));
  CHECK(has(said, "rank 1 issued all_reduce(sum, 1 float64, of [10, 3])"));
  CHECK(has(said, "shape_agreement_test.cpp"));
  CHECK(told(8, all) == "no failure of the type");
}

TEST_CASE("a sum over one dimension and a dot product compare the shapes of their operands", "[tensor]") {
  CHECK(has(told(10,
                 [](const Rows& x) {
                   const auto sums = sw::redistribute<sw::Layout<1>>(sw::sum<0>(x));
                   return sums.data()[0] + sums.data()[1] + sums.data()[2];
                 }),
            "of [10, 3]"));
  CHECK(has(told(10, [](const Rows& x) { return sw::item(sw::redistribute<sw::Layout<0>>(sw::dot(x, x))); }),
            "of [10, 3]"));
}
