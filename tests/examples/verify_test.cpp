// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "support/scratch.hpp"

#include <trainer/hash_file.hpp>
#include <trainer/verify.hpp>

#include <shardwright/io/hash_record.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/sgd.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::ContainsSubstring;
using trainer::RunResult;

namespace {

constexpr std::size_t steps = 300;
constexpr double tolerance = 1e-4;

/// A run whose roundings have grown: the losses of step s are off by `first` times exp(s/40), the gradient
/// norms by three times as much.
RunResult run_with(double first) {
  RunResult out;
  for (std::size_t step = 1; step <= steps; ++step) {
    const double off = first * std::exp(static_cast<double>(step) / 40);
    out.steps.push_back({2.5 * (1 + off), 0.7 * (1 - 3 * off)});
  }
  out.validation_loss = out.steps.back().loss;
  return out;
}

struct Verdict {
  int code = 0;
  std::string text;
  int repeated = 0; ///< How often the run with another rounding was asked for.
};

Verdict judge(const RunResult& run, const RunResult& nearby) {
  Verdict out;
  std::ostringstream text;
  trainer::RunOptions options;
  out.code = trainer::report_differences(text, options, " from one rank", tolerance, run, run_with(0), [&] {
    ++out.repeated;
    return nearby;
  });
  out.text = text.str();
  return out;
}

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Leaves values as they are. A slope other than 1 is a planted fault: it scales the gradients before it.
struct Passed {
  static constexpr std::string_view name = "passed";
  static constexpr bool slope_of_result = true;
  double planted;
  template <class V> V operator()(V x) const { return chosen(x < 0, x, x); }
  template <class V> V slope(V y) const { return chosen(y < 0, planted, planted); }
  auto numbers() const { return std::array{sw::GivenNumber("slope", planted)}; }
};

using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Mesh = sw::DeviceMesh<dp, tp>;

struct Classifier {
  sw::Linear<Rows, Column> in;
  sw::Linear<sw::MatmulLayout<Rows, Column>, sw::Layout<2, sw::Shard<0, tp>>> out;
  sw::Elementwise<Passed> passed;

  Classifier(const Mesh& mesh, double planted)
      : in(mesh, {8, 16}, sw::Initial::normal(0.3)),
        out(mesh, {16, 4}, sw::Initial::normal(0.3)), passed{{.planted = planted}} {
    sw::initialize(*this, 1);
  }
  auto operator()(sw::Var<Rows> x) {
    return out(passed(sw::gelu_tanh(in(std::move(x))))).template as<Rows>();
  }
  auto members() { return sw::members("in", in, "out", out); }
};

/// Three steps of a classifier on data x tensor ranks.
RunResult trained(int data, int tensor, double planted) {
  RunResult run;
  const std::string failures =
      shardwright_test::on_ranks(data * tensor, [&](const sw::HostCommunicator& world, auto& findings) {
        const Mesh mesh{world, sw::extent<dp>(data), sw::extent<tp>(tensor)};
        Classifier model(mesh, planted);
        sw::GradAccumulator accumulator(model);
        sw::Sgd optimizer;
        sw::Tape tape;
        sw::ShardedTensor<Rows> x(mesh, {12, 8});
        sw::ShardedTensor<sw::Layout<1, sw::Shard<0, dp>>, std::int32_t> classes(mesh, {12});
        sw::fill_normal(x, {.seed = 1, .tensor = 0});
        sw::fill(classes, 3);
        for (int step = 0; step < 3; ++step) {
          tape.restart();
          const auto loss = sw::cross_entropy(model(tape.input(x)), classes);
          tape.backward();
          accumulator.add(loss);
          const sw::GradientSummary summary = accumulator.finish();
          optimizer.step(model, summary, 0.5);
          accumulator.restart();
          findings.expect(summary.finite(), "step ", step);
          if (world.rank() == 0)
            run.steps.push_back({summary.loss.value, summary.gradient_norm});
        }
        const auto add = [&](const char* name, auto& weight) {
          const std::vector<float> whole = sw::gather(weight.stored(), 0);
          if (world.rank() == 0)
            run.parameters.push_back(
                {name, {static_cast<std::int64_t>(whole.size())}, {whole.begin(), whole.end()}});
        };
        add("in", model.in.weight());
        add("out", model.out.weight());
      });
  CHECK(failures.empty());
  run.validation_loss = run.steps.back().loss;
  return run;
}

} // namespace

