// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/heap_count.hpp"
#include "support/matchers.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"
#include "train/small_model.hpp"

#include <shardwright/io/checkpoint/model_state.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Training steps by the library, good ones and bad ones, on hosts and on a device.

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using train_test::small_batch;

using Host = train_test::SmallModel<float, sw::Zero2>;
using Mesh = Host::Mesh;
constexpr int microbatches = 2;
constexpr double rate = 0.01;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

[[nodiscard]] Mesh mesh_of(const sw::HostCommunicator& world) {
  return train_test::small_mesh(world, world.size() % 2 == 0 ? 2 : 1);
}

/// The microbatches of a step, made again each time.
template <class Model> class Batches {
public:
  using Batch = typename Model::Batch;
  using At = std::function<double(std::int64_t step, std::int64_t row, double value)>;
  explicit Batches(
      const Mesh& mesh, At at = [](std::int64_t, std::int64_t, double value) { return value; })
      : mesh_(mesh), at_(std::move(at)) {}
  std::span<const Batch> operator()(std::int64_t step) {
    asked_.push_back(step);
    batches_.clear();
    for (int pass = 0; pass < microbatches; ++pass) {
      batches_.push_back(small_batch<Model>(
          mesh_, step, pass, [&](std::int64_t row, double value) { return at_(step, row, value); }));
      batches_.back().faults = faults;
    }
    return batches_;
  }
  /// The steps that were requested.
  [[nodiscard]] const std::vector<std::int64_t>& asked() const { return asked_; }
  int* faults = nullptr;

private:
  const Mesh& mesh_;
  At at_;
  std::vector<Batch> batches_;
  std::vector<std::int64_t> asked_;
};

template <class Model> [[nodiscard]] std::vector<float> weights_of(Model& model) {
  std::vector<float> out;
  model.for_each_parameter([&](auto& parameter) {
    const auto block = sw::local_values(parameter.stored());
    out.insert(out.end(), block.begin(), block.end());
  });
  return out;
}

/// A model with its training.
template <class Description> struct Run {
  using Model = sw::SingleStageModel<Description>;
  explicit Run(const Mesh& mesh, const sw::TrainingOptions& options = {})
      : model(mesh, {}, 3), training(mesh, model, sw::AdamW(), options) {}
  Model model;
  sw::Training<Model> training;
};

/// Rows of one data rank are NaN in a step.
[[nodiscard]] Batches<Host>::At trouble_in(std::int64_t bad_step, std::int64_t bad_row) {
  return [=](std::int64_t step, std::int64_t row, double value) {
    return step == bad_step && row == bad_row ? not_a_number : value;
  };
}

} // namespace

TEST_CASE("reductions that are due once in a step start inside its last microbatch, in no earlier one") {
  using Once = train_test::SmallModel<float, sw::Zero1>;
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = train_test::small_mesh(world, 1);
          sw::SingleStageModel<Once> model(mesh, {}, 3);
          sw::GradAccumulator accumulator(model);
          Batches<Once> make(mesh);
          const std::span<const Once::Batch> batches = make(0);
          sw::record_background(mesh, true);
          const auto begun = [&] { return mesh.core().part<sw::detail::BackgroundLog>().calls.size(); };
          for (const Once::Batch& batch : batches)
            accumulator.add(model.forward_backward(batch));
          findings.expect(begun() == 0, begun(), " reductions before any pass is the last");
          const double norm = accumulator.finish().gradient_norm;
          accumulator.restart();
          sw::record_background(mesh, true);
          accumulator.add(model.run(batches));
          findings.expect(begun() > 0, "no reduction in the last pass");
          findings.expect(accumulator.finish().gradient_norm == norm, "the norm");
        }) == "");
}

