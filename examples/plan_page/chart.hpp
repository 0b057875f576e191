// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Charts of a page as SVG: stacked bars, and lines over a logarithmic axis.

#include "text.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace plan_page {

/// @brief One colour of a bar.
struct Segment {
  std::string name; ///< Gives its entry in the legend and its colour.
  Figure figure;
};
/// @brief A bar with the text before and after it.
struct Bar {
  std::string label;
  std::vector<Segment> segments;
  std::string total;              ///< Text after the bar.
  std::vector<Figure> interval{}; ///< Lower and upper bound, or empty.
};
/// @brief Bars below one another that share an axis.
struct BarChart {
  std::string title; ///< For screen readers.
  std::string axis;  ///< What the axis shows, with its unit.
  double unit = 1;   ///< Of the axis and of the numbers in the bars.
  std::vector<Bar> bars;
  double limit = 0; ///< Marked by a line if above 0.
  std::string limit_label;
  bool stacked = true; ///< All bars have the same segments: a legend, and numbers in them.
};
[[nodiscard]] std::string draw(const BarChart& chart);

/// @brief A point of a line.
struct LinePoint {
  Figure x, y;
  std::string tip;
};
/// @brief A line; it breaks where a point is missing.
struct Line {
  std::string name;
  std::string kind; ///< Its class: colour and dashes.
  std::vector<std::vector<LinePoint>> runs;
};
/// @brief A vertical line.
struct Marker {
  double x = 0;
  std::string label;
  std::string kind;
};
/// @brief A text below the axis.
struct Foot {
  double x = 0;
  std::string text;
};
/// @brief Fractions plotted over an amount of a resource.
struct LineChart {
  std::string title;
  std::string x_axis;
  std::string y_axis;
  double unit = 1; ///< Of the x axis.
  bool wide = true;
  std::vector<Line> lines;
  std::vector<Marker> markers;
  std::vector<Foot> ticks;
  std::vector<Foot> feet;
  std::string foot_label;
};
[[nodiscard]] std::string draw(const LineChart& chart);

/// @brief A name as a class: "matrix products" as "matrix-products".
[[nodiscard]] std::string slug(std::string_view name);

} // namespace plan_page
