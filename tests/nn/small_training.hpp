// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Trains a small decoder on a learnable sequence, on any mesh, and keeps everything that tests
/// compare.

#include "support/larger.hpp"
#include "support/launch_ranks.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/dry_run/counting_target.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/optimizer/learning_rate.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace nn_test {

namespace sw = shardwright;

/// @brief The training problem; the same on every mesh.
struct Problem {
  sw::DecoderConfig config;
  std::int64_t batch = 12; ///< Sequences of one step.
  int steps = 20;
  std::uint64_t seed = 7;
};

/// @brief How the training is distributed.
struct Way {
  int dp = 1;
  int tp = 1;
  bool sequence_parallel = false;
  int accumulation = 1;
  int cp = 1;
  int dpr = 1;

  [[nodiscard]] sw::DecoderExtents extents() const { return {.dpr = dpr, .dp = dp, .cp = cp, .tp = tp}; }
  [[nodiscard]] int ranks() const { return extents().ranks(); }
  [[nodiscard]] std::string text() const {
    return extents().text() + (sequence_parallel ? " sp" : "") +
           " accumulation=" + std::to_string(accumulation);
  }
};

/// @brief The outcome of a run, the same on every rank.
struct Outcome {
  std::vector<double> losses, norms;
  std::vector<std::int64_t> tokens;
  std::vector<std::string> names;
  std::vector<std::vector<double>> parameters; ///< Whole.

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// @brief Sizes that 1, 2 and 4 tensor-parallel ranks divide.
inline sw::DecoderConfig config_of_four() {
  sw::DecoderConfig config;
  config.layers = 2;
  config.width = 32;
  config.heads = 8;
  config.kv_heads = 4;
  config.hidden = 24;
  config.vocabulary = 20;
  config.sequence = 12;
  config.initial_deviation = 0.1;
  return config;
}

/// @brief Sizes that 1 and 3 tensor-parallel ranks divide; dp = 3 leaves uneven parts of the batch.
inline sw::DecoderConfig config_of_three() {
  sw::DecoderConfig config = config_of_four();
  config.width = 24;
  config.heads = 6;
  config.kv_heads = 3;
  config.vocabulary = 21;
  return config;
}

/// @brief The random words of one sequence of one step.
inline std::uint32_t random_word(const Problem& problem, int step, std::int64_t row, std::int64_t position) {
  const auto index =
      static_cast<std::uint64_t>((step * problem.batch + row) * (problem.config.sequence + 2) + position);
  return sw::random_words({problem.seed, 1u << 20}, index).word[0];
}

/// @brief Token `position` of a sequence: a congruence that the model can learn, from a random start.
inline std::int32_t token(const Problem& problem, int step, std::int64_t row, std::int64_t position) {
  const std::int64_t vocabulary = problem.config.vocabulary;
  std::int64_t value = random_word(problem, step, row, 0) % vocabulary;
  for (std::int64_t t = 0; t < position; ++t)
    value = (7 * value + 3) % vocabulary;
  return static_cast<std::int32_t>(value);
}

/// @brief Whether a target counts. Rows differ in how many do, and so do ranks and microbatches.
inline bool is_masked(const Problem& problem, int step, std::int64_t row, std::int64_t position) {
  const std::uint32_t share = row % 3 == 0 ? 2 : 7;
  return random_word(problem, step, row, 1 + position) % share == 0;
}

/// @brief Writes this rank's part of a microbatch that starts at `first_row` of the step's batch.
template <class Ids>
void write_batch(const Problem& problem, int step, std::int64_t first_row, const Ids& ids, std::int32_t* id,
                 std::int32_t* target) {
  const std::int64_t offset = ids.local_offset()[0];
  const sw::TokenRuns runs = ids.positions().runs();
  for (std::int64_t i = 0; i < ids.local_shape()[0]; ++i) {
    const std::int64_t row = first_row + offset + i;
    for (std::size_t at = 0; at < runs.rows; ++at) {
      const auto t = static_cast<std::int64_t>(runs.position(at));
      *id++ = token(problem, step, row, t);
      *target++ = is_masked(problem, step, row, t) ? -1 : token(problem, step, row, t + 1);
    }
  }
}

/// @brief Fills this rank's part of a microbatch in host memory.
template <class Ids>
void fill_batch(const Problem& problem, int step, std::int64_t first_row, Ids& ids, Ids& targets) {
  write_batch(problem, step, first_row, ids, ids.mutable_data(), targets.mutable_data());
}

/// @brief All elements of a tensor, in double, on every rank. Collective.
template <class Tensor> [[nodiscard]] std::vector<double> whole(const Tensor& tensor) {
  const auto all = sw::local_values(sw::redistribute<sw::Layout<Tensor::tensor_rank>>(tensor));
  return {all.begin(), all.end()};
}

/// @brief Called on every rank after each step, with the statistics of the rank's pool so far.
using AtStep = std::function<void(int step, const sw::PoolStatistics& pool)>;

using sw::counts_only;

template <class Layouts, class Element, class Target = sw::DefaultTarget>
[[nodiscard]] Outcome train_with(const sw::HostCommunicator& world, const Problem& problem, const Way& way,
                                 const AtStep& at_step) {
  using Model = sw::SingleStageModel<sw::Decoder<Layouts, Element, Target>>;
  using Ids = typename Model::Batch::Ids;
  const sw::DecoderMesh mesh = sw::decoder_mesh(world, way.extents());
  Model model(mesh, problem.config, problem.seed);
  sw::GradAccumulator<Model> accumulator(model);
  sw::AdamW optimizer;
  const sw::WarmupCosine rate{.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 4, .total_steps = problem.steps};
  Outcome out;
  out.losses.reserve(static_cast<std::size_t>(problem.steps));
  out.norms.reserve(out.losses.capacity());
  out.tokens.reserve(out.losses.capacity());
  const std::int64_t rows = problem.batch / way.accumulation;
  for (int step = 0; step < problem.steps; ++step) {
    for (int pass = 0; pass < way.accumulation; ++pass) {
      Ids ids(mesh, {rows, problem.config.sequence});
      Ids targets(mesh, {rows, problem.config.sequence});
      if constexpr (!counts_only<Target>)
        fill_batch(problem, step, pass * rows, ids, targets);
      // Reductions that start with the last microbatch alternate with those that start in finish().
      const auto sums = model.forward_backward(
          {ids.share(), targets.share(),
           sw::BatchOrigin{static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(pass * rows)}},
          step % 2 == 1 && pass + 1 == way.accumulation ? sw::PassPosition::last : sw::PassPosition::middle);
      accumulator.add(sums.loss, sums.tokens);
    }
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, rate(step));
    accumulator.restart();
    out.losses.push_back(summary.loss.value);
    out.norms.push_back(summary.gradient_norm);
    out.tokens.push_back(summary.tokens);
    if (at_step)
      at_step(step, mesh.template pool_statistics<Target>());
  }
  if constexpr (!counts_only<Target>)
    model.for_each_parameter([&](auto& parameter) {
      out.names.push_back(parameter.name());
      out.parameters.push_back(whole(parameter.stored()));
    });
  return out;
}

