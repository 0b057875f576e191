// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Progress, metrics and the summary of a run.

#include "run_monitor.hpp"

#include <shardwright/comm/gather_vectors.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

namespace train_gpt {

namespace sw = shardwright;

RunMonitor::RunMonitor(const Options& options, const RunFacts& facts, bool reports,
                       std::shared_ptr<sw::CommunicationClock> clock)
    : facts_(facts), reports_(reports), clock_(std::move(clock)),
      metrics_(reports ? options.metrics : std::filesystem::path(),
               reports ? options.tensorboard : std::filesystem::path()),
      progress_(std::cout, {.steps = options.steps,
                            .tokens_per_step = facts.tokens_per_step,
                            .flops_per_token = facts.flops_per_token,
                            .machine_flops_per_second = facts.matrix_rate,
                            .terminal = sw::is_terminal(stdout),
                            .active = reports}) {
  summary_.flops_per_token = facts.flops_per_token;
  summary_.machine_flops_per_second = facts.matrix_rate;
}

void RunMonitor::begin_step() {
  before_ = clock_->total();
  clock_->count(true);
  begin_ = Clock::now();
}

void RunMonitor::end_step(const shardwright::StepReport& report) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  clock_->count(false);
  ++summary_.steps;
  summary_.seconds += seconds;
  summary_.tokens += facts_.tokens_per_step;
  if (summary_.steps == 1)
    summary_.first_loss = report.loss;
  summary_.last_loss = report.loss;
  progress_.update(report.step, report.loss, seconds);
  if (report.skipped)
    ++summary_.skipped_steps;
  if (!report.note.empty())
    progress_.note("step " + std::to_string(report.step) + (report.skipped ? "  skipped: " : "  ") +
                   report.note);
  note_spike(report.step, "loss", report.loss, loss_spikes_);
  note_spike(report.step, "gradient norm", report.gradient_norm, norm_spikes_);
  const double rate = facts_.tokens_per_step / seconds;
  const sw::CommunicationTotals now = clock_->total();
  const double exposed = now.exposed_seconds - before_.exposed_seconds;
  //! [record]
  metrics_.write({{"step", report.step},
                  {"loss", report.loss},
                  {"gradient_norm", report.gradient_norm},
                  {"learning_rate", report.learning_rate},
                  {"tokens", report.tokens},
                  {"seconds", seconds},
                  {"tokens_per_second", rate},
                  {"matrix_rate_share", rate * facts_.flops_per_token / facts_.matrix_rate},
                  {"communication_seconds",
                   {{"exposed", exposed},
                    {"hidden", std::max(0.0, now.seconds - before_.seconds - exposed)},
                    {"waited", now.waited_seconds - before_.waited_seconds}}},
                  {"skipped_steps", summary_.skipped_steps},
                  {"spikes", summary_.spikes}});
  //! [record]
}

void RunMonitor::note_spike(std::int64_t step, const char* what, double value, sw::SpikeDetector& detector) {
  const double usual = detector.mean();
  if (!detector.spike(value))
    return;
  ++summary_.spikes;
  char line[128];
  std::snprintf(line, sizeof line, "step %lld  spike: the %s is %.4g, after %.4g on average",
                static_cast<long long>(step), what, value, usual);
  progress_.note(line);
}

void RunMonitor::validation(std::int64_t step, double loss) {
  summary_.validation_loss = loss;
  char line[128];
  std::snprintf(line, sizeof line, "step %lld  validation loss %.4f nats per byte",
                static_cast<long long>(step), loss);
  progress_.note(line);
  metrics_.write({{"step", step}, {"validation_loss", loss}});
}

double RunMonitor::finish(const sw::HostCommunicator& world, std::size_t pool_peak_bytes) {
  progress_.finish();
  summary_.ranks = world.size();
  summary_.communication = sw::mean_communication(world, *clock_);
  for (const std::vector<std::size_t>& peaks :
       sw::gather_vectors(world, std::vector<std::size_t>{pool_peak_bytes, sw::process_peak_bytes()})) {
    summary_.pool_peak_bytes = std::max(summary_.pool_peak_bytes, peaks[0]);
    summary_.process_peak_bytes = std::max(summary_.process_peak_bytes, peaks[1]);
  }
  if (reports_)
    std::cout << summary_.text() << std::flush;
  metrics_.write({{"step", summary_.steps}, {"summary", summary_.record()}});
  return summary_.seconds;
}

} // namespace train_gpt