TEST_CASE("steps of Training are bitwise those of accumulator and optimizer by hand, and are reported") {
  for (const int ranks : {1, 3, 4})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world);
            Run<Host> run(mesh);
            Batches<Host> batches(mesh);
            sw::SingleStageModel<Host> model(mesh, {}, 3);
            sw::GradAccumulator accumulator(model);
            sw::AdamW optimizer;
            for (int step = 0; step < 4; ++step) {
              const std::optional<sw::StepReport> report = run.training.step(batches, rate * (step + 1));
              const auto again = batches(step);
              for (std::size_t i = 0; i < again.size(); ++i)
                accumulator.add(model.forward_backward(again[i], sw::position_of_pass(i, again.size())));
              const sw::GradientSummary summary = accumulator.finish();
              optimizer.step(model, summary, rate * (step + 1));
              accumulator.restart();
              findings.expect(report && report->loss == summary.loss.value &&
                                  report->gradient_norm == summary.gradient_norm,
                              "loss and norm of step ", step);
              findings.expect(report->step == step + 1 && report->tokens == summary.tokens &&
                                  report->tokens == 2 * 7 * 6 && report->learning_rate == rate * (step + 1) &&
                                  !report->skipped && report->note.empty(),
                              "the rest of the report");
              findings.expect(weights_of(run.model) == weights_of(model), "weights after step ", step);
            }
            findings.expect(run.training.steps() == 4 && run.training.optimizer().steps() == 4, "steps");
            findings.expect(!run.training.settle(batches), "a host has nothing under way");
            const auto held_out = batches(9);
            auto sums = model.evaluate(held_out[0]);
            sums += model.evaluate(held_out[1]);
            findings.expect(run.training.mean(run.training.evaluate(held_out)).value ==
                                sw::mean_over_mesh(mesh, sums.loss, sums.tokens).value,
                            "the mean loss");
            run.training.require_equal_replicas();
          }) == "");
}

TEST_CASE("data are compared between ranks only in the first step") {
  for (const bool checks : {true, false}) {
    const auto outcomes =
        rank_outcomes::of(2, rank_outcomes::ample, [checks](const sw::HostCommunicator& world) {
          const Mesh mesh = mesh_of(world);
          const int rank = world.rank();
          sw::TrainingOptions options;
          options.check_inputs = checks;
          Run<Host> run(mesh, options);
          Batches<Host> odd(mesh, [rank](std::int64_t step, std::int64_t row, double value) {
            return row == 3 && step > 0 ? value + rank : value;
          });
          static_cast<void>(run.training.step(odd, rate)); // alike
          static_cast<void>(run.training.step(odd, rate)); // not checked
          Run<Host> another(mesh, options);
          static_cast<void>(another.training.step([&](std::int64_t) { return odd(5); }, rate));
        });
    for (const auto& outcome : outcomes) {
      if (checks)
        CHECK_THAT(rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
                   ContainsSubstring("Input: ranks along tp") && ContainsSubstring("rank 1 differs"));
      else
        CHECK(outcome == nullptr);
    }
  }
}

/// What two ranks say of a program, all alike.
template <class Program> [[nodiscard]] std::string said_by_two(Program program) {
  const auto outcomes = rank_outcomes::of(2, rank_outcomes::ample, program);
  CHECK((outcomes[0] == nullptr) == (outcomes[1] == nullptr));
  return outcomes[0] == nullptr ? "nothing" : rank_outcomes::text<sw::Error>(outcomes[0]);
}

TEST_CASE("weights of different seeds and learning rates that differ are found in the first step") {
  const auto said = [](std::uint64_t seed, double more, bool checks) {
    return said_by_two([&](const sw::HostCommunicator& world) {
      const Mesh mesh = mesh_of(world);
      const auto rank = static_cast<unsigned>(world.rank());
      sw::TrainingOptions options;
      options.check_inputs = checks;
      sw::SingleStageModel<Host> model(mesh, {}, 3 + rank * seed);
      sw::Training<sw::SingleStageModel<Host>> training(mesh, model, sw::AdamW(), options);
      Batches<Host> batches(mesh);
      static_cast<void>(training.step(batches, rate + rank * more));
      static_cast<void>(training.step(batches, rate));
    });
  };
  CHECK(said(0, 0, true) == "nothing");
  if (sw::always_checked)
    return; // numbers are compared where they are given
  CHECK_THAT(
      said(1, 0, true),
      ContainsSubstring("Replica check: all copies of a parameter must be equal, but before the first step "
                        "weights of ") &&
          ContainsSubstring("rank 1 differs from rank 0") &&
          ContainsSubstring("(initialize the model from one seed"));
  CHECK_THAT(said(0, 0.5, true),
             ContainsSubstring("Training: all ranks must give the same learning rate, but it is 0.01 on rank "
                               "0 and 0.51 on rank 1") &&
                 ContainsSubstring("training_test.cpp:"));
  CHECK(said(1, 0.5, false) == "nothing");
}

namespace {

/// Returns its input, and a gradient that ranks along tp compute differently.
struct SkewGradient {
  static constexpr std::string_view name = "skew_gradient";
  static constexpr bool gradient_reads_input = false, gradient_reads_output = false;
  float skew;

