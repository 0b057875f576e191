// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/larger.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "train/small_model.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/checks/replica_check.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/runner.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/pipeline/stage.hpp>
#include <shardwright/train/tape/detach.hpp>
#include <shardwright/train/tape/sum_loss.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// A user's model as a whole, as ranges of its parts, and on the ranks of a pipeline.

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
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

template <class Model> [[nodiscard]] Values values_of(Model& model) {
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

/// The model as a whole.
template <class Description = Small>
[[nodiscard]] Outcome train_whole(const sw::HostCommunicator& world, int tensor) {
  const Mesh mesh = small_mesh(world, tensor);
  using Model = sw::SingleStageModel<Description>;
  Model model(mesh, {}, 3);
  sw::GradAccumulator<Model> accumulator(model);
  sw::AdamW optimizer;
  Outcome out;
  for (int step = 0; step < steps; ++step) {
    for (int pass = 0; pass < microbatches; ++pass)
      accumulator.add(
          model.forward_backward(small_batch<Small>(mesh, step, pass),
                                 sw::position_of_pass(static_cast<std::size_t>(pass), microbatches)));
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
template <class Description = Small>
[[nodiscard]] Outcome train_pipeline(const sw::HostCommunicator& world, int stages, int tensor,
                                     const sw::Schedule& schedule, const sw::LayerPartition& layers) {
  using sw::axis::pp;
  const sw::DeviceMesh ranks{world, sw::extent<pp>(stages), sw::extent<dp>(world.size() / stages / tensor),
                             sw::extent<tp>(tensor)};
  const Mesh mesh = small_mesh(ranks.communicator<dp, tp>(), tensor);
  using Model = sw::PipelineModel<Description>;
  Model model(mesh, ranks.communicator<pp>(), schedule.placement(), layers, {}, 3);
  sw::PipelineRunner<typename Model::Stage> runner(ranks.communicator<pp>(), schedule, model.chunks());
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
  sw::require_equal_replicas(model, optimizer, world, steps);
  const std::vector<Small::Batch> held_out{small_batch<Small>(mesh, 0, 0)};
  const auto sums = runner.evaluate(held_out);
  out.evaluated = sw::mean_over_mesh(mesh, sums.loss, sums.tokens, world).value;
  return out;
}

template <class Description = Small>
[[nodiscard]] Outcome train_pipeline(const sw::HostCommunicator& world, int stages, int tensor,
                                     const sw::Schedule& schedule) {
  return train_pipeline<Description>(world, stages, tensor, schedule,
                                     sw::LayerPartition(3, schedule.stages()));
}

/// All policies that allow the numbers.
[[nodiscard]] std::vector<sw::Schedule> schedules_of(int stages) {
  std::vector<sw::Schedule> out;
  for (const std::string& name : sw::schedule_names()) {
    try {
      out.push_back(sw::make_schedule(name, stages, microbatches));
    } catch (const sw::InvalidArgument&) {
      // The schedule does not allow them.
    }
  }
  return out;
}

[[nodiscard]] double difference(const std::vector<double>& left, const std::vector<double>& right) {
  double largest = left.size() == right.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    largest = shardwright_test::larger(largest, std::abs(left[i] - right[i]));
  return largest;
}

/// As the small one, with a last part whose matrix is the first part's; it may hide that from other ranks.
template <bool says> struct TiedModel : Small {
  using Table = sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, dp>>, double>;
  template <class Place> static auto table(const Place& place, const Config& config) {
    return place.shared.template tied<Table>("table", [&] {
      return Table(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4));
    });
  }
  class First {
  public:
    template <class Place> First(const Place& place, const Config& config) : table_(table(place, config)) {}
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
    template <class Place> Last(const Place& place, const Config& config) : table_(table(place, config)) {}
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

/// One that names a part that it does not hold.
struct FalselyTied : TiedModel<true> {
  class First : public TiedModel<true>::First {
  public:
    using TiedModel<true>::First::First;
    [[nodiscard]] static std::vector<std::string_view> ties(const Config&) { return {"table", "other"}; }
  };
  using Parts = sw::Parts<First, sw::Repeat<Small::Layer, &Config::layers>, TiedModel<true>::Last>;
};

/// Two matrices that the first part and the last one use, in another order.
struct CrossedTies : Small {
  using Table = TiedModel<true>::Table;
  class Part {
  public:
    template <class Place>
    Part(const Place& place, const Config& config)
        : a(table(place, config, "a")), b(table(place, config, "b")) {}
    [[nodiscard]] static std::vector<std::string_view> ties(const Config&) { return {"a", "b"}; }
    sw::TiedParameter<Table> a, b;

  private:
    template <class Place>
    static auto table(const Place& place, const Config& config, std::string_view name) {
      return place.shared.template tied<Table>(name, [&] {
        return Table(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4));
      });
    }
  };
  struct First : Part {
    using Part::Part;
    auto operator()(sw::Tape<>& tape, const Batch& batch) {
      return sw::as_var(sw::matmul(sw::matmul(tape.input(batch.x), a), b).template as<Stream>());
    }
    auto members() { return sw::members("a", a, "b", b); }
  };
  struct Last : Part {
    using Part::Part;
    auto operator()(Value x, const Batch& batch) {
      return sw::mse(sw::matmul(sw::matmul(std::move(x).template as<Tokens>(), b), a), batch.wanted);
    }
    auto members() { return sw::members("b", b, "a", a); }
  };
  using Parts = sw::Parts<First, sw::Repeat<Small::Layer, &Config::layers>, Last>;
};

/// The members of its first and its last part have one path.
struct SameNames : Small {
  class Last {
  public:
    template <class Place>
    Last(const Place& place, const Config& config)
        : in_(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4)) {}
    auto operator()(Value x, const Batch& batch) {
      return sw::mse(in_(std::move(x).template as<Tokens>()), batch.wanted);
    }
    auto members() { return sw::members("in", in_); }

  private:
    sw::Linear<Tokens, sw::Layout<2>, Plan> in_;
  };
  using Parts = sw::Parts<Small::First, sw::Repeat<Small::Layer, &Config::layers>, Last>;
};

/// One whose losses cannot be read.
struct Failing : Small {
  class Last : public Small::Last {
  public:
    using Small::Last::Last;
    auto operator()(Value x, const Batch& batch) {
      if (batch.faults != nullptr)
        throw sw::InvalidArgument("no loss");
      return Small::Last::operator()(std::move(x), batch);
    }
  };
  using Parts = sw::Parts<Small::First, sw::Repeat<Small::Layer, &Config::layers>, Last>;
};

} // namespace

TEST_CASE("the parts of a model are named by their position, and a stage has the values of the whole model",
          "[moe_04]") {
  for (const int tensor : {1, 2})
    CHECK(
        on_ranks(2 * tensor, [tensor](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = small_mesh(world, tensor);
          sw::SingleStageModel<Small> model(mesh, {}, 3);
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
            for (const auto& [name, values] : values_of(stage))
              findings.expect(whole.count(name) == 1 && whole.at(name) == values, name,
                              " of a stage from unit ", begin);
          }
        }) == "");
}

