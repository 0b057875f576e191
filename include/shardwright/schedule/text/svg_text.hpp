// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The elements of an SVG drawing as text.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/text/number_text.hpp>

#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Text to which drawings append their elements; `kind` names a CSS class.
class SvgText {
protected:
  static constexpr double screen = 1440; ///< Width of a screen that must show a drawing whole.

  [[nodiscard]] static std::string px(double value) { return number_text(value, 1); }

  [[nodiscard]] static std::string escaped(std::string_view words) {
    std::string out;
    for (const char c : words)
      out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    return out;
  }
  /// @param size of the font in pixels, if not that of its kind
  void words(std::string_view kind, double x, double y, std::string_view what, double size = 0) {
    out_ += "<text class=\"" + std::string(kind) + "\" x=\"" + px(x) + "\" y=\"" + px(y) +
            (size > 0 ? "\" style=\"font-size:" + px(size) + "px" : "") + "\">" + escaped(what) + "</text>\n";
  }
  void box(std::string_view kind, double x, double y, double width, double height,
           std::string_view tip = {}) {
    out_ += "<rect class=\"" + std::string(kind) + "\" x=\"" + px(x) + "\" y=\"" + px(y) + "\" width=\"" +
            px(width) + "\" height=\"" + px(height) + "\"";
    out_ += tip.empty() ? "/>\n" : "><title>" + escaped(tip) + "</title></rect>\n";
  }
  void line(std::string_view kind, double x1, double y1, double x2, double y2) {
    out_ += "<path class=\"" + std::string(kind) + "\" d=\"M" + px(x1) + " " + px(y1) + "L" + px(x2) + " " +
            px(y2) + "\"/>\n";
  }

  std::string out_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
