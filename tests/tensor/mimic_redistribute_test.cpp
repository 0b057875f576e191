// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <cstdint>
#include <cstring>
#include <vector>

using namespace shardwright;
using shardwright_test::Findings;
using shardwright_test::MimicTarget;
using shardwright_test::on_ranks;

namespace {

using axis::dp;
using axis::tp;
using Rows = Layout<2, Shard<0, dp>>;
using Columns = Layout<2, Shard<1, dp>>;
using Unsummed = Layout<2, Partial<Sum, dp>>;
using Whole = Layout<2>;

/// A tensor of random numbers of the rank.
template <class L, class Where, class Mesh>
ShardedTensor<L, float, Where> filled(const Mesh& mesh, std::uint64_t seed) {
  ShardedTensor<L, float, Where> out(mesh, {13, 10});
  std::uint64_t bits = seed + 77 * static_cast<std::uint64_t>(mesh.rank());
  float* const to = out.mutable_data();
  for (std::size_t i = 0; i < out.local_size(); ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    to[i] = static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f;
  }
  return out;
}

template <class From, class To, class Mesh>
void same_on_both(const Mesh& mesh, Findings& findings, const char* what) {
  const auto host = redistribute<To>(filled<From, DefaultTarget>(mesh, 5));
  const auto device = redistribute<To>(filled<From, MimicTarget>(mesh, 5));
  const auto source = filled<From, MimicTarget>(mesh, 5);
  auto pending = redistribute_async<To>(source);
  const auto started = pending.wait();
  const std::size_t bytes = host.local_size() * sizeof(float);
  findings.expect(host.local_size() == device.local_size() &&
                      (bytes == 0 || std::memcmp(host.data(), device.data(), bytes) == 0),
                  what, " on rank ", mesh.rank());
  findings.expect(bytes == 0 || std::memcmp(host.data(), started.data(), bytes) == 0, "started ", what);
}

} // namespace

TEST_CASE("a device target redistributes to the bits of the host", "[tensor]") {
  for (const int ranks : {1, 2, 3, 4})
    CHECK(on_ranks(ranks, [ranks](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(ranks)};
            same_on_both<Unsummed, Whole>(mesh, findings, "all_reduce");
            same_on_both<Unsummed, Rows>(mesh, findings, "reduce_scatter of rows");
            same_on_both<Unsummed, Columns>(mesh, findings, "reduce_scatter of columns");
            same_on_both<Rows, Whole>(mesh, findings, "all_gather of rows");
            same_on_both<Columns, Whole>(mesh, findings, "all_gather of columns");
            same_on_both<Rows, Columns>(mesh, findings, "all_to_all");
          }) == "");
}

TEST_CASE("a device target redistributes over two axes to the bits of the host", "[tensor]") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          same_on_both<Layout<2, Partial<Sum, dp>, Partial<Sum, tp>>, Whole>(mesh, findings,
                                                                             "a merged all_reduce");
          same_on_both<Layout<2, Partial<Sum, dp>, Shard<1, tp>>, Layout<2, Shard<0, dp>>>(
              mesh, findings, "several collectives");
        }) == "");
}
