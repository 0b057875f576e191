// SPDX-License-Identifier: Apache-2.0
//
// Attention over sequences split across context ranks: the layouts, the orders, and a pass in each of the two
// ways.
#include <shardwright/layout/transition.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/nn/decoder/layouts.hpp>
#include <shardwright/run.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <type_traits>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;

//! [choice]
using ByHeads = sw::DecoderLayouts<false>; // the default
using ByRing = sw::DecoderLayouts<false, sw::DataParallel, sw::RingContext>;
//! [choice]

//! [layouts]
// [batch, sequence, kv_heads, (queries + 2) * head width], as the product with the weights leaves it
using Fused = sw::Layout<4, sw::Shard<1, cp>, sw::Shard<2, tp>>;

using WholeSequences = sw::AllToAllContext::AttentionInput<Fused>;
static_assert(std::is_same_v<WholeSequences, sw::Layout<4, sw::Shard<2, tp, cp>>>);
static_assert(sw::Transition<Fused, WholeSequences>::collectives == 1 &&
              sw::Transition<Fused, WholeSequences>::count<sw::AllToAll> == 1);

static_assert(std::is_same_v<sw::RingContext::AttentionInput<Fused>, Fused>); // only keys and values move
//! [layouts]

//! [orders]
// A sequence of 16 over 4 ranks: 8 chunks; rank 1 has the second from either end.
static_assert(sw::ZigZagOrder::runs(16, 4, 1) ==
              sw::TokenRuns{.rows = 4, .split = 2, .first = 2, .second = 12});
static_assert(sw::NaturalOrder::runs(16, 4, 1) == sw::TokenRuns::one(4, 4));

static_assert(std::is_same_v<ByHeads::Order, sw::NaturalOrder>);
static_assert(std::is_same_v<ByRing::Order, sw::ZigZagOrder>);
//! [orders]

//! [fill]
/// Sequences of consecutive numbers: each rank writes the tokens of its own positions.
template <class Ids> void count_up(Ids& ids) {
  const sw::TokenRuns runs = ids.positions().runs();
  std::int32_t* id = ids.mutable_data();
  for (std::int64_t row = 0; row < ids.local_shape()[0]; ++row)
    for (std::size_t i = 0; i < runs.rows; ++i)
      *id++ = static_cast<std::int32_t>(runs.position(i));
}
//! [fill]

/// Sum of the magnitudes of attention over a batch of the context's order, under three masks.
template <class Context, class Mesh> double attend(const Mesh& mesh) {
  sw::TokenTensor<typename Context::Order, sw::Layout<2, sw::Shard<1, cp>>> ids(mesh, {2, 16});
  count_up(ids);
  sw::ShardedTensor<Fused> fused(mesh, {2, 16, 4, 4 * 8});
  for (std::size_t i = 0; i < fused.local_size(); ++i) // by token, so that the order does not change the data
    fused.mutable_data()[i] =
        std::sin(static_cast<float>(ids.data()[i / 128] * 7 + static_cast<int>(i % 128)));
  //! [attend]
  const auto input = sw::redistribute<typename Context::template AttentionInput<Fused>>(fused);
  const auto out = sw::attention(input, ids.positions(), {.queries = 2, .width = 8});
  const auto value = sw::redistribute<sw::AttentionLayout<Fused>>(out.value);
  //! [attend]
  const sw::HeadShape heads{.queries = 2, .width = 8};
  //! [masks]
  const auto recent = sw::attention(input, ids.positions(), heads, sw::sliding_window<4>);

  sw::ShardedTensor<sw::KeyLengthsLayout<Fused>, std::int32_t> lengths(mesh, {2}); // of two sequences
  lengths.mutable_data()[0] = 16;
  lengths.mutable_data()[1] = 11;
  const auto encoded = sw::attention(input, ids.positions(), heads, sw::padded(sw::full, lengths));

  sw::ShardedTensor<sw::DocumentStartsLayout<Fused>, std::int32_t> starts(mesh, {2, 16});
  sw::fill_document_starts(std::vector<std::int32_t>{3, 9, 4}, std::span(starts.mutable_data(), 16));
  sw::fill_document_starts(std::vector<std::int32_t>{13}, std::span(starts.mutable_data() + 16, 16));
  const auto packed = sw::attention(input, ids.positions(), heads, sw::documents(sw::causal, starts));
  //! [masks]
  double sum[1] = {0};
  const auto add = [&sum](const auto& tensor) {
    for (std::size_t i = 0; i < tensor.local_size(); ++i)
      sum[0] += std::fabs(static_cast<double>(tensor.data()[i]));
  };
  add(value);
  add(recent.value);
  add(encoded.value);
  add(packed.value);
  mesh.template communicator<cp>().all_reduce_in_place(sum);
  return sum[0];
}

int main(int argc, char** argv) {
  const auto program = [](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<cp>(4), sw::extent<tp>(1)};
    const double ring = attend<sw::RingContext>(mesh), all_to_all = attend<sw::AllToAllContext>(mesh);
    if (world.rank() == 0)
      std::printf("sum of magnitudes: %.4f by the ring, %.4f by all-to-all\n", ring, all_to_all);
    return std::fabs(ring - all_to_all) < 1e-5 * ring ? 0 : 1;
  };
  return sw::run(argc, argv, program, {.ranks = 4});
}
