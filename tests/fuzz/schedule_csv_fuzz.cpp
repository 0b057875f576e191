// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>
#include <shardwright/schedule/text/timetable.hpp>
#include <shardwright/schedule/timetable.hpp>

#include <optional>
#include <span>

namespace sw = shardwright;

/// Reading, writing and reading again gives the same schedule; a proven schedule can be drawn.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::optional<sw::Schedule> schedule;
  if (!fuzz::accepted([&] { schedule = sw::schedule_from_csv(text); }))
    return 0;
  const std::string written = sw::to_csv(*schedule);
  fuzz::require(sw::to_csv(sw::schedule_from_csv(written)) == written, "what was written is read as it was");
  const sw::Proof proof = sw::prove(*schedule);
  fuzz::require(fuzz::accepted([&] { (void)sw::planned_timetable(*schedule, {}); }) == proof.holds(),
                "what is proven has a timetable, and nothing else");
  if (!proof.holds())
    return 0;
  const sw::Timetable table = sw::planned_timetable(*schedule, {});
  (void)fuzz::accepted([&] { (void)sw::timetable_text(table); });
  (void)fuzz::accepted([&] { (void)sw::draw_svg(std::span(&table, 1), {"fuzz", "fuzz"}); });
  return 0;
}
