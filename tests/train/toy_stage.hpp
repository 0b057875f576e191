// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A stage that multiplies by a number, so that tests know every value of a pipeline and can
/// intervene.

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/pipeline/runner.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/pass_counter.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace train_test {

namespace sw = shardwright;
using sw::axis::dp;
using StageMesh = sw::DeviceMesh<dp>;

/// @brief y = factor * x over a few elements; the loss is the sum of the last stage's elements.
struct ToyStage {
  using Tensor = sw::ShardedTensor<sw::Layout<1>, double>;
  using Input = Tensor;
  using Output = Tensor;
  struct Batch {
    double value = 0; ///< Every element that enters the first stage.
  };
  struct Saved {
    std::optional<Tensor> in, gradient;
  };
  struct Loss {
    double sum = 0;
    Loss& operator+=(const Loss& other) {
      sum += other.sum;
      return *this;
    }
  };
  /// An action of a test before a pass: wait or throw.
  using Before = std::function<void(sw::Pass)>;

  StageMesh mesh;
  int number = 0;
  int stages = 1;
  Before before{};
  std::int64_t elements = 5;
  double weight = 0;        ///< The gradient of the factor.
  std::vector<int> ended{}; ///< Weight passes done after each that is the last of its step.
  int weight_passes = 0;
  bool replays = false;         ///< Whether the backward pass repeats the work of the forward pass.
  int work_done = 0;            ///< How often that work was done in total.
  sw::PassCounter<int> seen{1}; ///< Elements that forward passes have seen.

  [[nodiscard]] static double factor_of(int stage) { return 0.75 + 0.125 * stage; }
  [[nodiscard]] double factor() const { return factor_of(number); }

  [[nodiscard]] Tensor make_input(const Batch&) const { return {mesh, {elements}}; }
  [[nodiscard]] std::optional<Tensor> forward(std::optional<Tensor> in, const Batch& batch, Saved& saved,
                                              Loss& loss) {
    enter(sw::Pass::forward);
    if (number == 0)
      in.emplace(filled(batch.value));
    Tensor out = work(sw::Tape<>().first_pass(), *in);
    saved.in = std::move(in);
    if (number + 1 < stages)
      return out;
    for (std::size_t i = 0; i < out.local_size(); ++i)
      loss.sum += out.data()[i];
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Tensor> evaluate(std::optional<Tensor> in, const Batch& batch, Saved& saved,
                                               Loss& loss) {
    auto out = forward(std::move(in), batch, saved, loss);
    saved = {};
    return out;
  }
  [[nodiscard]] std::optional<Tensor> input_gradient(std::optional<Tensor> gradient, Saved& saved) {
    enter(sw::Pass::input_gradient);
    if (replays)
      static_cast<void>(work(std::nullopt, *saved.in));
    if (number + 1 == stages)
      gradient.emplace(filled(1));
    return handed_back(std::move(gradient), saved);
  }
  [[nodiscard]] std::optional<Tensor> handed_back(std::optional<Tensor> gradient, Saved& saved) const {
    Tensor out = times(*gradient, factor());
    saved.gradient = std::move(gradient);
    if (number == 0)
      return std::nullopt;
    return out;
  }
  void weight_gradient(const Batch&, Saved& saved, sw::PassPosition position) {
    enter(sw::Pass::weight_gradient);
    for (std::size_t i = 0; i < saved.in->local_size(); ++i)
      weight += saved.in->data()[i] * saved.gradient->data()[i];
    saved = {};
    ++weight_passes;
    if (position == sw::PassPosition::last)
      ended.push_back(weight_passes);
  }
  [[nodiscard]] std::optional<Tensor> backward(std::optional<Tensor> gradient, const Batch& batch,
                                               Saved& saved, sw::PassPosition position) {
    auto out = input_gradient(std::move(gradient), saved);
    weight_gradient(batch, saved, position);
    return out;
  }

private:
  /// The common part of a forward pass and its replay.
  [[nodiscard]] Tensor work(std::optional<sw::FirstPass> pass, const Tensor& in) {
    ++work_done;
    const int elements_seen = static_cast<int>(in.local_size());
    seen.add(pass, std::span(&elements_seen, 1));
    return times(in, factor());
  }
  void enter(sw::Pass pass) const {
    if (before)
      before(pass);
  }
  [[nodiscard]] Tensor filled(double value) const {
    Tensor out(mesh, {elements});
    sw::fill(out, value);
    return out;
  }
  [[nodiscard]] Tensor times(const Tensor& in, double by) const {
    Tensor out(mesh, {elements});
    for (std::size_t i = 0; i < out.local_size(); ++i)
      out.mutable_data()[i] = by * in.data()[i];
    return out;
  }
};

static_assert(sw::PipelineStage<ToyStage>);

/// @brief A rank's toy stages under a schedule.
struct ToyPipeline {
  ToyPipeline(const sw::HostCommunicator& world, const sw::StagePlacement& placement)
      : mesh(alone(world), sw::extent<dp>(1)) {
    for (int chunk = 0; chunk < placement.chunks; ++chunk)
      stages.push_back(
          {.mesh = mesh, .number = placement.stage_of(world.rank(), chunk), .stages = placement.stages()});
  }
  [[nodiscard]] std::vector<ToyStage*> chunks() {
    std::vector<ToyStage*> out;
    for (ToyStage& stage : stages)
      out.push_back(&stage);
    return out;
  }

  StageMesh mesh;
  std::deque<ToyStage> stages;

private:
  static sw::HostCommunicator alone(sw::HostCommunicator world) { return world.split(world.rank(), 0); }
};

/// @brief Every published schedule that allows the numbers.
[[nodiscard]] inline std::vector<sw::Schedule> all_schedules(int ranks, int microbatches) {
  std::vector<sw::Schedule> out;
  for (const std::string& name : sw::schedule_names())
    for (const int chunks : {2, 3}) {
      if (chunks != 2 && !name.starts_with("interleaved"))
        continue;
      try {
        out.push_back(sw::make_schedule(name, ranks, microbatches, chunks));
      } catch (const sw::InvalidArgument&) {
        // The schedule does not allow the numbers.
      }
    }
  return out;
}

} // namespace train_test
