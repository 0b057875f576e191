// SPDX-License-Identifier: Apache-2.0
//
// A decoder on the ranks of a pipeline: two stages per rank in a V, under the schedule ZB-V. Runs on four
// thread ranks by default; under mpirun on any even number of processes.
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/run.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/training.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;

using Model = sw::PipelineModel<sw::Decoder<sw::DecoderLayouts<false>>>;
using Batch = Model::Batch;

/// Sequences of consecutive numbers, each with its own start.
Batch next_batch(const sw::DecoderMesh& mesh, std::int64_t rows, std::int64_t length, int step) {
  Batch::Ids ids(mesh, {rows, length});
  Batch::Ids targets(mesh, {rows, length});
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
  static_assert(sw::proven<sw::ZBV, 2, microbatches>);
  const auto schedule = sw::make_schedule<sw::ZBV>(2, microbatches);
  //! [schedule]

  const sw::DecoderConfig config{
      .layers = 4, .width = 16, .heads = 2, .kv_heads = 2, .hidden = 24, .vocabulary = 16, .sequence = 8};
  //! [model]
  Model model(mesh, ranks.communicator<pp>(), schedule.placement(), sw::LayerPartition(4, {1, 1, 1, 1}),
              config, 1);
  sw::Training training(mesh, model, world, ranks.communicator<pp>(), schedule);
  //! [model]

  double first = 0;
  double last = 0;
  for (int step = 0; step < 30; ++step) {
    //! [step]
    std::vector<Batch> batches;                  // of the step, in the memory of this rank's stages
    const auto read = [&](std::int64_t number) { // called again if a step is repeated
      batches.clear();
      for (int i = 0; i < microbatches; ++i)
        batches.push_back(next_batch(mesh, 4, config.sequence, microbatches * static_cast<int>(number) + i));
      return std::span<const Batch>(batches);
    };
    const sw::StepReport report = training.step(read, 3e-3).value(); // the same on every rank
    //! [step]
    (step == 0 ? first : last) = report.loss;
  }
  if (world.rank() == 0)
    std::printf("loss %.3f, then %.3f; %d microbatches in flight at most\n", first, last,
                training.runner().peak_in_flight());
  return last < 0.8 * first && training.runner().peak_in_flight() == schedule.placement().ranks * 2 ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
