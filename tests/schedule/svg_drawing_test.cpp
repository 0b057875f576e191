// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/text/svg_drawing.hpp>

#include <cstddef>
#include <map>
#include <regex>
#include <span>
#include <string>
#include <vector>

namespace sw = shardwright;
using shardwright_test::Approx;

namespace {

std::string drawn(const sw::Timetable& table, const sw::DrawingText& text = {"title", "subtitle", "1"}) {
  return sw::draw_svg(std::span(&table, 1), text);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// Whether every element that begins also ends, in order.
bool balanced(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-z]+)([^>]*?)(/?)>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), tag), end; it != end; ++it) {
    const std::smatch& match = *it;
    if (match[1].length() > 0) {
      if (open.empty() || open.back() != match[2])
        return false;
      open.pop_back();
    } else if (match[4].length() == 0) {
      open.push_back(match[2]);
    }
  }
  return open.empty();
}

} // namespace

TEST_CASE("Every action of every rank is a box to scale with its number") {
  for (const std::string& name : sw::schedule_names()) {
    const sw::Schedule schedule = sw::make_schedule(name, 4, 8);
    const sw::Timetable table =
        sw::planned_timetable(schedule, {.forward = 1, .input_gradient = 1.5, .weight_gradient = 0.5});
    const std::string svg = drawn(table);
    INFO(name);
    CHECK(balanced(svg));
    CHECK(svg.find("<script") == std::string::npos);
    std::map<std::string, const sw::TimedStep*> expected;
    for (const auto& steps : table.ranks)
      for (const sw::TimedStep& timed : steps)
        for (int i = 0; i < timed.step.size(); ++i) {
          const sw::Action& action = timed.step[i];
          expected[std::string(1, sw::letter_of(action.pass)) + std::to_string(action.microbatch) +
                   ", stage " + std::to_string(action.stage)] = &timed;
        }
    const std::regex box(
        "<rect class=\"[FBIW][0-9]\" x=\"([0-9.]+)\" y=\"[0-9.]+\" width=\"([0-9.]+)\" height=\"([0-9.]+)\"><title>([^<]*), [0-9.]+ to [0-9.]+</title>");
    const std::string lane = "<rect class=\"lane\" x=\"92\"";
    const std::size_t width_at = svg.find("width=\"", svg.rfind(lane)) + 7;
    const double scale = std::stod(svg.substr(width_at)) / table.makespan();
    for (std::sregex_iterator it(svg.begin(), svg.end(), box), end; it != end; ++it) {
      const auto found = expected.find((*it)[4]);
      REQUIRE(found != expected.end());
      const sw::TimedStep& timed = *found->second;
      const double width = std::stod((*it)[2]) + 0.8; // boxes keep 0.4 pixels apart on each side
      CHECK(width == Approx(scale * (timed.end - timed.start)).margin(0.2));
      CHECK(std::stod((*it)[1]) - 0.4 == Approx(92 + scale * timed.start).margin(0.2));
      CHECK(std::stod((*it)[3]) == Approx(timed.step.overlapped ? 13.2 : 27.2));
      expected.erase(found);
    }
    CHECK(expected.empty());
    for (int rank = 0; rank < 4; ++rank) {
      CHECK(svg.find(">rank " + std::to_string(rank) + "</text>") != std::string::npos);
      CHECK(svg.find(">peak " + std::to_string(table.peak(rank)) + "</text>") != std::string::npos);
    }
    CHECK((svg.find(">overlapped</text>") != std::string::npos) == name.starts_with("dualpipe"));
    CHECK(count_of(svg, "width=\"15\" height=\"15\"/>") >= 2); // the legend's boxes are squares
  }
}

TEST_CASE("Planned and measured times are lanes of one drawing with one scale") {
  const sw::Schedule schedule = sw::make_schedule("1f1b", 3, 4);
  std::vector<sw::Timetable> tables{sw::planned_timetable(schedule), sw::planned_timetable(schedule)};
  tables[1].label = "measured";
  for (auto& steps : tables[1].ranks)
    for (sw::TimedStep& timed : steps) {
      timed.start *= 2;
      timed.end *= 2;
    }
  const std::string svg = sw::draw_svg(tables, {"t", "s", "ms"});
  CHECK(balanced(svg));
  CHECK(count_of(svg, ">planned</text>") == 3);
  CHECK(count_of(svg, ">measured</text>") == 3);
  CHECK(count_of(svg, ">idle 33.3 %</text>") == 6); // 6 of 18
  CHECK(count_of(svg, "class=\"edge other\"") == 3);
  CHECK(count_of(svg, "<title>F0, stage 1, 1 to 2</title>") == 1);
  CHECK(count_of(svg, "<title>F0, stage 1, 2 to 4</title>") == 1);
  CHECK(svg.find(">time in ms</text>") != std::string::npos);
}

