// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Progress, metrics and the summary of a run.

#include "run_monitor.hpp"

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/io/metrics.hpp>
#include <shardwright/io/progress.hpp>
#include <shardwright/io/run_summary.hpp>
#include <shardwright/train/step/spike_detector.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

namespace trainer {

namespace sw = shardwright;

struct RunMonitor::State {
  using Clock = std::chrono::steady_clock;

  State(const RunOptions& options, const RunFacts& of_run, bool on,
        std::shared_ptr<sw::CommunicationClock> communication)
      : facts(of_run), reports(on), clock(std::move(communication)),
        metrics(on ? options.metrics : std::filesystem::path(),
                on ? options.tensorboard : std::filesystem::path()),
        progress(std::cout, {.steps = options.steps,
                             .tokens_per_step = of_run.tokens_per_step,
                             .flops_per_token = of_run.flops_per_token,
                             .machine_flops_per_second = of_run.matrix_rate,
                             .terminal = sw::is_terminal(stdout),
                             .active = on}) {
    summary.flops_per_token = of_run.flops_per_token;
    summary.machine_flops_per_second = of_run.matrix_rate;
  }

  template <class... Values> void note(const char* format, Values... values) {
    char line[128];
    std::snprintf(line, sizeof line, format, values...);
    progress.note(line);
  }
  void note_spike(std::int64_t step, const char* what, double value, sw::SpikeDetector& detector);

  RunFacts facts;
  bool reports;
  std::shared_ptr<sw::CommunicationClock> clock;
  sw::MetricsWriter metrics;
  sw::Progress progress;
  sw::SpikeDetector loss_spikes;
  sw::SpikeDetector norm_spikes;
  sw::RunSummary summary;
  sw::CommunicationTotals before{};
  Clock::time_point begin{};
};

RunMonitor::RunMonitor(const RunOptions& options, const RunFacts& facts, bool reports,
                       std::shared_ptr<sw::CommunicationClock> clock)
    : state_(std::make_unique<State>(options, facts, reports, std::move(clock))) {}
RunMonitor::~RunMonitor() = default;

void RunMonitor::begin_step() {
  State& state = *state_;
  state.before = state.clock->total();
  state.clock->count(true);
  state.begin = State::Clock::now();
}

void RunMonitor::end_step(const shardwright::StepReport& report) {
  State& state = *state_;
  const double seconds = std::chrono::duration<double>(State::Clock::now() - state.begin).count();
  state.clock->count(false);
  ++state.summary.steps;
  state.summary.seconds += seconds;
  state.summary.tokens += state.facts.tokens_per_step;
  state.summary.validation_loss.reset(); // of other parameters
  if (report.skipped) {
    ++state.summary.skipped_steps;
  } else {
    if (state.summary.steps - state.summary.skipped_steps == 1)
      state.summary.first_loss = report.loss;
    state.summary.last_loss = report.loss;
  }
  if (!state.facts.every_step)
    state.progress.update(report.step, report.loss, seconds);
  else
    state.note("step %lld loss %.15e gradient norm %.6e", static_cast<long long>(report.step), report.loss,
               report.gradient_norm);
  if (!report.note.empty())
    state.progress.note("step " + std::to_string(report.step) + (report.skipped ? "  skipped: " : "  ") +
                        report.note);
  state.note_spike(report.step, "loss", report.loss, state.loss_spikes);
  state.note_spike(report.step, "gradient norm", report.gradient_norm, state.norm_spikes);
  const double rate = state.facts.tokens_per_step / seconds;
  const sw::CommunicationTotals now = state.clock->total();
  const double exposed = now.exposed_seconds - state.before.exposed_seconds;
  //! [record]
  state.metrics.write({{"step", report.step},
                       {"loss", report.loss},
                       {"gradient_norm", report.gradient_norm},
                       {"learning_rate", report.learning_rate},
                       {"tokens", report.tokens},
                       {"seconds", seconds},
                       {"tokens_per_second", rate},
                       {"matrix_rate_share", state.facts.share(rate)},
                       {"communication_seconds",
                        {{"exposed", exposed},
                         {"hidden", std::max(0.0, now.seconds - state.before.seconds - exposed)},
                         {"waited", now.waited_seconds - state.before.waited_seconds}}},
                       {"skipped_steps", state.summary.skipped_steps},
                       {"spikes", state.summary.spikes}});
  //! [record]
}

void RunMonitor::State::note_spike(std::int64_t step, const char* what, double value,
                                   sw::SpikeDetector& detector) {
  const double usual = detector.mean();
  if (!detector.spike(value))
    return;
  ++summary.spikes;
  note("step %lld  spike: the %s is %.4g, after %.4g on average", static_cast<long long>(step), what, value,
       usual);
}

void RunMonitor::experts(std::int64_t step, std::span<const sw::ExpertLoadReport> layers) {
  State& state = *state_;
  state.summary.experts = sw::summary_of(layers);
  if (state.facts.every_step)
    state.progress.note("  " + state.summary.experts->text());
  state.metrics.write({{"step", step}, {"experts", sw::expert_record(layers)}});
}

void RunMonitor::note(const std::string& line) { state_->progress.note(line); }

void RunMonitor::validation(std::int64_t step, double loss) {
  State& state = *state_;
  state.summary.validation_loss = loss;
  state.note("step %lld  validation loss %.4f nats per %.*s", static_cast<long long>(step), loss,
             static_cast<int>(state.facts.unit.size()), state.facts.unit.data());
  if (state.summary.experts)
    state.progress.note("step " + std::to_string(step) + "  " + state.summary.experts->text());
  state.metrics.write({{"step", step}, {"validation_loss", loss}});
}

double RunMonitor::finish(const sw::HostCommunicator& world, std::size_t pool_peak_bytes) {
  State& state = *state_;
  state.progress.finish();
  state.summary.ranks = world.size();
  state.summary.communication = sw::mean_communication(world, *state.clock);
  for (const std::vector<std::size_t>& peaks :
       sw::all_gather_v(world, std::vector<std::size_t>{pool_peak_bytes, sw::process_peak_bytes()})) {
    state.summary.pool_peak_bytes = std::max(state.summary.pool_peak_bytes, peaks[0]);
    state.summary.process_peak_bytes = std::max(state.summary.process_peak_bytes, peaks[1]);
  }
  if (state.reports)
    std::cout << state.summary.text() << std::flush;
  state.metrics.write({{"step", state.summary.steps}, {"summary", state.summary.record()}});
  return state.summary.seconds;
}

} // namespace trainer
