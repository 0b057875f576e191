// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;
using Mesh = sw::DeviceMesh<dp, tp>;

/// Row `row` of data whose elements are numbered consecutively.
template <class Element> void read_numbered(std::int64_t row, std::span<Element> to) {
  std::iota(to.begin(), to.end(), static_cast<Element>(row * static_cast<std::int64_t>(to.size())));
}

/// Checks that a tensor in layout `L` holds the numbers of the data, and that each rank reads the rows of its
/// block once, in order.
template <class L, class Target = sw::DefaultTarget>
void check(const Mesh& mesh, Findings& findings,
           const typename sw::ShardedTensor<L, std::int32_t, Target>::Shape& shape) {
  sw::ShardedTensor<L, std::int32_t, Target> tensor(mesh, shape);
  std::vector<std::int64_t> read;
  constexpr std::int64_t first_row = 100;
  sw::load_rows(
      tensor,
      [&](std::int64_t row, std::span<std::int32_t> to) {
        read.push_back(row);
        read_numbered(row - first_row, to);
      },
      first_row);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(tensor.local_shape()[0]));
  std::iota(rows.begin(), rows.end(), first_row + (rows.empty() ? 0 : tensor.local_offset()[0]));
  findings.expect(read == rows, "rows of rank ", mesh.rank());
  std::vector<std::int32_t> block(tensor.local_size());
  sw::read_rows(tensor, block.data(), read_numbered<std::int32_t>);
  findings.expect(block == sw::local_values(tensor), "block of rank ", mesh.rank());
  const auto whole = sw::local_values(sw::redistribute<sw::Layout<L::tensor_rank>>(tensor));
  std::vector<std::int32_t> wanted(whole.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  findings.expect(!whole.empty() && whole == wanted, "the numbers of ", whole.size());
}

} // namespace

TEST_CASE("each rank keeps its block's part of every row, and reads no other rows") {
  for (const int tensor : {1, 2, 3})
    for (const int data : {1, 2})
      CHECK(on_ranks(data * tensor, [=](const sw::HostCommunicator& world, Findings& findings) {
              const Mesh mesh{world, sw::extent<dp>(data), sw::extent<tp>(tensor)};
              using sw::Layout;
              using sw::Shard;
              check<Layout<1, Shard<0, dp, tp>>>(mesh, findings, {5}); // some of the six ranks have none
              check<Layout<1>>(mesh, findings, {5});
              check<Layout<2, Shard<0, dp>>>(mesh, findings, {3, 4});
              check<Layout<2, Shard<0, dp>, Shard<1, tp>>>(mesh, findings, {3, 7});
              check<Layout<2, Shard<1, tp>>>(mesh, findings, {2, 5});
              check<Layout<3, Shard<0, dp>, Shard<1, tp>>>(mesh, findings, {3, 5, 2});
              check<Layout<3, Shard<0, dp>, Shard<2, tp>>>(mesh, findings, {3, 2, 5});
              check<Layout<3, Shard<1, dp>, Shard<2, tp>>, shardwright_test::MimicTarget>(mesh, findings,
                                                                                          {2, 3, 5});
            }) == "");
}
