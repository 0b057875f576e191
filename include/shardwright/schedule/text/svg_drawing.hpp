// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Draws timetables to scale as SVG: passes, idle time, and the microbatches that every rank keeps.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/text/number_text.hpp>
#include <shardwright/schedule/text/svg_palette.hpp>
#include <shardwright/schedule/text/svg_text.hpp>
#include <shardwright/schedule/timetable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Builds the text of one drawing; times become pixels with one scale for all timetables.
class SvgDrawing : private SvgText {
  static constexpr double left = 92;   // names of ranks
  static constexpr double right = 128; // figures of ranks
  static constexpr double top = 104;   // title and legend
  static constexpr double lane = 28;
  static constexpr double memory = 30;
  static constexpr double gap = 16;
  static constexpr std::size_t most_boxes = 200'000;

public:
  SvgDrawing(std::span<const Timetable> tables, const DrawingText& text) : tables_(tables), text_(text) {
    double shortest = 0;
    std::size_t boxes = 0;
    for (const Timetable& table : tables_) {
      span_ = std::max(span_, table.makespan());
      for (int rank = 0; rank < table.placement.ranks; ++rank) {
        highest_ = std::max(highest_, table.peak(rank));
        boxes += table.steps(rank).size();
        for (const TimedStep& timed : table.steps(rank)) {
          if (const double length = timed.end - timed.start; length > 0)
            shortest = shortest == 0 ? length : std::min(shortest, length);
          for (int i = 0; i < timed.step.size(); ++i)
            uses_[static_cast<std::size_t>(timed.step[i].pass)] = true;
          overlaps_ = overlaps_ || timed.step.overlapped;
        }
      }
    }
    if (span_ <= 0)
      throw InvalidArgument("Drawing: a timetable must have steps that take time (give costs above 0)");
    if (boxes > most_boxes)
      throw InvalidArgument("Drawing: a timetable must have at most " + std::to_string(most_boxes) +
                            " steps, but it has " + std::to_string(boxes) +
                            " (draw fewer ranks or microbatches)");
    // Wide enough for the numbers in the boxes, but no wider than a screen can show.
    scale_ = text_.width > 0 ? text_.width / span_
                             : std::clamp(18 / shortest, 920 / span_, (screen - left - right) / span_);
  }

  [[nodiscard]] std::string text() {
    const double row = static_cast<double>(tables_.size()) * (lane + 4) + memory + gap;
    const int ranks = tables_.front().placement.ranks;
    bottom_ = top + ranks * row;
    head();
    time_axis(left, top, bottom_, span_, scale_, text_);
    for (int rank = 0; rank < ranks; ++rank)
      draw_rank(rank, top + rank * row);
    out_ += "</svg>\n";
    return std::move(out_);
  }

private:
  [[nodiscard]] double x_of(double time) const { return left + time * scale_; }
  [[nodiscard]] std::string class_of(const Action& action) const {
    const StagePlacement& placement = tables_.front().placement;
    return letter_of(action.pass) + std::to_string(placement.chunk_of(action.stage, action.microbatch));
  }

  void head() {
    const double width = left + span_ * scale_ + right;
    const double height = bottom_ + 46;
    begin(width, height, text_);
    out_ +=
        ".tick,.n,.s{text-anchor:middle}.n,.nd{font-size:11px}.s,.sd{font-size:9px}\n"
        ".nd,.sd{text-anchor:middle;fill:#fff}.n,.s{fill:#101820}\n"
        ".title,.name{fill:#16202a}.sub,.note,.tick{fill:#55616d}.peak{fill:#16202a;font-weight:600}\n"
        ".paper{fill:#fff}.lane{fill:url(#idle)}.hatch{stroke:#d3d9df;stroke-width:1.4}\n"
        ".grid{stroke:#e6eaee}.base{stroke:#9aa5b1}.kept{fill:#64748b;fill-opacity:.22}\n"
        ".edge{fill:none;stroke:#56657a;stroke-width:1.3}.other{stroke-dasharray:4 3}.dot{fill:#16202a}\n";
    style_passes(uses_, tables_.front().placement.chunks);
    out_ += "\n@media (prefers-color-scheme:dark){.paper{fill:#11171d}.title,.name,.peak,.dot{fill:#eef2f6}\n"
            ".sub,.note,.tick{fill:#a3b0bd}.hatch{stroke:#2c3742}.grid{stroke:#222b34}\n"
            ".base{stroke:#5b6875}.kept{fill:#94a3b8;fill-opacity:.25}.edge{stroke:#a9b8c9}}\n</style>\n";
    out_ += "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
            "patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V6\"/></pattern></defs>\n";
    paper(width, height, text_);
    legend();
  }

  void legend() {
    constexpr double y = 66;
    const StagePlacement& placement = tables_.front().placement;
    double x = 16;
    const auto entry = [&](std::string_view name) {
      words("note", x, y + 12, name);
      x += 6.1 * static_cast<double>(name.size()) + 18;
    };
    for (int pass = 0; pass < 4; ++pass) {
      if (!uses_[static_cast<std::size_t>(pass)])
        continue;
      for (int chunk = 0; chunk < placement.chunks; ++chunk, x += 16)
        box(letter_of(static_cast<Pass>(pass)) + std::to_string(chunk), x, y, 15, 15);
      x += 5;
      entry(pass_names[static_cast<std::size_t>(pass)]);
    }
    if (overlaps_) {
      box("F0", x, y, 26, 7.5);
      box("B" + std::to_string(placement.chunks - 1), x, y + 7.5, 26, 7.5);
      x += 31;
      entry("overlapped");
    }
    box("lane", x, y, 22, 15);
    x += 27;
    entry("idle");
    box("kept", x, y + 5, 22, 10);
    line("edge", x, y + 5, x + 22, y + 5);
    x += 27;
    entry(tables_.front().kept_unit() + " in flight");
    if (placement.order == StageOrder::bidirectional)
      entry("dark: entered at the last rank");
    else if (placement.chunks > 1)
      entry("light to dark: chunk 0 to " + std::to_string(placement.chunks - 1));
  }

