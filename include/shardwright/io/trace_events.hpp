// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A writer of the Chrome trace-event format, which Perfetto and Chrome open.

#include <shardwright/core/config.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Collects the events of a trace. A process holds tracks, a track slices; times are in seconds.
///
/// Source: the "Trace Event Format" document of the Chromium project.
class TraceEvents {
public:
  void name_process(int process, const std::string& name) { name_of("process_name", process, 0, name); }
  void name_track(int process, int track, const std::string& name) {
    name_of("thread_name", process, track, name);
  }

  /// A span of time. @param colour one of the format's reserved names; empty leaves the choice to the viewer
  void slice(int process, int track, double begin, double end, std::string_view category, std::string name,
             nlohmann::json arguments = {}, std::string_view colour = {}) {
    nlohmann::json event{{"ph", "X"},
                         {"pid", process},
                         {"tid", track},
                         {"ts", microseconds(begin)},
                         {"dur", microseconds(end - begin)},
                         {"cat", category},
                         {"name", std::move(name)}};
    if (!arguments.is_null())
      event["args"] = std::move(arguments);
    if (!colour.empty())
      event["cname"] = colour;
    events_.push_back(std::move(event));
  }

  /// The value of a counter from a time on.
  void counter(int process, double time, std::string name, std::string_view series, int value) {
    events_.push_back({{"ph", "C"},
                       {"pid", process},
                       {"ts", microseconds(time)},
                       {"name", std::move(name)},
                       {"args", {{series, value}}}});
  }

  /// An arrow between the slices around two times. @param id unique to the arrow
  void arrow(int process, std::int64_t id, std::string_view category, std::string_view name, int from_track,
             double from, int to_track, double to) {
    nlohmann::json event{{"cat", category},         {"name", name}, {"id", id},
                         {"pid", process},          {"ph", "s"},    {"tid", from_track},
                         {"ts", microseconds(from)}};
    events_.push_back(event);
    event["ph"] = "f";
    event["bp"] = "e";
    event["tid"] = to_track;
    event["ts"] = microseconds(to);
    events_.push_back(std::move(event));
  }

  /// The text of the trace.
  [[nodiscard]] std::string text() const {
    return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", events_}}.dump();
  }

private:
  [[nodiscard]] static double microseconds(double seconds) { return seconds * 1e6; }

  void name_of(const char* what, int process, int track, const std::string& name) {
    events_.push_back(
        {{"ph", "M"}, {"pid", process}, {"tid", track}, {"name", what}, {"args", {{"name", name}}}});
  }

  nlohmann::json events_ = nlohmann::json::array();
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
