// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/checks/mesh_hash.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/step/guard.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

// Gradients on a Reproducible target: the test itself adds the terms of tokens, as kernels do.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Ordered = sw::Reproducible<sw::DefaultTarget>;
using OverTokens = sw::Layout<0, sw::Partial<sw::Sum, dp, cp>>;

constexpr int tokens = 24;

/// A matrix split over tp, a gain whose terms are also split over tp, and a table that meshes share.
template <class Element, class Zero> struct Small {
  using target = Ordered;
  using Mesh = sw::DeviceMesh<dp, cp, tp>;
  using Matrix =
      sw::Parameter<sw::Layout<2, sw::Shard<1, tp>>,
                    sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dp, cp>>, Element, Zero, target>;
  using Gain =
      sw::Parameter<sw::Layout<1>, sw::Layout<1, sw::Partial<sw::Sum, dp, cp, tp>>, Element, Zero, target>;
  using Table =
      sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, dp, cp>>, Element, Zero, target>;

  explicit Small(const Mesh& mesh)
      : matrix(mesh, {12, 8}, {.deviation = 1}), gain(mesh, {19}, {.deviation = 1}),
        table(mesh, {16, 3}, {.deviation = 1}) {}
  [[nodiscard]] auto members() { return sw::members("matrix", matrix, "gain", gain, "table", table); }

  Matrix matrix;
  Gain gain;
  Table table;
};

/// What token `token` adds to element `place` of a gradient: numbers of many sizes.
float term(std::uint64_t step, std::uint64_t tensor, int token, std::int64_t place) {
  const sw::PhiloxWords words = sw::random_words({step, 64 * tensor + static_cast<std::uint64_t>(token)},
                                                 static_cast<std::uint64_t>(place));
  return std::ldexp(static_cast<float>(2 * sw::unit_interval(words.word[0]) - 1),
                    -static_cast<int>(words.word[1] % 12));
}

/// The destination of terms, which are 0 at first.
template <class P> auto begun_slot(P& parameter) {
  auto slot = parameter.gradient_slot();
  if (slot.beta == 0)
    std::fill_n(slot.tensor.mutable_data(), slot.tensor.local_size(), sw::FixedPoint{});
  return slot;
}

/// Adds the terms of a token to the rank's block.
template <class P> void add_token(P& parameter, std::uint64_t step, std::uint64_t number, int token) {
  auto slot = begun_slot(parameter);
  const auto offset = slot.tensor.local_offset();
  const std::int64_t columns = slot.tensor.local_shape().back();
  auto* const data = slot.tensor.mutable_data();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(slot.tensor.local_size()); ++i) {
    const std::int64_t row = P::tensor_rank == 1 ? 0 : offset[0] + i / columns;
    const std::int64_t place = row * slot.tensor.shape().back() + offset.back() + i % columns;
    data[i] += sw::FixedPoint::of(term(step, number, token, place));
  }
}

struct Cut {
  std::array<int, 3> extents{1, 1, 1}; // dp, cp, tp
  int meshes = 1;                      // which share the table, and tokens
  int microbatches = 1;
};

/// Three steps; appends the bits of losses, norms and weights.
template <class Element, class Zero>
void train(sw::HostCommunicator world, const Cut& cut, std::vector<std::uint64_t>& out) {
  const int ranks = world.size() / cut.meshes;
  const int number = world.rank() / ranks;
  const typename Small<Element, Zero>::Mesh mesh{
      world.split(number, world.rank()), sw::extent<dp>(cut.extents[0]), sw::extent<cp>(cut.extents[1]),
      sw::extent<tp>(cut.extents[2])};
  Small<Element, Zero> model(mesh);
  if (cut.meshes > 1)
    sw::for_each_parameter(model,
                           [&](auto& parameter) { parameter.set_copies(world.split(mesh.rank(), number)); });
  sw::GradAccumulator accumulator(model, world);
  accumulator.set_bucket_bytes(256);
  sw::initialize(model, 7);
  sw::AdamW optimizer({.max_norm = 0.01});

  const int data = cut.extents[0] * cut.extents[1] * cut.meshes;
  const int here = (number * cut.extents[0] + mesh.template coordinate<dp>()) * cut.extents[1] +
                   mesh.template coordinate<cp>();
  const int split = data * cut.microbatches;
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (int micro = 0; micro < cut.microbatches; ++micro) {
      double loss = 0;
      std::int64_t count = 0;
      for (int token = tokens - 1 - (here + micro * data); token >= 0; token -= split, ++count) {
        add_token(model.matrix, step, 1, token);
        add_token(model.table, step, 3, token);
        if (token % cut.extents[2] == mesh.template coordinate<tp>())
          add_token(model.gain, step, 2, token);
        else
          static_cast<void>(begun_slot(model.gain));
        loss += sw::detail::loss_term(std::abs(static_cast<double>(term(step, 4, token, 0))) + 1.1);
      }
      sw::for_each_parameter(model, [&](auto& parameter) {
        parameter.gradient_state().end_pass(micro + 1 == cut.microbatches ? sw::PassPosition::last
                                                                          : sw::PassPosition::middle);
      });
      accumulator.add(sw::LossSum<OverTokens>{loss}, sw::TokenCount<OverTokens>{count});
    }
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, 0.01);
    accumulator.restart();
    out.push_back(std::bit_cast<std::uint64_t>(summary.loss.value));
    out.push_back(std::bit_cast<std::uint64_t>(summary.gradient_norm));
  }
  std::vector<std::uint64_t> hashes;
  sw::for_each_parameter(model, [&](auto& parameter) {
    hashes.push_back(number == 0 ? sw::mesh_hash_part(parameter.stored()) : 0);
    if (parameter.master())
      hashes.push_back(number == 0 ? sw::mesh_hash_part(*parameter.master()) : 0);
  });
  world.all_reduce_in_place(std::span<std::uint64_t>(hashes));
  out.insert(out.end(), hashes.begin(), hashes.end());
}

