// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"
#include "train/toy_model.hpp"

#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/step/guard.hpp>
#include <shardwright/train/step/spike_detector.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace train_test;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The trouble that a step of the toy model meets.
enum class Trouble { none, gradient, loss };

/// One step up to its summary; the trouble comes from the ranks with dp = 1.
template <class Element>
sw::GradientSummary run_step(ToyModel<Element>& model, sw::GradAccumulator<ToyModel<Element>>& accumulator,
                             const sw::DeviceMesh<dp, tp>& mesh, std::uint64_t seed, Trouble trouble) {
  model.add_gradients(seed, mesh.rank());
  const bool here = mesh.coordinate<dp>() == 1;
  if (here && trouble == Trouble::gradient)
    model.spread.gradient_slot().tensor.mutable_data()[0] = static_cast<Element>(infinity);
  accumulator.add(sw::LossSum<OverDp>{here && trouble == Trouble::loss ? std::nan("") : 1.0},
                  sw::TokenCount<OverDp>{2});
  return accumulator.finish();
}

template <class Element> std::vector<double> everything(ToyModel<Element>& model) {
  std::vector<double> out;
  model.for_each_parameter([&](auto& parameter) {
    for (const double each : whole(parameter.stored()))
      out.push_back(each);
  });
  return out;
}

} // namespace

TEST_CASE("a non-finite step stops every rank alike, and names step, parameter and ranks") {
  for (const Trouble trouble : {Trouble::gradient, Trouble::loss})
    CHECK(on_ranks(4, [trouble](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
            ToyModel<float> model(mesh);
            sw::GradAccumulator accumulator(model);
            sw::StepGuard guard(sw::NonFinite::stop, world);
            const auto fine = run_step(model, accumulator, mesh, 1, Trouble::none);
            findings.expect(guard.admit(accumulator, fine, 1), "a finite step");
            accumulator.restart();
            const auto summary = run_step(model, accumulator, mesh, 2, trouble);
            try {
              static_cast<void>(guard.admit(accumulator, summary, 2));
              findings.expect(false, "the step must stop the run");
            } catch (const sw::NonFiniteStep& error) {
              const std::string what = error.what();
              // The first element of the slice of dp = 0 is the one that the first rank with dp = 1 has
              // spoilt.
              const std::string place =
                  trouble == Trouble::loss
                      ? "not finite is the loss on ranks 2 and 3"
                      : "not finite is the gradient of spread on ranks 0 and 1 (2 elements)";
              findings.expect(what.find("step 2: loss and gradients must be finite, but " + place) !=
                                  std::string::npos,
                              what);
              findings.expect(error.places().size() == 1 &&
                                  error.places()[0].name == (trouble == Trouble::loss ? "" : "spread"),
                              "places");
            }
          }) == "");
}

TEST_CASE("a step repeated under watch names the ranks whose gradients are not finite") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
          ToyModel<float> model(mesh);
          sw::GradAccumulator accumulator(model);
          const auto places = [&](Trouble trouble) {
            static_cast<void>(run_step(model, accumulator, mesh, 1, trouble));
            const auto out = sw::find_non_finite(accumulator, world);
            accumulator.restart();
            return out;
          };
          // The ranks with dp = 0 hold the sum; the trouble comes from those with dp = 1.
          auto found = places(Trouble::gradient);
          findings.expect(found.size() == 1 && found[0].ranks == std::vector<int>{0, 1}, "after the sum");
          {
            const sw::WatchRawGradients watch(accumulator);
            found = places(Trouble::gradient);
            findings.expect(found.size() == 1 && found[0].name == "spread" &&
                                found[0].ranks == std::vector<int>{2, 3} && found[0].elements == 2,
                            "before the sum");
            findings.expect(places(Trouble::none).empty(), "the next step starts from nothing");
          }
          found = places(Trouble::gradient);
          findings.expect(found.size() == 1 && found[0].ranks == std::vector<int>{0, 1}, "watched no more");
        }) == "");
}

