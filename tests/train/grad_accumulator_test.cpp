// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/finish_gradient.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "train/toy_model.hpp"

#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/adamw.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace train_test;
using shardwright_test::ContainsSubstring;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::LossSum;
using sw::TokenCount;

} // namespace

TEST_CASE("token losses {4} and {1, 1, 1} have the mean 1.75, however they are distributed") {
  // Both microbatches on one rank, then one on each data rank, then the same with tensor-parallel copies.
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
          ToyModel<double> model(mesh);
          sw::GradAccumulator accumulator(model);
          model.add_gradients(1, 0);
          accumulator.add(LossSum<OverDp>{4}, TokenCount<OverDp>{1});
          model.add_gradients(2, 0);
          accumulator.add(LossSum<OverDp>{1 + 1 + 1}, TokenCount<OverDp>{3});
          findings.expect(accumulator.microbatches() == 2, "microbatches");
          const sw::GradientSummary summary = accumulator.finish();
          findings.expect(summary.loss.value == 1.75, "mean loss ", summary.loss.value);
          findings.expect(summary.tokens == 4 && summary.scale.factor() == 0.25, "tokens ", summary.tokens);
        }) == "");
  for (const int copies : {1, 2}) {
    CHECK(on_ranks(2 * copies, [copies](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(copies)};
            ToyModel<double> model(mesh);
            sw::GradAccumulator accumulator(model);
            model.add_gradients(1, mesh.rank());
            const bool first = mesh.coordinate<dp>() == 0;
            accumulator.add(LossSum<OverDp>{first ? 4.0 : 3.0}, TokenCount<OverDp>{first ? 1 : 3});
            const sw::GradientSummary summary = accumulator.finish();
            findings.expect(summary.loss.value == 1.75, "mean loss ", summary.loss.value);
            findings.expect(summary.tokens == 4, "tokens ", summary.tokens);
            const auto mean = sw::mean_over_mesh(mesh, LossSum<OverDp>{first ? 4.0 : 3.0},
                                                 TokenCount<OverDp>{first ? 1 : 3});
            findings.expect(mean.value == 1.75, "evaluated mean ", mean.value);
          }) == "");
  }
}

TEST_CASE("gradients are the sums over microbatches and data ranks, and the norm counts each element once") {
  for (const int data : {1, 2, 3}) {
    for (const int tensor : {1, 2}) {
      INFO("dp " << data << " tp " << tensor);
      CHECK(on_ranks(data * tensor, [=](sw::HostCommunicator world, Findings& findings) {
              const sw::DeviceMesh mesh{world, sw::extent<dp>(data), sw::extent<tp>(tensor)};
              ToyModel<double> model(mesh);
              sw::GradAccumulator accumulator(model);
              for (const std::uint64_t microbatch : {1u, 2u, 3u}) {
                model.add_gradients(microbatch, mesh.rank());
                accumulator.add(LossSum<OverDp>{1.5}, TokenCount<OverDp>{mesh.coordinate<dp>() + 1});
              }
              const sw::GradientSummary summary = accumulator.finish();
              // The vector is Partial over both axes and not sharded, so each rank's part of element i is
              // known.
              double first = 0;
              for (int rank = 0; rank < data * tensor; ++rank)
                for (const std::uint64_t microbatch : {1u, 2u, 3u})
                  first += 2 * sw::unit_interval(
                                   sw::random_words({microbatch, 32 + static_cast<std::uint64_t>(rank)}, 0)
                                       .word[0]) -
                           1;
              findings.expect(std::abs(model.vector.gradient().data()[0] - first) < 1e-14, "sum over ranks ",
                              first);
              double squares = 0;
              std::size_t elements = 0;
              model.for_each_parameter([&](auto& parameter) {
                for (const double each : whole(parameter.gradient())) {
                  squares += each * each;
                  ++elements;
                }
              });
              findings.expect(elements == 15 + 7 + 20, "elements ", elements);
              const double norm = std::sqrt(squares) * summary.scale.factor();
              findings.expect(std::abs(summary.gradient_norm / norm - 1) < 1e-14, "norm ",
                              summary.gradient_norm, " instead of ", norm);
              findings.expect(summary.tokens == 3 * data * (data + 1) / 2, "tokens ", summary.tokens);
              findings.expect(summary.finite(), "finite");
            }) == "");
    }
  }
}

