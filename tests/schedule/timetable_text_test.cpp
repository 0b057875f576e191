// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/text/timetable.hpp>

#include <sstream>
#include <string>

namespace sw = shardwright;
using shardwright_test::Approx;

TEST_CASE("A table shows every step as long as it takes") {
  const sw::Schedule schedule = sw::make_schedule("1f1b", 2, 3);
  const sw::Timetable table = sw::planned_timetable(schedule);
  CHECK(sw::title_text(schedule) == "1F1B: 2 ranks, 3 microbatches");
  CHECK(sw::figures_text(table) ==
        "makespan 12, bubble 3 (25 % of the makespan), peak 2 microbatches in flight");
  CHECK(sw::planned_timetable(sw::make_schedule("dualpipe", 2, 4)).kept_unit() == "microbatches");
  CHECK(sw::planned_timetable(sw::make_schedule("dualpipev", 2, 4)).kept_unit() == "chunks");
  CHECK(sw::figures_text(table, "ms").starts_with("makespan 12 ms, bubble 3 ms (25 %"));
  CHECK(sw::timetable_text(table) ==
        "time    0              5              10\n"
        "rank 0  F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
        "rank 1  .  F0 B0--- F1 B1--- F2 B2--- .  .\n"
        "\n"
        "          stages        busy        idle    idle %    peak in flight\n"
        "rank 0         0           9           3        25                 2\n"
        "rank 1         1           9           3        25                 1\n");
}

TEST_CASE("Stages are named if a rank has several, and pairs are shown together") {
  const std::string text =
      sw::timetable_text(sw::planned_timetable(sw::make_schedule("dualpipev", 2, 4)), 400);
  CHECK(text.find("0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1") != std::string::npos);
}

TEST_CASE("Lines that are too long continue below") {
  const sw::Timetable table = sw::planned_timetable(sw::make_schedule("zbh1", 3, 12));
  std::istringstream lines(sw::timetable_text(table, 60));
  int heads = 0;
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 70); // the figures of the ranks are 67 characters long
    heads += line.starts_with("time ") ? 1 : 0;
    if (line.starts_with("time ") || line.find('F') != std::string::npos)
      CHECK(line.size() <= 60);
  }
  CHECK(heads == 4);
}

TEST_CASE("Columns are as long as costs allow") {
  const sw::PassCosts costs{.forward = 1, .input_gradient = 1.5, .weight_gradient = 0.5};
  const std::string text = sw::timetable_text(sw::planned_timetable(sw::make_schedule("zbh1", 1, 1), costs));
  CHECK(text.find("rank 0  F0--- I0------ W0\n") != std::string::npos);
  CHECK(sw::costs_text(costs) == "F=1,I=1.5,W=0.5,send=0");
  const sw::PassCosts uneven{.forward = 1, .input_gradient = 2.0371, .weight_gradient = 1};
  const std::string rounded =
      sw::timetable_text(sw::planned_timetable(sw::make_schedule("zbh1", 1, 1), uneven));
  CHECK(rounded.find("rank 0  F0--- I0--------- W0---\n") != std::string::npos);
  CHECK(rounded.find(" 4.037 ") != std::string::npos); // busy, rounded
}

TEST_CASE("A table that is too large is rejected") {
  sw::Timetable table = sw::planned_timetable(sw::make_schedule("gpipe", 1, 1));
  table.ranks[0].back().end = 3e7; // of columns, three characters each
  table.ranks[0].back().start = 3e7 - 1;
  CHECK_THROWS_AS(sw::timetable_text(table), sw::InvalidArgument);
}

TEST_CASE("Policies have the titles of their papers") {
  for (const std::string& name : sw::schedule_names())
    CHECK(sw::schedule_title(name) != name);
  CHECK(sw::schedule_title("zbv") == "ZB-V");
  CHECK(sw::schedule_title("mine") == "mine");
  CHECK(sw::schedule_takes_chunks("interleavedzb"));
  CHECK_FALSE(sw::schedule_takes_chunks("zbv"));
  CHECK_FALSE(sw::schedule_takes_chunks("mine"));
}

TEST_CASE("Numbers are short") {
  CHECK(sw::number_text(27.0, 3) == "27");
  CHECK(sw::number_text(0.12345, 3) == "0.123");
  CHECK(sw::number_text(-0.0001, 2) == "0");
  CHECK(sw::number_text(100, 0) == "100");
  CHECK(sw::percent_text(0.2727) == "27.3 %");
  CHECK(sw::round_step(0.3) == Approx(0.5));
  CHECK(sw::round_step(20) == Approx(20));
  CHECK(sw::round_step(501) == Approx(1000));
}
