// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using sw::GivenNumber;
using sw::axis::dp;
using sw::axis::tp;

using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Parts = sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dp>>;
static_assert(sw::detail::SplittingAxes<Rows>::names == std::array<std::string_view, 1>{"dp"});
static_assert(sw::detail::SplittingAxes<Parts>::names == std::array<std::string_view, 1>{"tp"});
static_assert(sw::detail::SplittingAxes<sw::Layout<1>>::size == 0);

/// What the ranks of dp = 2, tp = 2 say of a number that acts on a tensor of layout L; "" if they agree.
template <class L, class NumberOf> std::string said(NumberOf number_of, const char* operation = "scale") {
  const auto outcomes = rank_outcomes::of(4, rank_outcomes::ample, [&](const sw::HostCommunicator& world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
    const std::array numbers{GivenNumber("factor", number_of(mesh))};
    sw::detail::require_agreement(mesh.core(), world.rank() == 0 ? "scale" : operation, numbers,
                                  sw::detail::SplittingAxes<L>::names, sw::SourceLocation::current());
  });
  std::string out;
  for (const auto& outcome : outcomes)
    if (outcome != nullptr)
      out = rank_outcomes::text<sw::ConfigurationMismatch>(outcome);
  for (const auto& outcome : outcomes)
    CHECK((outcome == nullptr) == out.empty());
  return out;
}

} // namespace

TEST_CASE("numbers that ranks give alike, or for blocks that only they have, agree") {
  CHECK(said<Rows>([](const auto&) { return 0.1; }).empty());
  CHECK(said<Rows>([](const auto& mesh) { return 1 + mesh.template coordinate<dp>(); }).empty());
  CHECK(said<Parts>([](const auto& mesh) { return 1 + mesh.template coordinate<tp>(); }).empty());
}

TEST_CASE("numbers that differ where a tensor is replicated or Partial are named with ranks, axis and line") {
  CHECK_THAT(
      said<Rows>([](const auto& mesh) { return 1 + mesh.template coordinate<tp>(); }),
      ContainsSubstring("scale: all ranks along tp must give the same factor, but it is 1 on rank 0 and 2 on "
                        "rank 1 (compute it from what all ranks share)") &&
          ContainsSubstring("agreement_test.cpp:"));
  CHECK_THAT(
      said<Parts>([](const auto& mesh) { return mesh.rank() == 3 ? 0.25 : 0.5; }),
      ContainsSubstring("along dp must give the same factor, but it is 0.5 on rank 1 and 0.25 on rank 3"));
}

TEST_CASE("differences in the last bit, in sign and beyond 63 bits are seen and written") {
  CHECK_THAT(said<Rows>([](const auto& mesh) { return mesh.rank() == 1 ? 0.1 : std::nextafter(0.1, 1.0); }),
             ContainsSubstring("it is 0.10000000000000002 on rank 0 and 0.1 on rank 1"));
  CHECK_THAT(said<Rows>([](const auto& mesh) { return mesh.rank() == 1 ? -3 : 3; }),
             ContainsSubstring("it is 3 on rank 0 and -3 on rank 1"));
  CHECK_THAT(said<Rows>([](const auto& mesh) {
               return mesh.rank() == 1 ? std::numeric_limits<std::uint64_t>::max() : std::uint64_t{7};
             }),
             ContainsSubstring("it is 7 on rank 0 and 18446744073709551615 on rank 1"));
}

TEST_CASE("numbers of a list and of parameters are named, on ranks of several meshes") {
  const auto said_of = [](int odd) {
    const auto outcomes =
        rank_outcomes::of(3, rank_outcomes::ample, [odd](const sw::HostCommunicator& world) {
          const double more = world.rank() == 2 ? 1 : 0;
          std::array numbers{GivenNumber("frequency", 1 + (odd == 0 ? more : 0), 7),
                             GivenNumber("decay factor", 0.5 + (odd == 1 ? more : 0))};
          numbers[1].of = odd == 2 && world.rank() == 2 ? "head" : "body";
          sw::require_agreement(world, "Mine", numbers);
        });
    for (const auto& outcome : outcomes)
      CHECK((outcome == nullptr) == (odd == 3));
    return odd == 3 ? "" : rank_outcomes::text<sw::ConfigurationMismatch>(outcomes[1]);
  };
  CHECK(said_of(3).empty());
  CHECK_THAT(said_of(0), ContainsSubstring("Mine: all ranks must give the same frequency 7, but it is 1 on "
                                           "rank 0 and 2 on rank 2 (compute it from what all ranks share)") &&
                             ContainsSubstring("agreement_test.cpp:"));
  CHECK_THAT(said_of(1), ContainsSubstring("the same decay factor of body, but it is 0.5 on rank 0 and 1.5"));
  CHECK_THAT(said_of(2), ContainsSubstring("but rank 2 and rank 0 run different ones"));
}

TEST_CASE("ranks that compare numbers of different operations are named") {
  CHECK_THAT(
      said<Rows>([](const auto&) { return 1; }, "fill"),
      ContainsSubstring("all ranks must run the same operations in the same order, but rank 1 and rank 0 run "
                        "different ones (remove what only some ranks do)"));
}
