// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/schedule_rule.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

using namespace shardwright;
using shardwright_test::ContainsSubstring;

namespace {

template <class Policy> std::string refusal(int ranks, int microbatches) {
  try {
    static_cast<void>(make_schedule<Policy>(ranks, microbatches));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

/// Legal numbers by the definitions, and the nearest ones by checking every number.
template <class Policy, class Legal> void check_rule(const Legal& legal) {
  for (int p = -1; p <= 16; ++p)
    for (int m = -1; m <= 64; ++m) {
      const bool wanted = p > 0 && m > 0 && legal(p, m);
      INFO(Policy::name << " p " << p << " m " << m);
      REQUIRE(schedule_rule<Policy>(p, m).holds() == wanted);
      REQUIRE(refusal<Policy>(p, m).empty() == wanted);
      if (wanted || p < 1)
        continue;
      const bool any = [&] {
        for (int other = 1; other <= 200; ++other)
          if (legal(p, other))
            return true;
        return false;
      }();
      if (!any) {
        REQUIRE(schedule_rule<Policy>(p, m).about ==
                (m < 1 ? ScheduleExtent::microbatches : ScheduleExtent::ranks));
        continue;
      }
      int below = m - 1;
      while (below > 0 && !legal(p, below))
        --below;
      int above = std::max(m + 1, 1);
      while (!legal(p, above))
        ++above;
      REQUIRE(nearest_legal<Policy>(ScheduleExtent::microbatches, p, m) ==
              NearestLegal{std::max(below, 0), above});
      const std::string said = refusal<Policy>(p, m);
      REQUIRE_THAT(said, ContainsSubstring("the nearest legal numbers of microbatches are "));
      REQUIRE_THAT(said, ContainsSubstring(std::to_string(above) + ")"));
      if (below > 0)
        REQUIRE_THAT(said, ContainsSubstring(std::to_string(below) + " and "));
    }
}

bool always(int, int) { return true; }

} // namespace

TEST_CASE("policies allow what the definitions allow, and name the nearest legal numbers", "[rule]") {
  check_rule<GPipe>(always);
  check_rule<OneFOneB>(always);
  check_rule<ZBH1>(always);
  check_rule<ZBH2>(always);
  check_rule<ZBV>(always);
  check_rule<Interleaved<1>>([](int p, int m) { return m % std::max(1, m / p) == 0; });
  check_rule<Interleaved<4>>([](int p, int m) { return m % std::max(1, m / p) == 0; });
  check_rule<InterleavedZB<2>>([](int p, int m) { return m % std::max(1, m / p) == 0; });
  check_rule<DualPipe>([](int p, int m) { return p % 2 == 0 && m % 2 == 0 && m >= 2 * p; });
  check_rule<DualPipeV>([](int p, int m) { return m >= 2 * p; });
}

TEST_CASE("an error states the rule and the nearest legal numbers", "[rule]") {
  CHECK(
      refusal<DualPipe>(4, 9) ==
      "dualpipe: the number of microbatches must be even and at least twice the number of ranks, but there are 9 microbatches on 4 ranks (the nearest legal numbers of microbatches are 8 and 10)");
  CHECK(
      refusal<DualPipe>(5, 20) ==
      "dualpipe: the number of ranks must be even, but there are 20 microbatches on 5 ranks (the nearest legal numbers of ranks are 4 and 6)");
  CHECK_THAT(refusal<DualPipeV>(4, 7), ContainsSubstring("microbatches are 8)"));
  STATIC_REQUIRE(Interleaved<2, 1>::group(4, 8) == 1);
  CHECK(
      refusal<Interleaved<2>>(2, 5) ==
      "interleaved: the number of microbatches must be divisible by microbatches / ranks, rounded down, but there are 5 microbatches on 2 ranks (the nearest legal numbers of microbatches are 4 and 6)");
  CHECK_THAT((refusal<Interleaved<2, 4>>(8, 9)),
             ContainsSubstring("the nearest legal numbers of ranks are 4"));
  CHECK_THAT((refusal<Interleaved<2, 4>>(4, 9)), ContainsSubstring("the last group"));
}

TEST_CASE("an advice that needs another number of the other kind names both", "[rule]") {
  CHECK(
      refusal<DualPipe>(3, 5) ==
      "dualpipe: the number of ranks must be even, but there are 5 microbatches on 3 ranks (the nearest legal numbers of ranks are 2 with 6 microbatches and 4 with 8 microbatches)");
  CHECK_THAT(refusal<DualPipe>(5, 8), ContainsSubstring("are 4 and 6 with 12 microbatches)"));
  for (int p = 1; p <= 12; ++p)
    for (int m = 1; m <= 30; ++m) {
      const ScheduleRule rule = schedule_rule<DualPipe>(p, m);
      if (rule.holds())
        continue;
      const NearestLegal nearest = nearest_legal<DualPipe>(rule.about, p, m);
      const bool of_ranks = rule.about == ScheduleExtent::ranks;
      const auto legal = [&](int value, int beside) {
        const int other = beside > 0 ? beside : of_ranks ? m : p;
        return value == 0 ||
               schedule_rule<DualPipe>(of_ranks ? value : other, of_ranks ? other : value).holds();
      };
      REQUIRE(nearest.above > 0);
      REQUIRE(legal(nearest.below, nearest.beside_below));
      REQUIRE(legal(nearest.above, nearest.beside_above));
    }
}

TEST_CASE("numbers of 64 bits are not cut to 32", "[rule]") {
  constexpr std::int64_t four = (std::int64_t{1} << 32) + 4; // 4 in its lower half
  const auto sentence = [](const auto& make) {
    try {
      make();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(sentence([] { static_cast<void>(make_schedule<ZBV>(four, 8)); }) ==
        "zbv: the number of ranks must be at most 2147483647, but it is 4294967300 (take fewer)");
  CHECK_THAT(
      sentence([] { static_cast<void>(make_schedule("zbv", 2, four)); }),
      ContainsSubstring("the number of microbatches must be at most 2147483647, but it is 4294967300"));
  CHECK_THAT(sentence([] { static_cast<void>(make_schedule("interleaved", 2, 8, four)); }),
             ContainsSubstring("but there are 4294967300"));
  CHECK_THAT(sentence([] { static_cast<void>(make_schedule("zbv", four - (std::int64_t{1} << 33), 8)); }),
             ContainsSubstring("must be positive"));
  CHECK_THAT(sentence([] { static_cast<void>(PipelineSchedule<ZBV>::prove(2, four)); }),
             ContainsSubstring("at most 2147483647"));
  CHECK(make_schedule("zbv", std::int64_t{2}, std::int64_t{4}).microbatches() == 4);
}

TEST_CASE("static numbers are checked by the compiler", "[rule]") {
  STATIC_REQUIRE(sizeof(detail::StaticRule<DualPipe, 4, 8>) > 0);
  STATIC_REQUIRE(nearest_legal<DualPipe>(ScheduleExtent::microbatches, 4, 9) == NearestLegal{8, 10});
}