TEST_CASE("a model that is not a decoder trains alike in one piece and on a pipeline under every schedule") {
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

TEST_CASE("a part must name its tied parameters, so that other ranks know of them") {
  CHECK(
      on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh = small_mesh(world, 1);
        const std::string said = failure_of<sw::InvalidArgument>(
            [&] { const sw::SingleStageModel<TiedModel<false>> model(mesh, {}, 1); });
        findings.expect(
            has(said,
                "a part must name its tied parameters, but ties(config) of the one that holds table does not"),
            said);
        sw::SingleStageModel<TiedModel<true>> model(mesh, {}, 1);
        findings.expect(values_of(model).size() == 7 && values_of(model).count("table") == 1, "one table");
      }) == "");
}

TEST_CASE("a part that names a tied parameter that it does not hold is an error, before others wait for it") {
  const auto said_of = [](auto make) { return failure_of<sw::InvalidArgument>(make); };
  CHECK(on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = small_mesh(world.split(world.rank(), 0), 1);
          const std::string said =
              said_of([&] { const sw::SingleStageModel<FalselyTied> model(mesh, {}, 1); });
          findings.expect(
              has(said, "Stage: a part must hold the tied parameters that it names, but ties(config) of "
                        "one that does not names other (list that in members()"),
              said);
        }) == "");
}