TEST_CASE("a layer whose gradient is off by a hundredth is found, and named", "[examples]") {
  const RunResult one = trained(1, 1, 1);
  const auto verdict = [&](double planted) {
    std::ostringstream text;
    const int code = trainer::report_differences(text, {}, " from one rank", tolerance,
                                                 trained(2, 2, planted), one, [&] { return one; });
    return std::pair{code, text.str()};
  };
  const auto [passes, agreement] = verdict(1);
  CHECK(passes == 0);
  CHECK_THAT(agreement, ContainsSubstring("verify: passed"));
  const auto [fails, difference] = verdict(1.01);
  CHECK(fails == 1);
  CHECK_THAT(difference, ContainsSubstring("step 1: gradient norms differ by"));
  // Before the fault; what comes after it differs less.
  CHECK(difference.find("\n  in ") < difference.find("\n  out "));
}

TEST_CASE("runs within the tolerance agree without another run", "[examples]") {
  const Verdict verdict = judge(run_with(1e-9), run_with(not_a_number));
  CHECK(verdict.code == 0);
  CHECK(verdict.repeated == 0);
  CHECK_THAT(
      verdict.text,
      ContainsSubstring("verify: passed: losses differ by 1.81e-06 relative at most, 1e-04 is allowed"));
}

TEST_CASE("runs agree if roundings alone come to what they differ by", "[examples]") {
  const Verdict verdict = judge(run_with(1e-7), run_with(-4e-8));
  CHECK(verdict.code == 0);
  CHECK(verdict.repeated == 1);
  CHECK_THAT(verdict.text, ContainsSubstring("verify: passed: losses differ by 1.81e-04"));
  CHECK_THAT(verdict.text, ContainsSubstring("8 times what roundings come to: 7.23e-05 for losses"));
  CHECK(judge(run_with(1e-7), run_with(-1e-9)).code == 1); // they come to less
}

TEST_CASE("a gradient that is off by a thousandth fails in the first step, however far roundings grow",
          "[examples]") {
  RunResult wrong = run_with(1e-7);
  for (trainer::StepRecord& step : wrong.steps)
    step.gradient_norm *= 1 + 1e-3;
  const Verdict verdict = judge(wrong, run_with(1e-6));
  CHECK(verdict.code == 1);
  CHECK_THAT(verdict.text, ContainsSubstring("verify: FAILED"));
  CHECK_THAT(verdict.text, ContainsSubstring("step 1: gradient norms differ by 1.00e-03"));
}

TEST_CASE("gradient norms in 16 bits are printed, but not judged", "[examples]") {
  RunResult wrong = run_with(0);
  wrong.steps[0].gradient_norm *= 1 + 1e-3;
  trainer::RunOptions options;
  options.precision = trainer::Precision::bf16;
  std::ostringstream text;
  CHECK(trainer::report_differences(text, options, "", tolerance, wrong, run_with(0),
                                    [] { return run_with(0); }) == 0);
}

TEST_CASE("a fault that begins late fails if it exceeds what roundings come to by then", "[examples]") {
  RunResult wrong = run_with(1e-7);
  for (std::size_t step = 200; step < steps; ++step)
    wrong.steps[step].loss *= 1 + 1e-3;
  const Verdict verdict = judge(wrong, run_with(-1e-7));
  CHECK(verdict.code == 1);
  CHECK_THAT(verdict.text, ContainsSubstring("step 201: training losses differ by"));

  RunResult wrong_end = run_with(0);
  wrong_end.validation_loss *= 1 + 1e-3;
  CHECK_THAT(judge(wrong_end, run_with(1e-9)).text,
             ContainsSubstring("step 300: validation losses differ by"));
}

