// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Draws the timelines of a simulated step to scale as SVG.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/plan/simulate/simulation.hpp>
#include <shardwright/schedule/text/number_text.hpp>
#include <shardwright/schedule/text/svg_text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

class StepDrawing : private SvgText {
  static constexpr double left = 150; // names of ranks
  static constexpr double right = 110;
  static constexpr double top = 122;
  static constexpr double lane = 24;
  static constexpr double thin = 10; // of what runs beside
  static constexpr double gap = 14;
  static constexpr std::size_t most_boxes = 200'000;

public:
  StepDrawing(const StepSimulation& simulation, const DrawingText& text)
      : simulation_(simulation), text_(text) {
    std::size_t boxes = 0;
    for (const RankClass& one : simulation.classes)
      if (!one.timeline.empty()) {
        drawn_.push_back(&one);
        boxes += one.timeline.size();
      }
    if (drawn_.empty() || simulation.step_seconds <= 0)
      throw InvalidArgument(
          "Drawing: the simulation must have kept its timelines (set SimulationOptions::timelines)");
    if (boxes > most_boxes)
      throw InvalidArgument("Drawing: the timelines must have at most " + std::to_string(most_boxes) +
                            " spans, but they have " + std::to_string(boxes) +
                            " (draw fewer replicas, stages or microbatches)");
    scale_ = std::clamp(0.25 * static_cast<double>(boxes / drawn_.size()), 920.0, screen - left - right) /
             simulation.step_seconds;
  }

  [[nodiscard]] std::string text() {
    const double row = lane + thin + gap;
    const double bottom = top + row * static_cast<double>(drawn_.size());
    head(bottom);
    for (std::size_t i = 0; i < drawn_.size(); ++i)
      draw(*drawn_[i], top + row * static_cast<double>(i));
    out_ += "</svg>\n";
    return std::move(out_);
  }

private:
  /// Communication in warm and violet colours, distinct from those of passes; waiting is hatched.
  static constexpr std::array<std::string_view, activity_names.size()> colours{
      "", "#64748b", "#d1495b", "#b5179e", "#7b2cbf", "#8d6e63", "#e0a100", "", "", ""};

  void head(double bottom) {
    const double span = simulation_.step_seconds * scale_;
    const double width = left + span + right, height = bottom + 46;
    begin(width, height, text_);
    out_ += ".title,.name{fill:#16202a}.sub,.note,.tick{fill:#55616d}.tick{text-anchor:middle}\n"
            ".paper{fill:#fff}.grid{stroke:#e6eaee}.idle{fill:#f1f4f7}\n"
            ".wait-input{fill:url(#input)}.wait-peers{fill:url(#peers)}.wait-send{fill:url(#send)}\n";
    style_passes({true, true, true, true}, simulation_.placement.chunks);
    for (std::size_t kind = 0; kind < colours.size(); ++kind)
      if (!colours[kind].empty())
        out_ += "." + std::string(activity_names[kind]) + "{fill:" + std::string(colours[kind]) + "}";
    out_ += "\n@media (prefers-color-scheme:dark){.paper{fill:#11171d}.title,.name{fill:#eef2f6}\n"
            ".sub,.note,.tick{fill:#a3b0bd}.grid{stroke:#222b34}.idle{fill:#1a222a}}\n</style>\n<defs>\n";
    for (const auto& [name, colour] :
         {std::pair("input", "#9aa5b1"), std::pair("peers", "#d1495b"), std::pair("send", "#8d6e63")})
      out_ += "<pattern id=\"" + std::string(name) +
              "\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
              "patternTransform=\"rotate(45)\"><path stroke=\"" +
              colour + "\" stroke-width=\"1.4\" d=\"M0 0V6\"/></pattern>\n";
    out_ += "</defs>\n";
    paper(width, height, text_);
    legend();
    time_axis(left, top, bottom, simulation_.step_seconds, scale_, text_);
  }

