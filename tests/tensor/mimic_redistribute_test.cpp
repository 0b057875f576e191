// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/mimic_target.hpp"
#include "tensor/transition_check.hpp"

#include <cstdint>
#include <string>

using shardwright_test::Findings;
using shardwright_test::MimicTarget;
using shardwright_test::on_ranks;

namespace {

/// A device whose stream waits for a rank that has failed.
struct LostTarget : MimicTarget {
  [[nodiscard]] static bool idle(const execution_space&) {
    throw shardwright::PeerFailed(1, "rank 1 is gone");
  }
};

} // namespace

TEST_CASE("a rank that is gone is not reported as a lack of memory", "[tensor]") {
  CHECK(on_ranks(1, [](const shardwright::HostCommunicator& world, Findings& findings) {
          const shardwright::DeviceMesh mesh{world, shardwright::extent<shardwright::axis::dp>(1)};
          std::string said = "nothing";
          try {
            const shardwright::ShardedTensor<shardwright::Layout<1>, float, LostTarget> values(mesh, {4});
          } catch (const shardwright::PeerFailed& error) {
            said = error.what();
          }
          findings.expect(said == "rank 1 is gone", said);
        }) == "");
}

TEST_CASE("a device target redistributes bitwise like the host", "[tensor]") {
  for (const int ranks : {1, 2, 3, 4})
    CHECK(on_ranks(ranks, transition_check::over_one_axis<MimicTarget>) == "");
}

TEST_CASE("a device target redistributes over two axes bitwise like the host", "[tensor]") {
  CHECK(on_ranks(4, transition_check::over_two_axes<MimicTarget>) == "");
}

TEST_CASE("a target with separate memory gets all of it back", "[tensor]") {
  CHECK(on_ranks(2, [](const shardwright::HostCommunicator& world, Findings& findings) {
          using shardwright::axis::dp;
          {
            const shardwright::DeviceMesh mesh{world, shardwright::extent<dp>(2)};
            const auto rows =
                transition_check::filled<shardwright::Layout<2, shardwright::Shard<0, dp>>, MimicTarget>(
                    mesh);
            findings.expect(MimicTarget::held_bytes() >= static_cast<std::int64_t>(4 * rows.local_size()),
                            "memory of the pool");
          }
          findings.expect(MimicTarget::held_bytes() == 0, "what is left of it");
        }) == "");
}