TEST_CASE("a non-finite step shows three places and counts the others") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(2)};
          ToyModel<double> model(mesh);
          sw::GradAccumulator accumulator(model);
          sw::StepGuard guard(sw::NonFinite::skip, world);
          for (const bool loss : {false, true}) {
            model.add_gradients(1, mesh.rank());
            model.for_each_parameter(
                [](auto& parameter) { parameter.gradient_slot().tensor.mutable_data()[0] = infinity; });
            accumulator.add(sw::LossSum<OverDp>{loss ? infinity : 1.0}, sw::TokenCount<OverDp>{2});
            findings.expect(!guard.admit(accumulator, accumulator.finish(), 1), "not admitted");
            accumulator.restart();
            findings.expect(guard.places().size() == (loss ? 4 : 3), "places");
            findings.expect(guard.sentence().ends_with("; and 1 more") == loss, guard.sentence());
            findings.expect(loss || guard.sentence().ends_with("elements)"), guard.sentence());
          }
        }) == "");
}

TEST_CASE("a skipped step leaves weights and optimizer unchanged, and the run continues as without it") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
          const auto train = [&](bool with_trouble) {
            ToyModel<double> model(mesh);
            sw::GradAccumulator accumulator(model);
            sw::AdamW optimizer;
            sw::StepGuard guard(sw::NonFinite::skip, world);
            for (std::uint64_t step = 1; step <= 4; ++step) {
              if (step == 3 && with_trouble) {
                const auto bad = run_step(model, accumulator, mesh, 99, Trouble::gradient);
                const std::vector<double> before = everything(model);
                findings.expect(!guard.admit(accumulator, bad, 3), "not admitted");
                accumulator.restart();
                findings.expect(everything(model) == before, "weights are touched");
                findings.expect(guard.places().size() == 1 && guard.places()[0].name == "spread",
                                "the place");
              }
              const auto summary = run_step(model, accumulator, mesh, step, Trouble::none);
              if (guard.admit(accumulator, summary, static_cast<std::int64_t>(step)))
                optimizer.step(model, summary, 0.01);
              accumulator.restart();
            }
            findings.expect(guard.skipped() == (with_trouble ? 1 : 0), guard.skipped(), " skipped");
            findings.expect(optimizer.steps() == 4, optimizer.steps(), " steps");
            return everything(model);
          };
          findings.expect(train(true) == train(false), "a skipped step leaves a trace");
        }) == "");
}

TEST_CASE("a step without a token that counts is skipped, or ends the run if it shall") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          const auto train = [&](bool with_masked) {
            ToyModel<double> model(mesh);
            sw::GradAccumulator accumulator(model);
            sw::AdamW optimizer;
            sw::StepGuard guard(sw::NonFinite::stop, world);
            for (std::uint64_t step = 1; step <= 3; ++step) {
              if (step == 2 && with_masked) {
                model.add_gradients(7, mesh.rank());
                accumulator.add(sw::LossSum<OverDp>{0}, sw::TokenCount<OverDp>{0});
                findings.expect(!guard.admit(accumulator, accumulator.finish(), 2), "not admitted");
                findings.expect(guard.sentence() == "the global batch must have a token that counts, but all "
                                                    "of its targets are masked",
                                guard.sentence());
                accumulator.restart();
              }
              const auto summary = run_step(model, accumulator, mesh, step, Trouble::none);
              if (guard.admit(accumulator, summary, static_cast<std::int64_t>(step)))
                optimizer.step(model, summary, 0.01);
              accumulator.restart();
            }
            return everything(model);
          };
          findings.expect(train(true) == train(false), "a skipped step leaves a trace");

          ToyModel<double> model(mesh);
          sw::GradAccumulator accumulator(model);
          sw::StepGuard guard(sw::NonFinite::skip, world, 10, sw::EmptyBatch::stop);
          model.add_gradients(7, mesh.rank());
          accumulator.add(sw::LossSum<OverDp>{0}, sw::TokenCount<OverDp>{0});
          const std::string said = failure_of<sw::DataError>(
              [&] { static_cast<void>(guard.admit(accumulator, accumulator.finish(), 4)); });
          findings.expect(has(said, "step 4: the global batch must have a token that counts"), said);
        }) == "");
}