TEST_CASE("the calls of an accumulator must come in order, and errors name the missing one") {
  CHECK(
      on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
        const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
        ToyModel<float> model(mesh);
        sw::GradAccumulator accumulator(model);
        const auto add = [&] { accumulator.add(LossSum<OverDp>{1}, TokenCount<OverDp>{1}); };
        const auto finish = [&] { static_cast<void>(accumulator.finish()); };
        using Failure = sw::LifecycleError;

        findings.expect(has(failure_of<Failure>(finish), "finish() must follow at least one add()"),
                        "finish first");
        // A parameter that no backward pass reached; the step can be abandoned and begun again.
        auto slot = model.matrix.gradient_slot();
        sw::fill_zero(slot.tensor);
        add();
        const std::string reached = failure_of<Failure>(finish);
        findings.expect(has(reached, "Parameter vector: a step must give every parameter a gradient"),
                        reached);
        accumulator.restart();

        model.add_gradients(1, mesh.rank());
        add();
        findings.expect(has(failure_of<Failure>([&] { static_cast<void>(model.matrix.gradient()); }),
                            "Parameter matrix: the gradient is not finished"),
                        "gradient before finish");
        finish();
        findings.expect(has(failure_of<Failure>(finish), "finish() must be called once in a step"),
                        "finish twice");
        findings.expect(has(failure_of<Failure>(add), "add() must not follow finish()"), "add after finish");
        findings.expect(has(failure_of<Failure>([&] { static_cast<void>(model.matrix.gradient_slot()); }),
                            "Parameter matrix: the step's gradient is complete"),
                        "accumulate after finish");
        accumulator.restart();
        findings.expect(accumulator.microbatches() == 0, "restarted");

        model.add_gradients(2, mesh.rank());
        add();
        const sw::GradientSummary summary = accumulator.finish();
        findings.expect(summary.tokens == 2 && summary.loss.value == 1, "the next step starts from nothing");
      }) == "");
}

TEST_CASE("an accumulator needs a model with parameters, which must outlive it") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          using sw::LifecycleError;
          struct Empty {
            auto members() { return sw::members(); }
          } empty;
          const std::string none = failure_of<LifecycleError>([&] { sw::GradAccumulator<Empty>{empty}; });
          findings.expect(has(none, "the model must have a parameter that is trained, but it lists none"),
                          none);

          const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
          std::optional<ToyModel<float>> model(mesh);
          {
            sw::GradAccumulator accumulator(*model, world);
            model->add_gradients(1, 0);
            accumulator.add(LossSum<OverDp>{1}, TokenCount<OverDp>{1});
            model.reset();
            const char* const sentence = "the model must outlive it, but the model, or a parameter of it";
            const auto expect = [&](const char* call, auto use) {
              const std::string said = failure_of<LifecycleError>(use);
              findings.expect(has(said, sentence), call, ": ", said);
            };
            expect("finish", [&] { static_cast<void>(accumulator.finish()); });
            expect("add", [&] { accumulator.add(LossSum<OverDp>{1}, TokenCount<OverDp>{1}); });
            expect("restart", [&] { accumulator.restart(); });
            expect("visit", [&] {
              accumulator.for_each_gradient(
                  [](const auto& gradient) { static_cast<void>(gradient.parameter()); });
            });
          }
          model.emplace(mesh);
          sw::GradAccumulator next(*model, world);
          model->add_gradients(1, 0);
          next.add(LossSum<OverDp>{3}, TokenCount<OverDp>{2});
          findings.expect(next.finish().loss.value == 1.5, "another accumulator of another model");
        }) == "");
}

namespace {

/// A pipeline whose only stage on this rank has no parameter.
struct WithoutParameters {
  struct Stage {
    [[nodiscard]] static sw::detail::SummedAxes summed_axes() { return {}; }
    sw::DeviceMesh<dp, tp> mesh;
    std::shared_ptr<int> life = std::make_shared<int>();
    [[nodiscard]] auto& core() const { return mesh.core(); }
    [[nodiscard]] std::weak_ptr<const void> lifetime() const { return life; }
    auto members() { return sw::members(); }
  };
  explicit WithoutParameters(const sw::DeviceMesh<dp, tp>& mesh) : stage{mesh} {}
  template <class Visitor> void for_each_stage(Visitor&& visit) { visit(stage); }
  auto members() { return sw::members(); }
  Stage stage;
};

} // namespace

TEST_CASE("a stage without parameters must outlive the accumulator, too") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
          std::optional<WithoutParameters> model(mesh);
          sw::GradAccumulator accumulator(*model, world);
          accumulator.add(LossSum<OverDp>{3}, TokenCount<OverDp>{2});
          findings.expect(accumulator.finish().loss.value == 1.5, "its loss");
          accumulator.restart();
          model.reset();
          const std::string said = failure_of<sw::LifecycleError>(
              [&] { accumulator.add(LossSum<OverDp>{1}, TokenCount<OverDp>{1}); });
          findings.expect(has(said, "the model must outlive it"), said);
        }) == "");
}

