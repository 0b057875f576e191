// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/batch_plan.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright_test;

std::string sentence_of(std::int64_t batch, std::int64_t ranks, std::int64_t microbatch,
                        std::int64_t accumulation) {
  try {
    BatchPlan plan(batch, ranks, microbatch, accumulation);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

} // namespace

TEST_CASE("batch_plan: passes and data ranks cover every row once, in the order of Shard<0, dp>") {
  const BatchPlan plan(24, 4, 3, 2);
  std::vector<int> covered(24, 0);
  for (std::size_t pass = 0; pass < 2; ++pass)
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const RowRange rows = plan.rows(pass, rank);
      CHECK(rows.size() == 3);
      CHECK(rows.begin == pass * 12 + rank * 3);
      for (std::size_t row = rows.begin; row < rows.end; ++row)
        ++covered[row];
    }
  CHECK(covered == std::vector<int>(24, 1));
  CHECK_THROWS_AS(plan.rows(2, 0), InvalidArgument);
  CHECK_THROWS_AS(plan.rows(0, 4), InvalidArgument);
}

TEST_CASE("batch_plan: a batch that is not the product is rejected with all numbers and a fix") {
  CHECK(sentence_of(12, 2, 3, 2).empty());
  CHECK_THAT(sentence_of(13, 2, 3, 2),
             ContainsSubstring("13 is not 2 x 3 x 2 = 12") && ContainsSubstring("give batch 12"));
  CHECK_THAT(sentence_of(18, 2, 3, 2), ContainsSubstring("or accumulation 3"));
  CHECK_THAT(sentence_of(16, 2, 3, 2), ContainsSubstring("or microbatch 4"));
}

TEST_CASE("batch_plan: numbers that are not positive or overflow are rejected") {
  CHECK_THAT(sentence_of(0, 1, 1, 1), ContainsSubstring("batch 0"));
  CHECK_THAT(sentence_of(4, -2, 1, 1), ContainsSubstring("dp -2"));
  CHECK_THAT(sentence_of(4, 1, 0, 1), ContainsSubstring("microbatch 0"));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THAT(sentence_of(4, most, 2, 1), ContainsSubstring("64 bits"));
  CHECK_THAT(sentence_of(4, 2, 2, most), ContainsSubstring("64 bits"));
}
