// SPDX-License-Identifier: Apache-2.0
//
// A decoder on the ranks of a pipeline: two stages per rank in a V, under the schedule ZB-V. Started as it
// is, on four thread ranks; under mpirun on as many processes as that starts, an even number.
#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder_mesh.hpp>
#include <shardwright/nn/decoder_pipeline.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/zb_v.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/train/adamw.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/pipeline_runner.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;

using Model = sw::DecoderPipeline<sw::DecoderLayouts<false>>;
using Stage = Model::Stage;

/// Sequences that count upwards, each from its own start.
Stage::Batch next_batch(const sw::DecoderMesh& mesh, std::int64_t rows, std::int64_t length, int step) {
  Stage::Ids ids(mesh, {rows, length});
  Stage::Ids targets(mesh, {rows, length});
  for (std::size_t i = 0; i < ids.local_size(); ++i) {
    const auto row = static_cast<int>(ids.local_offset()[0]) + static_cast<int>(i) / static_cast<int>(length);
    const int token = 7 * step + 3 * row + static_cast<int>(i) % static_cast<int>(length);
    ids.mutable_data()[i] = token % 16;
    targets.mutable_data()[i] = (token + 1) % 16;
  }
  return {ids.share(), targets.share()};
}

int program(sw::HostCommunicator world) {
  //! [mesh]
  const int half = world.size() / 2;
  const sw::DecoderPipelineMesh ranks = sw::decoder_pipeline_mesh(world, 2, {.dp = half});
  const sw::DecoderMesh mesh = sw::stage_mesh(ranks); // of this rank's stages, without the axis pp
  //! [mesh]

  //! [schedule]
  constexpr int microbatches = 4;
  static_assert(sw::PipelineSchedule<sw::ZBV>::prove(2, microbatches).deadlock_free);
  const auto schedule = sw::make_schedule<sw::ZBV>(2, microbatches);
  //! [schedule]

  const sw::DecoderConfig config{
      .layers = 4, .width = 16, .heads = 2, .kv_heads = 2, .hidden = 24, .vocabulary = 16, .sequence = 8};
  //! [model]
  Model model(mesh, ranks.communicator<pp>(), schedule.placement(), sw::LayerPartition(4, {1, 1, 1, 1}),
              config, 1);
  sw::PipelineRunner<Stage> runner(ranks.communicator<pp>(), schedule, model.chunks());
  sw::GradAccumulator accumulator(model, world);
  sw::AdamW optimizer;
  //! [model]

  double first = 0;
  double last = 0;
  for (int step = 0; step < 30; ++step) {
    std::vector<Stage::Batch> batches;
    for (int i = 0; i < microbatches; ++i)
      batches.push_back(next_batch(mesh, 4, config.sequence, 4 * step + i));
    //! [step]
    const auto sum = runner.run(batches); // of the ranks that hold the last stage; 0 elsewhere
    accumulator.add(sum.loss, sum.tokens);
    const sw::GradientSummary summary = accumulator.finish(); // the same on every rank
    optimizer.step(model, summary, 3e-3);
    accumulator.restart();
    //! [step]
    (step == 0 ? first : last) = summary.loss.value;
  }
  if (world.rank() == 0)
    std::printf("loss %.3f, then %.3f; %d microbatches in flight at most\n", first, last,
                runner.peak_in_flight());
  return last < 0.8 * first && runner.peak_in_flight() == schedule.placement().ranks * 2 ? 0 : 1;
}

int main() {
  const Kokkos::ScopeGuard kokkos;
  return sw::launch({.ranks = 4}, program);
}
