// SPDX-License-Identifier: Apache-2.0
//
// A decoder whose parameters, gradients and optimizer state are sharded over its data ranks, in two replicas.
// Runs on four thread ranks by default.
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>

namespace sw = shardwright;
using namespace sw::axis;

//! [layouts]
using Weight = sw::Layout<2, sw::Shard<0, tp>>;                                 // as a product reads it
using Raw = sw::Layout<2, sw::Shard<0, tp>, sw::Partial<sw::Sum, dpr, dp, cp>>; // as propagation derives it
using Shared = sw::Layout<2, sw::Shard<0, tp, dp, cp>>;

static_assert(std::is_same_v<sw::Zero1::Stored<Weight>, Weight>);
static_assert(std::is_same_v<sw::Zero1::Accumulator<Weight, Raw>, Raw>);
static_assert(std::is_same_v<sw::Zero1::State<Weight>, Shared>);
static_assert(std::is_same_v<sw::Zero3::Stored<Weight>, Shared>);
//! [layouts]

//! [collectives]
using Reduced = sw::Zero3::Accumulator<Weight, Raw>; // Shared, and Partial over dpr until the end of the step
static_assert(sw::Transition<Raw, Reduced>::count<sw::ReduceScatter> == 1);
static_assert(sw::Transition<Reduced, Shared>::count<sw::AllReduce> == 1);
static_assert(sw::Transition<Shared, Weight>::count<sw::AllGather> == 1);
//! [collectives]

int program(sw::HostCommunicator world) {
  //! [model]
  using Model = sw::SingleStageModel<sw::Decoder<sw::DecoderLayouts<false, sw::Zero3>>>;
  const sw::DecoderMesh mesh = sw::decoder_mesh(world, {.dpr = 2, .dp = world.size() / 2});
  const sw::DecoderConfig config{
      .layers = 2, .width = 16, .heads = 2, .kv_heads = 2, .hidden = 24, .vocabulary = 16, .sequence = 8};
  Model model(mesh, config, 1);
  sw::GradAccumulator accumulator(model);
  accumulator.set_bucket_bytes(256 << 10); // the same on all ranks
  sw::AdamW optimizer;
  //! [model]
  //! [set]
  sw::for_each_parameter(model, [](auto& parameter) {
    if (parameter.role() == sw::ParameterRole::gain) // on every rank, and in its master copy
      parameter.fill_weights([](auto& weights) { sw::fill(weights, 1.5F); });
  });
  //! [set]
  Model::Batch::Ids ids(mesh, {8, config.sequence});
  Model::Batch::Ids targets(mesh, {8, config.sequence});
  double first = 0;
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < ids.local_size(); ++i) {
      const int token = static_cast<int>(i) + 3 * mesh.rank() + step;
      ids.mutable_data()[i] = token % 16;
      targets.mutable_data()[i] = (token + 1) % 16;
    }
    //! [step]
    const auto sum = model.forward_backward({ids.share(), targets.share()},
                                            sw::PassPosition::last); // the step's last microbatch
    accumulator.add(sum.loss, sum.tokens);
    const sw::GradientSummary summary = accumulator.finish(); // waits for the reductions
    optimizer.step(model, summary, 3e-3);                     // each rank its part
    accumulator.restart();
    //! [step]
    (step == 0 ? first : last) = summary.loss.value;
  }
  if (world.rank() == 0)
    std::printf("loss %.3f, then %.3f\n", first, last);
  return last < 0.8 * first ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