TEST_CASE("too many skipped steps in a row stop the run") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          ToyModel<float> model(mesh);
          sw::GradAccumulator accumulator(model);
          sw::StepGuard guard(sw::NonFinite::skip, world, 3);
          int skipped = 0;
          try {
            for (std::uint64_t step = 1; step < 10; ++step) {
              // One good step between bad ones begins the count anew.
              const auto summary =
                  run_step(model, accumulator, mesh, step, step == 3 ? Trouble::none : Trouble::loss);
              skipped += guard.admit(accumulator, summary, static_cast<std::int64_t>(step)) ? 0 : 1;
              accumulator.restart();
            }
            findings.expect(false, "three bad steps in a row must stop the run");
          } catch (const sw::NonFiniteStep& error) {
            const std::string what = error.what();
            findings.expect(skipped == 4 && guard.skipped() == 5, skipped, " skipped");
            findings.expect(what.find("step 6") != std::string::npos &&
                                what.find("the last of 3 skipped steps in a row") != std::string::npos,
                            what);
          }
        }) == "");
}

TEST_CASE("a value far above the recent ones is a spike; noise, slopes and NaN are not") {
  sw::SpikeDetector detector;
  std::uint64_t state = 1;
  const auto noise = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11u) * 0x1p-53 - 0.5;
  };
  int reported = 0;
  // A falling loss with noise, as in training.
  for (int step = 0; step < 500; ++step)
    reported += detector.spike(2 + 4 * std::exp(-step / 80.0) + 0.2 * noise()) ? 1 : 0;
  CHECK(reported == 0);
  CHECK(detector.mean() == Approx(2).margin(0.1));
  CHECK_FALSE(detector.spike(std::nan("")));
  CHECK_FALSE(detector.spike(2.2)); // a tenth above is no spike, however small the noise was
  CHECK(detector.spike(5));
  CHECK(detector.spike(5)); // the first one has not become the reference
  CHECK_FALSE(detector.spike(2));

  // A new level is reported as long as it is new.
  int high = 0;
  for (int step = 0; step < 500; ++step)
    high += detector.spike(5 + 0.2 * noise()) ? 1 : 0;
  CHECK(high > 0);
  CHECK(high < 100);
  CHECK(detector.mean() == Approx(5).margin(0.2));

  sw::SpikeDetector early;
  for (int step = 0; step < 19; ++step)
    CHECK_FALSE(early.spike(step == 10 ? 1e6 : 1));
}

TEST_CASE("if values hardly vary, the ratio to their mean is the threshold, also below zero") {
  for (const double mean : {8.0, -8.0}) {
    sw::SpikeDetector detector(sw::SpikeOptions{.ratio = 1.5});
    CHECK_FALSE(detector.spike(mean));
    CHECK(detector.threshold() == mean + 4);
  }
}

TEST_CASE("the first value after the settling time is the first that can be a spike") {
  for (const std::int64_t settle : {1, 5, 20}) {
    for (const std::int64_t earlier : {settle - 1, settle}) {
      sw::SpikeDetector detector(sw::SpikeOptions{.settle = settle});
      for (std::int64_t value = 0; value < earlier; ++value)
        CHECK_FALSE(detector.spike(1));
      CHECK_FALSE(detector.spike(std::nan(""))); // does not count
      INFO(earlier << " values before it, " << settle << " to settle");
      CHECK(detector.spike(100) == (earlier == settle));
    }
  }
  CHECK(sw::SpikeOptions{}.settle == 20);
}
