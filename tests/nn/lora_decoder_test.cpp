// SPDX-License-Identifier: Apache-2.0
#include "nn/small_training.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/decoder/moe.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/training.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A decoder with adapters: its text is not written again. It begins as its base, and trains alike on every
// mesh.

namespace {

namespace sw = shardwright;
using nn_test::Problem;
using nn_test::Way;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

template <class Layouts> using Base = sw::SingleStageModel<sw::Decoder<Layouts, double>>;
//! [adapted]
template <class Layouts>
using WithLora = sw::SingleStageModel<sw::Adapted<sw::Decoder<sw::FrozenLayouts<Layouts>, double>>>;

[[nodiscard]] sw::LoraOptions options() {
  return {.rank = 4, .alpha = 8, .dropout = 0.1, .tables = true, .matches = [](std::string_view path) {
            return !path.ends_with(".keys"); // all layers but those of the keys, embedding and head too
          }};
}
//! [adapted]

[[nodiscard]] Problem problem() {
  Problem out;
  out.config = nn_test::config_of_four();
  out.steps = 4;
  return out;
}
template <class Model>
[[nodiscard]] typename Model::Batch batch_of(const sw::DecoderMesh& mesh, const Problem& problem, int step) {
  typename Model::Batch::Ids ids(mesh, {problem.batch, problem.config.sequence});
  typename Model::Batch::Ids targets(mesh, {problem.batch, problem.config.sequence});
  nn_test::fill_batch(problem, step, 0, ids, targets);
  return {ids.share(), targets.share(), sw::BatchOrigin{static_cast<std::uint64_t>(step), 0}};
}

/// The losses of some steps on a mesh, then that of the merged model on the next batch beside the unmerged
/// one's.
template <class Layouts>
[[nodiscard]] std::vector<double> losses(const sw::HostCommunicator& world, const Way& way,
                                         Findings& findings) {
  using Model = WithLora<Layouts>;
  const Problem own = problem();
  const sw::DecoderMesh mesh = sw::decoder_mesh(world, way.extents());
  Model model(mesh, {own.config, options()}, own.seed);
  sw::Training training(mesh, model, sw::AdamW());
  std::vector<double> out;
  {
    Base<Layouts> base(mesh, own.config, own.seed);
    const auto batch = batch_of<Base<Layouts>>(mesh, own, 0);
    const double wanted = base.evaluate(batch).read().loss.value;
    const double begins = model.evaluate(batch_of<Model>(mesh, own, 0)).read().loss.value;
    findings.expect(begins == wanted, way.text(), ": the loss begins as ", begins, ", not ", wanted);
  }
  std::vector<typename Model::Batch> batches;
  for (int step = 0; step < own.steps; ++step) {
    batches.assign(1, batch_of<Model>(mesh, own, step));
    out.push_back(
        training.step([&](std::int64_t) { return std::span<const typename Model::Batch>(batches); }, 0.01)
            ->loss);
  }
  training.require_equal_replicas();
  const auto next = [&] {
    batches.assign(1, batch_of<Model>(mesh, own, own.steps));
    return training.mean(training.evaluate(batches)).value;
  };
  out.push_back(next());
  const auto predicted = [&] { return sw::local_values(model.predict(batches.front())); };
  const auto scores = predicted();
  sw::merge_adapters(model);
  findings.expect(std::abs(next() - out.back()) < 1e-12, way.text(), ": merged");
  findings.expect(nn_test::largest_difference(predicted(), scores) < 1e-12, way.text(), ": merged scores");
  return out;
}

template <class Layouts> void compare(const std::vector<double>& alone, const Way& way) {
  CHECK(on_ranks(way.ranks(), [&](const sw::HostCommunicator& world, Findings& findings) {
          const double found = nn_test::largest_difference(losses<Layouts>(world, way, findings), alone);
          findings.expect(found < 1e-12, way.text(), " differs by ", found);
        }) == "");
}

} // namespace

TEST_CASE("an adapted decoder begins as its base, and its losses are those of one rank on every mesh") {
  std::vector<double> alone;
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          alone = losses<sw::DecoderLayouts<false>>(world, Way{}, findings);
          findings.expect(alone[3] < alone[0], "nothing was learnt: ", alone[0], " and ", alone[3]);
        }) == "");
  for (const Way& way : {Way{.tp = 2}, Way{.dp = 2, .cp = 2}})
    compare<sw::DecoderLayouts<false>>(alone, way);
  for (const Way& way : {Way{.tp = 4, .sequence_parallel = true}, Way{.dp = 2, .tp = 2}, Way{.dp = 3}})
    compare<sw::DecoderLayouts<true, sw::Zero3>>(alone, way);
}

