// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>
#include <shardwright/tensor/elementwise/choices.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/tape.hpp>

#include <cstdint>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;

using Mesh = sw::DeviceMesh<dp, tp>;
using Rows = sw::Layout<2, sw::Shard<0, dp>>;

/// Rank 2 * dp + tp.
[[nodiscard]] Mesh mesh_of(const sw::HostCommunicator& world) {
  return Mesh(world, sw::extent<dp>(world.size() / 2), sw::extent<tp>(2));
}
[[nodiscard]] sw::ShardedTensor<Rows> random_rows(const Mesh& mesh, std::int64_t rows, float more = 0) {
  // Not made on the mesh, which compares shapes in a checked build.
  sw::ShardedTensor<Rows> out(mesh.core().resources<sw::DefaultTarget>(), {rows, 3});
  sw::fill_normal(out, {1, 1});
  for (std::size_t i = 0; i < out.local_size(); ++i)
    out.mutable_data()[i] += more;
  return out;
}

} // namespace

TEST_CASE("equal inputs pass, and sharded ones with different or empty blocks") {
  for (const int ranks : {2, 4, 6})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world);
            for (const std::int64_t rows : {0, 2, 7})
              sw::require_equal_inputs(random_rows(mesh, rows));
            // Blocks that no other rank has are not compared.
            sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp, tp>>> own(mesh, {8, 2});
            sw::fill(own, static_cast<float>(world.rank()));
            sw::require_equal_inputs(own);
            findings.expect(true, "all pass");
          }) == "");
}

TEST_CASE("ranks with a tensor of a different shape are named on every rank") {
  const auto outcomes = rank_outcomes::of(4, rank_outcomes::ample, [](const sw::HostCommunicator& world) {
    const Mesh mesh = mesh_of(world);
    sw::require_equal_inputs(random_rows(mesh, world.rank() == 3 ? 6 : 8));
  });
  for (const auto& outcome : outcomes)
    CHECK_THAT(
        rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
        ContainsSubstring(
            "Input: a tensor must have the same global shape on all ranks, but it is [8, 3] on rank 0 and "
            "[6, 3] on rank 3 (compute the shape from what all ranks share)"));
}

TEST_CASE("ranks whose copies of an input differ are named with the axis, on every rank") {
  const auto outcomes = rank_outcomes::of(6, rank_outcomes::ample, [](const sw::HostCommunicator& world) {
    const Mesh mesh = mesh_of(world);
    sw::require_equal_inputs(random_rows(mesh, 9, world.rank() == 1 || world.rank() == 5 ? 1.0F : 0.0F));
  });
  for (const auto& outcome : outcomes)
    CHECK_THAT(
        rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
        ContainsSubstring(
            "Input: ranks along tp, over which the layout replicates, must have equal values, but ranks "
            "1 and 5 differ from the first rank along it (read the batch with load_rows()"));
}

TEST_CASE("a tape compares its inputs if told to, and never variables") {
  for (const bool on : {false, true}) {
    const auto outcomes = rank_outcomes::of(2, rank_outcomes::ample, [on](const sw::HostCommunicator& world) {
      const Mesh mesh = mesh_of(world);
      const auto odd = random_rows(mesh, 4, static_cast<float>(world.rank()));
      sw::Tape<> tape;
      tape.check_inputs(on);
      static_cast<void>(tape.variable(odd));
      static_cast<void>(tape.input(odd));
    });
    for (const auto& outcome : outcomes) {
      if (on || sw::always_checked)
        CHECK_THAT(rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
                   ContainsSubstring("must have equal values") && ContainsSubstring("input_check_test.cpp"));
      else
        CHECK(outcome == nullptr);
    }
  }
}

TEST_CASE("a constant tensor operand is compared like an input, and so is a mask") {
  enum class Odd { left, right, mask };
  for (const bool on : {false, true})
    for (const Odd place : {Odd::left, Odd::right, Odd::mask}) {
      const auto outcomes =
          rank_outcomes::of(2, rank_outcomes::ample, [&](const sw::HostCommunicator& world) {
            const Mesh mesh = mesh_of(world);
            const auto odd = random_rows(mesh, 4, static_cast<float>(world.rank()));
            sw::Tape<> tape;
            tape.check_inputs(on);
            const auto x = tape.input(random_rows(mesh, 4));
            if (place == Odd::left) {
              static_cast<void>(sw::multiply(odd, x));
            } else if (place == Odd::right) {
              static_cast<void>(sw::multiply(x, odd));
            } else {
              sw::ShardedTensor<Rows, std::int32_t> mask(mesh, {4, 3});
              sw::fill(mask, world.rank());
              static_cast<void>(sw::where(mask, x, x));
            }
          });
      for (const auto& outcome : outcomes) {
        if (on || sw::always_checked)
          CHECK_THAT(rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
                     ContainsSubstring("must have equal values"));
        else
          CHECK(outcome == nullptr);
      }
    }
}

TEST_CASE("a tape compares the numbers of its operations if told to") {
  for (const bool on : {false, true}) {
    const auto outcomes = rank_outcomes::of(4, rank_outcomes::ample, [on](const sw::HostCommunicator& world) {
      const Mesh mesh = mesh_of(world);
      sw::Tape<> tape;
      tape.check_inputs(on);
      const auto x = tape.input(random_rows(mesh, 4));
      static_cast<void>(x * (2 + mesh.coordinate<dp>())); // of its own rows
      static_cast<void>(x / (1 + mesh.coordinate<tp>()));
    });
    for (const auto& outcome : outcomes) {
      if (on || sw::always_checked)
        CHECK_THAT(rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
                   ContainsSubstring("divide: all ranks along tp must give the same divisor, but it is 1 on "
                                     "rank 0 and 2 on rank 1 (compute it from what all ranks share)") &&
                       ContainsSubstring("input_check_test.cpp:"));
      else
        CHECK(outcome == nullptr);
    }
  }
}
