// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "train/toy_model.hpp"

#include <shardwright/train/optimizer/adamw.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace train_test;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

/// Algorithm 2 of Loshchilov and Hutter, written out in double for one parameter.
struct PlainAdamW {
  std::vector<double> value, first, second;
  int steps = 0;

  explicit PlainAdamW(std::vector<double> initial)
      : value(std::move(initial)), first(value.size()), second(value.size()) {}

  void step(const std::vector<double>& gradient, double scale, double rate, const sw::AdamWOptions& options,
            bool decays) {
    ++steps;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double g = scale * gradient[i];
      first[i] = options.beta1 * first[i] + (1 - options.beta1) * g;
      second[i] = options.beta2 * second[i] + (1 - options.beta2) * g * g;
      const double m = first[i] / (1 - std::pow(options.beta1, steps));
      const double v = second[i] / (1 - std::pow(options.beta2, steps));
      value[i] -=
          rate * (m / (std::sqrt(v) + options.epsilon) + (decays ? options.weight_decay * value[i] : 0));
    }
  }
};

/// Ten steps of the toy model on a mesh, compared with the plain algorithm on gathered gradients.
template <class Element>
void check_against_plain(const sw::HostCommunicator& world, Findings& findings, int data, int tensor,
                         double max_norm, double tolerance) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(data), sw::extent<tp>(tensor)};
  ToyModel<Element> model(mesh);
  sw::GradAccumulator accumulator(model);
  sw::AdamWOptions options;
  options.beta1 = 0.8;
  options.weight_decay = 0.3;
  options.max_norm = max_norm;
  sw::AdamW optimizer(options);
  std::vector<PlainAdamW> plain;
  model.for_each_parameter([&](auto& parameter) { plain.emplace_back(whole(parameter.stored())); });
  bool clipped = false;
  for (int step = 0; step < 10; ++step) {
    model.add_gradients(static_cast<std::uint64_t>(step), mesh.rank());
    accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{2 + step});
    const sw::GradientSummary summary = accumulator.finish();
    const double rate = 0.01 * (step + 1);
    std::vector<std::vector<double>> gradients;
    double squares = 0;
    model.for_each_parameter([&](auto& parameter) {
      gradients.push_back(whole(parameter.gradient()));
      for (const double each : gradients.back())
        squares += each * each;
    });
    const double tokens = static_cast<double>(data * (2 + step));
    const double norm = std::sqrt(squares) / tokens;
    const double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1;
    clipped = clipped || coefficient < 1;
    const std::vector<bool> decays{true, false, true};
    for (std::size_t p = 0; p < plain.size(); ++p)
      plain[p].step(gradients[p], coefficient / tokens, rate, options, decays[p]);
    optimizer.step(model, summary, rate);
    accumulator.restart();
  }
  findings.expect(optimizer.steps() == 10, "steps");
  findings.expect(clipped == (max_norm > 0), "whether the case clips");
  std::size_t p = 0;
  model.for_each_parameter([&](auto& parameter) {
    const std::vector<double> mine = whole(parameter.stored());
    double difference = 0;
    for (std::size_t i = 0; i < mine.size(); ++i)
      difference = std::max(difference, std::abs(mine[i] - plain[p].value[i]));
    findings.expect(difference <= tolerance, parameter.name(), " differs by ", difference);
    ++p;
  });
}

} // namespace

TEST_CASE("AdamW takes the same steps as the plain algorithm on every mesh, with and without clipping") {
  for (const double max_norm : {0.0, 0.3}) {
    for (const int data : {1, 2, 3})
      for (const int tensor : {1, 2}) {
        INFO("dp " << data << " tp " << tensor << " max_norm " << max_norm);
        CHECK(on_ranks(data * tensor, [=](sw::HostCommunicator world, Findings& findings) {
                check_against_plain<double>(world, findings, data, tensor, max_norm, 1e-12);
              }) == "");
      }
    CHECK(on_ranks(2, [=](sw::HostCommunicator world, Findings& findings) {
            check_against_plain<float>(world, findings, 1, 2, max_norm, 2e-6);
          }) == "");
  }
}

TEST_CASE("the clip coefficient reduces a norm to the limit and never increases it") {
  CHECK(sw::clip_coefficient(0.5, 1.0) == 1.0);
  CHECK(sw::clip_coefficient(4.0, 1.0) == 1.0 / (4.0 + 1e-6));
  CHECK(sw::clip_coefficient(4.0, 0.0) == 1.0);
  CHECK(sw::clip_coefficient(0.0, 1.0) == 1.0);
}
