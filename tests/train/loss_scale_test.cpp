// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/step/dynamic_loss_scale.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::axis::dp;

/// Scores of a linear layer, with narrow inputs, weights and gradients.
template <class Element> class LinearModel {
public:
  using target = sw::DefaultTarget;
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Targets = sw::Layout<1, sw::Shard<0, dp>>;
  using Weight = sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, dp>>, Element>;
  static constexpr std::int64_t rows = 6, width = 5, vocabulary = 7;

  explicit LinearModel(const sw::DeviceMesh<dp>& mesh)
      : weight(mesh, {width, vocabulary}, sw::Initial::normal(0.5).keyed(1)), input_(random_input(mesh)),
        targets_(mesh, {rows}) {
    sw::initialize(*this, 3);
    // Tokens of the first data rank count, those of others are masked, so that only one rank overflows.
    for (std::size_t i = 0; i < targets_.local_size(); ++i)
      targets_.mutable_data()[i] = mesh.rank() == 0 ? static_cast<std::int32_t>(i) : -1;
  }

  [[nodiscard]] sw::LossScale loss_scale() const { return scale_; }
  void set_loss_scale(sw::LossScale scale) { scale_ = scale; }
  [[nodiscard]] auto members() { return sw::members("weight", weight); }

  [[nodiscard]] auto forward_backward() {
    weight.start_gather();
    weight.finish_gather();
    sw::ShardedTensor<Rows, sw::AccumulationElement<Element>> scores(input_.resources(), {rows, vocabulary});
    sw::matmul_into(scores, input_, weight.weight());
    const sw::kernels::LossFactor factor = scale_.in_kernels();
    const auto loss = sw::detail::cross_entropy_of(scores, targets_, {}, {}, {}, &factor);
    const auto gradient = sw::convert<Element>(std::move(scores));
    const auto slot = weight.gradient_slot();
    sw::matmul_weight_gradient_into(slot.tensor, input_, gradient, slot.beta);
    weight.release();
    return loss;
  }

  Weight weight;

private:
  [[nodiscard]] static sw::ShardedTensor<Rows, Element> random_input(const sw::DeviceMesh<dp>& mesh) {
    sw::ShardedTensor<Rows, float> out(mesh, {rows, width});
    sw::fill_normal(out, {3, 2});
    return sw::convert<Element>(std::move(out));
  }

  sw::ShardedTensor<Rows, Element> input_;
  sw::ShardedTensor<Targets, std::int32_t> targets_;
  sw::LossScale scale_;
};

/// The outcome of a run of steps on a rank.
struct Outcome {
  std::vector<float> gradient; ///< Of the mean loss, in the last step.
  std::vector<float> weights;
  std::vector<double> norms;
  std::vector<int> exponents; ///< The scale of each step.
};

template <class Element>
Outcome train(const sw::DeviceMesh<dp>& mesh, int steps, sw::LossScaleOptions options) {
  LinearModel<Element> model(mesh);
  sw::GradAccumulator accumulator(model);
  sw::AdamW optimizer;
  sw::DynamicLossScale scale(mesh, options);
  model.set_loss_scale(scale.scale());
  Outcome out;
  for (int step = 0; step < steps; ++step) {
    out.exponents.push_back(scale.state().exponent);
    const auto loss = model.forward_backward();
    accumulator.add(loss.loss, loss.tokens);
    sw::GradientSummary summary = accumulator.finish();
    out.norms.push_back(summary.gradient_norm);
    const auto& gradient = model.weight.gradient();
    out.gradient.clear();
    for (std::size_t i = 0; i < gradient.local_size(); ++i)
      out.gradient.push_back(
          static_cast<float>(static_cast<double>(gradient.data()[i]) * summary.scale.factor()));
    scale.update(summary);
    if (summary.finite())
      optimizer.step(model, summary, 1e-2);
    accumulator.restart();
  }
  const auto& weights = model.weight.stored();
  out.weights.assign(weights.data(), weights.data() + weights.local_size());
  return out;
}

} // namespace

TEST_CASE("the scale halves at an overflow, doubles after many good steps, and stays within its bounds") {
  const sw::detail::UpdateLossScale update{
      {.initial_exponent = 2, .least_exponent = 0, .most_exponent = 3, .growth_steps = 3}};
  sw::LossScaleState state{2, 0, 0};
  sw::GradientSummary step;
  step.tokens = 1;
  const auto after = [&](bool finite) {
    const int before = state.exponent;
    step.gradient_norm = finite ? 1 : std::numeric_limits<double>::infinity();
    step.overflowed = false;
    update(step, state);
    CHECK(step.overflowed == (state.exponent < before));
    return state.exponent;
  };
  CHECK(after(true) == 2);
  CHECK(after(true) == 2);
  CHECK(after(true) == 3);
  CHECK(after(true) == 3);
  CHECK(after(false) == 2); // and the count of good steps begins anew
  CHECK(after(true) == 2);
  CHECK(after(true) == 2);
  CHECK(after(true) == 3);
  for (int i = 0; i < 3; ++i)
    static_cast<void>(after(true));
  CHECK(state.exponent == 3);
  for (const int wanted : {2, 1, 0, 0})
    CHECK(after(false) == wanted);
  CHECK(state.overflows == 5);
  step.tokens = 0;
  CHECK(after(false) == 0); // a step without tokens has no gradient to overflow
  CHECK(state.overflows == 5);
}

