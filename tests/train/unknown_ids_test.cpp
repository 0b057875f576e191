// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/decoder/token_batch.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/nn/losses/linear_cross_entropy.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Ids and targets beyond the vocabulary, and batches in which no target counts, in training.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::MimicTarget;
using shardwright_test::on_ranks;

constexpr std::int64_t vocabulary = 7, sequences = 4, positions = 6;
constexpr double rate = 0.01;
using Mesh = sw::DeviceMesh<dp, tp>;

/// Words over tp, sequences over dp.
template <class Target> struct Words {
  using target = Target;
  using element = float;
  using Plan = sw::ModelPlan<float, sw::Zero1, Target>;
  using Ids = sw::Layout<2, sw::Shard<0, dp>>;
  using Tokens = sw::Layout<3, sw::Shard<0, dp>>;
  using Table = sw::Layout<2, sw::Shard<0, tp>>;
  using Value = sw::Var<Tokens, float, Target>;
  using Batch = sw::TokenBatch<sw::NaturalOrder, Ids, Target>;
  struct Config {
    std::int64_t layers = 2;
    std::int64_t width = 5;
  };

  class First {
  public:
    template <class Place>
    First(const Place& place, const Config& config)
        : table_(place.mesh, vocabulary, config.width, sw::Initial::normal(0.4)) {}
    auto operator()(sw::Tape<Target>& tape, const Batch& batch) {
      return sw::as_var(table_(tape, batch.ids).template as<Tokens>());
    }
    auto members() { return sw::members("table", table_); }

  private:
    sw::Embedding<Ids, Table, Plan> table_;
  };
  class Layer {
  public:
    template <class Place>
    Layer(const Place& place, const Config& config)
        : gain_(place.mesh, {config.width}, sw::Initial::normal(0.1)) {}
    auto operator()(Value x) { return sw::multiply(std::move(x), gain_); }
    auto members() { return sw::members("gain", gain_); }

  private:
    sw::Parameter<sw::Layout<1>, sw::Layout<1, sw::Partial<sw::Sum, dp>>, float, sw::Zero1, Target> gain_;
  };
  class Last {
  public:
    template <class Place>
    Last(const Place& place, const Config& config)
        : table_(place.mesh, {vocabulary, config.width}, sw::Initial::normal(0.4)) {}
    auto operator()(Value x, const Batch& batch) {
      return sw::linear_cross_entropy(std::move(x), table_, batch.targets);
    }
    auto members() { return sw::members("words", table_); }

  private:
    using Scores = sw::MatmulLayout<Tokens, Table, sw::MatmulForm::right_transposed>;
    using Raw = sw::MatmulLayout<sw::Gradient<Scores>, Tokens, sw::MatmulForm::left_transposed>;
    sw::Parameter<Table, Raw, float, sw::Zero1, Target> table_;
  };
  using Parts = sw::Parts<First, sw::Repeat<Layer, &Config::layers>, Last>;

  [[nodiscard]] static std::array<std::int64_t, 3> boundary(const Config& config, const Batch&) {
    return {sequences, positions, config.width};
  }
};

/// What a token is, by its sequence and position.
using At = std::function<std::int32_t(std::int64_t, std::int64_t)>;
[[nodiscard]] std::int32_t usual(std::int64_t row, std::int64_t position) {
  return static_cast<std::int32_t>((3 * row + position) % vocabulary);
}
/// The same but for one place.
[[nodiscard]] At with(std::int64_t row, std::int64_t position, std::int32_t id) {
  return [=](std::int64_t r, std::int64_t p) { return r == row && p == position ? id : usual(r, p); };
}

template <class Target>
[[nodiscard]] std::vector<typename Words<Target>::Batch> batch_of(const Mesh& mesh, const At& id,
                                                                  const At& target) {
  using Tensor = typename Words<Target>::Batch::Ids;
  Tensor ids(mesh, {sequences, positions}), targets(mesh, {sequences, positions});
  const auto fill = [](Tensor& tokens, const At& at) {
    sw::load_rows(tokens, [&](std::int64_t row, std::span<std::int32_t> to) {
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = at(row, static_cast<std::int64_t>(i));
    });
  };
  fill(ids, id);
  fill(targets, target);
  std::vector<typename Words<Target>::Batch> out;
  out.push_back({ids.share(), targets.share()});
  return out;
}