TEST_CASE("two parts with the same path are an error, on one rank and on a pipeline") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = small_mesh(world.split(world.rank(), 0), 1);
          const auto expect = [&](const std::string& said) {
            findings.expect(has(said, "every part of a model must have a unique path, but two have in "),
                            said);
          };
          expect(failure_of<sw::InvalidArgument>(
              [&] { const sw::SingleStageModel<SameNames> model(mesh, {}, 1); }));
          const auto schedule = sw::make_schedule("1f1b", 2, 4);
          expect(failure_of<sw::InvalidArgument>([&] {
            const sw::PipelineModel<SameNames> model(mesh, world, schedule.placement(),
                                                     sw::LayerPartition(3, 2), {}, 1);
          }));
        }) == "");
}

TEST_CASE(
    "tied parameters that two parts list in different orders train alike in one piece and under every schedule") {
  Outcome one;
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          one = train_whole<CrossedTies>(world, 1);
          findings.expect(one.losses.back() < one.losses.front(), "it must learn");
        }) == "");
  for (const sw::Schedule& schedule : schedules_of(2))
    CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
            const Outcome run = train_pipeline<CrossedTies>(world, 2, 1, schedule);
            findings.expect(difference(run.losses, one.losses) < 1e-12, schedule.name(), ": losses");
            for (const auto& [name, values] : run.parameters)
              findings.expect(difference(values, one.parameters.at(name)) < 1e-12, schedule.name(), ": ",
                              name);
          }) == "");
}

TEST_CASE(
    "a tied parameter's gradient is complete only at the end of the step if two stages of a rank hold it") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = small_mesh(world.split(world.rank(), 0), 1);
          for (const char* const name : {"zbv", "1f1b"}) {
            const sw::Schedule schedule = sw::make_schedule(name, 2, microbatches);
            sw::PipelineModel<CrossedTies> model(mesh, world, schedule.placement(),
                                                 sw::LayerPartition(3, schedule.stages()), {}, 1);
            int late = 0;
            model.for_each_parameter([&](auto& parameter) { late += parameter.stages() == 2 ? 1 : 0; });
            const bool both_ends = schedule.stages() == 4 && world.rank() == 0;
            findings.expect(late == (both_ends ? 2 : 0), name, ": ", late, " parameters");
          }
        }) == "");
}

TEST_CASE("a model whose GradAccumulator is gone needs another one, and can have it") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = small_mesh(world, 1);
          sw::SingleStageModel<Small> model(mesh, {}, 3);
          const auto batch = small_batch<Small>(mesh, 0, 0);
          const auto pass = [&] { static_cast<void>(model.forward_backward(batch, sw::PassPosition::last)); };
          for (int i = 0; i < 2; ++i) {
            const std::string said = failure_of<sw::LifecycleError>(pass);
            findings.expect(has(said, "a GradAccumulator must hold its gradient before a backward pass runs"),
                            said);
            sw::GradAccumulator accumulator(model);
            static_cast<void>(failure_of<sw::LifecycleError>([&] { sw::GradAccumulator second(model); }));
            accumulator.add(model.forward_backward(batch, sw::PassPosition::last));
            static_cast<void>(accumulator.finish());
          }
        }) == "");
}

TEST_CASE("the purpose of memory is reset when a pass throws") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = small_mesh(world, 1);
          {
            sw::SingleStageModel<Failing> model(mesh, {}, 3);
            auto batch = small_batch<Small>(mesh, 0, 0);
            // Forward, and backward without a GradAccumulator.
            findings.expect(
                has(failure_of<sw::LifecycleError>([&] { static_cast<void>(model.forward_backward(batch)); }),
                    "a GradAccumulator must hold its gradient"),
                "the backward pass");
            findings.expect(sw::detail::memory_purpose().part.empty(), sw::detail::memory_purpose().part);
            int faults = 1;
            batch.faults = &faults;
            findings.expect(failure_of<sw::InvalidArgument>(
                                [&] { static_cast<void>(model.forward_backward(batch)); }) == "no loss",
                            "the forward pass");
            findings.expect(sw::detail::memory_purpose().part.empty(), sw::detail::memory_purpose().part);
          }
        }) == "");
}

