// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Draws the charts of a page; sizes are in pixels of a drawing that is scaled to the page.

#include "chart.hpp"

#include <shardwright/schedule/text/number_text.hpp>

#include <algorithm>
#include <cmath>

namespace plan_page {

namespace sw = shardwright;

namespace {

constexpr double letter = 7; // mean width of a character of 13 pixels

std::string px(double value) { return sw::number_text(value, 2); }

std::string text(std::string_view kind, double x, double y, std::string_view words) {
  return "<text class=\"" + std::string(kind) + "\" x=\"" + px(x) + "\" y=\"" + px(y) + "\">" +
         escaped(words) + "</text>\n";
}

std::string stroke(std::string_view kind, double x1, double y1, double x2, double y2) {
  return "<path class=\"" + std::string(kind) + "\" d=\"M" + px(x1) + " " + px(y1) + "L" + px(x2) + " " +
         px(y2) + "\"/>\n";
}

std::string begin(std::string_view title, double width, double height) {
  return "<svg class=\"chart\" viewBox=\"0 0 " + px(width) + " " + px(height) +
         "\" role=\"img\" aria-label=\"" + escaped(title) + "\">\n";
}

std::string width_of(std::string_view words, double x) { // the side of x with room for the text
  return x + letter * static_cast<double>(words.size()) > 990 ? "end" : "start";
}

std::string legend_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "<ul class=\"legend\">";
  for (const auto& [kind, name] : entries)
    out += "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect class=\"" + kind +
           "\" width=\"14\" height=\"14\" rx=\"3\"/></svg>" + escaped(name) + "</li>";
  return out + "</ul>\n";
}

} // namespace

std::string slug(std::string_view name) {
  std::string out(name);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == ' ' || c == ','; }, '-');
  return out;
}

std::string draw(const BarChart& chart) {
  constexpr double width = 1000, height = 26, gap = 10;
  double most = chart.limit;
  std::size_t longest = 0, longest_total = 0;
  std::vector<std::pair<std::string, std::string>> entries;
  for (const Bar& bar : chart.bars) {
    double sum = 0;
    longest = std::max(longest, bar.label.size());
    longest_total = std::max(longest_total, bar.total.size());
    for (const Segment& segment : bar.segments)
      sum += segment.figure.value;
    for (const Figure& end : bar.interval)
      sum = std::max(sum, end.value);
    most = std::max(most, sum);
  }
  for (std::size_t i = 0; chart.stacked && !chart.bars.empty() && i < chart.bars.front().segments.size(); ++i)
    if (std::any_of(chart.bars.begin(), chart.bars.end(),
                    [&](const Bar& bar) { return bar.segments[i].figure.value > 0; })) {
      const std::string& name = chart.bars.front().segments[i].name;
      entries.emplace_back("part " + slug(name), name);
    }
  if (most <= 0)
    most = chart.unit;
  const double left = 24 + letter * static_cast<double>(longest);
  const double right = 32 + 1.1 * letter * static_cast<double>(longest_total); // they are bold
  const double scale = (width - left - right) / most;
  const double top = chart.limit > 0 ? 28 : 8;
  const double bottom = top + static_cast<double>(chart.bars.size()) * (height + gap);
  std::string out = chart.stacked ? legend_of(entries) : std::string();
  out += begin(chart.title, width, bottom + 42);
  const double step = sw::round_step(most / chart.unit / 8);
  for (int i = 0; i * step * chart.unit <= most * (1 + 1e-9); ++i) {
    const double x = left + i * step * chart.unit * scale;
    out += stroke("grid", x, top - 4, x, bottom) + text("tick", x, bottom + 16, sw::number_text(i * step, 6));
  }
  out += text("axis", left, bottom + 35, chart.axis);
  double y = top;
  for (const Bar& bar : chart.bars) {
    out += text("label", left - 10, y + 18, bar.label);
    double x = left;
    for (const Segment& segment : bar.segments) {
      if (segment.figure.value <= 0)
        continue;
      const double wide = segment.figure.value * scale;
      const std::string shown = short_text(segment.figure.value / chart.unit);
      const std::string tip = segment.name + ": " + shown;
      out += "<rect class=\"part " + slug(segment.name) + "\" x=\"" + px(x) + "\" y=\"" + px(y) +
             "\" width=\"" + px(wide) + "\" height=\"" + px(height) + "\"" + segment.figure.attributes() +
             " data-tip=\"" + escaped(bar.label + ", " + tip + ", " + chart.axis) + "\"><title>" +
             escaped(tip) + "</title></rect>\n";
      if (chart.stacked && wide > letter * static_cast<double>(shown.size()) + 8)
        out += text("in in-" + slug(segment.name), x + wide / 2, y + 18, shown);
      x += wide;
    }
    for (const Figure& end : bar.interval) { // below the bar, so that it does not cross a number
      const double at = left + end.value * scale, from = left + bar.interval.front().value * scale;
      out += "<path class=\"interval\"" + end.attributes() + " d=\"M" + px(from) + " " + px(y + height + 4) +
             "H" + px(at) + "M" + px(at) + " " + px(y + height + 1) + "v6\"/>\n";
    }
    const double limit = left + chart.limit * scale; // no text across its line
    const bool beside =
        chart.limit > 0 && x < limit + 4 && x + 14 + letter * static_cast<double>(bar.total.size()) > limit;
    out += text("total", (beside ? limit : x) + 8, y + 18, bar.total);
    y += height + gap;
  }
  if (chart.limit > 0) {
    const double x = left + chart.limit * scale;
    out += stroke("limit", x, top - 6, x, bottom) +
           text("limit-label " + width_of(chart.limit_label, x), x, top - 12, chart.limit_label);
  }
  return out + "</svg>\n";
}

