// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A file that a training run logs to; failing to write it causes a warning and never stops the run.

#include <shardwright/core/config.hpp>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Receives a warning of one sentence; called at most once per file.
using LogWarning = std::function<void(const std::string&)>;

namespace detail {

/// Writes the sentence to standard error.
inline void warn_on_standard_error(const std::string& sentence) { std::cerr << sentence << std::endl; }

/// A file to append bytes to. After the first failure it warns once and drops everything.
class LogFile {
public:
  /// Drops everything: no file was requested.
  LogFile() = default;

  /// Opens `path`, with its directory if that is missing; an empty path drops everything.
  /// @param mode fopen's mode: append ("ab"), write ("wb"), or write to a new file only ("wbx")
  /// @param subject what the file holds, for the warning: "metrics"
  LogFile(std::filesystem::path path, const char* mode, std::string subject, LogWarning warning)
      : path_(std::move(path)), subject_(std::move(subject)), warning_(std::move(warning)) {
    if (path_.empty())
      return;
    std::error_code ignored;
    if (path_.has_parent_path())
      std::filesystem::create_directories(path_.parent_path(), ignored);
    file_.reset(open_without_waiting(path_.c_str(), mode));
    if (!file_)
      give_up("cannot be opened, " + std::generic_category().message(errno));
  }

  /// Returns whether bytes are still being written to the file.
  [[nodiscard]] bool active() const noexcept { return file_ != nullptr; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Appends bytes; others see them after the next flush.
  void write(std::string_view bytes) {
    errno = 0;
    if (file_ && std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
      give_up("cannot be written, " + std::generic_category().message(errno));
  }
  /// Flushes what was written to the operating system.
  void flush() {
    errno = 0;
    if (file_ && std::fflush(file_.get()) != 0)
      give_up("cannot be written, " + std::generic_category().message(errno));
  }

  /// Closes the file and warns, unless it has done so before.
  void give_up(const std::string& why) {
    file_.reset();
    if (warning_)
      warning_("Warning: " + subject_ + ": " + path_.string() + " " + why + "; training continues without " +
               subject_);
    warning_ = nullptr;
  }

private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  /// A FIFO without a reader is an error here; fopen would wait for one.
  [[nodiscard]] static std::FILE* open_without_waiting(const char* path, const char* mode) noexcept {
    const std::string_view letters(mode);
    const bool exclusive = letters.find('x') != letters.npos;
    const int file = ::open(path,
                            O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK |
                                (letters.front() == 'a' ? O_APPEND : O_TRUNC) | (exclusive ? O_EXCL : 0),
                            0666);
    if (file < 0)
      return nullptr;
    std::FILE* const stream = ::fcntl(file, F_SETFL, letters.front() == 'a' ? O_APPEND : 0) == 0
                                  ? ::fdopen(file, letters.front() == 'a' ? "ab" : "wb")
                                  : nullptr;
    if (stream == nullptr)
      ::close(file);
    return stream;
  }

  std::filesystem::path path_;
  std::string subject_;
  LogWarning warning_;
  std::unique_ptr<std::FILE, Close> file_;
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
