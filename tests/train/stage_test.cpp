// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"
#include "train/small_model.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/adamw.hpp>
#include <shardwright/train/pipeline_model.hpp>
#include <shardwright/train/pipeline_runner.hpp>
#include <shardwright/train/stage.hpp>
#include <shardwright/train/whole_model.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A user's model as one, as ranges of its parts, and on the ranks of a pipeline.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;
using train_test::small_batch;
using train_test::small_mesh;

using Small = train_test::SmallModel<>;
using Mesh = Small::Mesh;
using Values = std::map<std::string, std::vector<double>>;

template <class Model>
[[nodiscard]] Values values_of(Model& model) {
  Values out;
  model.for_each_parameter([&](auto& parameter) {
    const auto all = sw::redistribute<sw::Layout<2>>(parameter.stored());
    out[parameter.name()] = {all.data(), all.data() + all.local_size()};
  });
  return out;
}

constexpr int microbatches = 4;
constexpr int steps = 5;

struct Outcome {
  std::vector<double> losses;
  Values parameters; ///< Of this rank's stages.
  double evaluated = 0;
};

/// The model as one.
[[nodiscard]] Outcome train_whole(const sw::HostCommunicator& world, int tensor) {
  const Mesh mesh = small_mesh(world, tensor);
  using Model = sw::WholeModel<Small>;
  Model model(mesh, {}, 3);
  sw::GradAccumulator<Model> accumulator(model);
  sw::AdamW optimizer;
  Outcome out;
  for (int step = 0; step < steps; ++step) {
    for (int pass = 0; pass < microbatches; ++pass)
      accumulator.add(model.forward_backward(small_batch<Small>(mesh, step, pass), pass + 1 == microbatches));
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, 0.01);
    accumulator.restart();
    out.losses.push_back(summary.loss.value);
  }
  out.parameters = values_of(model);
  const auto sums = model.evaluate(small_batch<Small>(mesh, 0, 0));
  out.evaluated = sw::mean_over_mesh(mesh, sums.loss, sums.tokens).value;
  return out;
}

/// The same on a pipeline, whose ranks are a mesh with pp in front of the others.
[[nodiscard]] Outcome train_pipeline(const sw::HostCommunicator& world, int stages, int tensor,
                                     const sw::Schedule& schedule) {
  using sw::axis::pp;
  const sw::DeviceMesh ranks{world, sw::extent<pp>(stages), sw::extent<dp>(world.size() / stages / tensor),
                             sw::extent<tp>(tensor)};
  const Mesh mesh = small_mesh(ranks.communicator<dp, tp>(), tensor);
  using Model = sw::PipelineModel<Small>;
  Model model(mesh, ranks.communicator<pp>(), schedule.placement(), sw::LayerPartition(3, schedule.stages()),
              {}, 3);
  sw::PipelineRunner<Model::Stage> runner(ranks.communicator<pp>(), schedule, model.chunks());
  sw::GradAccumulator<Model> accumulator(model, world);
  sw::AdamW optimizer;
  Outcome out;
  for (int step = 0; step < steps; ++step) {
    std::vector<Small::Batch> batches;
    for (int pass = 0; pass < microbatches; ++pass)
      batches.push_back(small_batch<Small>(mesh, step, pass));
    accumulator.add(runner.run(batches));
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, 0.01);
    accumulator.restart();
    out.losses.push_back(summary.loss.value);
  }
  out.parameters = values_of(model);
  const std::vector<Small::Batch> held_out{small_batch<Small>(mesh, 0, 0)};
  const auto sums = runner.evaluate(held_out);
  out.evaluated = sw::mean_over_mesh(mesh, sums.loss, sums.tokens, world).value;
  return out;
}

/// All policies that allow the numbers.
[[nodiscard]] std::vector<sw::Schedule> schedules_of(int stages) {
  std::vector<sw::Schedule> out;
  for (const std::string& name : sw::schedule_names()) {
    try {
      out.push_back(sw::make_schedule(name, stages, microbatches));
    } catch (const sw::InvalidArgument&) {
      // It does not allow them.
    }
  }
  return out;
}

[[nodiscard]] double difference(const std::vector<double>& left, const std::vector<double>& right) {
  double largest = left.size() == right.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    largest = std::max(largest, std::abs(left[i] - right[i]));
  return largest;
}

