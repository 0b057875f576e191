// SPDX-License-Identifier: Apache-2.0
#include "nn/random_model.hpp"
#include "nn/same_on_every_mesh.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/checks/replica_check.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/sgd.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

// Models that nobody wrote: each case draws a mesh, sizes and a list of steps from its seed. Two steps of
// training on the mesh must be those of one rank that has the batch in one piece, and gradients must be
// slopes.
//
// SHARDWRIGHT_RANDOM_MODELS="seconds=3600" runs other cases than those of every run for an hour; "seed=7
// cases=1" repeats one.

namespace {

using namespace random_models;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

/// Which cases to run.
struct Cases {
  std::uint64_t seed = 1;
  std::uint64_t count = nn_test::slow ? 40 : 6000;
  double seconds = 0; ///< Instead of a count, if not 0.
};
[[nodiscard]] Cases cases_wanted() {
  Cases out;
  const char* const wanted = std::getenv("SHARDWRIGHT_RANDOM_MODELS");
  if (wanted == nullptr)
    return out;
  out.seed = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::istringstream words(wanted);
  for (std::string word; words >> word;) {
    const std::size_t equals = std::min(word.find('='), word.size() - 1);
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "seed")
      out.seed = std::stoull(value);
    else if (name == "cases")
      out.count = std::stoull(value);
    else if (name == "seconds")
      out.seconds = std::stod(value);
    else
      throw sw::InvalidArgument(
          "SHARDWRIGHT_RANDOM_MODELS: each word must be seed=, cases= or seconds= with a number, but one is " +
          word + " (write \"seconds=60\", or \"seed=7 cases=1\")");
  }
  return out;
}

struct Outcome {
  std::vector<double> numbers; // losses, norms and counts of each step; then the trained parameters
};

/// Two steps, with the batch in `microbatches` pieces.
[[nodiscard]] Outcome train(const sw::HostCommunicator& world, const Case& drawn, std::int64_t microbatches) {
  const bool alone = world.size() == 1;
  const Mesh mesh(world, sw::extent<dp>(alone ? 1 : drawn.dp), sw::extent<cp>(alone ? 1 : drawn.cp),
                  sw::extent<tp>(alone ? 1 : drawn.tp));
  Model model(mesh, drawn);
  sw::initialize(model, drawn.seed);
  sw::GradAccumulator accumulator(model);
  const sw::CompareRawGradients copies(accumulator);
  sw::Sgd optimizer({.momentum = 0.5, .max_norm = 0.1, .groups = {}});
  sw::Tape tape;
  Outcome out;
  const std::int64_t rows = drawn.sequences() / microbatches;
  for (std::int64_t step = 1; step <= 2; ++step) {
    for (std::int64_t i = 0; i < microbatches; ++i) {
      const Batch batch(mesh, drawn, step, i * rows, rows);
      tape.restart(sw::Recording::training, batch.origin, batch.order);
      tape.check_inputs(step == 1);
      const Losses losses = Pass(model, tape, mesh, drawn, batch).run();
      tape.backward();
      losses.each([&](const auto& loss) { accumulator.add(loss); });
    }
    const sw::GradientSummary summary = accumulator.finish();
    copies.require_equal(world);
    optimizer.step(model, summary, 0.3);
    accumulator.restart();
    out.numbers.insert(out.numbers.end(),
                       {summary.loss.value, summary.gradient_norm, static_cast<double>(summary.tokens)});
  }
  sw::for_each_parameter(model, [&](auto& parameter) {
    using P = std::remove_reference_t<decltype(parameter)>;
    const auto all = sw::local_values(sw::redistribute<sw::Layout<P::tensor_rank>>(parameter.stored()));
    out.numbers.insert(out.numbers.end(), all.begin(), all.end());
  });
  return out;
}

