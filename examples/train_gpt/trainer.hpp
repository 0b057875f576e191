// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training loop of train_gpt over any mesh, layouts and element type.

#include "device_steps.hpp"
#include "final_parameters.hpp"
#include "run_monitor.hpp"
#include "schedules.hpp"
#include "timelines.hpp"
#include "training.hpp"

#include <shardwright/comm/communication_clock.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/io/batch_plan.hpp>
#include <shardwright/io/matrix_rate.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/decoder_memory.hpp>
#include <shardwright/nn/decoder_mesh.hpp>
#include <shardwright/nn/decoder_pipeline.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/adamw.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/learning_rate.hpp>
#include <shardwright/train/loss_scale.hpp>
#include <shardwright/train/memory_text.hpp>
#include <shardwright/train/pipeline_runner.hpp>
#include <shardwright/train/replica_check.hpp>
#include <shardwright/train/step_guard.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace train_gpt {

namespace sw = shardwright;
using namespace sw::axis;

inline sw::DecoderConfig decoder_config(const Options& options) {
  sw::DecoderConfig config;
  config.layers = options.size.layers;
  config.width = options.size.d_model;
  config.heads = options.size.heads;
  config.kv_heads = options.size.kv_heads;
  config.hidden = options.size.hidden;
  config.vocabulary = options.size.vocabulary;
  config.sequence = options.size.sequence;
  config.tied_embedding = options.tied;
  config.dropout = options.dropout;
  config.recompute = options.recompute;
  return config;
}

/// @brief This rank's stages of a decoder with their data, optimizer and reports. One rank of pp holds all of
/// it in one stage.
template <class Layouts, class Element, class Target = sw::DefaultTarget>
class Trainer {
  using Model = sw::DecoderPipeline<Layouts, Element, Target>;
  using Stage = typename Model::Stage;
  using Ids = typename Stage::Ids;
  using Batch = typename Stage::Batch;
  static constexpr bool on_host = Target::host_accessible;
  struct Nothing {};
  /// Only the narrow range of float16 needs it.
  static constexpr bool scales_loss = std::is_same_v<Element, sw::float16>;
  /// Random numbers of the sample, apart from those of any parameter.
  static constexpr std::uint64_t sampling_stream = ~std::uint64_t{0};

public:
  /// pp is outermost, tp innermost, whose ranks are neighbours.
  Trainer(const sw::HostCommunicator& world, const Options& options, const sw::ByteDataset& dataset,
          bool quiet)
      : clock_(std::make_shared<sw::CommunicationClock>(false)),
        whole_(sw::decoder_pipeline_mesh(sw::timed(world, clock_, options.wide_axes()), options.extent("pp"),
                                         {.dpr = options.extent("dpr"),
                                          .dp = options.extent("dp"),
                                          .cp = options.extent("cp"),
                                          .tp = options.extent("tp")})),
        mesh_(sw::stage_mesh(whole_)), options_(options), dataset_(dataset),
        reports_(!quiet && world.rank() == 0),
        plan_(options.batch, options.data_ranks(), options.microbatch, options.accumulation),
        schedule_(schedule_of(options)), memory_(announce_memory()),
        model_(mesh_, whole_.communicator<pp>(), schedule_.placement(),
               sw::LayerPartition(options.size.layers, schedule_.stages()), decoder_config(options),
               options.seed),
        runner_(whole_.communicator<pp>(), schedule_, model_.chunks(), {.record = options.records()}),
        accumulator_(model_, whole_.world()),
        guard_(scales_loss ? sw::NonFinite::skip : options.non_finite, whole_.world()),
        optimizer_(sw::AdamWOptions{.weight_decay = options.weight_decay, .max_norm = options.clip}),
        rate_{options.learning_rate, options.least_learning_rate, options.warmup, options.steps} {
    batches_.reserve(plan_.accumulation());
    if constexpr (!on_host)
      device_.emplace(mesh_, shape_of_ids(plan_.microbatch()), plan_.accumulation(), graph_obstacle());
  }