  template <class X> [[nodiscard]] auto forward(sw::SourceLocation, const X& x) const { return x.clone(); }
  template <class G, class X, class Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X&, const Y&) const {
    auto out = y_gradient.clone();
    for (std::size_t i = 0; i < out.local_size(); ++i)
      out.mutable_data()[i] += skew;
    return out;
  }
};
struct Skewed : Host {
  class Last {
  public:
    template <class Place>
    Last(const Place& place, const Config& config)
        : out_(place.mesh, {config.width, config.width}, sw::Initial::normal(0.4)),
          skew_(static_cast<float>(place.mesh.template coordinate<sw::axis::tp>())) {}
    auto operator()(Value x, const Batch& batch) {
      auto loss =
          sw::mse(sw::apply(SkewGradient{skew_}, {}, out_(std::move(x).template as<Tokens>())), batch.wanted);
      if (batch.faults != nullptr && *batch.faults > 0) {
        --*batch.faults;
        loss.loss.value = not_a_number;
      }
      return loss;
    }
    auto members() { return sw::members("out", out_); }

  private:
    sw::Linear<Tokens, sw::Layout<2>, Plan> out_;
    float skew_;
  };
  using Parts = sw::Parts<First, sw::Repeat<Layer, &Config::layers>, Last>;
};

} // namespace

TEST_CASE("gradients that differ between ranks with copies end the first step that is finite") {
  const auto said = [](bool overflows, bool checks) {
    return said_by_two([&](const sw::HostCommunicator& world) {
      const Mesh mesh = mesh_of(world);
      sw::TrainingOptions options;
      options.check_inputs = checks;
      if (overflows)
        options.loss_scale = sw::LossScaleOptions{};
      Run<Skewed> run(mesh, options);
      Batches<Skewed> batches(mesh);
      int faults = 1;
      batches.faults = overflows ? &faults : nullptr;
      if (overflows && !run.training.step(batches, rate).value().skipped)
        throw sw::Error("the first step must overflow");
      static_cast<void>(run.training.step(batches, rate));
    });
  };
  for (const bool overflows : {false, true}) {
    CHECK_THAT(said(overflows, true), ContainsSubstring("must compute the same one, but gradient of ") &&
                                          ContainsSubstring("out: rank 1 differs from rank 0"));
    CHECK(said(overflows, false) == "nothing");
  }
}

TEST_CASE("constants of an optimizer that differ between data ranks are found in the first step") {
  const auto said = [](double more_norm, double more_decay) {
    return said_by_two([&](const sw::HostCommunicator& world) {
      const Mesh mesh = train_test::small_mesh(world, 1);
      sw::SingleStageModel<Host> model(mesh, {}, 3);
      sw::Training training(
          mesh, model,
          sw::AdamW({.weight_decay = world.rank() * more_decay, .max_norm = 1 + world.rank() * more_norm}));
      Batches<Host> batches(mesh);
      static_cast<void>(training.step(batches, rate));
    });
  };
  CHECK(said(0, 0) == "nothing");
  CHECK_THAT(said(1, 0), ContainsSubstring(
                             "all ranks must give the same max_norm, but it is 1 on rank 0 and 2 on rank 1"));
  CHECK_THAT(said(0, 0.5),
             ContainsSubstring("the same weight decay, but it is 0 on rank 0 and 0.5 on rank 1"));
}

TEST_CASE("factors of a parameter's group that differ between data ranks are found in the first step") {
  const auto said = [](double factor, const char* wanted) {
    return said_by_two([&](const sw::HostCommunicator& world) {
      const Mesh mesh = train_test::small_mesh(world, 1);
      sw::SingleStageModel<Host> model(mesh, {}, 3);
      const bool odd = world.rank() == 1;
      const sw::ParameterGroup group{
          .matches = [=](const sw::ParameterInfo& parameter) { return parameter.name == wanted; },
          .learning_rate_factor = odd ? factor : 1};
      sw::Training training(mesh, model, sw::AdamW({.groups = {group}}));
      Batches<Host> batches(mesh);
      static_cast<void>(training.step(batches, rate));
    });
  };
  CHECK(said(1, "head.out") == "nothing");
  CHECK(said(0.5, "no parameter") == "nothing");
  CHECK_THAT(said(0.5, "head.out"),
             ContainsSubstring(" must give the same learning rate factor of head.out, but it is 1 on rank 0 "
                               "and 0.5 on rank 1 (compute it from what all ranks share)"));
}

/// An optimizer of a user's, with numbers of its own.
struct Descent {
  double decay = 0, hold = 0;

