// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The summary of a training run: speed, communication, memory and loss, as text and as a record.

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/io/progress.hpp>
#include <shardwright/nn/experts/report.hpp>
#include <shardwright/train/dry_run/memory_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/resource.h>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Most memory that this process has held at a time, in bytes: all thread ranks together, or one MPI
/// rank.
[[nodiscard]] inline std::size_t process_peak_bytes() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0)
    return 0;
#if defined(__APPLE__)
  return static_cast<std::size_t>(usage.ru_maxrss);
#else
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
#endif
}

/// @brief "12.3 s", "4.56 ms" or "789 us", for short times.
[[nodiscard]] inline std::string readable_time(double seconds) {
  if (seconds >= 9.995)
    return detail::printed("%.1f s", seconds);
  if (seconds >= 0.9995)
    return detail::printed("%.2f s", seconds);
  return seconds >= 0.9995e-3 ? detail::printed("%.3g ms", seconds * 1e3)
                              : detail::printed("%.3g us", seconds * 1e6);
}

/// @brief The loads of experts as an object for metrics: the numbers of ExpertSummary, and in "load", by
/// layer and expert, the share of the layer's choices.
[[nodiscard]] inline nlohmann::json expert_record(std::span<const ExpertLoadReport> layers) {
  const ExpertSummary summary = summary_of(layers);
  nlohmann::json load = nlohmann::json::object();
  for (const ExpertLoadReport& layer : layers) {
    double all = 0;
    for (const std::int64_t tokens : layer.chosen)
      all += static_cast<double>(tokens);
    for (std::size_t e = 0; e < layer.chosen.size(); ++e)
      load[layer.name][std::to_string(e)] = all > 0 ? static_cast<double>(layer.chosen[e]) / all : 0;
  }
  return {{"busiest_share", summary.busiest_share},
          {"least_bias", summary.least_bias},
          {"largest_bias", summary.largest_bias},
          {"dropped_share", summary.dropped_share},
          {"balance_loss", summary.balance_loss},
          {"z_loss", summary.z_loss},
          {"load", std::move(load)}};
}

/// @brief A run in numbers. Times are those of the steps, without validation and set-up.
struct RunSummary {
  std::int64_t steps = 0;
  std::int64_t skipped_steps = 0; ///< Without a token that counts, or not finite.
  std::int64_t spikes = 0;        ///< Of loss or gradient norm.
  double seconds = 0;
  double tokens = 0;
  double flops_per_token = 0;
  double machine_flops_per_second = 0; ///< Measured rate of matrix products on all ranks together.
  double first_loss = 0;               ///< Of a run with a step that was taken, like the last one.
  double last_loss = 0;
  std::optional<double> validation_loss{}; ///< Of the parameters at the end.
  int ranks = 1;
  std::vector<CommunicationKind> communication{}; ///< Means over the ranks, as of mean_communication.
  std::size_t pool_peak_bytes = 0;                ///< Of tensors, on the rank that has the most.
  std::size_t process_peak_bytes = 0;             ///< Of the process that has the most.
  std::optional<ExpertSummary> experts{};         ///< Of the last step, of a model with experts.

  [[nodiscard]] double tokens_per_second() const noexcept { return seconds > 0 ? tokens / seconds : 0; }
  /// @brief Share of the machine's matrix rate.
  [[nodiscard]] double matrix_rate_share() const noexcept {
    return machine_flops_per_second > 0 ? tokens_per_second() * flops_per_token / machine_flops_per_second
                                        : 0;
  }
  [[nodiscard]] CommunicationTotals communication_total() const noexcept {
    CommunicationTotals out;
    for (const CommunicationKind& kind : communication)
      out += kind.totals;
    return out;
  }

  /// @brief A few lines for people to read, each ending in a newline.
  [[nodiscard]] std::string text() const;
  /// @brief The same as an object for metrics; kinds of communication are objects in "communication".
  [[nodiscard]] nlohmann::json record() const;
};