/// @brief Trains on the ranks of `world`; collective.
template <class Element>
[[nodiscard]] Outcome train(const sw::HostCommunicator& world, const Problem& problem, const Way& way,
                            const AtStep& at_step = {}) {
  if (way.sequence_parallel)
    return train_with<sw::DecoderLayouts<true>, Element>(world, problem, way, at_step);
  return train_with<sw::DecoderLayouts<false>, Element>(world, problem, way, at_step);
}

/// @brief The same in single precision, compiled once, in decoder_single_test.cpp.
[[nodiscard]] Outcome train_single(const sw::HostCommunicator& world, const Problem& problem, const Way& way,
                                   const AtStep& at_step);

/// @brief Trains on thread ranks; the outcome of each of them.
template <class Element>
[[nodiscard]] std::vector<Outcome> train_on_threads(const Problem& problem, const Way& way) {
  const int ranks = way.ranks();
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  sw::LaunchOptions options;
  options.ranks = ranks;
  options.deadline = std::chrono::minutes(1);
  shardwright_test::launch_thread_ranks(options, [&](sw::HostCommunicator world) {
    outcomes[static_cast<std::size_t>(world.rank())] = train<Element>(world, problem, way);
  });
  return outcomes;
}

/// @brief The largest relative difference of two series; NaN and unequal lengths are infinitely far apart.
[[nodiscard]] inline double largest_difference(const std::vector<double>& values,
                                               const std::vector<double>& reference) {
  double largest = values.size() == reference.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(values.size(), reference.size()); ++i) {
    largest = shardwright_test::larger(largest, std::abs(values[i] - reference[i]) / std::abs(reference[i]));
  }
  return largest;
}

/// @brief The largest difference of a parameter, relative to its largest element.
[[nodiscard]] inline double largest_parameter_difference(const Outcome& run, const Outcome& reference) {
  double largest = run.names == reference.names ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t p = 0; p < std::min(run.parameters.size(), reference.parameters.size()); ++p) {
    double difference = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < reference.parameters[p].size(); ++i) {
      difference = shardwright_test::larger(difference,
                                            std::abs(run.parameters[p].at(i) - reference.parameters[p][i]));
      magnitude = std::max(magnitude, std::abs(reference.parameters[p][i]));
    }
    largest = shardwright_test::larger(largest, difference / magnitude);
  }
  return largest;
}

} // namespace nn_test