  template <class Model> void step(Model& model, const sw::GradientSummary& summary, double learning_rate) {
    sw::for_each_parameter(model, [&](auto& parameter) {
      parameter.update_weights([&](auto& weights) {
        for (std::size_t i = 0; i < weights.local_size(); ++i)
          weights.mutable_data()[i] -=
              static_cast<float>(learning_rate * (summary.scale.factor() * parameter.gradient().data()[i] +
                                                  decay * weights.data()[i]));
      });
    });
  }
  std::int64_t steps(const auto&) const { return 0; }
  void set_steps(const auto&, std::int64_t) {}
  void for_each_state(const auto&, const auto&) {}
  void for_each_state_made(const auto&, const auto&) {}
  auto numbers() const { return std::array{sw::GivenNumber("decay", decay)}; }
  auto numbers_of(const sw::ParameterInfo& parameter) const {
    return std::vector<sw::GivenNumber>(parameter.name == "head.out" ? 1 : 0, sw::GivenNumber("hold", hold));
  }
};

TEST_CASE("numbers of a user's own optimizer that differ are found in the first step") {
  const auto said = [](double decay, double hold) {
    return said_by_two([&](const sw::HostCommunicator& world) {
      const Mesh mesh = train_test::small_mesh(world, 1);
      sw::SingleStageModel<Host> model(mesh, {}, 3);
      sw::Training training(mesh, model, Descent{world.rank() * decay, world.rank() * hold});
      Batches<Host> batches(mesh);
      static_cast<void>(training.step(batches, rate));
    });
  };
  CHECK(said(0, 0) == "nothing");
  CHECK_THAT(said(0.5, 0), ContainsSubstring("Training: all ranks must give the same decay, but it is 0 on "
                                             "rank 0 and 0.5 on rank 1"));
  CHECK_THAT(
      said(0, 0.25),
      ContainsSubstring("must give the same hold of head.out, but it is 0 on rank 0 and 0.25 on rank 1"));
}

TEST_CASE("learning rates that differ between the stages of a pipeline are found in the first step") {
  const auto said = [](double more) {
    return said_by_two([&](const sw::HostCommunicator& world) {
      const sw::DeviceMesh ranks{world, sw::extent<sw::axis::pp>(2), sw::extent<sw::axis::tp>(1)};
      const Mesh mesh = train_test::small_mesh(ranks.communicator<sw::axis::tp>(), 1);
      const auto schedule = sw::make_schedule<sw::OneFOneB>(2, microbatches);
      sw::PipelineModel<Host> model(mesh, ranks.communicator<sw::axis::pp>(), schedule.placement(),
                                    sw::LayerPartition(3, 2), {}, 3);
      sw::Training training(mesh, model, world, ranks.communicator<sw::axis::pp>(), schedule, sw::AdamW());
      Batches<Host> batches(mesh);
      static_cast<void>(training.step(batches, rate + world.rank() * more));
    });
  };
  CHECK(said(0) == "nothing");
  CHECK_THAT(said(0.5),
             ContainsSubstring("Training: all ranks must give the same learning rate, but it is 0.01 on rank "
                               "0 and 0.51 on rank 1"));
}

TEST_CASE("a non-finite step ends the run on every rank, and names the ranks whose gradients are at fault") {
  CHECK(
      on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh = mesh_of(world);
        Run<Host> run(mesh);
        Batches<Host> batches(mesh, trouble_in(2, 6)); // a row of the second data rank
        for (int step = 0; step < 2; ++step)
          static_cast<void>(run.training.step(batches, rate));
        const std::vector<float> before = weights_of(run.model);
        try {
          static_cast<void>(run.training.step(batches, rate));
          findings.expect(false, "the run must end");
        } catch (const sw::NonFiniteStep& error) {
          const std::string said = error.what();
          findings.expect(
              has(said,
                  "step 3: loss and gradients must be finite, but not finite are the loss on ranks 2 and 3"),
              said);
          findings.expect(has(said, "the gradient of head.out on ranks 2 and 3"), said);
          findings.expect(weights_of(run.model) == before, "weights are touched");
        }
      }) == "");
}

TEST_CASE("a skipped step changes nothing, and the run continues as without it, but not indefinitely") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          sw::TrainingOptions options;
          options.non_finite = sw::NonFinite::skip;
          options.most_skipped = 3;
          Run<Host> run(mesh, options), plain(mesh, options);
          Batches<Host> batches(mesh, trouble_in(1, 0)), good(mesh);
          for (const int step : {0, 1, 2}) {
            const sw::StepReport report = run.training.step(batches, rate).value();
            findings.expect(report.skipped == (step == 1), "step ", step);
            findings.expect(report.note.empty() == (step != 1), report.note);
            if (step == 1)
              findings.expect(has(report.note, "not finite are the loss on ranks 0 and 1") &&
                                  std::isnan(report.loss),
                              report.note);
            else
              static_cast<void>(plain.training.step([&](std::int64_t) { return good(step); }, rate));
          }
          findings.expect(weights_of(run.model) == weights_of(plain.model), "a skipped step leaves a trace");
          Batches<Host> bad(mesh, [](std::int64_t, std::int64_t, double) { return not_a_number; });
          int skipped = 0;
          const std::string said = failure_of<sw::NonFiniteStep>([&] {
            for (; skipped < 10; ++skipped)
              static_cast<void>(run.training.step(bad, rate));
          });
          findings.expect(skipped == 2 && has(said, "step 6:") &&
                              has(said, "the last of 3 skipped steps in a row"),
                          skipped, said);
        }) == "");
}