TEST_CASE(
    "a global batch without a valid token gives a summary that no optimizer takes, an empty rank does not") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          ToyModel<double> model(mesh);
          sw::GradAccumulator accumulator(model);
          sw::AdamW optimizer({.weight_decay = 0.1});
          const auto step_of = [&](double loss, int tokens) {
            model.add_gradients(1, mesh.rank());
            accumulator.add(LossSum<OverDp>{loss}, TokenCount<OverDp>{tokens});
            const sw::GradientSummary summary = accumulator.finish();
            optimizer.step(model, summary, 0.1);
            accumulator.restart();
            return summary;
          };
          const std::vector<double> before = whole(model.matrix.stored());
          const sw::GradientSummary masked = step_of(0, 0);
          findings.expect(masked.tokens == 0 && !masked.finite() && masked.scale.factor() == 0, "no tokens");
          findings.expect(whole(model.matrix.stored()) == before, "the weights stay");
          std::size_t states = 0;
          optimizer.for_each_state(model.matrix, [&](std::string_view, const auto&) { ++states; });
          findings.expect(states == 0, "the optimizer has not begun");
          findings.expect(step_of(mesh.rank() == 0 ? 6 : 0, mesh.rank() == 0 ? 2 : 0).loss.value == 3,
                          "one rank without tokens");
          findings.expect(whole(model.matrix.stored()) != before, "the step is taken");
        }) == "");
}

TEST_CASE("losses over different axes in one step each count on the ranks of their own axes") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
          using OverBoth = sw::Layout<0, sw::Partial<sw::Sum, dp, tp>>;
          const int data = mesh.coordinate<dp>();
          // Tokens of dp: 4 of 1 and {1, 2} of 3; tokens split further, over tp: 0, 1, 2 and 3 of one each.
          for (const bool first_over_dp : {true, false}) {
            ToyModel<double> model(mesh);
            sw::GradAccumulator accumulator(model);
            model.add_gradients(1, mesh.rank());
            const auto over_dp = [&] {
              accumulator.add(LossSum<OverDp>{data == 0 ? 4.0 : 3.0}, TokenCount<OverDp>{data == 0 ? 1 : 3});
            };
            if (first_over_dp)
              over_dp();
            accumulator.add(sw::CountedLoss<OverBoth>{{static_cast<double>(mesh.rank())}, {1}});
            if (!first_over_dp)
              over_dp();
            const sw::GradientSummary summary = accumulator.finish();
            findings.expect(summary.tokens == 8 && summary.loss.value == (7 + 6) / 8.0, "loss ",
                            summary.loss.value, " of ", summary.tokens, " tokens");
            findings.expect(accumulator.local_loss() == (data == 0 ? 4 : 3) + mesh.rank(),
                            "this rank's own losses");
          }
        }) == "");
}

TEST_CASE("a loss whose layout lacks an axis of every gradient must say that it is replicated") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          using Whole = sw::Layout<0>;
          ToyModel<double> model(mesh);
          sw::GradAccumulator accumulator(model);
          model.add_gradients(1, mesh.rank());
          const std::string said = failure_of<sw::InvalidArgument>(
              [&] { accumulator.add(LossSum<Whole>{3}, TokenCount<Whole>{2}); });
          findings.expect(has(said,
                              "GradAccumulator: loss and count must be Partial over dp, over which every "
                              "parameter's gradient is a sum"),
                          said);
          findings.expect(accumulator.microbatches() == 0, "nothing was added");
          const sw::CountedLoss<Whole> reduced{{3}, {4}};
          accumulator.add(sw::assume_replicated(reduced));
          const sw::GradientSummary summary = accumulator.finish();
          findings.expect(summary.tokens == 4 && summary.loss.value == 0.75,
                          "counted once: ", summary.loss.value);
        }) == "");
}

TEST_CASE("a NaN in one rank's gradient or loss reaches every rank's summary") {
  for (const bool in_loss : {false, true}) {
    CHECK(on_ranks(4, [in_loss](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
            ToyModel<float> model(mesh);
            sw::GradAccumulator accumulator(model);
            model.add_gradients(1, mesh.rank());
            const double nan = std::numeric_limits<double>::quiet_NaN();
            const bool here = mesh.coordinate<dp>() == 1;
            if (here && !in_loss)
              model.matrix.gradient_slot().tensor.mutable_data()[0] = static_cast<float>(nan);
            accumulator.add(LossSum<OverDp>{here && in_loss ? nan : 1.0}, TokenCount<OverDp>{1});
            findings.expect(!accumulator.finish().finite(), "rank ", mesh.rank(),
                            " takes the step for sound");
          }) == "");
  }
}

