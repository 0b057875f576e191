// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One line of progress: step, loss, tokens per second, share of the machine's matrix rate, time left.

#include <shardwright/core/config.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>

#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The properties of a run that its progress line needs.
struct ProgressOptions {
  std::int64_t steps = 0;     ///< Steps of the whole run.
  double tokens_per_step = 0; ///< Tokens of all ranks in a step.
  double flops_per_token = 0; ///< Floating-point operations per token, forward and backward; 0: no share.
  double machine_flops_per_second = 0; ///< Matrix rate of all active ranks together; 0: no share.
  bool terminal = false;               ///< Rewrite one line; otherwise print a line now and then.
  bool active = true;                  ///< False on all ranks but the one that reports.
  double plain_seconds = 10;           ///< Without a terminal: seconds between lines.
  double terminal_seconds = 0.1;       ///< On a terminal: seconds between redraws.
};

namespace detail {

inline std::string printed(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

} // namespace detail

/// @brief "2 h 05 min", "3 min 20 s", "12 s" or "0.4 s".
[[nodiscard]] inline std::string readable_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0)
    return "?";
  if (seconds < 9.95)
    return detail::printed("%.1f s", seconds);
  if (seconds < 59.5)
    return detail::printed("%.0f s", seconds);
  const auto total = static_cast<long long>(seconds + 0.5);
  std::array<char, 48> buffer{};
  if (total < 3600)
    std::snprintf(buffer.data(), buffer.size(), "%lld min %02lld s", total / 60, total % 60);
  else
    std::snprintf(buffer.data(), buffer.size(), "%lld h %02lld min", total / 3600, total % 3600 / 60);
  return buffer.data();
}

/// @brief "812", "8.1k", "1.25M" or "3.40G".
[[nodiscard]] inline std::string readable_rate(double value) {
  if (!std::isfinite(value) || value < 0)
    return "?";
  if (value < 999.5)
    return detail::printed("%.0f", value);
  if (value < 99950)
    return detail::printed("%.1fk", value / 1e3);
  if (value < 999500)
    return detail::printed("%.0fk", value / 1e3);
  if (value < 999.5e6)
    return detail::printed("%.2fM", value / 1e6);
  return detail::printed("%.2fG", value / 1e9);
}

/// @brief Returns whether a C stream is a terminal.
[[nodiscard]] inline bool is_terminal(std::FILE* stream) noexcept { return ::isatty(::fileno(stream)) == 1; }

/// @brief Writes progress to a stream: on a terminal a single line that is rewritten in place, otherwise
/// plain lines at intervals.
///
/// Plain lines are printed at the first step, the last one, and whenever `plain_seconds` have passed. Rates
/// are means over the recent steps, weighted towards the latest, so that the time left stays right if the
/// machine slows down.
class Progress {
public:
  using Clock = std::chrono::steady_clock;

  /// @brief Writes to `out`, which must outlive this object.
  Progress(std::ostream& out, ProgressOptions options) : out_(out), options_(options) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  /// @brief Reports that step `step`, counted from 1, took `step_seconds` and gave `loss` in nats per token.
  void update(std::int64_t step, double loss, double step_seconds, Clock::time_point now = Clock::now()) {
    if (!options_.active)
      return;
    // The first step warms caches and pools, so the mean starts again with the second.
    mean_seconds_ = updates_ < 2 ? step_seconds : mean_seconds_ + weight * (step_seconds - mean_seconds_);
    ++updates_;
    const double interval = options_.terminal ? options_.terminal_seconds : options_.plain_seconds;
    const bool due = updates_ == 1 || step >= options_.steps ||
                     std::chrono::duration<double>(now - last_print_).count() >= interval;
    if (!due)
      return;
    last_print_ = now;
    print(text(step, loss));
  }

  /// @brief Prints a separate line, such as a validation loss, above the progress line.
  void note(std::string_view line) {
    if (!options_.active)
      return;
    const std::string below = shown_;
    if (!below.empty())
      out_ << '\r' << std::string(below.size(), ' ') << '\r';
    shown_.clear();
    out_ << line << '\n';
    if (!below.empty())
      print(below);
    out_ << std::flush;
  }

  /// @brief Ends the line being rewritten, so that whatever is printed next starts on a new one.
  void finish() {
    if (shown_.empty())
      return;
    out_ << '\n' << std::flush;
    shown_.clear();
  }

  /// @brief The line for a step, without a newline.
  [[nodiscard]] std::string text(std::int64_t step, double loss) const {
    const double tokens_per_second = mean_seconds_ > 0 ? options_.tokens_per_step / mean_seconds_ : 0;
    const std::string steps = std::to_string(options_.steps);
    std::string number = std::to_string(step);
    if (number.size() < steps.size())
      number.insert(0, steps.size() - number.size(), ' ');
    std::string line = "step " + number + "/" + steps + "  loss " + detail::printed("%.4f", loss) + "  " +
                       readable_rate(tokens_per_second) + " tokens/s";
    if (options_.machine_flops_per_second > 0 && options_.flops_per_token > 0)
      line += "  " +
              detail::printed("%.0f", 100 * tokens_per_second * options_.flops_per_token /
                                          options_.machine_flops_per_second) +
              "% of matrix rate";
    const auto left = static_cast<double>(std::max<std::int64_t>(0, options_.steps - step));
    line += "  ETA " + readable_seconds(left * mean_seconds_);
    return line;
  }

private:
  static constexpr double weight = 0.1;

  void print(const std::string& line) {
    if (!options_.terminal) {
      out_ << line << '\n' << std::flush;
      return;
    }
    out_ << '\r' << line;
    if (line.size() < shown_.size())
      out_ << std::string(shown_.size() - line.size(), ' ');
    out_ << std::flush;
    shown_ = line;
  }

  std::ostream& out_;
  ProgressOptions options_;
  double mean_seconds_ = 0;
  std::int64_t updates_ = 0;
  Clock::time_point last_print_{};
  std::string shown_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
