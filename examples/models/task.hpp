// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What the tasks of train_models share: samples from a formula, read into microbatches.

#include "data.hpp"
#include "options.hpp"

#include <shardwright/models.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <trainer/initial_weights.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace models {

namespace sw = shardwright;

/// @brief The rows of a microbatch.
struct Rows {
  std::uint64_t step;
  std::int64_t first; ///< In the batch.
  std::int64_t count;
  std::int64_t batch;

  [[nodiscard]] sw::BatchOrigin origin() const { return {step, static_cast<std::uint64_t>(first)}; }
  /// @brief The number of the sample in row `row` of the batch.
  [[nodiscard]] std::uint64_t number(std::int64_t row) const {
    return step * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
  }
};

/// @brief Fills a tensor with one member of its rows' samples.
template <class Tensor, class MakeSample, class Values>
void load(Tensor& tensor, const Rows& rows, MakeSample sample, Values Sample::*member) {
  using Element = typename Tensor::value_type;
  sw::load_rows(
      tensor,
      [&](std::int64_t row, std::span<Element> to) {
        const Sample one = sample(rows.number(row));
        if constexpr (requires { (one.*member).begin(); })
          std::transform((one.*member).begin(), (one.*member).end(), to.begin(),
                         [](auto value) { return static_cast<Element>(value); });
        else
          to.front() = one.*member;
      },
      rows.first);
}

/// @brief The microbatches of a step.
template <class Parts> class SampleBatches {
public:
  using Task = typename Parts::Task;
  using Batch = typename Parts::Batch;

  SampleBatches(const Parts& run, const Options& options, typename Task::Source)
      : run_(run), options_(options) {}

  [[nodiscard]] std::span<const Batch> training(std::int64_t step) {
    return read(static_cast<std::uint64_t>(step));
  }
  [[nodiscard]] std::size_t validations() const {
    return static_cast<std::size_t>(options_.validation_batches);
  }
  [[nodiscard]] std::span<const Batch> validation(std::size_t number) {
    constexpr std::uint64_t held_out = std::uint64_t{1} << 27; // no run has as many steps
    return read(held_out + number);
  }

private:
  [[nodiscard]] std::span<const Batch> read(std::uint64_t step) {
    batches_.clear();
    const std::int64_t count = options_.rows();
    for (int pass = 0; pass < options_.accumulation; ++pass)
      batches_.push_back(Task::template batch<Batch>(run_.mesh, run_.config,
                                                     Rows{step, pass * count, count, options_.batch},
                                                     Task::sample(run_.config, options_.seed)));
    return batches_;
  }

  const Parts& run_;
  const Options& options_;
  std::vector<Batch> batches_;
};

/// @brief A task whose samples come from a formula. One that derives from it has a `Model`, and
/// config(options), sample(config, seed), which returns a function of a number, and batch(mesh, config, rows,
/// sample).
struct SampleTask {
  using Options = models::Options;
  struct Source {}; ///< The formula.
  template <class Parts> using Batches = SampleBatches<Parts>;
  static constexpr bool has_experts = false;
  static constexpr bool every_step = true;

  [[nodiscard]] static std::uint64_t data_hash(Source) { return 0; }
  [[nodiscard]] static std::string describe(const Options&, Source) { return "samples from a formula"; }
  [[nodiscard]] static std::string_view unit(const Options&) { return "token"; }
  [[nodiscard]] static trainer::InitialWeights initial_weights(const Options&) { return {}; }
};

/// @brief Noisy text for a language model.
struct TextTask : SampleTask {
  template <class Config> [[nodiscard]] static auto sample(const Config& config, std::uint64_t seed) {
    return [=](std::uint64_t number) { return noisy_text(seed, number, config.vocabulary, config.sequence); };
  }
  template <class Batch, class Mesh, class Config, class MakeSample>
  [[nodiscard]] static Batch batch(const Mesh& mesh, const Config& config, const Rows& rows,
                                   MakeSample sample) {
    typename Batch::Ids ids(mesh, {rows.count, config.sequence}),
        targets(mesh, {rows.count, config.sequence});
    load(ids, rows, sample, &Sample::ids);
    load(targets, rows, sample, &Sample::targets);
    return {ids.share(), targets.share(), rows.origin()};
  }
};

} // namespace models
