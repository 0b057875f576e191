// SPDX-License-Identifier: Apache-2.0
//
// Experts over an axis: the layouts of rows at each stage, a layer as a function, and a module. Four thread
// ranks.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/train/tape.hpp>

#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <utility>

namespace sw = shardwright;
using namespace sw::axis;

//! [layouts]
using Tokens = sw::Layout<2, sw::Shard<0, dp, ep>>;             // [tokens, width], split over all four ranks
using Up = sw::Layout<3, sw::Shard<0, ep>, sw::Shard<2, tp>>;   // [experts, width, hidden]
using Down = sw::Layout<3, sw::Shard<0, ep>, sw::Shard<1, tp>>; // [experts, hidden, width]

using Rows = sw::DispatchLayout<Tokens, sw::AxisList<ep>>; // rows at the experts that ep owns
using Hidden = sw::GroupedLayout<Rows, Up>;                // columns split over tp
using Unfinished = sw::GroupedLayout<Hidden, Down>;        // partial sums
static_assert(std::is_same_v<Rows, sw::Ragged<Tokens, sw::AxisList<ep>>>);
static_assert(std::is_same_v<Hidden, sw::Ragged<Tokens, sw::AxisList<ep>, sw::Layout<1, sw::Shard<0, tp>>>>);
static_assert(std::is_same_v<sw::CombineLayout<Unfinished, Tokens>,
                             sw::Layout<2, sw::Shard<0, dp, ep>, sw::Partial<sw::Sum, tp>>>);
//! [layouts]

//! [gradient]
static_assert(std::is_same_v<sw::GroupedWeightGradientLayout<Rows, sw::Gradient<Hidden>>,
                             sw::Layout<3, sw::Shard<0, ep>, sw::Shard<2, tp>, sw::Partial<sw::Sum, dp>>>);
//! [gradient]

//! [layer]
auto experts_of(auto x, const sw::ShardedTensor<Tokens, std::int32_t>& chosen, auto gates, auto& w1, auto& w3,
                auto& w2) {
  auto rows = sw::dispatch<ep>(std::move(x), chosen, {.experts = 8, .most_rows = 64});
  auto h = sw::silu(sw::grouped(rows, w1)) * sw::grouped(rows, w3);
  return sw::combine(sw::grouped(std::move(h), w2), gates);
}
//! [layer]

void run(const sw::HostCommunicator& world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<ep>(2), sw::extent<tp>(1)};
  sw::ShardedTensor<Tokens> x(mesh, {32, 16}), gates(mesh, {32, 2});
  sw::ShardedTensor<Tokens, std::int32_t> chosen(mesh, {32, 2});
  sw::fill_normal(x, {1, 1});
  sw::fill(gates, 0.5f);
  for (std::size_t i = 0; i < chosen.local_size(); ++i)
    chosen.mutable_data()[i] = static_cast<std::int32_t>(i * 3 % 8);
  sw::ShardedTensor<Up> w1(mesh, {8, 16, 24}), w3(mesh, {8, 16, 24});
  sw::ShardedTensor<Down> w2(mesh, {8, 24, 16});
  sw::fill_normal(w1, {1, 2}, 0, 0.25);
  sw::fill_normal(w3, {1, 3}, 0, 0.25);
  sw::fill_normal(w2, {1, 4}, 0, 0.2);
  const auto by_function = experts_of(x.share(), chosen, gates.share(), w1, w3, w2);

  //! [module]
  using Layer = sw::ExpertMlp<Tokens, sw::AxisList<ep>, sw::AxisList<tp>>;
  const sw::ExpertSizes sizes{.width = 16, .hidden = 24, .set = {.experts = 8, .most_rows = 64}};
  Layer layer(mesh, sizes, sw::Initial::normal(0.25), sw::Initial::normal(0.2));
  sw::initialize(layer, 1);
  sw::Tape tape(sw::Recording::evaluation);
  const auto y =
      layer(tape.input(x), chosen, tape.input(gates)); // Partial over tp: y.as<Stream>() finishes it
  //! [module]
  if (by_function.shape() != y.shape() || by_function.shape() != x.shape())
    throw sw::InvalidArgument("experts: both must give a row for each token");
  if (mesh.rank() == 0)
    std::printf("%lld tokens came back\n", static_cast<long long>(y.shape()[0]));
}

int main(int argc, char** argv) { return sw::run(argc, argv, run, {.ranks = 4}); }