TEST_CASE("a step that is finite when repeated is taken, with a note") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          Run<Host> run(mesh), plain(mesh);
          Batches<Host> batches(mesh);
          int faults = world.rank() == 0 ? 1 : 0;
          batches.faults = &faults;
          const sw::StepReport report = run.training.step(batches, rate).value();
          findings.expect(!report.skipped &&
                              report.note ==
                                  "not finite at first, but finite when repeated (look for a faulty machine)",
                          report.note);
          static_cast<void>(plain.training.step(batches, rate));
          findings.expect(faults == 0 && weights_of(run.model) == weights_of(plain.model), "the step itself");
          findings.expect(run.training.step(batches, rate).value().note.empty(), "the next step");
        }) == "");
}

TEST_CASE("a loss scale decreases at an overflow, and changes no bit of the steps taken") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          sw::TrainingOptions options;
          options.loss_scale = sw::LossScaleOptions{.initial_exponent = 9, .least_exponent = 8};
          Run<Host> run(mesh, options), plain(mesh);
          Batches<Host> batches(mesh);
          // One batch for all, so that a skipped step can be made up for.
          const auto same = [&](std::int64_t) { return batches(0); };
          const auto step = [&](Run<Host>& of) { return of.training.step(same, rate).value(); };
          findings.expect(step(run).loss == step(plain).loss, "the loss");
          int faults = 1;
          batches.faults = &faults;
          const sw::StepReport overflowed = step(run);
          findings.expect(overflowed.skipped &&
                              overflowed.note == "gradients overflowed, the loss scale is now 2^8",
                          overflowed.note);
          static_cast<void>(step(run));
          static_cast<void>(step(plain));
          findings.expect(weights_of(run.model) == weights_of(plain.model), "weights");
          // There is no smaller scale to try: the step is examined, and taken when it is repeated.
          faults = 1;
          const sw::StepReport least = step(run);
          findings.expect(!least.skipped && has(least.note, "when repeated"), least.note);
        }) == "");
}

TEST_CASE("a step that throws is the last one, and one whose data cannot be read has not begun") {
  for (const int ranks : {1, 2, 3})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world);
            Run<Host> run(mesh), plain(mesh);
            Batches<Host> batches(mesh);
            static_cast<void>(run.training.step(batches, rate));
            static_cast<void>(plain.training.step(batches, rate));
            const std::string unread = failure_of<sw::InvalidArgument>([&] {
              static_cast<void>(run.training.step(
                  [](std::int64_t) -> std::span<const Host::Batch> { throw sw::InvalidArgument("no data"); },
                  rate));
            });
            findings.expect(unread == "no data" && run.training.steps() == 1, unread);
            static_cast<void>(run.training.step(batches, rate));
            static_cast<void>(plain.training.step(batches, rate));
            findings.expect(batches.asked() == std::vector<std::int64_t>{0, 0, 1, 1}, "the number stays");
            findings.expect(weights_of(run.model) == weights_of(plain.model), "the step that is tried again");
            // The second microbatch does not fit; the gradients of the first one exist.
            const auto odd = [&](std::int64_t step) {
              std::vector<Host::Batch> out;
              out.push_back(small_batch<Host>(mesh, step, 0));
              out.push_back(small_batch<Host>(mesh, step, 1));
              const Host::Rows longer(mesh, {8, Host::Config().width});
              out.back().wanted = longer.share();
              return out;
            };
            static_cast<void>(
                failure_of<sw::InvalidArgument>([&] { static_cast<void>(run.training.step(odd, rate)); }));
            const auto refused = [&](auto use) {
              const std::string said = failure_of<sw::LifecycleError>(use);
              findings.expect(has(said, "Training: a step or an evaluation must not follow one that threw"),
                              said);
            };
            refused([&] { static_cast<void>(run.training.step(batches, rate)); });
            refused([&] { static_cast<void>(run.training.evaluate(batches(0))); });
            findings.expect(weights_of(run.model) == weights_of(plain.model), "the weights");
          }) == "");
}

