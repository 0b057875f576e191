// SPDX-License-Identifier: Apache-2.0
#include "models/spread_run.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/matchers.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"

#include <models/dump.hpp>
#include <models/options.hpp>
#include <models/training.hpp>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

// A user's models, 20 steps each: every way to distribute them gives the results of one rank.

namespace {

namespace sw = shardwright;
using models::Options;
using models_test::difference;
using models_test::options_of;
using models_test::parameter_difference;
using models_test::run;
using models_test::RunResult;
using models_test::Way;
using shardwright_test::ContainsSubstring;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

/// Those without experts; the others have a separate test.
[[nodiscard]] std::vector<std::string> dense_models() {
  std::vector<std::string> out = models::compiled_models();
  std::erase_if(
      out, [](const std::string& model) { return model.starts_with("moe") || model.starts_with("mixtral"); });
  return out;
}

[[nodiscard]] bool has_sequences(const std::string& model) { return model != "mlp"; }

/// The ways to distribute that all models run through.
[[nodiscard]] std::vector<Way> ways_of(const std::string& model) {
  std::vector<Way> out{
      {.mesh = {{"dp", 2}}},
      {.mesh = {{"dp", 3}}},
      {.mesh = {{"dp", 2}}, .microbatches = 4}, // three rows over two ranks
      {.mesh = {{"tp", 2}}},
      {.mesh = {{"dp", 2}, {"tp", 2}}},
      {.mesh = {{"dpr", 2}, {"dp", 2}}},
      {.mesh = {{"dp", 2}, {"tp", 2}}, .microbatches = 2, .recompute = sw::Recompute::full},
      {.mesh = {{"pp", 2}}, .microbatches = 4},
      {.mesh = {{"pp", 2}}, .schedule = "interleaved", .microbatches = 4},
      {.mesh = {{"pp", 2}}, .schedule = "zbv", .microbatches = 4},
      {.mesh = {{"pp", 2}}, .schedule = "dualpipe", .microbatches = 4},
      {.mesh = {{"pp", 2}, {"dp", 2}},
       .schedule = "zbv",
       .microbatches = 4,
       .recompute = sw::Recompute::full},
  };
  if (has_sequences(model)) {
    out.push_back({.mesh = {{"cp", 2}}});
    out.push_back({.mesh = {{"cp", 2}, {"tp", 2}}, .microbatches = 2});
  }
  return out;
}

} // namespace

TEST_CASE("user-defined models train in double precision with ZeRO-3 as on one rank, on every mesh") {
  for (const std::string& model : dense_models()) {
    const RunResult one = run(options_of(model, "fp64", {}));
    CHECK(one.steps.back().loss <
          0.85 * one.steps.front().loss); // they learn, so that the comparison is meaningful
    for (const Way& way : ways_of(model)) {
      INFO(model << " " << way.text());
      const RunResult spread = run(options_of(model, "fp64", way));
      CHECK(difference(spread.losses(), one.losses()) < 1e-10);
      CHECK(difference(spread.gradient_norms(), one.gradient_norms()) < 1e-9);
      CHECK(parameter_difference(spread, one) < 1e-9);
    }
  }
}

TEST_CASE("they do in single precision with replicated parameters, in every second way") {
  for (const std::string& model : dense_models()) {
    const RunResult one = run(options_of(model, "fp32", {}));
    const std::vector<Way> ways = ways_of(model);
    for (std::size_t i = 1; i < ways.size(); i += 2) {
      const Way& way = ways[i];
      INFO(model << " " << way.text());
      const RunResult spread = run(options_of(model, "fp32", way));
      CHECK(difference(spread.losses(), one.losses()) < 1e-5);
    }
  }
}

TEST_CASE("recomputation changes no bit, nor does a repeated run") {
  for (const std::string& model : dense_models())
    for (const Way& way : {Way{}, Way{.mesh = {{"dp", 2}, {"tp", 2}}, .microbatches = 2}}) {
      INFO(model << " " << way.text());
      const Options options = options_of(model, "fp32", way);
      Options again = options;
      again.recompute.kind = sw::Recompute::full;
      CHECK(models::parameter_text(run(again).parameters) == models::parameter_text(run(options).parameters));
    }
}

