// SPDX-License-Identifier: Apache-2.0
#include "nn/small_training.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/train/pipeline/stage.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// A decoder cut into stages on one mesh, with its passes in any order, compared with the undivided decoder.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using Model = sw::Decoder<sw::DecoderLayouts<true>, double>;
using Stage = sw::Stage<Model>;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr int microbatches = 3;

struct Gradients {
  double loss = 0;
  std::vector<std::vector<double>> values; ///< By parameter.
  friend bool operator==(const Gradients&, const Gradients&) = default;
};

/// The stages of one rank, as a model.
struct Stages {
  using target = Stage::target;

  /// @param cuts where stages begin and end, in layers
  Stages(const sw::DecoderMesh& mesh, const nn_test::Problem& problem, const std::vector<int>& cuts) {
    // The embedding comes before the layers, the head after them.
    const auto unit = [](int layer) { return static_cast<std::size_t>(layer) + 1; };
    for (std::size_t s = 0; s + 1 < cuts.size(); ++s)
      list.emplace_back(mesh, problem.config, problem.seed,
                        sw::detail::UnitRange{s == 0 ? 0 : unit(cuts[s]), s + 2 == cuts.size()
                                                                              ? unit(cuts.back()) + 1
                                                                              : unit(cuts[s + 1])},
                        shared);
  }
  template <class Visitor> void for_each_stage(Visitor&& visit) {
    for (Stage& stage : list)
      visit(stage);
  }
  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    for_each_stage([&](Stage& stage) { stage.for_each_parameter(visit); });
  }

  sw::SharedParts shared;
  std::deque<Stage> list;
};

enum class Order { microbatch_by_microbatch, forwards_first, weights_last };

Gradients run(const sw::HostCommunicator& world, const nn_test::Problem& problem,
              const std::vector<int>& cuts, Order order) {
  const sw::DecoderMesh mesh = sw::decoder_mesh(world, {.dp = world.size() / 2, .tp = 2});
  Stages model(mesh, problem, cuts);
  sw::GradAccumulator accumulator(model);
  std::deque<Stage>& stages = model.list;
  std::vector<Stage::Batch> batches;
  for (int i = 0; i < microbatches; ++i) {
    Model::Ids ids(mesh, {4, problem.config.sequence});
    Model::Ids targets(mesh, {4, problem.config.sequence});
    nn_test::fill_batch(problem, 0, 4 * i, ids, targets);
    batches.push_back({ids.share(), targets.share()});
  }
  std::vector<std::vector<Stage::Saved>> saved(microbatches);
  for (auto& each : saved)
    each.resize(stages.size());
  Stage::Loss loss;
  const auto forward = [&](std::size_t i) {
    std::optional<Stage::Boundary> stream;
    for (std::size_t s = 0; s < stages.size(); ++s)
      stream = stages[s].forward(std::move(stream), batches[i], saved[i][s], loss);
  };
  const auto backward = [&](std::size_t i, bool weights) {
    std::optional<Stage::Boundary> gradient;
    for (std::size_t s = stages.size(); s-- > 0;)
      gradient =
          weights ? stages[s].backward(std::move(gradient), batches[i], saved[i][s], sw::PassPosition::middle)
                  : stages[s].input_gradient(std::move(gradient), saved[i][s]);
  };
  for (std::size_t i = 0; i < microbatches; ++i) {
    forward(i);
    if (order == Order::microbatch_by_microbatch)
      backward(i, true);
  }
  for (std::size_t i = 0; i < microbatches && order != Order::microbatch_by_microbatch; ++i)
    backward(i, order == Order::forwards_first);
  for (std::size_t i = 0; i < microbatches && order == Order::weights_last; ++i)
    for (std::size_t s = 0; s < stages.size(); ++s)
      stages[s].weight_gradient(batches[i], saved[i][s], sw::PassPosition::middle);
  Gradients out;
  out.loss = loss.loss.value;
  accumulator.add(loss);
  static_cast<void>(accumulator.finish());
  model.for_each_parameter(
      [&](auto& parameter) { out.values.push_back(nn_test::whole(parameter.gradient())); });
  return out;
}

} // namespace

TEST_CASE("a decoder cut into stages has the same loss and gradients, whatever the order of passes") {
  for (const bool tied : {false, true})
    CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
            nn_test::Problem problem;
            problem.config = nn_test::config_of_four();
            problem.config.layers = 3;
            problem.config.tied_embedding = tied;
            const Gradients one = run(world, problem, {0, 3}, Order::microbatch_by_microbatch);
            findings.expect(one.values.size() == 3 * 6 + (tied ? 2 : 3), "parameters: ", one.values.size());
            findings.expect(run(world, problem, {0, 3}, Order::forwards_first) == one, "forwards first");
            findings.expect(run(world, problem, {0, 3}, Order::weights_last) == one, "weights last");
            for (const std::vector<int>& cuts : {std::vector<int>{0, 1, 3}, {0, 0, 2, 3, 3}})
              for (const Order order :
                   {Order::microbatch_by_microbatch, Order::forwards_first, Order::weights_last}) {
                const Gradients cut = run(world, problem, cuts, order);
                findings.expect(std::abs(cut.loss / one.loss - 1) < 1e-13, "loss ", cut.loss, " not ",
                                one.loss);
                findings.expect(cut.values.size() == one.values.size(), "the same parameters");
                for (std::size_t p = 0; p < std::min(cut.values.size(), one.values.size()); ++p) {
                  double difference = 0;
                  double largest = 0;
                  for (std::size_t i = 0; i < one.values[p].size(); ++i) {
                    difference = std::max(difference, std::abs(cut.values[p][i] - one.values[p][i]));
                    largest = std::max(largest, std::abs(one.values[p][i]));
                  }
                  findings.expect(difference <= 1e-12 * largest, "parameter ", p, " differs by ", difference);
                }
              }
          }) == "");
}

TEST_CASE("a stage does not invent the position in the run of a batch with dropout") {
  CHECK(on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
          nn_test::Problem problem;
          problem.config = nn_test::config_of_four();
          problem.config.dropout = 0.1;
          const std::string said = shardwright_test::failure_of<sw::LifecycleError>([&] {
            static_cast<void>(run(world, problem, {0, 1}, Order::microbatch_by_microbatch));
          });
          findings.expect(
              shardwright_test::has(
                  said, "dropout: a tape in training must know the position of its microbatch in the run") &&
                  shardwright_test::has(said, "or give the batch of a stage a member `origin`"),
              said);
        }) == "");
}