std::string draw(const LineChart& chart) {
  const double width = chart.wide ? 1000 : 490, height = chart.wide ? 400 : 330;
  const double left = 52, right = width - 16, top = 58, bottom = height - 76;
  double least_x = INFINITY, most_x = 0, most_y = 0;
  std::vector<std::pair<std::string, std::string>> entries;
  for (const Foot& tick : chart.ticks) {
    least_x = std::min(least_x, tick.x);
    most_x = std::max(most_x, tick.x);
  }
  for (const Line& line : chart.lines) {
    entries.emplace_back("swatch " + line.kind, line.name);
    for (const std::vector<LinePoint>& run : line.runs)
      for (const LinePoint& point : run)
        most_y = std::max(most_y, point.y.value);
  }
  const double margin = 14, step = sw::round_step(std::max(most_y, 0.01) / 5);
  const double ceiling = step * std::ceil(std::max(most_y, 0.01) / step * 1.02);
  const auto x_of = [&](double amount) {
    return least_x == most_x
               ? (left + right) / 2
               : left + margin +
                     (right - left - 2 * margin) * std::log(amount / least_x) / std::log(most_x / least_x);
  };
  const auto y_of = [&](double share) { return bottom - (bottom - top) * share / ceiling; };
  std::string out = legend_of(entries) + begin(chart.title, width, height);
  for (int i = 0; i * step <= ceiling * (1 + 1e-9); ++i)
    out += stroke("grid", left, y_of(i * step), right, y_of(i * step)) +
           text("tick end", left - 8, y_of(i * step) + 4, sw::number_text(100 * i * step, 2));
  out +=
      text("axis", 4, 16, chart.y_axis) + text("axis middle", (left + right) / 2, height - 8, chart.x_axis);
  const auto below = [&](const std::vector<Foot>& feet, double y, std::string_view kind) {
    double free = 0; // text already extends up to here
    for (const Foot& foot : feet) {
      const double half = letter * static_cast<double>(foot.text.size()) / 2;
      if (x_of(foot.x) - half < free)
        continue;
      out += text(kind, x_of(foot.x), y, foot.text);
      free = x_of(foot.x) + half + 6;
    }
  };
  below(chart.ticks, bottom + 20, "tick");
  below(chart.feet, bottom + 40, "foot");
  out += text("foot end", left - 8, bottom + 40, chart.foot_label);
  double row = 32;
  for (const Marker& marker : chart.markers) {
    const double x = x_of(marker.x), room = letter * static_cast<double>(marker.label.size()) + 8;
    out += stroke("marker " + marker.kind, x, row + 4, x, bottom);
    out += text("marker-label " + marker.kind + (x + room > width ? " end" : ""),
                x + (x + room > width ? -6 : 6), row + 8, marker.label);
    row += 17;
  }
  for (const Line& line : chart.lines) {
    for (const std::vector<LinePoint>& run : line.runs) {
      std::string path;
      for (const LinePoint& point : run)
        path.append(path.empty() ? "M" : "L")
            .append(px(x_of(point.x.value)))
            .append(" ")
            .append(px(y_of(point.y.value)));
      out += "<path class=\"line " + line.kind + "\" d=\"" + path + "\"/>\n";
    }
    for (const std::vector<LinePoint>& run : line.runs)
      for (const LinePoint& point : run)
        out += "<circle class=\"dot " + line.kind + "\" cx=\"" + px(x_of(point.x.value)) + "\" cy=\"" +
               px(y_of(point.y.value)) + "\" r=\"4\"" + point.y.attributes() + " data-x-path=\"" +
               escaped(point.x.path) + "\" data-x-value=\"" + point.x.exact + "\" data-tip=\"" +
               escaped(point.tip) + "\"><title>" + escaped(point.tip) + "</title></circle>\n";
  }
  return out + "</svg>\n";
}

} // namespace plan_page
