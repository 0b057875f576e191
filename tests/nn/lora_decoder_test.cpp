// SPDX-License-Identifier: Apache-2.0
#include "nn/small_training.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/train/training.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// A decoder with adapters: its text is not written again. It begins as its base, and trains alike on every
// mesh.

namespace {

namespace sw = shardwright;
using nn_test::Problem;
using nn_test::Way;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

template <class Layouts> using Base = sw::SingleStageModel<sw::Decoder<Layouts, double>>;
//! [adapted]
template <class Layouts>
using WithLora = sw::SingleStageModel<sw::Adapted<sw::Decoder<sw::FrozenLayouts<Layouts>, double>>>;

[[nodiscard]] sw::LoraOptions options() {
  return {.rank = 4, .alpha = 8, .dropout = 0.1, .matches = [](std::string_view path) {
            return !path.ends_with(".keys"); // all linear layers but those of the keys
          }};
}
//! [adapted]

[[nodiscard]] Problem problem() {
  Problem out;
  out.config = nn_test::config_of_four();
  out.config.tied_embedding = true;
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
  sw::merge_adapters(model);
  findings.expect(std::abs(next() - out.back()) < 1e-12, way.text(), ": merged");
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
