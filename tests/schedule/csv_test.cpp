// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

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
#include <shardwright/schedule/smallest_window.hpp>
#include <shardwright/schedule/text/csv.hpp>

#include <algorithm>
#include <string>
#include <string_view>

using namespace shardwright;
using shardwright_test::ContainsSubstring;

namespace {

std::string refusal(std::string_view text) {
  try {
    static_cast<void>(schedule_from_csv(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class Policy> void check_round_trips() {
  int checked = 0;
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 20; ++m) {
      if (!schedule_rule<Policy>(p, m).holds())
        continue;
      const Schedule schedule = make_schedule<Policy>(p, m);
      const std::string text = to_csv(schedule);
      const Schedule back = schedule_from_csv(text, schedule.name());
      INFO(text);
      if (p > 1) // on one rank a V and a loop are the same
        REQUIRE(back.placement() == schedule.placement());
      REQUIRE(back.microbatches() == m);
      REQUIRE(back.name() == schedule.name());
      for (int r = 0; r < p; ++r)
        REQUIRE(std::equal(back.steps(r).begin(), back.steps(r).end(), schedule.steps(r).begin(),
                           schedule.steps(r).end()));
      REQUIRE(to_csv(back) == text);
      REQUIRE(prove(back).holds());
      REQUIRE(prove(back).makespan == prove(schedule).makespan);
      REQUIRE(back.window().sends_in_flight <= schedule.window().sends_in_flight);
      ++checked;
    }
  CHECK(checked > 0);
}

} // namespace

TEST_CASE("written cells are read back unchanged", "[csv]") {
  STATIC_REQUIRE(csv_cell("0F7").step.first == Action{Pass::forward, 0, 7});
  STATIC_REQUIRE(csv_cell(" 3I2 ").step.first == Action{Pass::input_gradient, 3, 2});
  STATIC_REQUIRE(csv_cell("12W345\r").step.first == Action{Pass::weight_gradient, 12, 345});
  STATIC_REQUIRE(csv_cell("1B4").kind == CsvCell::Kind::step);
  for (const std::string_view other :
       {"0UNSHARD", "3RESHARD", "0REDUCE_GRAD", "1WAIT_REDUCE_GRAD", "0SEND_F7", "1RECV_F7", "1SEND_B7",
        "0RECV_B7", "0WAIT_SEND_F3", " 12WAIT_SEND_B3\r"})
    CHECK(csv_cell(other).kind == CsvCell::Kind::ignored);
  STATIC_REQUIRE(csv_cell("").kind == CsvCell::Kind::idle);
  STATIC_REQUIRE(csv_cell("(0F7;7B3)OVERLAP_F_B").step ==
                 Step{{Pass::forward, 0, 7}, {Pass::backward, 7, 3}, true});
  for (const std::string_view bad : {"0",
                                     "F0",
                                     "0F",
                                     "0X0",
                                     "-1F0",
                                     "0F0x",
                                     "0F-1",
                                     "0f0",
                                     "0 F0",
                                     "(0F7;7B3)",
                                     "(0F7)OVERLAP_F_B",
                                     "(0F7;7B3)OVERLAP_F_I",
                                     "0F7;7B3",
                                     "0SHARD",
                                     "UNSHARD",
                                     "0SEND_W1",
                                     "0UNSHARD_",
                                     "-1UNSHARD",
                                     "0RECV_F-1",
                                     "(0F7;7B3)OVERLAP_F_BB",
                                     "0F12345678901",
                                     "99999999999F0"})
    CHECK(csv_cell(bad).kind == CsvCell::Kind::malformed);
}

TEST_CASE("every policy survives being written and read", "[csv]") {
  check_round_trips<GPipe>();
  check_round_trips<OneFOneB>();
  check_round_trips<Interleaved<2>>();
  check_round_trips<Interleaved<4>>();
  check_round_trips<InterleavedZB<2>>();
  check_round_trips<InterleavedZB<3>>();
  check_round_trips<ZBH1>();
  check_round_trips<ZBH2>();
  check_round_trips<ZBV>();
  check_round_trips<DualPipe>();
  check_round_trips<DualPipeV>();
}

TEST_CASE("the text has the interchange format", "[csv]") {
  CHECK(to_csv(make_schedule<OneFOneB>(2, 2)) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  CHECK(to_csv(make_schedule<DualPipeV>(1, 2)) == "0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,1B1,0I1,0W1\n");
}

TEST_CASE("idle cells, spaces, foreign line ends and a missing last line end do not count", "[csv]") {
  const Schedule plain = schedule_from_csv("0F0,0B0\n1F0,1B0\n");
  for (const std::string_view text :
       {"0F0,,,0B0\n,1F0,1B0,\n", "0F0, 0B0\r\n1F0 ,1B0\r\n", "0F0,0B0\n1F0,1B0", "0F0,0B0\n1F0,1B0\n\n\n"})
    CHECK(to_csv(schedule_from_csv(text)) == to_csv(plain));
}

TEST_CASE("errors name the line and the cell", "[csv]") {
  CHECK_THAT(refusal("0F0,0B0\n1F0,1X0\n"), ContainsSubstring("line 2, cell 2 is '1X0'"));
  CHECK_THAT(refusal("0F0,,0B0 0B1\n"), ContainsSubstring("line 1, cell 3 is '0B0 0B1'"));
  CHECK_THAT(refusal("0F0,(0F1;0B0)OVERLAP_B_F\n"), ContainsSubstring("line 1, cell 2"));
  CHECK_THAT(refusal(""), ContainsSubstring("at least one action"));
  CHECK_THAT(refusal(",,\n,\n"), ContainsSubstring("at least one action"));
  CHECK_THAT(refusal("0F0\n2F0\n"), ContainsSubstring("no placement holds the 3 stages of the 2 lines"));
  CHECK_THAT(refusal("0F0,1F0\n0B0,1B0\n"),
             ContainsSubstring("line 1, cell 2 has 1F0, which a loop placement has on line 2"));
  CHECK_THAT(refusal("0F0,2F0\n1F0,3F0,2B0\n"),
             ContainsSubstring("line 2, cell 3 has 2B0, which a loop placement has on line 1"));
}

TEST_CASE("an export of PyTorch with its communication is read, and what is ignored is said", "[csv]") {
  // Two ranks, two stages each, one microbatch, as torch 2.15.0 dumps ScheduleInterleavedZeroBubble by
  // default.
  const std::string_view text =
      "0UNSHARD,2UNSHARD,0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2I0,2WAIT_SEND_F0,2SEND_B0,0RECV_B0,2W0,2REDUCE_GRAD,2WAIT_REDUCE_GRAD,2RESHARD,0I0,0WAIT_SEND_F0,0W0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD,2WAIT_SEND_B0\r\n"
      "1UNSHARD,3UNSHARD,1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,1RECV_B0,1I0,1WAIT_SEND_F0,1SEND_B0,3W0,3REDUCE_GRAD,3WAIT_REDUCE_GRAD,3RESHARD,1W0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,3WAIT_SEND_B0,1WAIT_SEND_B0\r\n";
  CHECK(to_csv(schedule_from_csv(text)) == to_csv(make_schedule<InterleavedZB<2>>(2, 1)));
  CHECK(prove(schedule_from_csv(text)).holds());
  CHECK(
      ignored_cells_text(text) ==
      "34 cells that are not passes, the first '0UNSHARD' on line 1, ignored: the runner plans communication itself");
  CHECK(
      ignored_cells_text("0F0,0REDUCE_GRAD") ==
      "1 cell that is not a pass, the first '0REDUCE_GRAD' on line 1, ignored: the runner plans communication itself");
  CHECK(ignored_cells_text("0F0,,0B0\n").empty());
}

TEST_CASE("a file that needs more sends in flight is read with as many, and with no more", "[csv]") {
  const Schedule deep = make_schedule<Interleaved<2>>(8, 22); // with the usual window it is a deadlock
  CHECK_FALSE(prove(deep, {}, {}).holds());
  CHECK(smallest_window(deep).sends_in_flight == 3);
  CHECK(schedule_from_csv(to_csv(deep)).window().sends_in_flight == 3);
  const Schedule late = make_schedule<Interleaved<2>>(8, 15); // with the usual window it takes longer
  CHECK(prove(late, {}, {}).makespan == 121);
  CHECK(prove(schedule_from_csv(to_csv(late))).makespan == 111);
  CHECK(schedule_from_csv(to_csv(make_schedule<OneFOneB>(4, 8))).window().sends_in_flight == 2);
  // A cycle that no window resolves is left to the proof.
  const Schedule cycle = schedule_from_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  CHECK(cycle.window().sends_in_flight == 2);
  CHECK(prove(cycle).failure.fault == ScheduleFault::deadlock);
}

TEST_CASE("a rank without steps keeps its line", "[csv]") {
  const Schedule idle("idle", StagePlacement::loop(3), 1, {{{{Pass::forward, 0, 0}, {}, false}}, {}, {}});
  CHECK(to_csv(idle) == "0F0\n,\n,\n");
  CHECK(detail::csv_shape(to_csv(idle)).ranks == 3);
}

TEST_CASE("a text that names more passes than the limit is rejected before anything is allocated", "[csv]") {
  CHECK_THAT(refusal("999999999F0\n"), ContainsSubstring("there must be at most 2097152 forward passes") &&
                                           ContainsSubstring("1000000000 stages times 1 microbatches"));
  CHECK_THAT(refusal("0F999999999\n"), ContainsSubstring("1 stages times 1000000000 microbatches"));
  CHECK_THROWS_AS(make_schedule<OneFOneB>(1 << 20, 1 << 20), InvalidArgument);
  CHECK_THROWS_AS(make_schedule<GPipe>(1, static_cast<int>(most_forward_passes) + 1), InvalidArgument);
  CHECK_THROWS_AS(make_schedule<Interleaved<4>>(1 << 30, 1 << 30), InvalidArgument);
}

TEST_CASE("a B in addition to a W is the input gradient in texts of the older notation", "[csv]") {
  const std::string today = to_csv(make_schedule<ZBH1>(2, 2));
  std::string older = today;
  std::replace(older.begin(), older.end(), 'I', 'B');
  REQUIRE(older != today);
  CHECK(to_csv(schedule_from_csv(older)) == today);
  CHECK(prove(schedule_from_csv(older)).holds());
  // Whole backward passes stay whole, also in pairs.
  CHECK(to_csv(schedule_from_csv("0F0,0F1,0B0,(0F2;0B1)OVERLAP_F_B,0W1,0B2\n")) ==
        "0F0,0F1,0B0,(0F2;0I1)OVERLAP_F_I,0W1,0B2\n");
  // A text with an I is in the current spelling: the proof names the W that is one too many.
  const Proof mixed = prove(schedule_from_csv("0F0,0F1,0I0,0W0,0B1,0W1\n"));
  CHECK(mixed.failure.fault == ScheduleFault::repeated);
}
