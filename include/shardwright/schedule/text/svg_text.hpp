// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The elements of an SVG drawing as text.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/text/number_text.hpp>
#include <shardwright/schedule/text/svg_palette.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The text of a drawing.
struct DrawingText {
  std::string title;
  std::string subtitle;
  std::string time_unit = "1"; ///< The unit of the time axis, such as "ms".
  double width = 0;            ///< Of the time axis in pixels; 0 fits numbers in boxes and drawing on screen.
};

namespace detail {

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

  /// The head of a drawing, up to the styles that all drawings share; more styles, "</style>" and definitions
  /// follow.
  void begin(double width, double height, const DrawingText& text) {
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + px(width) + " " + px(height) +
           "\" width=\"" + px(width) + "\" height=\"" + px(height) + "\" role=\"img\" aria-label=\"" +
           escaped(text.title) + "\">\n<title>" + escaped(text.title) + "</title>\n<style>\n" +
           "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:11px}\n"
           ".name{font-weight:600}.title{font-size:19px;font-weight:600}.sub{font-size:13px}\n";
  }
  /// A class such as F0 for each chunk of the passes that occur.
  void style_passes(const std::array<bool, 4>& occurs, int chunks) {
    for (int pass = 0; pass < 4; ++pass)
      for (int chunk = 0; occurs[static_cast<std::size_t>(pass)] && chunk < chunks; ++chunk)
        out_.append(".") // g++ 12 warns of "." + a string at -O3, without cause
            .append(letter_of(static_cast<Pass>(pass)) + std::to_string(chunk))
            .append("{fill:" + colour_of(static_cast<Pass>(pass), chunk, chunks).text() + "}");
  }
  /// The background, the title and the subtitle.
  void paper(double width, double height, const DrawingText& text) {
    box("paper", 0, 0, width, height);
    words("title", 16, 30, text.title);
    words("sub", 16, 51, text.subtitle);
  }
  /// Ticks of the time, with lines from `top` to `bottom`.
  void time_axis(double left, double top, double bottom, double span, double scale, const DrawingText& text) {
    const double step = round_step(64 / scale);
    for (int i = 0; i * step <= span * (1 + 1e-9); ++i) {
      const double x = left + i * step * scale;
      line("grid", x, top - 6, x, bottom + 4);
      words("tick", x, bottom + 18, number_text(i * step, 6));
    }
    words("note", left, bottom + 35, "time" + (text.time_unit == "1" ? "" : " in " + text.time_unit));
  }

  static constexpr std::array<const char*, 4> pass_names{"F forward", "B backward", "I input gradient",
                                                         "W weight gradient"};
  std::string out_;
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
