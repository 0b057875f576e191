// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Saves and finds the checkpoints of a run.

#include "checkpoints.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/directory.hpp>
#include <shardwright/io/checkpoint/saver.hpp>
#include <shardwright/io/checkpoint/training_state.hpp>
#include <shardwright/io/configuration_hash.hpp>
#include <shardwright/train/dry_run/memory_text.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <locale>
#include <optional>
#include <sstream>
#include <utility>

#include <unistd.h>

namespace trainer {

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;

namespace {

volatile std::sig_atomic_t stop_wanted = 0;
volatile std::sig_atomic_t stop_limit = 0;
std::string_view program;

extern "C" void trainer_note_stop(int) {
  stop_wanted = 1;
  ::alarm(static_cast<unsigned>(stop_limit));
}
extern "C" void trainer_end_late(int) {
  static constexpr char sentence[] =
      ": the run must stop within --stop-limit seconds of a signal, but has not (the last checkpoint is complete; give a higher limit)\n";
  static_cast<void>(!::write(2, program.data(), program.size()));
  static_cast<void>(!::write(2, sentence, sizeof sentence - 1));
  ::_exit(1);
}

std::string hash_text(const std::string& text) {
  char out[24];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(sw::configuration_hash(text)));
  return out;
}

} // namespace

StopSignals::StopSignals(const RunOptions& options) : on_(options.checkpoint.on()) {
  if (!on_)
    return;
  program = options.program;
  stop_wanted = 0;
  stop_limit = static_cast<std::sig_atomic_t>(std::ceil(options.checkpoint.stop_limit_seconds));
  struct sigaction action {};
  action.sa_handler = trainer_note_stop;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  action.sa_handler = trainer_end_late;
  ::sigaction(SIGALRM, &action, nullptr);
}
StopSignals::~StopSignals() {
  if (!on_)
    return;
  ::alarm(0);
  for (const int signal : {SIGTERM, SIGINT, SIGALRM})
    ::signal(signal, SIG_DFL);
}

void together(const sw::HostCommunicator& world, const std::function<void()>& work) {
  cp::detail::agree(world, cp::detail::sentence_of(work), sw::SourceLocation::current());
}

struct Checkpoints::State {
  sw::HostCommunicator world;
  const RunOptions& options;
  std::string configuration;
  std::optional<cp::Saver> saver{};
  std::unique_ptr<const cp::Reader> reader{};
  std::shared_ptr<const cp::BlockSource> initial{};
  std::vector<std::string> news{};
  std::uint64_t told = 0; // the step of the last reported save
  bool stops = false;

  [[nodiscard]] const std::filesystem::path& directory() const { return options.checkpoint.directory; }

  void open() {
    std::vector<std::string> refused;
    reader = cp::open_newest(world, directory(), refused);
    for (const std::string& sentence : refused)
      news.push_back("resume: skipped: " + sentence);
    if (!options.checkpoint.resume) {
      if (reader || !refused.empty())
        throw sw::DataError(
            "--checkpoint: " + directory().string() +
            " must not hold a checkpoint when a run begins, but it does (add --resume to resume from it, or give another directory)");
      return;
    }
    if (!reader)
      throw sw::DataError("--resume: " + directory().string() +
                          " must hold a complete checkpoint, but it has none" +
                          (refused.empty() ? std::string() : ": " + refused.front()) +
                          " (leave --resume out to begin a run)");
    const cp::Description& saved = reader->manifest().description;
    if (saved.configuration_hash != hash_text(configuration)) {
      const auto text = saved.more.find("configuration");
      const auto [was, is] = sw::detail::first_difference(
          text == saved.more.end() ? std::string() : text->second, configuration);
      throw sw::DataError(
          "--resume: " + reader->path().string() + " must belong to this run, but it was saved with " + was +
          " where this one has " + is +
          " (give the options of that run: only mesh, schedule, sharding and output may differ)");
    }
    news.push_back("resume: from " + reader->path().string() + ", saved on " + saved.mesh);
    // Later ones have not passed.
    trainer::together(world, [&] {
      if (cp::Writer* const writer = saver->writer())
        for (const std::uint64_t step : cp::saved_steps(directory()))
          if (step > saved.step)
            news.push_back("resume: set aside as " + writer->set_aside(step).string());
    });
  }
  void note_saved() {
    const std::optional<cp::SaveReport>& last = saver->last();
    if (!last || last->step == told)
      return;
    told = last->step;
    char seconds[64];
    std::snprintf(seconds, sizeof seconds, "%.3f s, ", last->seconds);
    news.push_back("step " + std::to_string(last->step) +
                   "  saved: " + sw::bytes_text(static_cast<double>(last->bytes)) + " in " + seconds +
                   sw::bytes_text(last->bytes_per_second()) + "/s");
  }
};