/// As the small one, with a last part whose matrix is the first one's; it may keep that from other ranks.
template <bool says>
struct TiedModel : Small {
  using Table = sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, dp>>, double>;
  template <class Place>
  static auto table(const Place& place, const Config& config) {
    return place.shared.template tied<Table>("table", [&] {
      return Table(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4));
    });
  }
  class First {
  public:
    template <class Place>
    First(const Place& place, const Config& config) : table_(table(place, config)) {}
    auto operator()(sw::Tape<>& tape, const Batch& batch) {
      return sw::as_var(sw::matmul(tape.input(batch.x), table_).template as<Stream>());
    }
    [[nodiscard]] static std::vector<std::string_view> ties(const Config&) { return {"table"}; }
    auto members() { return sw::members("in", table_); }

  private:
    sw::TiedParameter<Table> table_;
  };
  class Last {
  public:
    template <class Place>
    Last(const Place& place, const Config& config) : table_(table(place, config)) {}
    auto operator()(Value x, const Batch& batch) {
      return sw::mse(sw::matmul(std::move(x).template as<Tokens>(), table_), batch.wanted);
    }
    [[nodiscard]] static std::vector<std::string_view> ties(const Config&) requires(says) {
      return {"table"};
    }
    auto members() { return sw::members("out", table_); }

  private:
    sw::TiedParameter<Table> table_;
  };
  using Parts = sw::Parts<First, sw::Repeat<Small::Layer, &Config::layers>, Last>;
};

} // namespace

TEST_CASE("the parts of a model are named by their place, and a stage has the values of the whole model") {
  for (const int tensor : {1, 2})
    CHECK(
        on_ranks(2 * tensor, [tensor](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = small_mesh(world, tensor);
          sw::WholeModel<Small> model(mesh, {}, 3);
          const Values whole = values_of(model);
          std::string names;
          model.for_each_parameter([&](auto& parameter) { names += parameter.name() + " "; });
          findings.expect(
              names ==
                  "in layers.0.up layers.0.down layers.1.up layers.1.down layers.2.up layers.2.down head.out ",
              names);
          sw::SharedParts shared;
          for (const auto& [begin, end] :
               {std::pair<std::size_t, std::size_t>{0, 1}, {1, 1}, {2, 4}, {3, 5}}) {
            sw::Stage<Small> stage(mesh, {}, 3, {begin, end}, shared);
            findings.expect(stage.holds_first() == (begin == 0) && stage.holds_last() == (end == 5),
                            "the ends");
            for (const auto& [name, values] : values_of(stage))
              findings.expect(whole.count(name) == 1 && whole.at(name) == values, name,
                              " of a stage from unit ", begin);
          }
        }) == "");
}

TEST_CASE("a model that is not a decoder trains alike as one and on a pipeline under every schedule") {
  Outcome one;
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          one = train_whole(world, 1);
          findings.expect(one.losses.back() < one.losses.front(), "it must learn");
        }) == "");
  const auto check = [&](const Outcome& run, Findings& findings, const std::string& what) {
    findings.expect(difference(run.losses, one.losses) < 1e-12, what, ": losses differ by ",
                    difference(run.losses, one.losses));
    findings.expect(std::abs(run.evaluated - one.evaluated) < 1e-12, what, ": evaluated ", run.evaluated);
    for (const auto& [name, values] : run.parameters)
      findings.expect(one.parameters.count(name) == 1 && difference(values, one.parameters.at(name)) < 1e-12,
                      what, ": ", name);
  };
  for (const auto [ranks, tensor] : {std::array{3, 1}, {4, 2}})
    CHECK(on_ranks(ranks, [&, tensor = tensor](const sw::HostCommunicator& world, Findings& findings) {
            check(train_whole(world, tensor), findings, "as one");
          }) == "");
  CHECK(schedules_of(2).size() >= 7);
  for (const auto [stages, inside, tensor] : {std::array{2, 1, 1}, {2, 4, 2}, {3, 1, 1}})
    for (const sw::Schedule& schedule : schedules_of(stages))
      CHECK(on_ranks(stages * inside, [&, stages = stages, tensor = tensor](const sw::HostCommunicator& world,
                                                                            Findings& findings) {
              check(train_pipeline(world, stages, tensor, schedule), findings, schedule.name());
            }) == "");
}

TEST_CASE("a part must name its tied parameters, by which other ranks know of them") {
  CHECK(
      on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh = small_mesh(world, 1);
        const std::string said = failure_of<sw::InvalidArgument>(
            [&] { const sw::WholeModel<TiedModel<false>> model(mesh, {}, 1); });
        findings.expect(
            has(said,
                "a part must name its tied parameters, but ties(config) of the one that holds table does not"),
            said);
        sw::WholeModel<TiedModel<true>> model(mesh, {}, 1);
        findings.expect(values_of(model).size() == 7 && values_of(model).count("table") == 1, "one table");
      }) == "");
}

TEST_CASE("a partition that is not of the model's layers is named") {
  CHECK(
      on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh = small_mesh(sw::HostCommunicator(world).split(world.rank(), 0), 1);
        const auto schedule = sw::make_schedule("1f1b", 2, 4);
        const std::string said = failure_of<sw::InvalidArgument>([&] {
          const sw::PipelineModel<Small> model(mesh, world, schedule.placement(), sw::LayerPartition(4, 2),
                                               {}, 1);
        });
        findings.expect(
            has(said,
                "the partition must be of the model's 3 layers over the schedule's 2 stages, but it is of 4 over 2"),
            said);
      }) == "");
}