inline std::string RunSummary::text() const {
  const auto percent = [](double share) { return detail::printed("%.1f%%", 100 * share); };
  const auto plural = [](std::int64_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::string out = "summary: " + plural(steps, "step") + " in " + readable_time(seconds);
  if (skipped_steps > 0)
    out += ", " + std::to_string(skipped_steps) + " of them skipped";
  if (spikes > 0)
    out += ", " + plural(spikes, "spike");
  std::string losses;
  if (steps > skipped_steps)
    losses =
        detail::printed("%.4f", first_loss) + " at first, " + detail::printed("%.4f", last_loss) + " at last";
  if (validation_loss)
    losses += (losses.empty() ? "" : ", ") + ("held out " + detail::printed("%.4f", *validation_loss));
  out += "\n  loss           " + (losses.empty() ? "none" : losses) + "\n";
  if (steps > 0)
    out += "  speed          " + readable_rate(tokens_per_second()) + " tokens/s, " +
           percent(matrix_rate_share()) + " of the matrix rate of " +
           detail::printed("%.1f", machine_flops_per_second * 1e-9) + " GFLOP/s\n";
  const auto times = [&](const CommunicationTotals& totals) {
    return "exposed " + readable_time(totals.exposed_seconds) + ", hidden " +
           readable_time(totals.hidden_seconds()) + ", waited for peers " +
           readable_time(std::max(0.0, totals.waited_seconds - totals.exposed_seconds));
  };
  const CommunicationTotals total = communication_total();
  if (total.calls > 0)
    out += "  communication  " + percent(seconds > 0 ? total.exposed_seconds / seconds : 0) +
           " of the time: " + times(total) + " (mean of " + plural(ranks, "rank") + ")\n";
  for (const CommunicationKind& kind : communication) {
    std::string name = kind.name();
    name.resize(std::max<std::size_t>(name.size(), 24), ' ');
    out += "    " + name + " " + detail::printed("%7.0f", kind.totals.calls) + " calls, " +
           bytes_text(kind.totals.bytes) + ": " + times(kind.totals) + "\n";
  }
  if (experts)
    out += "  experts        " + experts->text() + "\n";
  return out + "  memory         tensors " + bytes_text(static_cast<double>(pool_peak_bytes)) +
         " on the rank with most, process " + bytes_text(static_cast<double>(process_peak_bytes)) +
         " at most\n";
}

inline nlohmann::json RunSummary::record() const {
  const auto of = [](const CommunicationTotals& totals) {
    return nlohmann::json{{"calls", totals.calls},
                          {"bytes", totals.bytes},
                          {"seconds", totals.seconds},
                          {"exposed_seconds", totals.exposed_seconds},
                          {"hidden_seconds", totals.hidden_seconds()},
                          {"waited_seconds", totals.waited_seconds}};
  };
  nlohmann::json kinds{{"total", of(communication_total())}};
  for (const CommunicationKind& kind : communication)
    kinds[kind.name()] = of(kind.totals);
  nlohmann::json out{{"steps", steps},
                     {"skipped_steps", skipped_steps},
                     {"spikes", spikes},
                     {"seconds", seconds},
                     {"tokens", tokens},
                     {"tokens_per_second", tokens_per_second()},
                     {"matrix_rate_share", matrix_rate_share()},
                     {"first_loss", steps > skipped_steps ? nlohmann::json(first_loss) : nlohmann::json()},
                     {"last_loss", steps > skipped_steps ? nlohmann::json(last_loss) : nlohmann::json()},
                     {"ranks", ranks},
                     {"pool_peak_bytes", pool_peak_bytes},
                     {"process_peak_bytes", process_peak_bytes},
                     {"communication", kinds}};
  if (validation_loss)
    out["validation_loss"] = *validation_loss;
  if (experts)
    out["experts"] = {{"busiest_share", experts->busiest_share},
                      {"least_bias", experts->least_bias},
                      {"largest_bias", experts->largest_bias},
                      {"dropped_share", experts->dropped_share}};
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