TEST_CASE("A drawing has the requested width") {
  const sw::Timetable table = sw::planned_timetable(sw::make_schedule("1f1b", 4, 40));
  for (const double width : {300.0, 810.0, 5000.0}) {
    const std::string svg = drawn(table, {"t", "s", "1", width});
    CHECK(balanced(svg));
    CHECK(count_of(svg, "<rect class=\"lane\" x=\"92\" y=\"104\" width=\"" + sw::number_text(width, 1) +
                            "\"") == 1);
    CHECK(count_of(svg, "<title>B39, stage 3, ") == 1);
  }
}

TEST_CASE("A drawing of many short passes fits on a screen, and has the number of every pass") {
  sw::Timetable measured = sw::planned_timetable(sw::make_schedule("1f1b", 4, 40));
  for (auto& steps : measured.ranks) // as measured: one pass is much shorter than the others
    steps.back().start = steps.back().end - 1e-3;
  const std::string svg = drawn(measured);
  CHECK(balanced(svg));
  CHECK(svg.find("\" width=\"1440\" height=\"") != std::string::npos);
  std::size_t numbers = 0;
  for (const char* kind : {"n", "nd", "s", "sd"})
    numbers += count_of(svg, "<text class=\"" + std::string(kind) + "\"");
  CHECK(numbers == 4 * 2 * 40 - 4);
}

TEST_CASE("The words of a legend are beside their boxes") {
  const std::regex entry(
      R"re(x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)" height="[0-9.]+"/>\s*<text class="note" x="([0-9.]+)" y="78">)re");
  for (const std::string& name : sw::schedule_names()) {
    const std::string svg = drawn(sw::planned_timetable(sw::make_schedule(name, 4, 8)));
    int entries = 0;
    for (std::sregex_iterator it(svg.begin(), svg.end(), entry), end; it != end; ++it, ++entries)
      CHECK(std::stod((*it)[3]) >= std::stod((*it)[1]) + std::stod((*it)[2]) + 5);
    CAPTURE(name);
    CHECK(entries >= 3); // at least two passes and idle time
  }
}

TEST_CASE("Words are escaped, and a timetable that cannot be drawn is rejected") {
  const sw::Timetable table = sw::planned_timetable(sw::make_schedule("gpipe", 1, 1));
  CHECK(drawn(table, {"a < b & c", "s", "1"}).find("a &lt; b &amp; c") != std::string::npos);
  CHECK_THROWS_WITH(sw::draw_svg({}, {}), "Drawing: there must be a timetable to draw");
  CHECK_THROWS_WITH(
      drawn(sw::planned_timetable(sw::make_schedule("gpipe", 100, 1001))),
      "Drawing: a timetable must have at most 200000 steps, but it has 200200 (draw fewer ranks or microbatches)");
  const sw::PassCosts nothing{.forward = 0, .input_gradient = 0, .weight_gradient = 0};
  CHECK_THROWS_AS(drawn(sw::planned_timetable(sw::make_schedule("gpipe", 1, 1), nothing)),
                  sw::InvalidArgument);
}

TEST_CASE("Colours of passes and chunks differ, and later chunks are darker") {
  using sw::detail::colour_of;
  for (int chunks = 2; chunks <= 4; ++chunks)
    for (const sw::Pass pass :
         {sw::Pass::forward, sw::Pass::backward, sw::Pass::input_gradient, sw::Pass::weight_gradient})
      for (int chunk = 1; chunk < chunks; ++chunk)
        CHECK(colour_of(pass, chunk, chunks).green < colour_of(pass, chunk - 1, chunks).green);
  STATIC_REQUIRE(colour_of(sw::Pass::forward, 0, 2).light());
  STATIC_REQUIRE(!colour_of(sw::Pass::forward, 1, 2).light());
  CHECK(colour_of(sw::Pass::backward, 0, 2).text() == "#fccd91");
}

TEST_CASE("Legend, numbers and curve do not overlap") {
  const std::string svg = drawn(sw::planned_timetable(
      sw::make_schedule("interleaved", 2, 2), {.forward = 1, .input_gradient = 1, .weight_gradient = 1}));
  CHECK(count_of(svg, "<rect class=\"F0\" x=\"16\" y=\"66\" width=\"15\"") == 1);
  CHECK(count_of(svg, "<rect class=\"F1\" x=\"32\" y=\"66\" width=\"15\"") == 1);
  // A lane from 104 to 132, a number's baseline below its middle, and the foot of the curve under the lane.
  CHECK(count_of(svg, "<rect class=\"lane\" x=\"92\" y=\"104\"") == 1);
  CHECK(count_of(svg, "y=\"122\">0</text>") == 4);
  CHECK(count_of(svg, "<path class=\"base\" d=\"M92 168L") == 1);
}
