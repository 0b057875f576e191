// SPDX-License-Identifier: Apache-2.0
//
// Schedules as values: proven by the compiler, read from text, drawn. Needs neither Kokkos nor MPI.
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>
#include <shardwright/schedule/text/timetable.hpp>
#include <shardwright/schedule/timetable.hpp>

#include <cstdio>
#include <span>
#include <string>

namespace sw = shardwright;

//! [proof]
using OneFOneB = sw::PipelineSchedule<sw::OneFOneB>;
constexpr sw::Proof proof = OneFOneB::prove(4, 8); // ranks, microbatches; F = I = W = 1
static_assert(proof.complete && proof.ordered && proof.deadlock_free);
static_assert(proof.peak_in_flight == 4 && proof.makespan == 33 && proof.bubble == 9);
//! [proof]

int main() {
  //! [draw]
  const sw::Schedule schedule = sw::make_schedule("zbv", 4, 8);
  const sw::Timetable table = sw::planned_timetable(schedule, {.forward = 1, .input_gradient = 1.2});
  const std::string svg =
      sw::draw_svg(std::span(&table, 1), {sw::title_text(schedule), sw::figures_text(table)});
  const std::string text = sw::timetable_text(table);
  //! [draw]

  //! [csv]
  const sw::Schedule own = sw::schedule_from_csv("0F0,0F1,0B0,0B1\n"
                                                 "1F0,1B0,1F1,1B1\n",
                                                 "own");
  const sw::Timetable of_own = sw::planned_timetable(own); // throws if the schedule is invalid
  //! [csv]
  std::fputs(sw::timetable_text(of_own).c_str(), stdout);
  return svg.empty() || text.empty() ? 1 : 0;
}