TEST_CASE("copies that are no longer equal end the run") {
  const auto outcomes = rank_outcomes::of(4, rank_outcomes::ample, [](const sw::HostCommunicator& world) {
    const Mesh mesh = mesh_of(world);
    Run<Host> run(mesh);
    Batches<Host> batches(mesh);
    static_cast<void>(run.training.step(batches, rate));
    run.training.require_equal_replicas();
    bool first = true;
    run.model.for_each_parameter([&](auto& parameter) {
      if (std::exchange(first, false) && world.rank() == 2)
        parameter.fill_weights([](auto& weights) { weights.mutable_data()[1] += 1; });
    });
    run.training.require_equal_replicas();
  });
  for (const auto& outcome : outcomes)
    CHECK_THAT(rank_outcomes::text<sw::ReplicaMismatch>(outcome),
               ContainsSubstring(
                   "after step 1 weights of in: rank 2 differs from the others of ranks 0, 1, 2 and 3"));
}

TEST_CASE("a host's steps allocate nothing from the third on") {
  for (const int ranks : {1, 4})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world);
            Run<Host> run(mesh);
            Batches<Host> made(mesh);
            const std::span<const Host::Batch> batches = made(0);
            std::array<std::size_t, 40> heap{};
            for (std::size_t& after : heap) {
              static_cast<void>(run.training.step([&](std::int64_t) { return batches; }, rate));
              after = shardwright_test::heap_allocations();
            }
            findings.expect(!shardwright_test::counts_heap || (heap[1] > 0 && heap.back() == heap[1]),
                            heap.back() - heap[1], " allocations");
          }) == "");
}

namespace {

class FakeCapture;
/// A device whose steps may be captured.
struct DeviceTarget : shardwright_test::MimicTarget {
  using step_capture = FakeCapture;
};

/// Acts as a replayed graph does: writes over the blocks that the captured step allocated and freed.
class FakeCapture {
public:
  struct Captured {
    std::vector<std::pair<void*, std::size_t>> blocks;
  };
  using Replayable = Captured;

  explicit FakeCapture(sw::detail::TargetResources<DeviceTarget>& pool) : pool_(&pool) {}
  void begin() {}
  /// These are the blocks that the pool would next give to a step, one of each size.
  [[nodiscard]] std::optional<Captured> end() {
    std::vector<sw::detail::BufferHandle> taken;
    Captured out;
    for (std::size_t bytes = 64; bytes <= 4096; bytes += 64) {
      taken.emplace_back(pool_->take(bytes));
      out.blocks.emplace_back(taken.back().data(), bytes);
    }
    return out;
  }
  void discard() {}
  [[nodiscard]] Replayable instantiate(Captured captured) { return captured; }
  [[nodiscard]] bool update(Replayable&, Captured&) { return false; }
  void launch(Replayable& replayable) {
    for (const auto& [data, bytes] : replayable.blocks)
      std::fill_n(static_cast<unsigned char*>(data), bytes, static_cast<unsigned char>(0xff));
    ++launches();
  }
  [[nodiscard]] static int& launches() {
    static int count = 0;
    return count;
  }

private:
  sw::detail::TargetResources<DeviceTarget>* pool_;
};
static_assert(sw::StepCapture<FakeCapture>);

using Device = train_test::SmallModel<float, sw::Zero2, DeviceTarget>;

/// Losses, norms and tokens by step.
using Numbers = std::map<std::int64_t, std::array<double, 3>>;
void note(Numbers& numbers, const sw::StepReport& report) {
  numbers[report.step] = {std::isnan(report.loss) ? -1 : report.loss,
                          std::isnan(report.gradient_norm) ? -1 : report.gradient_norm,
                          static_cast<double>(report.tokens)};
}

} // namespace

namespace {

/// Data that one rank has copied, to be read again.
class CopiedState final : public sw::checkpoint::BlockSource {
public:
  explicit CopiedState(const sw::checkpoint::Staging& copied) : copied_(copied) {}
  sw::safetensors::Dtype require(const std::string& name, sw::safetensors::Dtype wanted,
                                 const std::vector<std::uint64_t>& shape, bool) const override {
    CHECK((find(name).block.shape == shape && find(name).block.dtype == wanted));
    return wanted;
  }
  bool holds(const std::string& name) const override {
    return std::any_of(copied_.blocks().begin(), copied_.blocks().end(),
                       [&](const auto& each) { return each.block.tensor == name; });
  }
  void read(const std::string& name, const sw::safetensors::BlockOf&,
            std::span<std::byte> out) const override {
    std::copy_n(find(name).memory.begin(), out.size(), out.begin());
  }

private:
  [[nodiscard]] const sw::checkpoint::StagedBlock& find(const std::string& name) const {
    return *std::find_if(copied_.blocks().begin(), copied_.blocks().end(),
                         [&](const auto& each) { return each.block.tensor == name; });
  }
  const sw::checkpoint::Staging& copied_;
};

} // namespace