  RunResult run() {
    RunResult result;
    result.steps.reserve(static_cast<std::size_t>(options_.steps));
    // On the model's instance, whose plans and workspace of the products stay.
    const double matrix_rate =
        sw::measure_matrix_rate<Element, Target>(whole_.world(), mesh_.template execution<Target>());
    const auto& config = model_.config();
    const double tokens = static_cast<double>(options_.batch) * static_cast<double>(config.sequence);
    RunMonitor monitor(options_, {tokens, config.flops_per_token(), matrix_rate}, reports_, clock_);
    if (reports_) {
      std::printf("%lld parameters on %s, %zu bytes of text, matrix rate %.1f GFLOP/s over %d ranks\n",
                  static_cast<long long>(config.parameters()), options_.mesh_text().c_str(), dataset_.bytes(),
                  matrix_rate * 1e-9, whole_.size());
      if (whole_.extent<pp>() > 1)
        std::printf("schedule %s: %d stages on %d ranks, %d microbatches\n", schedule_.name().c_str(),
                    schedule_.stages(), schedule_.ranks(), schedule_.microbatches());
      std::fflush(stdout);
    }
    std::size_t allocations = 0;
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      monitor.begin_step();
      const bool looks = looks_after(step);
      if (const std::optional<StepReport> report = train_step(step))
        note(*report, monitor, result);
      if (looks)
        settle(monitor, result);
      //! [replicas]
      if (options_.check_replicas > 0 && (step + 1) % options_.check_replicas == 0)
        sw::require_equal_replicas(model_, whole_.world(), step + 1);
      //! [replicas]
      if (step == 1)
        allocations = mesh_.template pool_statistics<Target>().allocations;
      if (options_.validate_every > 0 && (step + 1) % options_.validate_every == 0 &&
          step + 1 < options_.steps) {
        monitor.validation(step + 1, validate());
      }
    }
    if (options_.steps > 1 && options_.validate_every == 0) {
      result.pool_allocations =
          static_cast<std::int64_t>(mesh_.template pool_statistics<Target>().allocations - allocations);
    }
    const std::string memory = measured_memory();
    if (options_.records()) {
      const std::vector<sw::RankTimeline> world =
          sw::gather_timelines(whole_.world(), runner_.timeline(mesh_));
      if (reports_)
        write_timelines(options_, schedule_, world);
    }
    result.validation_loss = validate();
    monitor.validation(options_.steps, result.validation_loss);
    result.seconds = monitor.finish(whole_.world(), mesh_.template pool_statistics<Target>().peak_bytes);
    if (reports_)
      std::printf("%s\n", memory.c_str());
    if (options_.sample > 0)
      result.sample = sample();
    if (options_.verify)
      result.parameters = gather_parameters();
    return result;
  }