// The results of a step in bfloat16 differ by independent relative roundings of 2^-8, the unit roundoff,
// which average out in the mean over the tokens of a batch; weights stay close because masters are floats. So
// the mean over the 384 tokens of gpt2 and decoder may differ by one unit. The mean over the 24 samples of
// mlp and encoder, a sixteenth of that number, may differ by four, and by half as much again for chance.
TEST_CASE(
    "they do in bfloat16 with ZeRO-3 in the other ways, up to its roundoff relative to double precision") {
  for (const std::string& model : dense_models()) {
    const double roundoffs = model == "mlp" || model == "encoder" ? 6 : 1;
    const RunResult one = run(options_of(model, "fp64", {}));
    const std::vector<Way> ways = ways_of(model);
    for (std::size_t i = 0; i < ways.size(); i += 2) {
      const Way& way = ways[i];
      INFO(model << " " << way.text());
      const RunResult narrow = run(options_of(model, "bf16", way));
      CHECK(difference(narrow.losses(), one.losses()) < roundoffs * 0x1p-8);
    }
  }
}

TEST_CASE("a dry run predicts their memory to the byte, and every call of a step") {
  for (const std::string& model : dense_models())
    for (const Way& way :
         {Way{}, Way{.mesh = {{"dp", 3}}}, Way{.mesh = {{"dp", 2}, {"tp", 2}}, .microbatches = 2},
          Way{.mesh = {{"tp", 2}}, .recompute = sw::Recompute::full},
          Way{.mesh = {{"pp", 2}, {"dp", 2}}, .microbatches = 4},
          Way{.mesh = {{"pp", 2}}, .schedule = "interleaved", .microbatches = 4},
          Way{.mesh = {{"pp", 2}},
          .schedule = "dualpipe",
          .microbatches = 4,
          .recompute = sw::Recompute::full},
          Way{.mesh = {{"cp", 2}}}}) {
      if (!has_sequences(model) && way.mesh == std::vector<command_line::MeshAxis>{{"cp", 2}})
        continue;
      Options options = options_of(model, "fp64", way);
      options.steps = 3;
      CHECK(on_ranks(options.ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
              shardwright_test::expect_predicted<shardwright_test::Counted::last_step>(
                  models::dry_run(options, world.rank()), world,
                  [&](const sw::HostCommunicator& logged, const auto& at_step) {
                    const auto on_step = [&](const sw::StepReport& report, const auto&,
                                             const sw::PoolStatistics& pool) {
                      at_step(static_cast<int>(report.step), pool);
                    };
                    static_cast<void>(models::train(logged, options, true, on_step));
                  },
                  model + " " + way.text(), findings);
            }) == "");
    }
}

TEST_CASE("errors name the meshes that a model allows and the trainings that the program has") {
  const auto refused = [](std::initializer_list<const char*> words) {
    std::vector<const char*> arguments{"train_models"};
    arguments.insert(arguments.end(), words);
    const models::ParseResult result =
        models::parse(static_cast<int>(arguments.size()), arguments.data(), {});
    CHECK_FALSE(result.options);
    CHECK(result.exit_code == 2);
    return result.message;
  };
  CHECK_THAT(refused({"--model", "gpt3"}),
             ContainsSubstring("mlp, moe or moe-folded, but it is 'gpt3'; did you mean gpt2?"));
  CHECK_THAT(refused({"--batch", "10", "--microbatches", "4"}), ContainsSubstring("give --batch 12"));
  CHECK_THAT(refused({"--batch", "4", "--microbatches", "4", "--mesh", "dp=2"}),
             ContainsSubstring("fewer rows than there are data ranks, 2"));
  CHECK_THAT(refused({"--model", "moe", "--batch", "4", "--mesh", "dp=2,ep=4"}),
             ContainsSubstring("fewer rows than there are data ranks, 8"));
  CHECK_THAT(refused({"--model", "decoder", "--mesh", "ep=2"}),
             ContainsSubstring("ep=2 ranks for experts, but --model decoder has none (give --model moe"));
  CHECK_THAT(refused({"--mesh", "pp=2", "--schedule", "dualpipe"}), ContainsSubstring("--schedule "));
  CHECK_THAT(refused({"--mesh", "dp=2,tb=2"}), ContainsSubstring("unknown axis 'tb'"));

  const auto failure = [](const Options& options) {
    std::vector<std::string> said(static_cast<std::size_t>(options.ranks));
    CHECK(on_ranks(options.ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
            std::string& own = said[static_cast<std::size_t>(world.rank())];
            own = failure_of<sw::InvalidArgument>(
                [&] { static_cast<void>(models::train(world, options, true)); });
            findings.expect(!own.empty(), "no sentence");
          }) == "");
    return said.back();
  };
  Options options = options_of("mlp", "fp32", {});
  options.zero = 3;
  CHECK_THAT(failure(options), ContainsSubstring("give --precision fp32 with --zero 0"));
  CHECK_THAT(failure(options_of("mlp", "fp32", {.mesh = {{"cp", 2}}})),
             ContainsSubstring("has cp=2 (use dp or tp)"));
}