TEST_CASE("a device resumes from a position in the run as if it had never stopped") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          sw::TrainingOptions options;
          options.loss_scale = sw::LossScaleOptions{.initial_exponent = 3, .growth_steps = 2};
          Run<Device> run(mesh, options), next(mesh, options);
          Batches<Device> batches(mesh);
          const auto steps = [&](Run<Device>& of, int count) {
            Numbers out;
            for (int i = 0; i < count; ++i)
              if (const auto report = of.training.step(batches, rate))
                note(out, *report);
            while (const auto report = of.training.settle(batches))
              note(out, *report);
            return out;
          };
          static_cast<void>(steps(run, 3));
          const sw::TrainingProgress place = run.training.progress();
          findings.expect(place.steps == 3 && place.optimizer_steps == 3 && place.loss_scale &&
                              place.loss_scale->exponent == 4 && place.loss_scale->good_steps == 1,
                          "the place");
          sw::checkpoint::Staging copied;
          sw::checkpoint::stage(run.model, run.training.optimizer(), copied);
          sw::checkpoint::read_state(CopiedState(copied), next.model, next.training.optimizer());
          next.training.resume(place);
          findings.expect(next.training.progress() == place, "the same place");
          const Numbers wanted = steps(run, 3), found = steps(next, 3);
          findings.expect(found == wanted && wanted.size() == 3, "losses, norms and tokens");
          findings.expect(weights_of(run.model) == weights_of(next.model), "weights");
          findings.expect(next.training.progress() == run.training.progress(), "and the place after them");
        }) == "");
}

TEST_CASE("a device takes bitwise the same steps as the host, and reports each while the next one runs") {
  for (const int ranks : {1, 4})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world);
            sw::TrainingOptions options;
            options.non_finite = sw::NonFinite::skip;
            Run<Host> host(mesh, options);
            Run<Device> device(mesh, options);
            Batches<Host> host_batches(mesh, trouble_in(2, 1));
            Batches<Device> device_batches(mesh, trouble_in(2, 1));
            Numbers wanted, found;
            for (std::int64_t step = 1; step <= 5; ++step) {
              note(wanted, host.training.step(host_batches, rate).value());
              const std::optional<sw::StepReport> report = device.training.step(device_batches, rate);
              findings.expect(report.has_value() == (step > 1) && (!report || report->step == step - 1),
                              "one step later");
              if (report) {
                note(found, *report);
                findings.expect(report->skipped == (report->step == 3), "the verdict on step ", report->step);
              }
            }
            while (const std::optional<sw::StepReport> report = device.training.settle(device_batches))
              note(found, *report);
            findings.expect(found == wanted, "losses, norms and tokens");
            findings.expect(weights_of(host.model) == weights_of(device.model), "weights");
            findings.expect(!device.training.settle(device_batches), "nothing is left");
          }) == "");
}

TEST_CASE("batches in a container returned by the callback live as long as a device's step needs them") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          sw::TrainingOptions options;
          options.non_finite = sw::NonFinite::skip;
          options.most_skipped = 1;
          Run<Device> lent(mesh, options), given(mesh, options);
          Batches<Device> batches(mesh);
          /// Records the pool's statistics when its batches are destroyed.
          struct Container : std::vector<Device::Batch> {
            std::function<void()> gone;
            Container() = default;
            Container(Container&&) = default;
            ~Container() {
              if (gone)
                gone();
            }
          };
          const auto blocks = [&] { return mesh.pool_statistics<DeviceTarget>().allocations; };
          std::size_t made = 0, gone = 0;
          const auto make = [&](std::int64_t step) {
            Container out;
            for (int pass = 0; pass < microbatches; ++pass)
              out.push_back(small_batch<Device>(mesh, step, pass));
            made = blocks();
            out.gone = [&] { gone = blocks(); };
            return out;
          };
          static_cast<void>(given.training.step(make, rate));
          findings.expect(gone > made, "batches go before the first step takes memory");
          static_cast<void>(lent.training.step(batches, rate));
          for (int step = 1; step < 4; ++step) {
            const std::optional<sw::StepReport> left = lent.training.step(batches, rate);
            const std::optional<sw::StepReport> right = given.training.step(make, rate);
            findings.expect(left && right && left->loss == right->loss, "the loss of step ", step);
          }
          findings.expect(weights_of(lent.model) == weights_of(given.model), "weights");
        }) == "");
}