namespace {

enum class Followed { yes, no, detached };

/// A last part without parameters, whose loss is of the stream, of a value that the tape does not follow, or
/// of a detached one.
template <Followed followed> struct BareLoss : Small {
  class Last {
  public:
    template <class Place> Last(const Place&, const Config&) {}
    auto operator()(Value x, const Batch& batch) {
      if constexpr (followed == Followed::no)
        return sw::mse(sw::redistribute<Tokens>(x.value()), batch.wanted);
      else if constexpr (followed == Followed::detached)
        return sw::mse(sw::detach(std::move(x)).template as<Tokens>(), batch.wanted);
      else
        return sw::mse(std::move(x).template as<Tokens>(), batch.wanted);
    }
    auto members() { return sw::members(); }
  };
  using Parts = sw::Parts<Small::First, sw::Repeat<Small::Layer, &Config::layers>, Last>;
};

/// The sentence that a step ends with, or its loss and norm: on one stage, or on two of which the last has
/// only the loss.
template <Followed followed> [[nodiscard]] std::string bare_step(const sw::HostCommunicator& world) {
  const auto text = [](const sw::GradientSummary& summary) {
    return std::to_string(summary.loss.value) + " " + std::to_string(summary.gradient_norm);
  };
  const Mesh mesh = small_mesh(sw::HostCommunicator(world).split(world.rank(), 0), 1);
  const std::vector<Small::Batch> batches{small_batch<Small>(mesh, 0, 0)};
  if (world.size() == 1) {
    sw::SingleStageModel<BareLoss<followed>> model(mesh, {}, 3);
    sw::GradAccumulator accumulator(model);
    accumulator.add(model.forward_backward(batches[0], sw::PassPosition::last));
    return text(accumulator.finish());
  }
  using Model = sw::PipelineModel<BareLoss<followed>>;
  const auto schedule = sw::make_schedule("1f1b", 2, 1);
  Model model(mesh, world, schedule.placement(), sw::LayerPartition(3, {3, 0}), {}, 3);
  sw::PipelineRunner<typename Model::Stage> runner(world, schedule, model.chunks());
  sw::GradAccumulator<Model> accumulator(model, world);
  accumulator.add(runner.run(batches));
  return text(accumulator.finish());
}

} // namespace

TEST_CASE("a loss that no gradient leaves for the stream ends with a sentence on every number of stages") {
  const auto ended = [](int ranks) {
    return failure_of<std::exception>([ranks] {
      shardwright_test::launch_ranks({.ranks = ranks}, [](const sw::HostCommunicator& world) {
        static_cast<void>(bare_step<Followed::no>(world));
      });
    });
  };
  CHECK_THAT(ended(1), ContainsSubstring("Parameter in: a step must give every parameter a gradient"));
  CHECK_THAT(ended(2), ContainsSubstring("Stage: the gradient of the loss must reach the stream"));
}

TEST_CASE("what computes a detached value gets a gradient of zero, on the previous stage, too") {
  for (const int ranks : {1, 2})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const std::string plain = bare_step<Followed::yes>(world);
            const std::string detached = bare_step<Followed::detached>(world);
            const auto loss = [](const std::string& text) { return text.substr(0, text.find(' ')); };
            findings.expect(loss(plain) == loss(detached), plain, " and ", detached);
            findings.expect(detached.ends_with(" 0.000000") && !plain.ends_with(" 0.000000"), detached);
          }) == "");
}

