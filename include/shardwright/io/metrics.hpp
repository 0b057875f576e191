// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Metrics as JSON lines; a file that can not be written costs a warning, never the training.

#include <shardwright/core/config.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Appends one JSON object per line to a file and flushes each, so that a plot may follow the run.
///
/// An unwritable directory or a full disk is warned of once; from then on records are dropped and the
/// training goes on. Numbers that are not finite become null and bytes that are not UTF-8 become U+FFFD:
/// every line is valid JSON. Not for concurrent use; give it to one rank. Keep this header out of hot include
/// paths: it includes nlohmann-json.
class MetricsWriter {
public:
  /// @brief Takes one sentence; called at most once.
  using Warning = std::function<void(const std::string&)>;

  /// @brief A writer that drops everything: no file was asked for.
  MetricsWriter() = default;

  /// @brief Opens `path` for appending, with its directory if that is missing; an empty path drops
  /// everything.
  explicit MetricsWriter(std::filesystem::path path, Warning warning = to_standard_error)
      : path_(std::move(path)), warning_(std::move(warning)) {
    if (path_.empty())
      return;
    std::error_code ignored;
    if (path_.has_parent_path())
      std::filesystem::create_directories(path_.parent_path(), ignored);
    errno = 0;
    file_.reset(std::fopen(path_.c_str(), "ab"));
    if (!file_)
      warn("can not be opened", errno);
  }

  /// @brief Whether records still reach the file.
  [[nodiscard]] bool active() const noexcept { return file_ != nullptr; }

  /// @brief Appends one record as a line.
  void write(const nlohmann::json& record) {
    if (!file_)
      return;
    std::string line = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    line += '\n';
    errno = 0;
    const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
    if (!written || std::fflush(file_.get()) != 0) {
      const int code = errno;
      file_.reset();
      warn("can not be written", code);
    }
  }

private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  static void to_standard_error(const std::string& sentence) { std::cerr << sentence << std::endl; }

  void warn(const std::string& what, int code) {
    if (warning_)
      warning_("Warning: metrics: " + path_.string() + " " + what + ", " +
               std::generic_category().message(code) + "; the training goes on without metrics");
    warning_ = nullptr;
  }

  std::filesystem::path path_;
  Warning warning_;
  std::unique_ptr<std::FILE, Close> file_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
