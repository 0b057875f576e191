// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Escapes words and writes figures.

#include "text.hpp"

#include <shardwright/schedule/text/number_text.hpp>

namespace plan_page {

namespace sw = shardwright;
using Pointer = nlohmann::ordered_json::json_pointer;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text)
    switch (c) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&quot;";
      break;
    case '\'':
      out += "&#39;";
      break;
    default:
      out += c;
    }
  return out;
}

std::string Figure::attributes() const {
  return " data-path=\"" + escaped(path) + "\" data-value=\"" + exact + "\"";
}

bool Document::has(const std::string& path) const {
  return study_.contains(Pointer(path)) && !study_.at(Pointer(path)).is_null();
}
const nlohmann::ordered_json& Document::at(const std::string& path) const { return study_.at(Pointer(path)); }
Figure Document::figure(const std::string& path) const {
  return {at(path).get<double>(), path, at(path).dump()};
}
std::string Document::word(const std::string& path) const { return at(path).get<std::string>(); }

std::string Document::number(const std::string& path, double unit, std::string_view name) const {
  const Figure one = figure(path);
  return "<span" + one.attributes() + ">" + short_text(one.value / unit) + "</span>" +
         (name.empty() ? std::string() : "&nbsp;" + escaped(name));
}
std::string Document::percent(const std::string& path) const {
  const Figure one = figure(path);
  return "<span" + one.attributes() + ">" + sw::number_text(100 * one.value, 1) + "</span>&nbsp;%";
}

std::string table(std::string_view caption, const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<div class=\"scroll\"><table><caption>" + escaped(caption) + "</caption><thead><tr>";
  for (const std::string& cell : head)
    out += "<th scope=\"col\">" + cell + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += i == 0 ? "<th scope=\"row\">" + row[i] + "</th>" : "<td>" + row[i] + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

} // namespace plan_page