TEST_CASE("a loss scale outside its bounds, or one that would never grow, is rejected") {
  const auto said = [](const auto& use) { return shardwright_test::failure_of<sw::InvalidArgument>(use); };
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1)};
          const auto rejects = [&](const auto& use, const char* part) {
            const std::string sentence = said(use);
            findings.expect(shardwright_test::has(sentence, part), sentence);
          };
          const auto made = [&](const sw::LossScaleOptions& options) {
            return [&mesh, options] { sw::DynamicLossScale<>(mesh, options); };
          };
          rejects(made({.initial_exponent = 16}), "but 16 is not from 0 to 15 (correct initial_exponent");
          rejects(made({.initial_exponent = 3, .least_exponent = 4}), "but 3 is not from 4 to 15");
          rejects(made({.growth_steps = 0}), "growth_steps must be at least 1, but it is 0");
          sw::DynamicLossScale<> scale(mesh);
          rejects([&] { scale.set_state({16, 0, 0}); }, "but 16 is not from 0 to 15");
        }) == "");
}

TEST_CASE("one factor undoes the loss scale and applies the division by tokens and clipping") {
  const sw::GradientScale scale(5, sw::LossScale::power_of_two(7).factor());
  CHECK(scale.factor() == 0.2 / 128);
  CHECK(scale.clipped(0.5).factor() == 0.1 / 128);
}

TEST_CASE("gradients of a scaled loss give the same update as those of the loss itself") {
  for (const int ranks : {1, 2, 3})
    CHECK(on_ranks(ranks, [](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
            const auto fixed = [](int exponent) {
              return sw::LossScaleOptions{
                  .initial_exponent = exponent, .least_exponent = exponent, .most_exponent = exponent};
            };
            const Outcome plain = train<float>(mesh, 4, fixed(0));
            const Outcome scaled = train<float>(mesh, 4, fixed(11));
            findings.expect(plain.gradient == scaled.gradient, "gradients of floats, to the bit");
            findings.expect(plain.weights == scaled.weights && plain.norms == scaled.norms,
                            "weights and norms of floats, to the bit");
          }) == "");
}

TEST_CASE("if float16 overflows on one rank, all skip the step, and the scale decreases until it fits") {
  for (const int ranks : {1, 2, 3})
    CHECK(on_ranks(ranks, [](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
            // The largest gradients of scores are above 1/2 and below 1: they fit times 2^16 or 2^15.
            const sw::LossScaleOptions high{.initial_exponent = 19, .most_exponent = 19};
            const Outcome skipping = train<sw::float16>(mesh, 3, high);
            for (const double norm : skipping.norms)
              findings.expect(!std::isfinite(norm), "a step above the range must overflow");
            const Outcome untouched = train<sw::float16>(mesh, 0, high);
            findings.expect(skipping.weights == untouched.weights, "skipped steps change nothing");

            const Outcome run = train<sw::float16>(mesh, 8, high);
            const std::vector<int> fits_at_16{19, 18, 17, 16, 16, 16, 16, 16};
            const std::vector<int> fits_at_15{19, 18, 17, 16, 15, 15, 15, 15};
            findings.expect(run.exponents == fits_at_16 || run.exponents == fits_at_15, "the scale of rank ",
                            world.rank(), " ends at ", run.exponents.back());
            findings.expect(std::isfinite(run.norms.back()) && run.weights != untouched.weights,
                            "the step that fits is taken");
            // The gradient is that of floats, up to the rounding of inputs, weights and gradients.
            const Outcome fitting = train<sw::float16>(mesh, 1, {});
            const Outcome floats = train<float>(mesh, 1, {});
            for (std::size_t i = 0; i < floats.gradient.size(); ++i)
              findings.expect(std::abs(fitting.gradient[i] - floats.gradient[i]) < 4 * 0x1p-11, "a gradient");
          }) == "");
}

TEST_CASE("float16 loses small gradients that a scale keeps") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          // A token whose target has probability 1 - e: the gradients of the others are e / 6 each.
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1)};
          using Scores = sw::ShardedTensor<sw::Layout<2>, float>;
          sw::ShardedTensor<sw::Layout<1>, std::int32_t> targets(mesh, {1});
          targets.mutable_data()[0] = 0;
          const auto gradient = [&](sw::LossScale scale) {
            Scores scores(mesh, {1, 7});
            sw::fill(scores, 0.0f);
            scores.mutable_data()[0] = 18;
            sw::Tape<> tape;
            tape.set_loss_scale(scale);
            const auto variable = tape.variable(scores);
            static_cast<void>(sw::cross_entropy(variable, targets));
            tape.backward();
            const auto narrow = sw::convert<sw::float16>(tape.gradient(variable));
            return static_cast<double>(narrow.data()[1]) / scale.factor();
          };
          const double exact = std::exp(-18.0);
          findings.expect(gradient({}) == 0, "below the smallest number of float16");
          findings.expect(std::abs(gradient(sw::LossScale::power_of_two(15)) / exact - 1) < 0x1p-10,
                          "kept by the scale");
        }) == "");
}

TEST_CASE("the scale must not change while gradients are summed") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1)};
          LinearModel<float> model(mesh);
          sw::GradAccumulator accumulator(model);
          const auto loss = model.forward_backward();
          accumulator.add(loss.loss, loss.tokens);
          model.set_loss_scale(sw::LossScale::power_of_two(1));
          std::string said = "no error";
          try {
            static_cast<void>(accumulator.finish());
          } catch (const sw::LifecycleError& error) {
            said = error.what();
          }
          findings.expect(said.find("the loss scale must not change between add() and finish()") !=
                              std::string::npos,
                          said);
        }) == "");
}