TEST_CASE("tied tables have no adapters, and beside them the other layers have") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          using Model = WithLora<sw::DecoderLayouts<false>>;
          const sw::DecoderMesh mesh = sw::decoder_mesh(world, {});
          Problem own = problem();
          own.config.tied_embedding = true;
          sw::LoraOptions with = options();
          const std::string text = failure_of<sw::InvalidArgument>([&] {
            Model(mesh, {own.config, with}, own.seed);
          });
          findings.expect(has(text, "tables that get adapters must not be tied, but parts of this model "
                                    "share embedding (adapt the other layers, without LoraOptions::tables"),
                          text);
          sw::LoraOptions layers = options();
          layers.matches = [](std::string_view path) { return path.starts_with("layers."); };
          static_cast<void>(Model(mesh, {own.config, layers}, own.seed)); // the tie does not matter
          with.tables = false;
          Model model(mesh, {own.config, with}, own.seed);
          std::string tables;
          sw::for_each_trained_parameter(model, [&](const auto& parameter) {
            tables += parameter.name().starts_with("layers.") ? "" : parameter.name();
          });
          findings.expect(tables == "", tables);
          Base<sw::DecoderLayouts<false>> base(mesh, own.config, own.seed);
          const auto batch = batch_of<Model>(mesh, own, 0);
          findings.expect(model.evaluate(batch).read().loss.value == base.evaluate(batch).read().loss.value,
                          "the loss begins as the base's");
        }) == "");
}

namespace {

/// The losses of some steps of adapters of a decoder with experts, in 4 bits, on a mesh of one or two stages.
[[nodiscard]] std::vector<double> expert_losses(const sw::HostCommunicator& world, int stages,
                                                const sw::DecoderExtents& extents, Findings& findings) {
  using Layouts = sw::FrozenLayouts<sw::MoeLayouts<sw::Zero3Over<sw::MoeZeroAxes>>, sw::NormalFloat4>;
  using Model = sw::PipelineModel<sw::Adapted<sw::MoeDecoder<Layouts, double>>>;
  sw::MoeConfig config;
  static_cast<sw::DecoderConfig&>(config) = nn_test::config_of_four();
  config.width = 64; // a block; so are a key-value head with its queries, and half of the hidden widths
  config.heads = 4;
  config.kv_heads = 2;
  config.hidden = config.expert_hidden = config.shared_hidden = 128;
  config.experts = 4;
  config.dense_layers = 1;
  const Problem own{.config = config, .batch = 8, .steps = 20};
  config.batch_sequences = own.batch / 2;
  const auto ranks = sw::decoder_pipeline_mesh(world, stages, extents);
  const auto mesh = sw::stage_mesh(ranks);
  const auto schedule = sw::make_schedule("1f1b", stages, 2);
  const sw::LayerPartition layers(static_cast<int>(config.layers), stages);
  const auto pipeline = ranks.communicator<sw::axis::pp>();
  const sw::LoraOptions adapters{.rank = 3, .alpha = 6, .tables = true};
  sw::MoeConfig tied = config;
  tied.tied_embedding = true;
  const std::string refused = failure_of<sw::InvalidArgument>([&] {
    Model(mesh, pipeline, schedule.placement(), layers, {tied, adapters}, own.seed);
  });
  findings.expect(has(refused, "parts of this model share embedding"), stages, " stages: ", refused);
  Model model(mesh, pipeline, schedule.placement(), layers, {config, adapters}, own.seed);
  int quantized = 0;
  model.for_each_parameter([&]<class P>(const P&) { quantized += P::quantized ? 1 : 0; });
  if (world.size() == 1) // two of attention and of each dense or shared part, three of experts
    findings.expect(quantized == 11, quantized, " quantized matrices");
  sw::Training training(mesh, model, world, pipeline, schedule, sw::AdamW());
  std::vector<double> out;
  std::vector<typename Model::Batch> batches;
  for (int step = 0; step < own.steps; ++step) {
    batches.clear();
    for (const std::int64_t row : {std::int64_t{0}, config.batch_sequences}) {
      typename Model::Batch::Ids ids(mesh, {config.batch_sequences, config.sequence});
      typename Model::Batch::Ids targets(mesh, ids.shape());
      nn_test::fill_batch(own, step, row, ids, targets);
      batches.push_back({ids.share(), targets.share(), sw::BatchOrigin{static_cast<std::uint64_t>(step), 0}});
    }
    out.push_back(
        training.step([&](std::int64_t) { return std::span<const typename Model::Batch>(batches); }, 0.01)
            ->loss);
  }
  training.require_equal_replicas(); // one hash on all ranks that hold a factor
  return out;
}

} // namespace

TEST_CASE("adapters of quantized experts train as on one rank, wherever the experts are") {
  std::vector<double> alone;
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          alone = expert_losses(world, 1, {}, findings);
          findings.expect(alone.back() < 0.9 * alone.front(), "nothing was learnt: ", alone.back());
        }) == "");
  for (const auto& [stages, extents] :
       {std::pair{1, sw::DecoderExtents{.ep = 2}}, std::pair{1, sw::DecoderExtents{.tp = 2, .ep = 2}},
        std::pair{2, sw::DecoderExtents{.ep = 2}}})
    CHECK(on_ranks(stages * extents.ranks(),
                   [&, stages = stages, extents = extents](const auto& world, Findings& findings) {
                     const double found =
                         nn_test::largest_difference(expert_losses(world, stages, extents, findings), alone);
                     findings.expect(found < 1e-12, stages, " stages, ", extents.text(), ": ", found);
                   }) == "");
}