template <class Element, class Zero> std::vector<std::uint64_t> trained(const Cut& cut) {
  std::vector<std::uint64_t> out;
  const int ranks = cut.extents[0] * cut.extents[1] * cut.extents[2] * cut.meshes;
  CHECK(on_ranks(ranks, [&](sw::HostCommunicator world, Findings& findings) {
          std::vector<std::uint64_t> own;
          train<Element, Zero>(world, cut, own);
          if (world.rank() == 0)
            out = own;
          findings.expect(!own.empty(), "nothing");
        }) == "");
  return out;
}

const std::vector<Cut> cuts{{{2, 1, 1}},       {{3, 1, 1}, 1, 4}, {{1, 2, 2}, 1, 3}, {{2, 2, 2}},
                            {{1, 1, 2}, 2, 2}, {{2, 1, 1}, 2, 3}, {{1, 1, 1}, 1, 24}};

} // namespace

TEST_CASE("gradients of FixedPoint give the same bits on every mesh, in every ZeRO stage", "[reproducible]") {
  const std::vector<std::uint64_t> one = trained<float, sw::DataParallel>({});
  for (const Cut& cut : cuts) {
    INFO("dp " << cut.extents[0] << " cp " << cut.extents[1] << " tp " << cut.extents[2] << " meshes "
               << cut.meshes << " microbatches " << cut.microbatches);
    CHECK(trained<float, sw::DataParallel>(cut) == one);
    CHECK(trained<float, sw::Zero2>(cut) == one);
    CHECK(trained<float, sw::Zero3>(cut) == one);
  }
  const std::vector<std::uint64_t> narrow = trained<sw::bfloat16, sw::DataParallel>({});
  CHECK(narrow.size() == one.size() + 3);
  for (const Cut& cut : {cuts[3], cuts[5]})
    CHECK(trained<sw::bfloat16, sw::Zero1>(cut) == narrow);
}

TEST_CASE("a term that does not fit makes the step non-finite on every rank and names the parameter",
          "[reproducible]") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<cp>(1), sw::extent<tp>(1)};
          Small<float, sw::Zero2> model(mesh);
          sw::GradAccumulator accumulator(model, world);
          sw::initialize(model, 7);
          for (const bool bad : {true, false}) {
            for (int token = 0; token < 3; ++token) {
              add_token(model.matrix, 0, 1, token);
              add_token(model.gain, 0, 2, token);
              add_token(model.table, 0, 3, token);
            }
            if (bad && world.rank() == 1)
              *model.gain.gradient_slot().fault = true;
            accumulator.add(sw::LossSum<OverTokens>{1}, sw::TokenCount<OverTokens>{3});
            const sw::GradientSummary summary = accumulator.finish();
            findings.expect(summary.finite() != bad && summary.loss.value - summary.loss.value == 0,
                            "finite ", summary.gradient_norm);
            const auto places = sw::find_non_finite(accumulator, world);
            findings.expect(places.size() == (bad ? 1u : 0u), places.size(), " places");
            if (bad && places.size() == 1)
              findings.expect(places[0].text() == "the gradient of gain on rank 1", places[0].text());
            accumulator.restart();
          }
        }) == "");
}

TEST_CASE("a hash in place differs for one bit of one element, and not for the cut", "[reproducible]") {
  std::vector<std::uint64_t> sums;
  for (const int ranks : {1, 2, 3, 6}) {
    CHECK(on_ranks(ranks, [&](sw::HostCommunicator world, Findings& findings) {
            const int columns = world.size() % 3 == 0 ? 3 : 1;
            const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size() / columns), sw::extent<tp>(columns)};
            sw::ShardedTensor<sw::Layout<3, sw::Shard<1, dp>, sw::Shard<2, tp>>> x(mesh, {3, 5, 7});
            sw::ShardedTensor<sw::Layout<3, sw::Shard<0, tp>>> y(mesh, {3, 5, 7});
            sw::fill_normal(x, {.seed = 3});
            sw::fill_normal(y, {.seed = 3});
            std::vector<std::uint64_t> hashes{sw::mesh_hash_part(x), sw::mesh_hash_part(y)};
            if (world.rank() == 0) {
              auto& last = x.mutable_data()[x.local_size() - 1];
              last = std::nextafter(last, 100.0F);
            }
            hashes.push_back(sw::mesh_hash_part(x));
            world.all_reduce_in_place(std::span<std::uint64_t>(hashes));
            findings.expect(hashes[0] == hashes[1] && hashes[2] != hashes[0], "hashes ", hashes[0], " ",
                            hashes[1]);
            if (world.rank() == 0)
              sums.push_back(hashes[0]);
          }) == "");
  }
  CHECK(sums == std::vector<std::uint64_t>(4, sums[0]));
}

TEST_CASE("a parameter names an extent that a reproducible sum cannot be cut by") {
  CHECK(on_ranks(3, [](sw::HostCommunicator world, Findings& findings) {
          using Model = Small<float, sw::DataParallel>;
          const Model::Mesh mesh{world, sw::extent<dp>(1), sw::extent<cp>(1), sw::extent<tp>(3)};
          std::string said;
          try {
            const Model model(mesh);
          } catch (const sw::InvalidArgument& error) {
            said = error.what();
          }
          findings.expect(said.find("must have extents of 1, 2, 4 or 8") != std::string::npos &&
                              said.find("but they are tp=3 (choose") != std::string::npos,
                          said);
        }) == "");
}
