// SPDX-License-Identifier: Apache-2.0
//
// A schedule policy of your own: eager 1F1B, proven by the compiler and shown. Needs neither Kokkos nor MPI.
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/text/timetable.hpp>
#include <shardwright/schedule/timetable.hpp>

#include <cstdio>
#include <string_view>

namespace sw = shardwright;

//! [cursor]
/// `ahead` forward passes, then a backward and a forward pass in turn.
class EagerCursor {
public:
  constexpr EagerCursor() = default;
  constexpr EagerCursor(int stage, int microbatches, int ahead)
      : stage_(stage), microbatches_(microbatches), ahead_(ahead) {}

  constexpr bool next(sw::Step& step) {
    if (backwards_ == microbatches_)
      return false;
    const bool forward = forwards_ < microbatches_ && forwards_ - backwards_ < ahead_;
    step.first = forward ? sw::Action{sw::Pass::forward, stage_, forwards_++}
                         : sw::Action{sw::Pass::backward, stage_, backwards_++};
    return true;
  }

private:
  int stage_ = 0;
  int microbatches_ = 0;
  int ahead_ = 0;
  int forwards_ = 0;
  int backwards_ = 0;
};
//! [cursor]

//! [policy]
/// 1F1B with about twice as many forward passes in advance, so that sends run beside passes.
struct EagerOneFOneB {
  static constexpr std::string_view name = "eager_1f1b";

  static constexpr sw::ScheduleRule rule(int ranks, int microbatches) {
    if (microbatches < ranks)
      return {"there must be at least as many microbatches as ranks"};
    return {};
  }
  static constexpr sw::StagePlacement placement(int ranks, int) { return sw::StagePlacement::loop(ranks); }
  static constexpr EagerCursor cursor(int ranks, int microbatches, int rank) {
    return {rank, microbatches, 2 * (ranks - rank) - 1};
  }
};
//! [policy]

//! [proof]
static_assert(sw::SchedulePolicy<EagerOneFOneB>);
static_assert(sw::proven<EagerOneFOneB, 4, 8>); // ranks, microbatches

constexpr sw::PassCosts slow{.forward = 2, .input_gradient = 2, .weight_gradient = 2, .send = 1};
constexpr sw::Proof eager = sw::PipelineSchedule<EagerOneFOneB>::prove(4, 8, slow);
constexpr sw::Proof usual = sw::PipelineSchedule<sw::OneFOneB>::prove(4, 8, slow);
static_assert(usual.makespan == 82 && usual.peak_in_flight == 4);
static_assert(eager.makespan == 72 && eager.peak_in_flight == 7);
//! [proof]

int main() {
  //! [use]
  const auto schedule = sw::make_schedule<EagerOneFOneB>(2, 4); // for the runner, as any other schedule
  std::fputs(sw::timetable_text(sw::planned_timetable(schedule)).c_str(), stdout);
  std::fputs(sw::to_csv(schedule).c_str(), stdout);
  //! [use]

  //! [all]
  for (int ranks = 1; ranks <= 16; ++ranks)
    for (int microbatches = ranks; microbatches <= 64; ++microbatches)
      if (!sw::PipelineSchedule<EagerOneFOneB>::prove(ranks, microbatches).holds())
        return 1;
  //! [all]
}
