// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/layout/mesh_place.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/train/parameter_ledger.hpp>
#include <shardwright/train/tensor_ledger.hpp>

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace sw = shardwright;
using namespace sw::axis;

namespace {

/// The layouts of a Parameter with weights of two bytes and gradients of four, or of four and four.
template <class Zero, class Stored, class Main>
struct Layouts {
  using element = Stored;
  using main_element = Main;
  using compute_layout = sw::Layout<2, sw::Shard<1, tp>>;
  using raw_layout = sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dpr, dp, cp>>;
  using stored_layout = typename Zero::template Stored<compute_layout>;
  using state_layout = typename Zero::template State<compute_layout>;
  using accumulator_layout = typename Zero::template Accumulator<compute_layout, raw_layout>;
  static constexpr bool has_master = !std::is_same_v<Stored, Main>;
};
using Half = std::uint16_t; // two bytes, as bfloat16

constexpr std::array<std::int64_t, 2> shape{64, 32};
constexpr std::int64_t parameters = 64 * 32 / 2; // tp holds half of them

template <class Zero, class Stored = Half>
constexpr double bytes_per_parameter(int dp_ranks, int cp_ranks, int dpr_ranks = 1) {
  const sw::MeshShape mesh{sw::extent<dpr>(dpr_ranks), sw::extent<dp>(dp_ranks), sw::extent<cp>(cp_ranks),
                           sw::extent<tp>(2)};
  return static_cast<double>(
             sw::model_state_bytes<Layouts<Zero, Stored, float>>(sw::MeshPlace(mesh, 0), shape).total()) /
         static_cast<double>(parameters);
}

} // namespace

TEST_CASE("model state follows the formulas of ZeRO, with gradients in single precision") {
  // Weights of two bytes, gradients, moments and master weights of four: 18, 6 + 12/N, 2 + 16/N, 18/N.
  STATIC_REQUIRE(bytes_per_parameter<sw::DataParallel>(1, 1) == 18);
  STATIC_REQUIRE(bytes_per_parameter<sw::DataParallel>(8, 1) == 18);
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero1>(4, 1) == 6 + 12.0 / 4);
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero1>(4, 2) == 6 + 12.0 / 8);
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero2>(4, 2) == 2 + 16.0 / 8);
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero3>(4, 2) == 18.0 / 8);
  // Weights of four bytes are their own master copy: 16, 8 + 8/N, 4 + 12/N, 16/N.
  STATIC_REQUIRE(bytes_per_parameter<sw::DataParallel, float>(4, 1) == 16);
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero1, float>(4, 1) == 8 + 8.0 / 4);
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero2, float>(4, 1) == 4 + 12.0 / 4);
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero3, float>(4, 1) == 16.0 / 4);
  // Replicas of a shard group divide nothing.
  STATIC_REQUIRE(bytes_per_parameter<sw::Zero3>(4, 1, 2) == 18.0 / 4);
}

TEST_CASE("a place on a mesh gives the rank's own block, uneven ones included") {
  using Rows = sw::Layout<2, sw::Shard<0, dp, tp>>;
  constexpr sw::MeshShape mesh{sw::extent<dp>(4), sw::extent<tp>(2)};
  // 13 rows over 4 x 2: the last rank has none.
  STATIC_REQUIRE(sw::MeshPlace(mesh, 0).elements<Rows>(std::array<std::int64_t, 2>{13, 5}) == 10);
  STATIC_REQUIRE(sw::MeshPlace(mesh, 6).elements<Rows>(std::array<std::int64_t, 2>{13, 5}) == 5);
  STATIC_REQUIRE(sw::MeshPlace(mesh, 7).elements<Rows>(std::array<std::int64_t, 2>{13, 5}) == 0);
  using OverCp = sw::Layout<1, sw::Shard<0, cp>>;
  const std::array<std::int64_t, 1> length{4};
  CHECK_THROWS_AS(sw::MeshPlace(mesh, 0).elements<OverCp>(length), sw::InvalidArgument);
}

TEST_CASE("a ledger remembers the fullest moment by kind, with what blocks are rounded up by") {
  sw::MemoryLedger ledger;
  auto parameters_block = ledger.take(sw::MemoryKind::parameters, 1000);
  {
    const auto shared = ledger.take(sw::MemoryKind::temporaries, 1025);
    const auto copy = shared;
    CHECK(ledger.now().total() == 1024 + 1152);
  }
  CHECK(ledger.now()[sw::MemoryKind::temporaries] == 0);
  const auto stream = ledger.take(sw::MemoryKind::stream, 300);
  CHECK(ledger.peak()[sw::MemoryKind::temporaries] == 1025);
  CHECK(ledger.peak()[sw::MemoryKind::stream] == 0);
  CHECK(ledger.peak().requested() == 2025);
  CHECK(ledger.peak().rounding == 24 + 127);
  parameters_block.reset();
  CHECK(ledger.now().requested() == 300);
}

TEST_CASE("a transition takes a new block, its temporaries, or the memory that it starts from") {
  using Sharded = sw::Layout<1, sw::Shard<0, dp>>;
  using Unfinished = sw::Layout<1, sw::Partial<sw::Sum, dp>>;
  using Whole = sw::Layout<1>;
  constexpr sw::MeshShape mesh{sw::extent<dp>(4)};
  constexpr std::array<std::int64_t, 1> length{4096};
  constexpr auto kind = sw::MemoryKind::temporaries;
  sw::TensorLedger tensors{sw::MeshPlace(mesh, 1)};

  auto part = tensors.tensor<Sharded, float>(kind, length);
  CHECK(tensors.ledger().now().requested() == 4096);
  const auto whole = tensors.redistributed<Sharded, Whole, float>(kind, std::move(part), length);
  CHECK(part); // an all_gather leaves its input
  CHECK(tensors.ledger().now().requested() == 5 * 4096);

  auto sum = tensors.tensor<Unfinished, float>(kind, length);
  const auto* const memory = sum.get();
  const auto finished = tensors.redistributed<Unfinished, Whole, float>(kind, std::move(sum), length);
  CHECK(finished.get() == memory); // in place
  const auto another = tensors.redistributed_copy<Unfinished, Whole, float>(kind, finished, length);
  CHECK(another.get() != memory); // a tensor that stays is not written over
}