[[nodiscard]] Mesh mesh_of(const sw::HostCommunicator& world) {
  return Mesh(world, sw::extent<dp>(world.size() / 2), sw::extent<tp>(2));
}

template <class Model> [[nodiscard]] std::vector<float> weights_of(Model& model) {
  std::vector<float> out;
  model.for_each_parameter([&](auto& parameter) {
    const auto block = sw::local_values(parameter.stored());
    out.insert(out.end(), block.begin(), block.end());
  });
  return out;
}

/// A model with its training on a mesh.
template <class Target> struct Run {
  using Model = sw::SingleStageModel<Words<Target>>;
  explicit Run(const Mesh& on, const sw::TrainingOptions& options = {})
      : mesh(on), model(on, {}, 3), training(on, model, sw::AdamW(), options) {}
  std::optional<sw::StepReport> step(const At& id, const At& target) {
    return training.step([&](std::int64_t) { return batch_of<Target>(mesh, id, target); }, rate);
  }
  const Mesh& mesh;
  Model model;
  sw::Training<Model> training;
};

/// The same in two stages, each on two ranks.
template <class Target> struct Staged {
  using Model = sw::PipelineModel<Words<Target>>;
  explicit Staged(const sw::HostCommunicator& world)
      : ranks{world, sw::extent<pp>(2), sw::extent<dp>(1), sw::extent<tp>(2)},
        mesh{ranks.template communicator<dp, tp>(), sw::extent<dp>(1), sw::extent<tp>(2)},
        schedule(sw::make_schedule<sw::OneFOneB>(2, 1)),
        model(mesh, ranks.template communicator<pp>(), schedule.placement(), sw::LayerPartition(2, 2), {}, 3),
        training(mesh, model, world, ranks.template communicator<pp>(), schedule, sw::AdamW()) {}
  sw::DeviceMesh<pp, dp, tp> ranks;
  Mesh mesh;
  decltype(sw::make_schedule<sw::OneFOneB>(2, 1)) schedule;
  Model model;
  sw::Training<Model> training;
};

const char* const beyond_ids =
    "Token ids: they must be below the vocabulary of 7 and not negative, but rank ";
const char* const beyond_targets =
    "Token ids: they must be below the vocabulary of 7, or negative for targets "
    "that do not count, but rank ";

} // namespace

TEST_CASE("an id or a target beyond the vocabulary is an error at once, which names it and its place") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          Run<sw::DefaultTarget> run(mesh);
          static_cast<void>(run.step(usual, with(2, 1, -1)));
          const auto said = [&](const At& id, const At& target) {
            const auto batches = batch_of<sw::DefaultTarget>(mesh, id, target);
            Run<sw::DefaultTarget>::Model model(mesh, {}, 3); // of these ranks: the other ones run no pass
            return failure_of<sw::DataError>([&] { static_cast<void>(model.evaluate(batches[0])); });
          };
          if (mesh.coordinate<dp>() == 1) { // ranks 2 and 3, which hold sequences 2 and 3
            const std::string rank = std::to_string(world.rank());
            const std::string id = said(with(3, 4, 50256), usual);
            findings.expect(has(id, beyond_ids + rank + " reads id 50256 at position 4 of sequence 3"), id);
            const std::string negative = said(with(2, 0, -1), usual);
            findings.expect(has(negative, beyond_ids + rank + " reads id -1 at position 0 of sequence 2"),
                            negative);
            const std::string target = said(usual, with(2, 5, 7));
            findings.expect(
                has(target, beyond_targets + rank + " reads target 7 at position 5 of sequence 2"), target);
          }
        }) == "");
}

