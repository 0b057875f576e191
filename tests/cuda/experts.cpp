// SPDX-License-Identifier: Apache-2.0
// A router and experts, compiled for the device; on a machine with a GPU, run by one rank and by two ranks
// that share it, and compared with one rank of the host.
#include <shardwright/launch.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/experts/router.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/tensor/memory/shared_memory.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/tape.hpp>

#include "cuda/compare.hpp"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace cuda_test;
using namespace sw::axis;

using Mesh = sw::DeviceMesh<ep>;
using Tokens = sw::Layout<3, sw::Shard<0, ep>>;

template <class Router, class Experts> struct Model {
  using target = typename Experts::target;
  Router router;
  Experts experts;
  auto members() { return sw::members("router", router, "experts", experts); }
};

/// Choices, gates, values and gradients of tokens that are routed, with a padding token in each sequence and
/// an expert that no token chooses.
template <class Target, class Element> Results routed(const Mesh& mesh) {
  constexpr std::int64_t sequences = 4, positions = 67, width = 48, hidden = 40, experts = 6, chosen = 2;
  using Plan = sw::ModelPlan<Element, sw::DataParallel, Target>;
  using Router = sw::Router<Tokens, Plan>;
  using Experts = sw::ExpertMlp<Tokens, sw::AxisList<ep>, sw::AxisList<>, Plan>;
  const auto some = sw::Initial::normal(0.1);
  Model<Router, Experts> model{
      Router(mesh, width, experts, {.chosen = chosen, .scores = sw::RouterScores::sigmoid},
             sw::Initial::normal(0.5), {.rate = 0.01}),
      Experts(mesh, {width, hidden, {experts, sequences * positions * chosen}}, some, some)};
  sw::initialize(model, 5);
  sw::GradAccumulator accumulator(model);
  Results results;
  const auto keep = [&](std::string name, const auto& tensor) {
    using L = typename std::remove_cvref_t<decltype(tensor)>::layout;
    results.add(std::move(name), sw::gather(sw::redistribute<sw::Layout<L::tensor_rank>>(tensor), 0));
  };
  sw::ShardedTensor<Tokens, Element, Target> x(mesh, {sequences, positions, width}), dy(mesh, x.shape());
  sw::fill_normal(x, {11, 1});
  sw::fill_normal(dy, {11, 2});
  std::vector<std::int32_t> pads(sequences * positions);
  for (std::size_t i = 0; i < pads.size(); ++i)
    pads[i] = i % positions == 5 ? -1 : 0;
  using Pads = sw::Layout<2, sw::Shard<0, ep>>;
  const auto padding = sw::scatter<Pads, Target>(mesh, 0, pads, {sequences, positions});
  sw::Tape<Target> tape;
  auto tokens = tape.variable(std::move(x));
  {
    auto to = model.router(tokens, padding.share());
    keep("choices", to.experts);
    keep("gates", to.gates.value());
    const auto y = model.experts(tokens, to.experts, to.gates);
    keep("values", y.value());
    tape.seed(y, std::move(dy));
  }
  tape.backward();
  keep("gradient", tape.gradient(tokens));
  return results;
}

template <class Element> bool as_on_the_host(const char* what, double tolerance) {
  bool sound = true;
  for (const int ranks : {1, 2})
    static_cast<void>(sw::launch({.ranks = ranks}, [&](sw::HostCommunicator world) {
      const auto device = routed<Device, Element>(Mesh(world, sw::extent<ep>(ranks)));
      const Mesh alone(world.split(world.rank(), 0, "alone"), sw::extent<ep>(1));
      if (world.rank() == 0)
        sound &= agrees(what + std::to_string(ranks), device, routed<Host, Element>(alone), tolerance);
    }));
  return sound;
}

} // namespace

int main(int argc, char** argv) {
  return device_program(argc, argv, [] {
    bool sound = as_on_the_host<float>("experts in float, ranks: ", 1e-4);
    sound &= as_on_the_host<sw::bfloat16>("experts in bfloat16, ranks: ", 8 * 0x1p-7);
    return sound;
  });
}