TEST_CASE("a repetition has the steps of a run that has ended early, at its learning rates", "[examples]") {
  trainer::RunOptions options;
  options.steps = 1000;
  options.patience = 2;
  options.learning_rate = 0.5;
  trainer::repeat_steps(options, run_with(0), 1.25);
  CHECK(options.steps == steps);
  CHECK(options.rate_steps == 1000);
  CHECK(options.patience == 0);
  CHECK(options.learning_rate == 0.625);
}

TEST_CASE("a NaN never agrees, and equal infinite gradient norms do", "[examples]") {
  CHECK(judge(run_with(not_a_number), run_with(1e-7)).code == 1);
  CHECK(judge(run_with(1e-7), run_with(not_a_number)).code == 1);

  RunResult run = run_with(0);
  run.steps[3].gradient_norm = std::numeric_limits<double>::infinity();
  CHECK(judge(run, run_with(0)).code == 1); // only here
  RunResult one = run;
  std::ostringstream text;
  CHECK(trainer::report_differences(text, {}, "", tolerance, run, one, [&] { return one; }) == 0);
}

TEST_CASE("a resumed run goes on with its file of hashes from the step of its checkpoint", "[verify]") {
  const shardwright_test::Scratch scratch;
  const auto run = [](const std::filesystem::path& file, std::int64_t done, std::uint64_t changed) {
    trainer::begin_hashes(file, done);
    for (std::int64_t step = done + 1; step <= 4; ++step)
      trainer::append_hashes(file, step, {{"loss", static_cast<std::uint64_t>(step) + changed}});
  };
  const auto record = [](const std::filesystem::path& file) {
    std::ifstream in(file);
    return sw::read_hashes(in, file.string());
  };
  const auto whole = scratch.root() / "whole", resumed = scratch.root() / "resumed";
  run(whole, 0, 0);
  run(resumed, 0, 0);
  std::ofstream(resumed, std::ios::app) << "5 00"; // cut by a kill
  run(resumed, 2, 0);
  CHECK(sw::compare_hashes(record(whole), record(resumed)).text() == "4 values of 4 steps compared");
  run(resumed, 2, 1);
  CHECK(sw::compare_hashes(record(whole), record(resumed)).difference->text() == "step 3: loss");
  run(scratch.root() / "other", 2, 0);
  CHECK(sw::compare_hashes(record(whole), record(scratch.root() / "other")).text() ==
        "2 values of 2 steps compared; step 1: loss is in one run only");
}

TEST_CASE("equal bits are reported with one hash in any order of names", "[verify]") {
  const auto report = [](const RunResult& run, const RunResult& one) {
    std::ostringstream text;
    const int code = trainer::report_bits(text, run, one);
    return std::to_string(code) + " " + text.str();
  };
  RunResult run;
  CHECK(report(run, run) == "0 verify: no step was run, so nothing is compared\n");
  run.hashes = {{1, {{"loss", 5}, {"weights of a", 6}, {"weights of b", 7}}}};
  RunResult other = run;
  std::swap(other.hashes[1][0], other.hashes[1][2]);
  CHECK(report(run, other) == report(other, run));
  CHECK(report(run, other).find("3 values of 1 steps compared") != std::string::npos);
  RunResult exchanged = run; // the hashes of two names
  std::swap(exchanged.hashes[1][1].hash, exchanged.hashes[1][2].hash);
  CHECK(report(exchanged, exchanged) != report(run, run));
  CHECK(report(run, exchanged).find("FAILED") != std::string::npos);
  other.hashes[1].pop_back();
  CHECK(report(run, other).starts_with("1 verify: FAILED: the runs must have the same steps"));
}
