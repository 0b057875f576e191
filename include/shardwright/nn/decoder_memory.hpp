// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory of a decoder's training on one rank, counted before anything is allocated.

#include <shardwright/nn/decoder_stage_ledger.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/layer_partition.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/train/pipeline_plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The blocks of one rank of a pipeline through training steps, as PipelineRunner carries out its schedule.
template <class Layouts, class Element, class Target>
class DecoderPipelineLedger {
  using Stage = DecoderStageLedger<Layouts, Element, Target>;
  using Block = MemoryLedger::Block;
  using Kind = PipelineMessage::Kind;

public:
  DecoderPipelineLedger(TensorLedger& tensors, const DecoderConfig& config, const Schedule& schedule,
                        const LayerPartition& layers, int rank, std::int64_t sequences,
                        std::int64_t bucket_bytes)
      : tensors_(&tensors), config_(config), sequences_(sequences), window_(schedule.window()),
        plan_(schedule, rank), inputs_(plan_.slots), channels_(plan_.channels) {
    std::vector<std::pair<int, int>> order; // (stage, chunk), by stage
    for (int chunk = 0; chunk < plan_.chunks; ++chunk)
      order.emplace_back(schedule.placement().stage_of(rank, chunk), chunk);
    std::sort(order.begin(), order.end());
    stages_.resize(order.size());
    std::shared_ptr<typename Stage::Table> table;
    for (const auto& [number, chunk] : order) {
      auto& stage = stages_[static_cast<std::size_t>(chunk)];
      stage = std::make_unique<Stage>(tensors, config, sequences,
                                      DecoderPart{.begin = layers[number].begin,
                                                  .end = layers[number].end,
                                                  .first = number == 0,
                                                  .last = number == schedule.stages() - 1},
                                      table, bucket_bytes);
      if (number == 0)
        table = stage->embedding();
    }
    saved_.resize(stages_.size() * static_cast<std::size_t>(plan_.microbatches));
  }

  void step() {
    std::vector<Block> batches;
    for (int i = 0; i < 2 * plan_.microbatches; ++i)
      batches.push_back(tensors_->template tensor<typename Layouts::Ids, std::int32_t>(
          MemoryKind::batches, std::array{sequences_, config_.sequence}));
    const auto ahead = static_cast<std::size_t>(std::max(window_.receive_ahead, 0));
    std::size_t posted = 0;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      for (; posted < plan_.steps.size() && posted <= i + ahead; ++posted)
        for (int a = 0; a < plan_.steps[posted].count; ++a)
          post(plan_.steps[posted].actions[static_cast<std::size_t>(a)]);
      carry_out(plan_.steps[i]);
    }
    for (auto& sends : channels_)
      sends.clear();
    finish();
  }

private:
  void post(const PlannedAction& planned) {
    if (planned.input.kind == Kind::remote)
      inputs_[planned.input.slot] = stages_[static_cast<std::size_t>(planned.chunk)]->make_input();
  }

  void carry_out(const PlannedStep& step) {
    std::array<Block, 2> handed;
    for (std::size_t i = 0; i < static_cast<std::size_t>(step.count); ++i)
      if (step.actions[i].input.kind != Kind::none)
        handed[i] = std::exchange(inputs_[step.actions[i].input.slot], {});
    for (std::size_t i = 0; i < static_cast<std::size_t>(step.count); ++i) {
      Stage& stage = *stages_[static_cast<std::size_t>(step.actions[i].chunk)];
      if (step.actions[i].ends_gradients)
        stage.begin_last_gradients();
      stage.expect_pass(step.actions[i].next_of_chunk);
      handed[i] = perform(stage, step.actions[i], std::exchange(handed[i], {}));
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(step.count); ++i) {
      deliver(step.actions[i], std::exchange(handed[i], {}));
      if (step.actions[i].ends_gradients)
        stages_[static_cast<std::size_t>(step.actions[i].chunk)]->end_gradients();
    }
  }

  [[nodiscard]] Block perform(Stage& stage, const PlannedAction& planned, Block in) {
    auto& saved =
        saved_[static_cast<std::size_t>(planned.chunk * plan_.microbatches + planned.action.microbatch)];
    switch (planned.action.pass) {
    case Pass::forward:
      return stage.forward(std::move(in), saved);
    case Pass::backward:
      return stage.backward(std::move(in), saved);
    case Pass::input_gradient:
      return stage.input_gradient(std::move(in), saved);
    case Pass::weight_gradient:
      stage.weight_gradient(saved);
    }
    return {};
  }

  void deliver(const PlannedAction& planned, Block out) {
    if (planned.output.kind == Kind::none)
      return;
    if (planned.output.kind == Kind::local) {
      inputs_[planned.output.slot] = std::move(out);
      return;
    }
    auto& sends = channels_[planned.output.channel];
    if (sends.size() == static_cast<std::size_t>(std::max(window_.sends_in_flight, 1)))
      sends.pop_front();
    sends.push_back(std::move(out));
  }

  /// GradAccumulator::finish, the optimizer and restart.
  void finish() {
    for_each_parameter([](auto& parameter) { parameter.end_passes(); });
    std::size_t partial_sums = 0;
    for_each_parameter([&](auto& parameter) {
      parameter.finish_gradient();
      partial_sums += kernels::reduce_workspace(parameter.gradient_elements());
    });
    {
      const Block squares = tensors_->template vector<double>(MemoryKind::temporaries, 1);
      const Block workspace = tensors_->template vector<double>(MemoryKind::temporaries, partial_sums);
    }
    for_each_parameter([](auto& parameter) {
      parameter.make_state();
      parameter.update_weights();
    });
    for_each_parameter([](auto& parameter) { parameter.drop_gradient(); });
  }
  template <class Visitor>
  void for_each_parameter(Visitor visit) {
    for (auto& stage : stages_)
      stage->for_each_parameter(visit);
  }

  TensorLedger* tensors_;
  DecoderConfig config_;
  std::int64_t sequences_;
  MessageWindow window_;
  PipelinePlan plan_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<typename Stage::Saved> saved_;
  std::vector<Block> inputs_;
  std::vector<std::deque<Block>> channels_;
};

} // namespace detail

/// @brief What a rank's pool holds at the fullest moment of training a decoder, before anything is allocated.
///
/// It goes through two steps of the schedule tensor by tensor, with block sizes from the layouts, so uneven
/// shards, microbatches in flight, recomputation and gathered weights are as they will be. Beside it there is
/// what is not in the pool: buffers of transports, the data set, code. No communication.
/// @param place this rank's place on the mesh of a stage
/// @param rank its rank in the pipeline
/// @param sequences of a microbatch, over all data ranks
/// @param bucket_bytes as DecoderStage::set_bucket_bytes
template <class Layouts, class Element = float, class Target = DefaultTarget>
[[nodiscard]] MemoryTable decoder_memory(const DecoderConfig& config, const MeshPlace& place,
                                         const Schedule& schedule, const LayerPartition& layers, int rank,
                                         std::int64_t sequences,
                                         std::size_t bucket_bytes = default_bucket_bytes) {
  TensorLedger tensors(place);
  detail::DecoderPipelineLedger<Layouts, Element, Target> pipeline(
      tensors, config, schedule, layers, rank, sequences, static_cast<std::int64_t>(bucket_bytes));
  for (int step = 0; step < 2; ++step) // the first step has no optimizer state yet
    pipeline.step();
  return tensors.ledger().peak();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
