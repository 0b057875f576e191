// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/layout/describe.hpp>

#include <algorithm>

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::ContainsSubstring;

TEST_CASE("a layout is described as it is written", "[describe]") {
  CHECK(describe<Layout<2, Partial<Sum, tp>, Shard<0, dp, cp>>>() ==
        "Layout<2, Shard<0, dp, cp>, Partial<Sum, tp>>");
  CHECK(describe<Layout<3>>() == "Layout<3>");
  CHECK(describe<Layout<1, Partial<Avg, tp>, Partial<Sum, dp>>>() ==
        "Layout<1, Partial<Sum, dp>, Partial<Avg, tp>>");
  CHECK(describe<Transition<Layout<0, Partial<OrderedSum, tp>>, Layout<0>>>() ==
        "Layout<0, Partial<OrderedSum, tp>> -> Layout<0>: all_reduce of the ordered sum over tp");
}

TEST_CASE("a transition is described step by step", "[describe]") {
  using From = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
  CHECK(
      describe<Transition<From, Layout<2, Shard<0, dp>>>>() ==
      "Layout<2, Shard<0, dp>, Partial<Sum, tp>> -> Layout<2, Shard<0, dp>>: all_reduce of the sum over tp");
  CHECK(
      describe<Transition<From, Layout<2, Shard<1, tp>>>>() ==
      "Layout<2, Shard<0, dp>, Partial<Sum, tp>> -> Layout<2, Shard<1, tp>>: reduce_scatter of the sum over tp, onto dimension 1; then all_gather of dimension 0 over dp");
  CHECK_THAT((describe<Transition<From, From>>()), ContainsSubstring("nothing to do"));
  CHECK_THAT((describe<Transition<Layout<2, Shard<0, tp>>, Layout<2, Shard<1, tp>>>>()),
             ContainsSubstring("all_to_all from dimension 0 to dimension 1 over tp"));
  CHECK_THAT((describe<InternalTransition<Layout<2>, Layout<2, Partial<Sum, tp>>>>()),
             ContainsSubstring("keep on the first rank over tp, zero elsewhere"));
}

TEST_CASE("the table has a row and a column for every layout", "[describe]") {
  const std::string table = transition_table();
  CHECK(std::count(table.begin(), table.end(), '\n') == 7);
  for (const char* layout : {"Layout<2>", "Layout<2, Shard<0, tp>>", "Layout<2, Shard<1, tp>>",
                             "Layout<2, Partial<Sum, tp>>", "Layout<2, Partial<Max, tp>>"}) {
    CHECK_THAT(table, ContainsSubstring(" `" + std::string(layout) + "` |"));
    CHECK_THAT(table, ContainsSubstring("\n| `" + std::string(layout) + "` | "));
  }
  CHECK_THAT(table, ContainsSubstring("reduce_scatter of the sum over tp, onto dimension 1"));
  CHECK_THAT(table, ContainsSubstring("error: Shard cannot become Partial"));
  CHECK_THAT(table, ContainsSubstring("error: a complete value cannot become Partial"));
  CHECK_THAT(table, ContainsSubstring("all_reduce of the maximum over tp"));
}