TEST_CASE("a reduction that starts with the last contribution gives the same bits as one in finish") {
  for (const int data : {1, 2, 3}) {
    CHECK(on_ranks(2 * data, [data](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(data), sw::extent<tp>(2)};
            const auto gradients = [&](bool early) {
              ToyModel<float> model(mesh);
              model.vector.set_stages(2);
              sw::GradAccumulator accumulator(model);
              std::vector<std::vector<double>> out;
              for (const std::uint64_t step : {1u, 2u, 3u}) {
                const auto end_passes = [&](sw::PassPosition position) {
                  model.for_each_parameter(
                      [&](auto& parameter) { parameter.gradient_state().end_pass(position); });
                };
                model.add_gradients(step, mesh.rank());
                if (early && step == 2) {
                  // A step may be abandoned while its reductions are in flight.
                  end_passes(sw::PassPosition::last);
                  accumulator.restart();
                  // The next step does not begin with its last pass, either.
                  model.add_gradients(step, mesh.rank());
                  end_passes(sw::PassPosition::middle);
                  model.for_each_parameter(
                      [](auto& parameter) { static_cast<void>(parameter.gradient_slot()); });
                  accumulator.restart();
                  model.add_gradients(step, mesh.rank());
                }
                if (early) {
                  end_passes(sw::PassPosition::last);
                  // The vector may get more gradients from another stage: it still has a slot, and no other
                  // parameter does.
                  static_cast<void>(model.vector.gradient_slot());
                  findings.expect(has(failure_of<sw::LifecycleError>(
                                          [&] { static_cast<void>(model.matrix.gradient_slot()); }),
                                      "the step's gradient is complete"),
                                  "a slot after the last contribution");
                  model.vector.gradient_state().end_pass(sw::PassPosition::last);
                  findings.expect(has(failure_of<sw::LifecycleError>(
                                          [&] { static_cast<void>(model.vector.gradient_slot()); }),
                                      "the step's gradient is complete"),
                                  "a slot after the last pass of both stages");
                }
                accumulator.add(LossSum<OverDp>{1}, TokenCount<OverDp>{1});
                static_cast<void>(accumulator.finish());
                model.for_each_parameter(
                    [&](auto& parameter) { out.push_back(whole(parameter.gradient())); });
                accumulator.restart();
              }
              return out;
            };
            findings.expect(gradients(true) == gradients(false), "dp ", data);
          }) == "");
  }
}

TEST_CASE("copies on several meshes get the sum of their gradients, and count once in the norm") {
  CHECK(on_ranks(6, [](sw::HostCommunicator world, Findings& findings) {
          // Three meshes of two ranks; the vector has copies on the outer two, and everything else belongs to
          // one mesh.
          const int number = world.rank() / 2;
          const sw::DeviceMesh mesh{world.split(number, world.rank()), sw::extent<dp>(1), sw::extent<tp>(2)};
          sw::HostCommunicator copies = world.split(number == 1 ? -1 : world.rank() % 2, number);
          ToyModel<double> model(mesh);
          if (copies.valid())
            model.vector.set_copies(copies);
          sw::GradAccumulator accumulator(model, world);
          model.add_gradients(1, world.rank());
          const std::vector<double> own = [&] {
            ToyModel<double> alone(mesh);
            const sw::GradAccumulator gradients(alone);
            alone.add_gradients(1, world.rank());
            shardwright_test::finish_gradient(alone.vector);
            return whole(alone.vector.gradient());
          }();
          accumulator.add(LossSum<OverDp>{number == 2 ? 3.0 : 0.0}, TokenCount<OverDp>{number == 2 ? 4 : 0});
          const sw::GradientSummary summary = accumulator.finish();
          findings.expect(summary.tokens == 4 && summary.loss.value == 0.75, "the last mesh has the loss");
          std::vector<double> sum = own;
          if (copies.valid())
            copies.all_reduce_in_place(sum);
          findings.expect(whole(model.vector.gradient()) == sum, "the copies are summed");
          double squares = 0;
          model.for_each_parameter([&](auto& parameter) {
            findings.expect(parameter.first_copy() == (number < 2 || parameter.name() != "vector"),
                            parameter.name());
            if (mesh.rank() == 0 && parameter.first_copy())
              for (const double each : parameter.name() == "vector" ? sum : std::vector<double>())
                squares += each * each;
          });
          for (const auto& each : {whole(model.matrix.gradient()), whole(model.spread.gradient())})
            for (const double value : each)
              squares += mesh.rank() == 0 ? value * value : 0;
          std::vector<double> total{squares};
          world.all_reduce_in_place(total);
          const double norm = std::sqrt(total[0]) * summary.scale.factor();
          findings.expect(std::abs(summary.gradient_norm / norm - 1) < 1e-14, "norm ", summary.gradient_norm,
                          " instead of ", norm);
        }) == "");
}