TEST_CASE("an unknown id in a training step or under a pipeline ends the run with its place") {
  const std::string whole = failure_of<sw::DataError>([] {
    static_cast<void>(on_ranks(2, [](const sw::HostCommunicator& world, Findings&) {
      const Mesh mesh = mesh_of(world);
      Run<sw::DefaultTarget> run(mesh);
      static_cast<void>(run.step(usual, with(1, 3, 8)));
    }));
  });
  CHECK(has(whole, " reads target 8 at position 3 of sequence 1"));

  for (const bool in_target : {false, true}) {
    const std::string staged = failure_of<sw::DataError>([in_target] {
      static_cast<void>(on_ranks(4, [in_target](const sw::HostCommunicator& world, Findings&) {
        Staged<sw::DefaultTarget> run(world);
        const At odd = with(2, 1, 9);
        static_cast<void>(run.training.step(
            [&](std::int64_t) {
              return batch_of<sw::DefaultTarget>(run.mesh, in_target ? At(usual) : odd,
                                                 in_target ? odd : At(usual));
            },
            rate));
      }));
    });
    CHECK(has(staged, in_target ? " reads target 9 at position 1 of sequence 2"
                                : " reads id 9 at position 1 of sequence 2"));
  }
}

TEST_CASE("on a device an unknown id shows with the step's report on every rank, and no step is taken") {
  for (const bool in_target : {false, true})
    CHECK(on_ranks(4, [in_target](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world);
            Run<MimicTarget> run(mesh);
            const At odd = with(3, 2, 11);
            const auto good = batch_of<MimicTarget>(mesh, usual, usual);
            const auto bad =
                batch_of<MimicTarget>(mesh, in_target ? At(usual) : odd, in_target ? odd : At(usual));
            const auto settled = [&](const auto& batches) {
              return run.training.settle([&](std::int64_t) { return std::span(batches); });
            };
            const auto waits_of = [&](const auto& batches) {
              const std::int64_t before = MimicTarget::host_waits();
              static_cast<void>(run.training.step([&](std::int64_t) { return std::span(batches); }, rate));
              return MimicTarget::host_waits() - before;
            };
            static_cast<void>(waits_of(good));
            static_cast<void>(settled(good));
            const std::int64_t usual_waits = waits_of(good);
            static_cast<void>(settled(good));
            const auto before = weights_of(run.model);
            const std::int64_t waits = waits_of(bad);
            findings.expect(waits <= usual_waits, "the host waits ", waits, " times, not ", usual_waits);
            const std::string said =
                failure_of<sw::DataError>([&] { static_cast<void>(run.step(usual, usual)); });
            const std::string place = std::to_string(world.rank()) +
                                      (in_target ? " reads target 11" : " reads id 11") +
                                      " at position 2 of sequence 3";
            if (mesh.coordinate<dp>() == 1)
              findings.expect(has(said, (in_target ? beyond_targets : beyond_ids) + place), said);
            else
              findings.expect(has(said, "2 of the other ranks have read one beyond it"), said);
            findings.expect(weights_of(run.model) == before, "no step is taken");
          }) == "");
}

TEST_CASE("on a device an evaluation with an unknown id throws when its loss is read") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
          Run<MimicTarget> run(mesh);
          const auto batches = batch_of<MimicTarget>(mesh, usual, with(0, 5, 7));
          const auto sums = run.training.evaluate(batches);
          const std::string said =
              failure_of<sw::DataError>([&] { static_cast<void>(run.training.mean(sums)); });
          findings.expect(has(said, "rank 0 reads target 7 at position 5 of sequence 0"), said);
        }) == "");
}

TEST_CASE("on a device an evaluation in stages with an unknown id throws before a step is blamed for it") {
  for (const bool in_target : {false, true})
    CHECK(on_ranks(4, [in_target](const sw::HostCommunicator& world, Findings& findings) {
            Staged<MimicTarget> run(world);
            const At odd = with(2, 1, 9);
            const auto batches =
                batch_of<MimicTarget>(run.mesh, in_target ? At(usual) : odd, in_target ? odd : At(usual));
            const std::string said = failure_of<sw::DataError>(
                [&] { static_cast<void>(run.training.evaluate(batches)); }); // nobody reads the loss
            const int stage = run.ranks.coordinate<pp>();
            const std::string wanted = in_target ? " reads target 9 at position 1 of sequence 2"
                                                 : " reads id 9 at position 1 of sequence 2";
            findings.expect(has(said, wanted) == (stage == (in_target ? 1 : 0)), "stage ", stage, ": ", said);
            findings.expect(!has(said, wanted) || has(said, "unknown_ids_test.cpp"), said);
          }) == "");
}