TEST_CASE("a device's step that ends the run is repeated under watch, and changes nothing") {
  CHECK(
      on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh = mesh_of(world);
        Run<Device> run(mesh);
        Batches<Device> batches(mesh, trouble_in(1, 6));
        static_cast<void>(run.training.step(batches, rate));
        const std::vector<float> before = weights_of(run.model);
        static_cast<void>(run.training.step(batches, rate));
        const std::string said =
            failure_of<sw::NonFiniteStep>([&] { static_cast<void>(run.training.step(batches, rate)); });
        findings.expect(
            has(said,
                "step 2: loss and gradients must be finite, but not finite are the loss on ranks 2 and 3") &&
                has(said, "the gradient of head.out on ranks 2 and 3"),
            said);
        findings.expect(weights_of(run.model) == before, "weights are touched");
        findings.expect(batches.asked() == std::vector<std::int64_t>{0, 1, 2, 1},
                        "its batches are asked for again");
      }) == "");
}

TEST_CASE("a captured step has private blocks, which nothing else gets between its replays") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          sw::TrainingOptions options;
          options.capture = true;
          Run<Device> run(mesh, options);
          Batches<Device> made(mesh);
          const std::span<const Device::Batch> batches = made(0);
          const auto same = [&](std::int64_t) { return batches; };
          FakeCapture::launches() = 0;
          std::vector<std::string> notes;
          for (int step = 0; step < 7; ++step) {
            // Work of a program between two steps, an evaluation or its own data: more each time, so that the
            // pool gives away its free blocks.
            std::vector<sw::ShardedTensor<sw::Layout<1>, float, DeviceTarget>> between;
            for (std::int64_t size = 16; size <= 1024; size += 16)
              for (int copy = 0; copy <= step; ++copy) {
                between.emplace_back(mesh, std::array<std::int64_t, 1>{size});
                sw::fill(between.back(), 0.5F);
              }
            if (const std::optional<sw::StepReport> report = run.training.step(same, rate);
                report && !report->note.empty())
              notes.push_back(report->note);
            for (const auto& each : between)
              for (const float value : sw::local_values(each))
                if (value != 0.5F) {
                  findings.expect(false, "step ", step, " writes over memory of ", each.size(),
                                  " numbers that is not its own");
                  break;
                }
          }
          while (run.training.settle(same))
            continue;
          findings.expect(FakeCapture::launches() == 5, FakeCapture::launches(),
                          " launches after two plain steps");
          findings.expect(notes == std::vector<std::string>{"captured as a graph, which later steps replay"},
                          notes.size(), " notes");
        }) == "");
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world);
          sw::TrainingOptions options;
          options.capture = true;
          Run<Device> run(mesh, options);
          Batches<Device> batches(mesh);
          static_cast<void>(run.training.step(batches, rate));
          const sw::StepReport report = run.training.settle(batches).value();
          findings.expect(has(report.note, "not captured: collectives between ranks need the host"),
                          report.note);
        }) == "");
}

TEST_CASE("a dry run of a device's steps needs no device, reports, and counts its memory") {
  constexpr int steps = 3;
  const auto train = [](auto& run, auto& batches, double& norm) {
    std::vector<std::int64_t> reported;
    const auto note = [&](const std::optional<sw::StepReport>& report) {
      if (report) {
        reported.push_back(report->step);
        norm = report->gradient_norm;
      }
      return report.has_value();
    };
    for (int step = 0; step < steps; ++step)
      note(run.training.step(batches, rate));
    while (note(run.training.settle(batches)))
      continue;
    return reported;
  };
  CHECK(on_ranks(4, [&](const sw::HostCommunicator& world, Findings& findings) {
          using Counted = train_test::SmallModel<float, sw::Zero2, sw::Counting<DeviceTarget>>;
          std::vector<std::int64_t> counted;
          double norm = 0, counted_norm = 0;
          const sw::DryRun dry =
              sw::dry_run(world.size(), world.rank(), [&](const sw::HostCommunicator& pretended) {
                const Mesh mesh = mesh_of(pretended);
                Run<Counted> run(mesh);
                Batches<Counted> batches(mesh);
                counted = train(run, batches, counted_norm);
              });
          const Mesh mesh = mesh_of(world);
          Run<Device> run(mesh);
          Batches<Device> batches(mesh);
          findings.expect(train(run, batches, norm) == counted &&
                              counted == std::vector<std::int64_t>{1, 2, 3},
                          "reports");
          findings.expect(counted_norm == 1 && norm != 1, "norms of ", counted_norm, " and ", norm);
          const auto peak = static_cast<std::int64_t>(mesh.pool_statistics<DeviceTarget>().peak_bytes);
          findings.expect(dry.memory.total() == peak, dry.memory.total(), " bytes counted, ", peak,
                          " measured");
        }) == "");
}
