// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Metrics as JSON lines and as scalars of TensorBoard, from one record.

#include <shardwright/core/config.hpp>
#include <shardwright/io/log_file.hpp>
#include <shardwright/io/tensorboard.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Appends one JSON object per line to a file and flushes each, so that a plot may follow the run.
///
/// An unwritable directory or a full disk is warned of once; from then on records are dropped and the
/// training continues. Numbers that are not finite become null and bytes that are not UTF-8 become U+FFFD:
/// every line is valid JSON. Not for concurrent use; give it to one rank. Keep this header out of hot include
/// paths: it includes nlohmann-json.
class MetricsWriter {
public:
  /// @brief A writer that drops everything: no file was requested.
  MetricsWriter() = default;

  /// @brief Opens `lines` for appending and a file of events in the directory `events`, with the directories
  /// that are missing; an empty path drops the records that would go there.
  explicit MetricsWriter(std::filesystem::path lines, std::filesystem::path events = {},
                         const LogWarning& warning = detail::warn_on_standard_error)
      : lines_(std::move(lines), "ab", "metrics", warning), events_(std::move(events), {}, warning) {}

  /// @brief Returns whether records still reach a file.
  [[nodiscard]] bool active() const noexcept { return lines_.active() || events_.active(); }

  /// @brief Appends one record as a line, and its numbers as scalars of its "step".
  ///
  /// The tag of a number is its name, after those of the objects that contain it: "seconds/forward".
  void write(const nlohmann::json& record) {
    if (lines_.active()) {
      lines_.write(record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
      lines_.flush();
    }
    if (!events_.active() || !record.contains("step"))
      return;
    scalars_.clear();
    collect(record, "");
    events_.write(record["step"].get<std::int64_t>(), scalars_);
  }

private:
  void collect(const nlohmann::json& object, const std::string& prefix) {
    for (const auto& [name, value] : object.items()) {
      if (value.is_object())
        collect(value, prefix + name + "/");
      else if (value.is_number() && !(prefix.empty() && name == "step"))
        scalars_.push_back({prefix + name, value.get<double>()});
    }
  }

  detail::LogFile lines_;
  TensorBoardWriter events_;
  std::vector<Scalar> scalars_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