private:
  /// What the pool of a rank holds at its fullest: of this rank of pp at the place of `inside` on its mesh.
  [[nodiscard]] sw::MemoryTable predicted_memory(int pipeline_rank, int inside) const {
    const sw::MeshShape shape{sw::extent<dpr>(mesh_.extent<dpr>()), sw::extent<dp>(mesh_.extent<dp>()),
                              sw::extent<cp>(mesh_.extent<cp>()), sw::extent<tp>(mesh_.extent<tp>())};
    return sw::decoder_memory<Layouts, Element>(
        decoder_config(options_), sw::MeshPlace(shape, inside), schedule_,
        sw::LayerPartition(options_.size.layers, schedule_.stages()), pipeline_rank,
        static_cast<std::int64_t>(plan_.microbatch() * plan_.data_ranks()));
  }
  /// Prints what is to be expected before anything is allocated, a column for each rank of pp, and leaves it
  /// to the pool for an error.
  sw::MemoryTable announce_memory() const {
    const sw::MemoryTable own = predicted_memory(whole_.coordinate<pp>(), mesh_.rank());
    mesh_.template set_memory_note<Target>(sw::memory_text(std::array{sw::NamedMemory{"this rank", own}}));
    if (reports_) {
      constexpr int most = 8;
      std::vector<sw::NamedMemory> ranks;
      for (int rank = 0; rank < std::min(whole_.extent<pp>(), most); ++rank)
        ranks.push_back({"pp " + std::to_string(rank), predicted_memory(rank, 0)});
      std::fputs(sw::memory_text(ranks).c_str(), stdout);
    }
    return own;
  }
  /// The line that compares the pools' peaks with the predictions; the rank that is furthest off stands for
  /// all. Collective.
  [[nodiscard]] std::string measured_memory() const {
    const sw::PoolStatistics& pool = mesh_.template pool_statistics<Target>();
    const std::array<double, 2> own{static_cast<double>(pool.peak_bytes),
                                    static_cast<double>(memory_.total())};
    std::vector<double> all(own.size() * static_cast<std::size_t>(whole_.size()));
    sw::HostCommunicator world = whole_.world();
    world.all_gather(own, all);
    double largest = 0;
    double off = 0;
    for (std::size_t i = 0; i < all.size(); i += 2) {
      largest = std::max(largest, all[i]);
      if (const double share = all[i] / all[i + 1] - 1; std::abs(share) >= std::abs(off))
        off = share;
    }
    char line[160];
    std::snprintf(line, sizeof line, "memory: at most %s measured on a rank, %+.2f%% from the prediction",
                  sw::bytes_text(largest).c_str(), 100 * off);
    return line;
  }

  /// Whether the host looks at the parameters after a step, or at nothing more.
  [[nodiscard]] bool looks_after(std::int64_t step) const {
    const auto due = [&](std::int64_t every) { return every > 0 && (step + 1) % every == 0; };
    return step + 1 == options_.steps || due(options_.check_replicas) || due(options_.validate_every);
  }
  static void note(const StepReport& report, RunMonitor& monitor, RunResult& result) {
    monitor.end_step(report);
    result.steps.push_back({report.loss, report.gradient_norm});
  }
  /// Waits for the steps that are still under way.
  void settle([[maybe_unused]] RunMonitor& monitor, [[maybe_unused]] RunResult& result) {
    if constexpr (!on_host)
      while (device_->reports.pending() > 0) {
        monitor.begin_step();
        note(take_report(), monitor, result);
      }
  }

  /// Carries out a step on the host, or sends it off to a device. What is known of a step by then: of a
  /// device, of the one before.
  [[nodiscard]] std::optional<StepReport> train_step(std::int64_t step) {
    if constexpr (on_host)
      return host_step(step);
    else
      return device_step(step);
  }

  //! [device_step]
  [[nodiscard]] std::optional<StepReport> device_step(std::int64_t step) {
    upload_batches(step);
    optimizer_.template set_learning_rate<Target>(mesh_, rate_(step));
    const sw::StepMode mode = device_->graph.step([&] {
      device_->summary.emplace(gradients());
      static_cast<void>(guard_.admit(model_, accumulator_, *device_->summary, step + 1));
      optimizer_.step(model_, *device_->summary);
      accumulator_.restart();
    });
    device_->reports.append(*device_->summary);
    device_->reported.push_back(step);
    // The host stays one step ahead of the device, save where the next step forgets this one's timeline.
    std::optional<StepReport> before;
    if (device_->reports.pending() > (options_.records() ? 0u : 1u))
      before.emplace(take_report());
    if (mode == sw::StepMode::captured)
      device_->note = "captured as a CUDA graph, which later steps replay";
    else if (options_.cuda_graph && !device_->told && !device_->graph.obstacle().empty())
      device_->note = "not captured: " + device_->graph.obstacle();
    device_->told = device_->told || !device_->note.empty();
    return before;
  }
  //! [device_step]

  [[nodiscard]] StepReport take_report() {
    const sw::DeviceStepReport device = device_->reports.take();
    const std::int64_t step = device_->reported.front();
    device_->reported.pop_front();
    if (device.halted)
      end_run(step, device);
    std::string note = std::exchange(device_->note, {});
    if (!device.taken)
      note += (note.empty() ? "" : "; ") + std::string("loss or gradients were not finite");
    return report_of(step, device.summary, !device.taken, std::move(note));
  }
  /// Repeats the step that ended the run, which has changed nothing, with a look at each rank's own
  /// gradients.
  [[noreturn]] void end_run(std::int64_t step, const sw::DeviceStepReport& device) {
    while (device_->reports.pending() > 0)
      static_cast<void>(device_->reports.take());
    accumulator_.restart();
    const sw::WatchRawGradients<Model> watch(model_);
    upload_batches(step);
    static_cast<void>(gradients().read());
    guard_.end_run(model_, accumulator_, step + 1, device.skipped);
  }
  /// Brings the batches of a step to where its kernels read them.
  void upload_batches(std::int64_t step) {
    batches_.clear();
    std::size_t at = 0;
    for (std::size_t pass = 0; pass < plan_.accumulation(); ++pass) {
      Ids& ids = device_->tokens[2 * pass];
      Ids& targets = device_->tokens[2 * pass + 1];
      read_training(step, pass, plan_.microbatch());
      for (Ids* part : {&ids, &targets}) {
        copy_part(part == &ids ? whole_ids_ : whole_targets_, *part, device_->uploads->half().data() + at);
        device_->uploads->upload(at, *part);
        at += part->local_size();
      }
      batches_.push_back({ids.share(), targets.share(), origin_of(step, pass)});
    }
    device_->uploads->flip();
  }
  /// Why steps are not captured.
  [[nodiscard]] std::string graph_obstacle() const {
    if (!options_.cuda_graph)
      return "not asked for";
    if (whole_.size() > 1)
      return "collectives between ranks need the host, threads to meet and NCCL to be watched, which a CUDA graph cannot hold (run one rank)";
    return {};
  }

  [[nodiscard]] StepReport report_of(std::int64_t step, const sw::GradientSummary& summary, bool skipped,
                                     std::string note) const {
    StepReport report;
    report.skipped = skipped;
    report.note = std::move(note);
    report.step = step + 1;
    report.loss = summary.loss.value;
    report.gradient_norm = summary.gradient_norm;
    report.learning_rate = rate_(step);
    report.tokens = summary.tokens;
    return report;
  }

  [[nodiscard]] sw::BatchOrigin origin_of(std::int64_t step, std::size_t pass) const {
    return {static_cast<std::uint64_t>(step), plan_.rows(pass, 0).begin};
  }
  /// The tokens of this data rank of a pass.
  void read_training(std::int64_t step, std::size_t pass, std::size_t rows) {
    make_room(rows);
    dataset_.training(static_cast<std::uint64_t>(step), plan_.rows(pass, data_rank()), whole_ids_,
                      whole_targets_);
  }

  StepReport host_step(std::int64_t step) {
    batches_.clear();
    //! [set_scale]
    if (scales_loss)
      model_.set_loss_scale(loss_scale_.scale());
    //! [set_scale]
    for (std::size_t pass = 0; pass < plan_.accumulation(); ++pass) {
      read_training(step, pass, plan_.microbatch());
      push_batch(plan_.microbatch(), origin_of(step, pass));
    }
    bool skipped = false;
    std::string note;
    //! [guard]
    sw::GradientSummary summary = gradients();
    if (lowers_loss_scale(summary)) {
      skipped = true;
      note =
          "gradients overflowed, the loss scale is now 2^" + std::to_string(loss_scale_.scale().exponent());
    } else {
      std::optional<sw::WatchRawGradients<Model>> watch;
      if (!summary.finite()) {
        // Once more, with a look at each rank's own gradients before they are summed: that names the rank.
        accumulator_.restart();
        watch.emplace(model_);
        summary = gradients();
        if (summary.finite())
          note = "not finite at first, but when repeated (look for a faulty machine)";
      }
      skipped = !guard_.admit(model_, accumulator_, summary, step + 1);
      if (skipped)
        note = guard_.sentence();
      else
        optimizer_.step(model_, summary, rate_(step));
    }
    accumulator_.restart();
    //! [guard]
    return report_of(step, summary, skipped, std::move(note));
  }

  /// Forwards and backwards of the batches, and the reductions.
  [[nodiscard]] typename sw::GradAccumulator<Model>::Summary gradients() {
    if (options_.records())
      mesh_.record_background(true);
    accumulator_.add(runner_.run(batches_));
    return accumulator_.finish();
  }

  //! [update_scale]
  /// Whether the step overflowed under a loss scale that there is a smaller one to try instead of.
  [[nodiscard]] bool lowers_loss_scale(const sw::GradientSummary& summary) {
    return scales_loss && !loss_scale_.update(summary.finite()) && loss_scale_.scale() != model_.loss_scale();
  }
  //! [update_scale]

  double validate() {
    // Batches as large as in training, so that the held-out loss does not depend on how they are split.
    const std::size_t batches =
        dataset_.validation_batches(plan_.batch(), static_cast<std::size_t>(options_.validation_batches));
    typename Stage::Loss sum{};
    for (std::size_t i = 0; i < batches; ++i) {
      batches_.clear();
      for (std::size_t pass = 0; pass < plan_.accumulation(); ++pass)
        add_batch([&](std::span<std::int32_t> ids, std::span<std::int32_t> targets) {
          dataset_.validation(i, batches, plan_.batch(), plan_.rows(pass, data_rank()), ids, targets);
        });
      sum += runner_.evaluate(batches_);
    }
    const auto total = sum.read();
    return sw::mean_over_mesh(mesh_, total.loss, total.tokens, whole_.world()).value;
  }

  /// Continues the prompt one byte at a time. Every data rank generates the same text: random numbers are
  /// keyed by position alone.
  std::string sample() {
    using Whole = sw::Layout<3, sw::Shard<0, dpr, dp>>; // of cp and tp
    std::string text = options_.prompt.empty() ? std::string("The ") : options_.prompt;
    const auto sequence = static_cast<std::size_t>(model_.config().sequence);
    const auto vocabulary = static_cast<std::size_t>(model_.config().vocabulary);
    std::vector<double> weights(vocabulary);
    sw::HostCommunicator stages = whole_.communicator<pp>();
    const int last_rank = schedule_.placement().rank_of(schedule_.stages() - 1, 0);
    for (int i = 0; i < options_.sample; ++i) {
      const std::size_t shown = std::min(text.size(), sequence);
      batches_.clear();
      add_batch(1, [&](std::span<std::int32_t> ids, std::span<std::int32_t> targets) {
        std::fill(ids.begin(), ids.end(), 0);
        std::fill(targets.begin(), targets.end(), -1);
        for (std::size_t t = 0; t < shown; ++t)
          ids[t] = static_cast<unsigned char>(text[text.size() - shown + t]);
      });
      std::array<std::uint8_t, 1> next{};
      runner_.run_forwards(batches_, [&](Stage& last, auto in, const Batch& batch, auto& saved) {
        const auto scores = sw::redistribute<Whole>(last.scores(std::move(in), batch, saved));
        const std::size_t place = sw::row_of<typename Layouts::Order>(
            shown - 1, static_cast<std::int64_t>(sequence), mesh_.extent<cp>());
        const auto values = sw::local_values(scores);
        next[0] = static_cast<std::uint8_t>(
            draw(values.data() + place * vocabulary, weights, static_cast<std::uint64_t>(i)));
      });
      stages.broadcast(next, last_rank);
      text.push_back(static_cast<char>(next[0]));
    }
    return text;
  }

  template <class Score>
  std::size_t draw(const Score* scores, std::vector<double>& weights, std::uint64_t number) const {
    const auto best = static_cast<std::size_t>(std::max_element(scores, scores + weights.size()) - scores);
    if (options_.temperature <= 0)
      return best;
    double total = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
      total += weights[i] = std::exp(static_cast<double>(scores[i] - scores[best]) / options_.temperature);
    double left =
        sw::unit_interval(sw::random_words({options_.seed, sampling_stream}, number).word[0]) * total;
    for (std::size_t i = 0; i < weights.size(); ++i)
      if ((left -= weights[i]) < 0)
        return i;
    return best;
  }

  std::vector<FinalParameter> gather_parameters() {
    std::vector<std::uint8_t> own;
    model_.for_each_stage([&](int number, Stage& stage) {
      stage.for_each_parameter([&](auto& parameter) {
        const auto values = sw::gather(parameter.stored(), 0);
        if (mesh_.rank() == 0 && parameter.first_copy())
          pack(own, number, parameter.name(), {values.begin(), values.end()});
      });
    });
    return unpack(sw::gather_vectors(whole_.communicator<pp>(), own));
  }

  [[nodiscard]] std::size_t data_rank() const {
    return static_cast<std::size_t>(mesh_.coordinate<dpr>() * mesh_.extent<dp>() + mesh_.coordinate<dp>());
  }
  /// Adds a microbatch of `rows` sequences per data rank, which `fill` writes.
  template <class Fill>
  void add_batch(std::size_t rows, Fill fill) {
    make_room(rows);
    fill(std::span(whole_ids_), std::span(whole_targets_));
    push_batch(rows);
  }
  void make_room(std::size_t rows) {
    const std::size_t tokens = rows * static_cast<std::size_t>(model_.config().sequence);
    whole_ids_.resize(tokens);
    whole_targets_.resize(tokens);
  }
  [[nodiscard]] typename Ids::Shape shape_of_ids(std::size_t rows) const {
    return {static_cast<std::int64_t>(rows) * options_.data_ranks(), model_.config().sequence};
  }
  /// A microbatch of the tokens that were read.
  void push_batch(std::size_t rows, const sw::BatchOrigin& origin = {}) {
    Ids ids(mesh_, shape_of_ids(rows));
    Ids targets(mesh_, shape_of_ids(rows));
    set_part(whole_ids_, ids);
    set_part(whole_targets_, targets);
    batches_.push_back({ids.share(), targets.share(), origin});
  }
  void set_part(const std::vector<std::int32_t>& whole, Ids& part) {
    if constexpr (on_host) {
      copy_part(whole, part, part.mutable_data());
    } else {
      part_.resize(part.local_size());
      copy_part(whole, part, part_.data());
      sw::set_local_values(part, part_);
    }
  }
  /// This rank's positions of the sequences of its data rank.
  static void copy_part(const std::vector<std::int32_t>& whole, const Ids& part, std::int32_t* to) {
    const sw::TokenRuns runs = part.positions().runs();
    const std::int32_t* from = whole.data();
    for (std::int64_t row = 0; row < part.local_shape()[0]; ++row, from += part.shape()[1]) {
      to = std::copy_n(from + runs.first, runs.split, to);
      to = std::copy_n(from + runs.second, runs.rows - runs.split, to);
    }
  }
  template <class Fill>
  void add_batch(Fill fill) {
    add_batch(plan_.microbatch(), fill);
  }

  std::shared_ptr<sw::CommunicationClock> clock_;
  sw::DecoderPipelineMesh whole_;
  sw::DecoderMesh mesh_; // of this rank's stages
  const Options& options_;
  const sw::ByteDataset& dataset_;
  bool reports_;
  sw::BatchPlan plan_;
  sw::Schedule schedule_;
  sw::MemoryTable memory_; // predicted for this rank
  Model model_;
  sw::PipelineRunner<Stage> runner_;
  sw::GradAccumulator<Model> accumulator_;
  sw::StepGuard guard_;
  sw::AdamW optimizer_;
  sw::DynamicLossScale loss_scale_;
  sw::WarmupCosine rate_;
  std::vector<Batch> batches_;
  std::vector<std::int32_t> whole_ids_, whole_targets_; // of one microbatch of a data rank
  std::vector<std::int32_t> part_;                      // of this rank, on its way to a device
  std::conditional_t<on_host, Nothing, std::optional<DeviceSteps<Target, Ids>>> device_;
};

template <class Element, class Zero, class Context, class Target>
RunResult train_as(const sw::HostCommunicator& world, const Options& options, const sw::ByteDataset& dataset,
                   bool quiet) {
  if constexpr (requires { Target::use_device(0); })
    if (options.gpus > 1)
      Target::use_device(world.rank() % options.gpus);
  // One set of layouts for narrow elements, the ring and devices, which is the other one where tp is 1.
  if constexpr (!sw::is_narrow<Element> && !std::is_same_v<Context, sw::RingContext> &&
                Target::host_accessible)
    if (!options.sequence_parallel)
      return Trainer<sw::DecoderLayouts<false, Zero, Context>, Element, Target>(world, options, dataset,
                                                                                quiet)
          .run();
  return Trainer<sw::DecoderLayouts<true, Zero, Context>, Element, Target>(world, options, dataset, quiet)
      .run();
}

} // namespace train_gpt