/// The slopes of the first step's first microbatch.
void check_slopes(const sw::HostCommunicator& world, const Case& drawn) {
  const Mesh mesh(world, sw::extent<dp>(drawn.dp), sw::extent<cp>(drawn.cp), sw::extent<tp>(drawn.tp));
  Model model(mesh, drawn);
  sw::initialize(model, drawn.seed);
  const Batch batch(mesh, drawn, 1, 0, drawn.rows);
  // All losses as one number, which every rank has and one counts.
  struct Sum {
    using layout = sw::Layout<0>;
    sw::LossSum<layout> loss;
    [[nodiscard]] const Sum& read() const noexcept { return *this; }
  };
  const auto loss = [&](sw::Tape<>& tape) {
    std::array<double, 1> sum{};
    Pass(model, tape, mesh, drawn, batch).run().each([&](const auto& each) {
      if (sw::detail::counts_once<typename std::remove_cvref_t<decltype(each)>::layout>(mesh.core()))
        sum[0] += each.loss.value;
    });
    sw::detail::sum_over_ranks(world, sum);
    return Sum{{sum[0]}};
  };
  try {
    static_cast<void>(sw::check_gradients(
        loss, sw::members("model", model),
        {.tolerance = 1e-5, .directions = 1, .origin = batch.origin, .rows = batch.order}));
  } catch (const sw::GradientMismatch& mismatch) {
    // Where the gradient is 0, as of a bias before a softmax, the quotient is the rounding of the loss.
    const sw::GradientDifference& found = mismatch.difference();
    if (std::abs(found.gradient - found.quotient) > 1e-5)
      throw;
  }
}

/// What is wrong with a case; empty if nothing is.
[[nodiscard]] std::string faults_of(const Case& drawn) {
  try {
    Outcome alone;
    std::string found = on_ranks(1, [&](sw::HostCommunicator world, Findings& findings) {
      alone = train(world, drawn, 1);
      findings.expect(!alone.numbers.empty(), "numbers of one rank");
    });
    found += on_ranks(drawn.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
      const Outcome spread = train(world, drawn, drawn.microbatches);
      findings.expect(spread.numbers.size() == alone.numbers.size(), "as many numbers");
      for (std::size_t i = 0; i < std::min(spread.numbers.size(), alone.numbers.size()); ++i)
        findings.expect(std::abs(spread.numbers[i] - alone.numbers[i]) <=
                            1e-8 * (1 + std::abs(alone.numbers[i])),
                        "number ", i, " on rank ", world.rank(), " is ", spread.numbers[i], " instead of ",
                        alone.numbers[i]);
      check_slopes(world, drawn);
    });
    return found;
  } catch (const std::exception& error) {
    return error.what();
  }
}

} // namespace

TEST_CASE("random models train on every mesh as on one rank, and their gradients are slopes",
          "[random_models]") {
  const Cases wanted = cases_wanted();
  const auto start = std::chrono::steady_clock::now();
  const auto more = [&](std::uint64_t done) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    return wanted.seconds > 0 ? passed.count() < wanted.seconds : done < wanted.count;
  };
  int failed = 0;
  for (std::uint64_t i = 0; failed < 3 && more(i); ++i) {
    const Case drawn = draw_case(wanted.seed + i);
    INFO(text_of(drawn)); // before it runs, for a crash
    const std::string faults = faults_of(drawn);
    INFO(faults);
    CHECK(faults == ""); // SHARDWRIGHT_RANDOM_MODELS="seed=... cases=1" repeats it
    failed += faults.empty() ? 0 : 1;
  }
}

TEST_CASE("random models use every piece in every layout, and what is easily forgotten", "[random_models]") {
  std::set<std::pair<Piece, int>> read;
  int nested = 0, dropped = 0, called_again = 0, parts_again = 0, losses_again = 0;
  for (std::uint64_t seed = 1; seed <= Cases{}.count; ++seed) {
    const Case drawn = draw_case(seed);
    std::array<std::set<int>, part_kinds> parts;
    const auto visit = [&](const auto& self, const std::vector<Step>& steps, int depth) -> void {
      for (const Step& step : steps) {
        read.emplace(step.piece, step.is_loss() ? 0 : step.read);
        nested += step.piece == Piece::region && depth > 0 ? 1 : 0;
        if (step.kind() != Part::none &&
            !parts[static_cast<std::size_t>(step.kind())].insert(step.part).second)
          ++(step.kind() == Part::dropout ? called_again : parts_again);
        self(self, step.inner, depth + 1);
      }
    };
    visit(visit, drawn.steps, 0);
    dropped += dropped_values(drawn) > 0 ? 1 : 0;
    losses_again += drawn.losses() > 1 ? 1 : 0;
  }
  CHECK(read.size() == 19 * kept_layouts + 5);
  for (const int count : {nested, dropped, called_again, parts_again, losses_again})
    CHECK(count >= (nn_test::slow ? 1 : 50));
}