  void draw_rank(int rank, double y) {
    const StagePlacement& placement = tables_.front().placement;
    std::string stages = placement.chunks == 1 ? "stage " : "stages ";
    for (int chunk = 0; chunk < placement.chunks; ++chunk)
      stages += (chunk == 0 ? "" : ", ") + std::to_string(placement.stage_of(rank, chunk));
    words("name", 16, y + 12, "rank " + std::to_string(rank));
    words("note", 16, y + 25, stages);
    for (const Timetable& table : tables_) {
      draw_lane(table, rank, y);
      y += lane + 4;
    }
    draw_memory(rank, y + 2);
  }

  void draw_lane(const Timetable& table, int rank, double y) {
    box("lane", left, y, span_ * scale_, lane);
    for (const TimedStep& timed : table.steps(rank)) {
      const double width = (timed.end - timed.start) * scale_;
      const double height = lane / timed.step.size();
      for (int i = 0; i < timed.step.size(); ++i)
        draw_action(timed.step[i], timed, width, y + i * height, height);
    }
    const double idle = table.makespan() - table.busy(rank);
    const double x = x_of(span_) + 10;
    words("name", x, y + 12, "idle " + percent_text(idle / table.makespan()));
    words("note", x, y + 25,
          tables_.size() > 1 ? table.label
                             : number_text(idle, 3) + " of " + number_text(table.makespan(), 3));
  }

  void draw_action(const Action& action, const TimedStep& timed, double width, double y, double height) {
    const StagePlacement& placement = tables_.front().placement;
    const int chunk = placement.chunk_of(action.stage, action.microbatch);
    const std::string number = std::to_string(action.microbatch);
    box(class_of(action), x_of(timed.start) + 0.4, y + 0.4, std::max(width - 0.8, 0.3), height - 0.8,
        letter_of(action.pass) + number + ", stage " + std::to_string(action.stage) + ", " +
            number_text(timed.start, 3) + " to " + number_text(timed.end, 3));
    const auto digits = static_cast<double>(number.size());
    const bool small = height < lane || width < 7 * digits + 4;
    const double fitting = (width - 1) / (0.6 * digits); // for those who zoom
    if (fitting < 1)
      return;
    const bool dark = !colour_of(action.pass, chunk, placement.chunks).light();
    const bool tiny = width < 5.2 * digits + 2;
    words(std::string(small ? "s" : "n") + (dark ? "d" : ""), x_of(timed.start) + width / 2,
          y + height / 2 +
              (tiny    ? 0.36 * fitting
               : small ? 3.2
                       : 4),
          number, tiny ? fitting : 0);
  }

  /// The last timetable's curve as an area, those before it as dashed lines.
  void draw_memory(int rank, double y) {
    const double base = y + memory;
    line("base", left, base, x_of(span_), base);
    words("note", 16, y + 20, "in flight");
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const std::vector<KeptFrom> curve = tables_[i].kept(rank);
      const bool last = i + 1 == tables_.size();
      const auto y_of = [&](int count) { return base - memory * count / std::max(highest_, 1); };
      std::string path("M");
      path.append(px(x_of(0))).append(" ").append(px(base));
      const KeptFrom* peak = &curve.front();
      for (const KeptFrom& point : curve) {
        path.append("H").append(px(x_of(point.time))).append("V").append(px(y_of(point.count)));
        peak = point.count > peak->count ? &point : peak;
      }
      if (last)
        out_ += "<path class=\"kept\" d=\"" + path + "\"/>\n";
      out_ += "<path class=\"edge" + std::string(last ? "" : " other") + "\" d=\"" + path + "\"/>\n";
      if (!last)
        continue;
      out_ += "<circle class=\"dot\" cx=\"" + px(x_of(peak->time)) + "\" cy=\"" + px(y_of(peak->count)) +
              "\" r=\"2.6\"/>\n";
      words("peak", x_of(span_) + 10, y + 20, "peak " + std::to_string(peak->count));
    }
  }

  std::span<const Timetable> tables_;
  const DrawingText& text_;
  double span_ = 0;
  double scale_ = 1;
  double bottom_ = 0;
  int highest_ = 0;
  std::array<bool, 4> uses_{};
  bool overlaps_ = false;
};

} // namespace detail

/// @brief An SVG of one or more timetables of the same placement, with one lane for each of them under every
/// rank.
///
/// Boxes are to scale, with the microbatch's number; idle time is hatched. Below is the number of
/// microbatches that the rank keeps, with the peak marked. Colours follow the reader's light or dark setting;
/// there are no scripts.
/// @throws InvalidArgument if nothing takes time, or there are more than 200,000 steps.
[[nodiscard]] inline std::string draw_svg(std::span<const Timetable> tables, const DrawingText& text) {
  if (tables.empty())
    throw InvalidArgument("Drawing: there must be a timetable to draw");
  return detail::SvgDrawing(tables, text).text();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