  void legend() {
    double x = 16;
    std::array<bool, activity_names.size()> used{};
    std::array<bool, 4> passes{};
    for (const RankClass* one : drawn_)
      for (const ActivitySpan& span : one->timeline) {
        used[static_cast<std::size_t>(span.activity)] = true;
        for (int i = 0; span.activity == Activity::compute && i < span.step.size(); ++i)
          passes[static_cast<std::size_t>(span.step[i].pass)] = true;
      }
    double y = 66;
    const auto place = [&](double needed) {
      if (x + needed > left + simulation_.step_seconds * scale_ + right) {
        x = 16;
        y += 20;
      }
    };
    const auto entry = [&](const std::string& kind, std::string_view name) {
      const double needed = 6.1 * static_cast<double>(name.size()) + 42;
      place(needed);
      box(kind, x, y, 22, 15);
      words("note", x + 27, y + 12, name);
      x += needed;
    };
    for (std::size_t pass = 0; pass < passes.size(); ++pass)
      if (passes[pass])
        entry(letter_of(static_cast<Pass>(pass)) + std::string("0"), pass_names[pass]);
    for (std::size_t kind = 1; kind < used.size(); ++kind)
      if (used[kind])
        entry(class_of(static_cast<Activity>(kind)), activity_names[kind]);
    place(150);
    words("note", x, y + 12, "thin: overlapped with the passes");
  }
  [[nodiscard]] static std::string class_of(Activity activity) {
    return activity == Activity::wait_input  ? "wait-input"
           : activity == Activity::wait_send ? "wait-send"
           : activity == Activity::wait_peers
               ? "wait-peers"
               : std::string(activity_names[static_cast<std::size_t>(activity)]);
  }

  void draw(const RankClass& one, double y) {
    words("name", 16, y + 11,
          "rank " + std::to_string(one.rank) + ", stage " + std::to_string(one.pipeline_rank));
    words("note", 16, y + 24,
          (one.count > 1 ? std::to_string(one.count) + " alike" : std::string("alone")) +
              (one.slowest > 1 ? ", slow by " + number_text(one.slowest, 2) : std::string()));
    box("idle", left, y, simulation_.step_seconds * scale_, lane);
    for (const ActivitySpan& span : one.timeline) {
      const double x = left + span.begin * scale_, width = (span.end - span.begin) * scale_;
      if (width < 0.05)
        continue;
      const std::string tip =
          span_text(span) + ", " + number_text(span.begin, 4) + " to " + number_text(span.end, 4);
      if (span.beside) {
        box(class_of(span.activity), x, y + lane + 1, width, thin - 2, tip);
        continue;
      }
      const int parts = span.activity == Activity::compute ? span.step.size() : 1;
      for (int i = 0; i < parts; ++i) {
        std::string kind = class_of(span.activity);
        if (span.activity == Activity::compute)
          kind = letter_of(span.step[i].pass) +
                 std::to_string(simulation_.placement.chunk_of(span.step[i].stage, span.step[i].microbatch));
        box(kind, x, y + i * lane / parts, std::max(width - 0.2, 0.1), lane / parts, tip);
      }
    }
    const double waiting = one.waiting(simulation_.step_seconds);
    words("note", left + simulation_.step_seconds * scale_ + 10, y + 16,
          "waits " + percent_text(waiting / simulation_.step_seconds));
  }

  const StepSimulation& simulation_;
  const DrawingText& text_;
  std::vector<const RankClass*> drawn_;
  double scale_ = 1;
};

} // namespace detail

/// @brief An SVG of the timelines that a simulation kept: a lane for each class of ranks with passes, exposed
/// traffic and hatched waits, and below it a thin lane with whatever overlaps the passes.
/// @throws InvalidArgument if none was kept, or there are more than 200,000 spans.
[[nodiscard]] inline std::string draw_step(const StepSimulation& simulation, const DrawingText& text) {
  return detail::StepDrawing(simulation, text).text();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
