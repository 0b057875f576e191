// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The figures that a run measured, each with the minimum that it must reach, if there is one.

#include "report.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace gpu {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
    else
      out += ' ';
  }
  return out + "\"";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return std::isfinite(value) ? text : "null";
}

} // namespace

std::string Report::json() const {
  std::string out = "{\n  \"notes\": {";
  for (std::size_t i = 0; i < notes_.size(); ++i)
    out += (i == 0 ? "\n    " : ",\n    ") + quoted(notes_[i].first) + ": " + quoted(notes_[i].second);
  out += "\n  },\n  \"figures\": [";
  for (std::size_t i = 0; i < figures_.size(); ++i) {
    const Figure& f = figures_[i];
    out += (i == 0 ? "\n    {" : ",\n    {");
    out += "\"part\": " + quoted(f.part) + ", \"name\": " + quoted(f.name) +
           ", \"value\": " + number(f.value) + ", \"unit\": " + quoted(f.unit) +
           ", \"least\": " + (f.least > 0 ? number(f.least) : "null") +
           ", \"predicted\": " + (f.predicted > 0 ? number(f.predicted) : "null") + "}";
  }
  return out + "\n  ]\n}\n";
}

void Report::write(const std::string& path) const {
  std::ofstream file(path);
  file << json();
  if (!file.flush())
    throw std::runtime_error("gpu: the figures must be writable to " + path + " (choose another --json)");
}

} // namespace gpu
