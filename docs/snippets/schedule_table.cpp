// SPDX-License-Identifier: Apache-2.0
//
// Prints the results of all schedules' proofs for one pipeline, shown on the page about pipeline schedules.
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/text/number_text.hpp>

#include <cstdio>
#include <string>

namespace sw = shardwright;

int main() {
  std::puts("| Schedule | Stages per rank | Makespan | Bubble | Share of the makespan | Microbatches kept |");
  std::puts("| --- | --- | --- | --- | --- | --- |");
  for (const std::string& name : sw::schedule_names()) {
    const sw::Schedule schedule = sw::make_schedule(name, 4, 8);
    // A rank's forward pass takes 1, however many stages it is divided into.
    const double share = static_cast<double>(schedule.ranks()) / schedule.stages();
    const sw::Proof proof =
        sw::prove(schedule, {.forward = share, .input_gradient = share, .weight_gradient = share});
    std::printf("| %s | %d | %s | %s | %s | %s |\n", sw::schedule_title(name).c_str(),
                schedule.placement().chunks, sw::number_text(proof.makespan, 2).c_str(),
                sw::number_text(proof.bubble, 2).c_str(),
                sw::percent_text(proof.bubble / proof.makespan).c_str(),
                sw::number_text(proof.peak_in_flight * share, 2).c_str());
  }
}