Checkpoints::Checkpoints(const sw::HostCommunicator& world, const RunOptions& options,
                         std::string configuration, const InitialWeights& initial, bool needs_initial)
    : state_(new State{world, options, std::move(configuration)}) {
  if (options.checkpoint.on()) {
    state_->saver.emplace(world, options.checkpoint.directory);
    state_->open();
  }
  if (initial && (needs_initial || !state_->reader))
    together([&] { state_->initial = initial(state_->news); });
}
Checkpoints::~Checkpoints() = default;

const cp::BlockSource* Checkpoints::saved() const { return state_->reader.get(); }
const cp::BlockSource* Checkpoints::initial() const { return state_->initial.get(); }

sw::TrainingProgress Checkpoints::place() const {
  if (!state_->reader)
    return {};
  return cp::progress_of(state_->reader->manifest().description.more);
}

void Checkpoints::together(const std::function<void()>& work) const {
  trainer::together(state_->world, work);
}

void Checkpoints::require_names(const std::vector<std::string>& names) const {
  if (state_->reader)
    cp::require_same_names(state_->world, *state_->reader, names);
}

void Checkpoints::tell_progress(std::function<void(const std::string&)> tell) {
  if (!state_->saver)
    return;
  //! [progress]
  state_->saver->on_progress(
      [tell = std::move(tell)](const cp::SaveProgress& save) {
        tell("step " + std::to_string(save.step) +
             "  saving: " + sw::bytes_text(static_cast<double>(save.bytes)) + " of " +
             sw::bytes_text(static_cast<double>(save.total)) + ", " +
             sw::bytes_text(save.bytes_per_second()) + "/s");
      },
      state_->options.checkpoint.progress_seconds);
  //! [progress]
}

bool Checkpoints::due(std::int64_t step) {
  const CheckpointOptions& options = state_->options.checkpoint;
  if (!options.on())
    return false;
  state_->saver->poll();
  state_->note_saved();
  // A signal may reach only some processes, or reach them at different times.
  const std::array<std::uint64_t, 1> own{stop_wanted != 0 ? 1U : 0U};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(state_->world.size()));
  state_->world.all_gather(own, all);
  state_->stops = step == options.stop_after || std::find(all.begin(), all.end(), 1U) != all.end();
  return state_->stops || step == state_->options.steps || (options.every > 0 && step % options.every == 0);
}
bool Checkpoints::stopping() const { return state_->stops; }

cp::Staging& Checkpoints::staging() {
  cp::Staging& out = state_->saver->staging();
  state_->note_saved();
  return out;
}

void Checkpoints::start(const sw::TrainingProgress& progress) {
  cp::Description about{static_cast<std::uint64_t>(progress.steps),
                        state_->options.mesh_text(),
                        hash_text(state_->configuration),
                        {{"configuration", state_->configuration}}};
  cp::add_progress(about.more, progress);
  state_->saver->start(about, static_cast<std::size_t>(state_->options.checkpoint.keep));
}

void Checkpoints::finish() {
  if (!state_->saver)
    return;
  state_->saver->finish();
  state_->note_saved();
}

std::vector<std::string> Checkpoints::news() { return std::exchange(state_->news, {}); }

} // namespace trainer