namespace {

/// Two ends with members of one name, of which one is renamed.
template <bool renames> struct TwoEnds : Small {
  struct Encoder : Small::First {
    using Small::First::First;
    static constexpr std::string_view name = "encoder";
  };
  struct Last {
    template <class Place>
    Last(const Place& place, const Config& config)
        : in(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4)) {}
    auto operator()(Value x, const Batch& batch) {
      return sw::mse(in(std::move(x).template as<Tokens>()), batch.wanted);
    }
    auto members() { return sw::members("in", in); }
    sw::Linear<Tokens, sw::Layout<2>, Plan> in;
  };
  using First = std::conditional_t<renames, Encoder, Small::First>;
  using Parts = sw::Parts<First, sw::Repeat<Small::Layer, &Config::layers>, Last>;
};

} // namespace

TEST_CASE(
    "a name of a part begins the paths of its parameters, so that both ends may have the same members") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = small_mesh(world, 1);
          const std::string said = failure_of<sw::InvalidArgument>(
              [&] { const sw::SingleStageModel<TwoEnds<false>> model(mesh, {}, 1); });
          findings.expect(has(said, "two have in (give them different names, or one of the Parts"), said);
          sw::SingleStageModel<TwoEnds<true>> model(mesh, {}, 1);
          findings.expect(values_of(model).count("encoder.in") == 1 && values_of(model).count("in") == 1,
                          "both names");
        }) == "");
}

TEST_CASE("a stage may have a loss and no parameters") {
  std::string one;
  for (const int ranks : {1, 2})
    CHECK(on_ranks(ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
            const std::string found = bare_step<Followed::yes>(world);
            if (world.size() == 1)
              one = found;
            findings.expect(found == one, found, " instead of ", one);
          }) == "");
}

namespace {

/// A last part that counts its own tokens: this rank's, in layout `In`, over which its loss is read. If
/// `bare`, it has no parameters.
template <class In, bool bare> struct CountedByHand : Small {
  struct Last {
    template <class Place> Last(const Place& place, const Config& config) {
      if (!bare)
        out.emplace(place.mesh, std::array<std::int64_t, 2>{config.width, config.width},
                    sw::Initial::normal(0.4));
    }
    auto operator()(Value x, const Batch& batch) {
      const auto tokens = static_cast<std::int64_t>(batch.wanted.local_shape()[0]);
      const auto loss = [&](auto&& value) {
        return sw::sum_loss(sw::sum(sw::square(std::move(value))).template as<In>(),
                            sw::TokenCount<In>{tokens});
      };
      if constexpr (bare)
        return loss(std::move(x).template as<Tokens>());
      else
        return loss((*out)(std::move(x).template as<Tokens>()));
    }
    auto members() {
      if constexpr (bare)
        return sw::members();
      else
        return sw::members("out", out);
    }
    std::optional<sw::Linear<Tokens, sw::Layout<2>, Plan>> out;
  };
  using Parts = sw::Parts<Small::First, sw::Repeat<Small::Layer, &Config::layers>, Last>;
};

} // namespace

TEST_CASE("a last part that gives the count of one data rank for all is an error on every number of stages") {
  using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
  for (const int stages : {1, 2}) {
    // A stage of the loss alone if the last part is bare.
    const auto train = [stages](auto part, const sw::LayerPartition& layers) {
      using Model = decltype(part);
      return failure_of<sw::InvalidArgument>([&] {
        shardwright_test::launch_ranks({.ranks = 2 * stages}, [&](const sw::HostCommunicator& world) {
          if (stages == 1)
            static_cast<void>(train_whole<Model>(world, 1));
          else
            static_cast<void>(train_pipeline<Model>(world, stages, 1,
                                                    sw::make_schedule("1f1b", stages, microbatches), layers));
        });
      });
    };
    const sw::LayerPartition even(3, stages), loss_alone(3, {3, 0});
    CHECK_THAT(train(CountedByHand<sw::Layout<0>, false>(), even),
               ContainsSubstring("sum_loss: loss and count must be Partial over dp"));
    CHECK(train(CountedByHand<OverDp, false>(), even) == "no failure of the type");
    CHECK_THAT(train(CountedByHand<sw::Layout<0>, true>(), loss_alone),
               ContainsSubstring("sum_loss: loss and count must be Partial over dp"));
    CHECK(train(CountedByHand<OverDp, true>(), loss_alone) == "no failure of the type");
  }
}

TEST_CASE("a partition that does not match the model's layers is an error") {
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