TEST_CASE("an error of an unknown id names its position in the text, in any order of the tokens") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<cp>(2)};
          using Ids = sw::TokenTensor<sw::ZigZagOrder, sw::Layout<2, sw::Shard<1, cp>>>;
          Ids ids(mesh, {2, 8});
          for (std::size_t i = 0; i < ids.local_size(); ++i)
            ids.mutable_data()[i] = 1;
          ids.mutable_data()[7] = 50; // the last one of sequence 1
          sw::ShardedTensor<sw::Layout<2>, double> weights(mesh, {vocabulary, 3});
          sw::fill(weights, 1.0);
          sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, cp>>, double> table(
              "table", std::move(weights));
          const auto expect = [&](const char* first, const char* second) {
            sw::Tape<> tape(sw::Recording::evaluation, {}, ids.row_order());
            const std::string said =
                failure_of<sw::DataError>([&] { static_cast<void>(sw::embed(tape, ids, table)); });
            findings.expect(has(said, "reads id 50 at position " +
                                          std::string(world.rank() == 0 ? first : second) + " of sequence 1"),
                            said);
          };
          expect("7", "5"); // rank 0 has places 0 1 6 7, rank 1 places 2 3 4 5
          ids.arrange(std::make_shared<const std::vector<std::int32_t>>(
              std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 4, 5, 6, 7, 2, 3}));
          expect("3", "7");
        }) == "");
}

TEST_CASE("a step whose targets are all masked is skipped with a line, and nothing moves, or ends the run") {
  const At masked = [](std::int64_t, std::int64_t) { return -1; };
  CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          sw::TrainingOptions scaled;
          scaled.loss_scale = sw::LossScaleOptions{.initial_exponent = 4, .growth_steps = 2};
          for (const sw::TrainingOptions& options : {sw::TrainingOptions{}, scaled}) {
            Run<sw::DefaultTarget> run(mesh, options), plain(mesh, options);
            Run<MimicTarget> device(mesh, options);
            std::vector<sw::StepReport> reports;
            for (int step = 0; step < 4; ++step) {
              const At target = step == 1 ? masked : At(usual);
              const sw::StepReport report = run.step(usual, target).value();
              findings.expect(report.skipped == (step == 1), "step ", step);
              if (step == 1)
                findings.expect(has(report.note, "the global batch must have a token that counts") &&
                                    report.tokens == 0,
                                report.note);
              else
                static_cast<void>(plain.step(usual, usual));
              if (const auto other = device.step(usual, target))
                reports.push_back(*other);
            }
            while (const auto other = device.training.settle(
                       [&](std::int64_t) { return batch_of<MimicTarget>(mesh, usual, usual); }))
              reports.push_back(*other);
            findings.expect(weights_of(run.model) == weights_of(plain.model), "the weights");
            findings.expect(run.training.progress().optimizer_steps ==
                                    plain.training.progress().optimizer_steps &&
                                run.training.progress().loss_scale == plain.training.progress().loss_scale,
                            "the optimizer's steps and the loss scale");
            findings.expect(weights_of(device.model) == weights_of(run.model), "a device's weights");
            findings.expect(reports.size() == 4 && reports[1].skipped && !reports[2].skipped &&
                                has(reports[1].note, "no token counted"),
                            "a device's reports");
          }
          sw::TrainingOptions stops;
          stops.empty_batch = sw::EmptyBatch::stop;
          Run<sw::DefaultTarget> host(mesh, stops);
          const std::string said =
              failure_of<sw::DataError>([&] { static_cast<void>(host.step(usual, masked)); });
          findings.expect(has(said, "step 1: the global batch must have a token that counts"), said);
          Run<MimicTarget> device(mesh, stops);
          static_cast<void>(device.step(usual, masked));
          const std::string later =
              failure_of<sw::DataError>([&] { static_cast<void>(device.step(usual, masked)); });
          findings.expect(has(later, "step 1: the global batch must have a token that counts"), later);
        }) == "");
}
