// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/csv_schedule.hpp>
#include <shardwright/schedule/whole_batch_loss.hpp>

#include <string_view>

using namespace shardwright;

namespace {

struct OfOneV {
  static constexpr std::string_view csv = "0F0,0F1,,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1\n"
                                          "1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,2W1,1I1,1W1\n";
};
/// Rank 1 takes the first forward last, while rank 0 sends on.
struct ManySends {
  static constexpr std::string_view csv = "0UNSHARD,0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0,0REDUCE_GRAD\n"
                                          "1F3,1F2,1F1,1F0,1B3,1B2,1B1,1B0\n";
};
struct ForwardsFirst {
  static constexpr std::string_view csv = "0F1,0F0,0B0,0B1\n1F1,1F0,1B0,1B1";
};

} // namespace

TEST_CASE("a custom schedule is proven where it is named", "[csv]") {
  using Custom = PipelineSchedule<CsvSchedule<OfOneV>>;
  STATIC_REQUIRE(Custom::proof.holds());
  STATIC_REQUIRE(CsvSchedule<OfOneV>::ranks == 2);
  STATIC_REQUIRE(CsvSchedule<OfOneV>::microbatches == 2);
  STATIC_REQUIRE(CsvSchedule<OfOneV>::stage_placement == StagePlacement::v_shape(2));
  STATIC_REQUIRE(!all_forwards_first<PolicySchedule<CsvSchedule<OfOneV>>>);
  STATIC_REQUIRE(Custom::prove(2, 2, {1, 1, 1, 3}).makespan > Custom::proof.makespan);

  const Schedule stored = make_schedule<CsvSchedule<OfOneV>>(2, 2);
  CHECK(prove(stored).makespan == Custom::proof.makespan);
  CHECK(prove(stored).peak_in_flight == Custom::proof.peak_in_flight);
  CHECK_THROWS_AS(make_schedule<CsvSchedule<OfOneV>>(2, 3), InvalidArgument);
}

TEST_CASE("a custom schedule has the smallest window that holds, and ignores what is no pass", "[csv]") {
  STATIC_REQUIRE(PipelineSchedule<CsvSchedule<ManySends>>::proof.holds());
  STATIC_REQUIRE(message_window<CsvSchedule<ManySends>>(2, 4).sends_in_flight == 4);
  STATIC_REQUIRE(!PipelineSchedule<CsvSchedule<ManySends>>::prove(2, 4, {}, {2, 3}).holds());
  CHECK(make_schedule<CsvSchedule<ManySends>>(2, 4).window().sends_in_flight == 4);
}

TEST_CASE("forwards-first is derived from the text", "[csv]") {
  STATIC_REQUIRE(all_forwards_first<PolicySchedule<CsvSchedule<ForwardsFirst>>>);
  STATIC_REQUIRE(PipelineSchedule<CsvSchedule<ForwardsFirst>>::proof.peak_in_flight == 2);
}
