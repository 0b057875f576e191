// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "train/toy_stage.hpp"

#include <shardwright/comm/turns.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/text/csv.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using train_test::all_schedules;
using train_test::ToyPipeline;
using train_test::ToyStage;
using Runner = sw::PipelineRunner<ToyStage>;

[[nodiscard]] std::vector<ToyStage::Batch> batches_of(int microbatches) {
  std::vector<ToyStage::Batch> out;
  for (int i = 0; i < microbatches; ++i)
    out.push_back({1.0 + 0.5 * i});
  return out;
}

/// The product of all factors except one stage's; -1 leaves none out.
[[nodiscard]] double product_without(int stages, int left_out) {
  double out = 1;
  for (int stage = 0; stage < stages; ++stage)
    if (stage != left_out)
      out *= ToyStage::factor_of(stage);
  return out;
}

/// The input, summed over the microbatches of this rank's copy of a stage and over the elements.
[[nodiscard]] double input_of(const sw::StagePlacement& placement, int microbatches, int rank, int stage) {
  double sum = 0;
  for (int i = 0; i < microbatches; ++i)
    if (placement.rank_of(stage, i) == rank)
      sum += 5 * (1.0 + 0.5 * i);
  return sum;
}

[[nodiscard]] bool near(double value, double expected) {
  return std::abs(value - expected) <= 1e-12 * std::abs(expected);
}

/// A run of `ranks` ranks in which a test intervenes; returns the exceptions of the ranks.
template <class Prepare>
[[nodiscard]] std::vector<std::exception_ptr> broken_run(int ranks, std::chrono::milliseconds deadline,
                                                         const sw::Schedule& schedule, Prepare prepare) {
  return rank_outcomes::of(ranks, deadline, [&](sw::HostCommunicator world) {
    ToyPipeline pipeline(world, schedule.placement());
    Runner runner(world, schedule, pipeline.chunks());
    prepare(world.rank(), pipeline);
    const auto batches = batches_of(schedule.microbatches());
    try {
      static_cast<void>(runner.run(batches));
    } catch (const std::logic_error&) {
      throw;
    } catch (...) {
      // Messages in flight are dropped, and the runner with them.
      const std::exception_ptr first = std::current_exception();
      try {
        static_cast<void>(runner.run(batches));
      } catch (const sw::LifecycleError&) {
        std::rethrow_exception(first);
      }
      throw std::logic_error("a runner whose run threw was used again");
    }
  });
}

} // namespace

TEST_CASE("a runner passes every stage the results of its neighbours, under every schedule") {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (const int microbatches : {1, 2, 4, 8, 12})
      for (const sw::Schedule& schedule : all_schedules(ranks, microbatches)) {
        INFO(schedule.name() << " on " << ranks << " ranks with " << microbatches << " microbatches");
        const int stages = schedule.stages();
        CHECK(on_ranks(ranks, [&](sw::HostCommunicator world, Findings& findings) {
                ToyPipeline pipeline(world, schedule.placement());
                Runner runner(world, schedule, pipeline.chunks());
                const auto batches = batches_of(microbatches);
                for (int step = 1; step <= 2; ++step) {
                  const double loss = runner.run(batches).sum;
                  const int last = stages - 1;
                  const double expected = product_without(stages, -1) *
                                          input_of(schedule.placement(), microbatches, world.rank(), last);
                  findings.expect(near(loss, expected), "the loss is ", loss, ", not ", expected);
                  for (const ToyStage& stage : pipeline.stages) {
                    const double weight =
                        step * product_without(stages, stage.number) *
                        input_of(schedule.placement(), microbatches, world.rank(), stage.number);
                    findings.expect(near(stage.weight, weight), "the gradient of stage ", stage.number,
                                    " is ", stage.weight, ", not ", weight);
                    findings.expect(static_cast<int>(stage.ended.size()) == step &&
                                        stage.ended.back() == stage.weight_passes,
                                    "stage ", stage.number,
                                    " is told once in a step of its last weight pass");
                  }
                  findings.expect(near(runner.evaluate(batches).sum, loss), "evaluate gives the same loss");
                  findings.expect(near(runner.evaluate(std::span(batches).first(1)).sum,
                                       schedule.placement().rank_of(last, 0) == world.rank()
                                           ? 5 * product_without(stages, -1)
                                           : 0),
                                  "a part of the microbatches may be evaluated");
                }
              }) == "");
      }
}

TEST_CASE("overlapped passes take turns if told to, and give the same results as one after the other") {
  const sw::Schedule schedule = sw::make_schedule<sw::DualPipe>(2, 8);
  CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
          const auto turns = std::make_shared<sw::Turns>();
          sw::HostCommunicator copies = sw::in_turns(world, turns).split(world.rank() / 2, 0);
          const sw::HostCommunicator ranks = world.split(world.rank() % 2, 0);
          ToyPipeline pipeline(ranks, schedule.placement());
          Runner runner(ranks, schedule, pipeline.chunks(), {.turns = turns});
          int under_way = 0, both = 0;
          for (ToyStage& stage : pipeline.stages)
            stage.before = [&](sw::Pass) {
              both += ++under_way == 2 ? 1 : 0;
              std::array<int, 2> in{1, 2}, out{};
              copies.all_to_all(in, out);
              --under_way;
            };
          const double loss = runner.run(batches_of(8)).sum;
          const double expected = product_without(schedule.stages(), -1) *
                                  input_of(schedule.placement(), 8, ranks.rank(), schedule.stages() - 1);
          findings.expect(near(loss, expected), "the loss is ", loss, ", not ", expected);
          findings.expect(both > 0, "no pass began while an exchange of another was under way");
        }) == "");
}

TEST_CASE("the reduction of a stage starts before the rank's other stages are done") {
  const sw::Schedule schedule = sw::make_schedule<sw::Interleaved<2>>(2, 8);
  CHECK(on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
          ToyPipeline pipeline(world, schedule.placement());
          Runner runner(world, schedule, pipeline.chunks());
          int other_left = -1;
          ToyStage& early = pipeline.stages[1];
          pipeline.stages[0].before = [&](sw::Pass) {
            if (other_left < 0 && !early.ended.empty())
              other_left = 8 - pipeline.stages[0].weight_passes;
          };
          static_cast<void>(runner.run(batches_of(8)));
          findings.expect(other_left > 0, "microbatches that the first stage has left: ", other_left);
        }) == "");
}

TEST_CASE("a runner rejects numbers that do not fit its schedule, naming both") {
  const sw::Schedule schedule = sw::make_schedule<sw::OneFOneB>(2, 4);
  CHECK(on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
          const auto sentence = [](auto program) {
            try {
              program();
            } catch (const sw::InvalidArgument& error) {
              return std::string(error.what());
            }
            return std::string("no error");
          };
          ToyPipeline pipeline(world, schedule.placement());
          const std::string ranks =
              sentence([&] { Runner(world, sw::make_schedule<sw::OneFOneB>(3, 4), pipeline.chunks()); });
          findings.expect(ranks.find("it has 3 and the pipeline 2") != std::string::npos, ranks);
          const std::string chunks =
              sentence([&] { Runner(world, sw::make_schedule<sw::ZBV>(2, 4), pipeline.chunks()); });
          findings.expect(chunks.find("chunks, 2, but 1 were given") != std::string::npos, chunks);
          Runner runner(world, schedule, pipeline.chunks());
          const std::string batches = sentence([&] { static_cast<void>(runner.run(batches_of(3))); });
          findings.expect(batches.find("schedule's 4, but 3 were given") != std::string::npos, batches);
          findings.expect(
              near(runner.run(batches_of(4)).sum, world.rank() == 1 ? product_without(2, -1) * 5 * 7 : 0),
              "it runs after a refusal");
        }) == "");
}

namespace {

using AllSteps = std::vector<std::vector<sw::Step>>;

/// A schedule after a change of its steps.
template <class Change> [[nodiscard]] sw::Schedule changed(const sw::Schedule& schedule, Change change) {
  AllSteps steps;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    steps.emplace_back(schedule.steps(rank).begin(), schedule.steps(rank).end());
  change(steps);
  return {schedule.name(), schedule.placement(), schedule.microbatches(), steps, schedule.window()};
}

} // namespace

TEST_CASE("ranks with different schedules get an error that names the first step that differs") {
  const sw::Schedule common = sw::make_schedule<sw::OneFOneB>(3, 4);
  struct Other {
    sw::Schedule schedule;
    std::string difference;
  };
  const std::vector<Other> others{
      {{sw::make_schedule<sw::GPipe>(3, 4), common.window()}, "step 3 of rank 0 is 0B0 | 0F3"},
      {changed(common, [](AllSteps& steps) { std::swap(steps[2][1], steps[2][2]); }),
       "step 1 of rank 2 is 2B0 | 2F1"},
      {changed(common, [](AllSteps& steps) { steps[1].pop_back(); }), "step 7 of rank 1 is 1B3 | missing"},
      {changed(common, [](AllSteps& steps) { steps[2].emplace_back(steps[0][1]); }),
       "step 8 of rank 2 is missing | 0F1"},
      {changed(common, [](AllSteps& steps) { steps[2][7].overlapped = true; }),
       "step 7 of rank 2 is 2B3 | (2B3;0F0)OVERLAP_B_F"},
      {{common, {common.window().receive_ahead + 1, common.window().sends_in_flight}},
       "the same number of steps to receive ahead"}};
  for (const Other& other : others) {
    const std::size_t bar = other.difference.find(" | ");
    const std::string here = other.difference.substr(0, bar);
    const std::string there = bar == std::string::npos ? " on rank 2" : other.difference.substr(bar + 3);
    INFO(other.difference);
    const auto outcomes = rank_outcomes::of(3, rank_outcomes::ample, [&](sw::HostCommunicator world) {
      const sw::Schedule& schedule = world.rank() == 2 ? other.schedule : common;
      ToyPipeline pipeline(world, schedule.placement());
      Runner runner(world, schedule, pipeline.chunks());
    });
    for (const auto& outcome : outcomes)
      CHECK_THAT(rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
                 ContainsSubstring("PipelineRunner: all ranks must give the same ") &&
                     ContainsSubstring(
                         here + (bar == std::string::npos
                                     ? ""
                                     : " in the schedule that rank 0 gives, and " + there +
                                           " in that of rank 2 (make it from what all ranks share)")) &&
                     ContainsSubstring(there));
  }
}

TEST_CASE("ranks with schedules of different lengths get an error that names the odd rank") {
  const auto shorter = rank_outcomes::of(3, rank_outcomes::ample, [&](sw::HostCommunicator world) {
    const sw::Schedule schedule = sw::make_schedule<sw::OneFOneB>(3, world.rank() == 1 ? 5 : 4);
    ToyPipeline pipeline(world, schedule.placement());
    Runner runner(world, schedule, pipeline.chunks());
  });
  for (const auto& outcome : shorter)
    CHECK_THAT(
        rank_outcomes::text<sw::ConfigurationMismatch>(outcome),
        ContainsSubstring(
            "PipelineRunner: all ranks must give the same number of microbatches, but it is 4 on rank 0 "
            "and 5 on rank 1"));
}

TEST_CASE("a rank that throws in mid-pipeline ends the others immediately, and they name it") {
  for (const int broken : {0, 1, 2})
    for (const sw::Schedule& schedule : {sw::make_schedule("1f1b", 3, 6), sw::make_schedule("zbv", 3, 6)}) {
      INFO(schedule.name() << ", rank " << broken << " throws");
      const auto begin = std::chrono::steady_clock::now();
      const auto outcomes = rank_outcomes::of(3, rank_outcomes::ample, [&](sw::HostCommunicator world) {
        ToyPipeline pipeline(world, schedule.placement());
        Runner runner(world, schedule, pipeline.chunks());
        if (world.rank() == broken)
          pipeline.stages[0].before = [count = 0](sw::Pass) mutable {
            if (++count == 5)
              throw std::runtime_error("a stage broke");
          };
        // The rank leaves together with the runner, like a program that does not catch.
        static_cast<void>(runner.run(batches_of(6)));
      });
      CHECK(rank_outcomes::text<std::runtime_error>(outcomes[static_cast<std::size_t>(broken)]) ==
            "a stage broke");
      for (int rank = 0; rank < 3; ++rank)
        if (rank != broken) {
          const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
          CHECK_THAT(rank_outcomes::text<sw::PeerFailed>(outcome),
                     ContainsSubstring("rank " + std::to_string(broken)));
        }
      CHECK(std::chrono::steady_clock::now() - begin < rank_outcomes::ample / 2);
    }
}

TEST_CASE("a frozen rank is named at the deadline, and the runner cannot be used again") {
  const sw::Schedule schedule = sw::make_schedule<sw::ZBH1>(2, 4);
  const auto outcomes = broken_run(2, rank_outcomes::brief, schedule, [](int rank, ToyPipeline& pipeline) {
    if (rank == 1)
      pipeline.stages[0].before = [count = 0](sw::Pass) mutable {
        if (++count == 3)
          std::this_thread::sleep_for(3 * rank_outcomes::brief);
      };
  });
  CHECK_THAT(rank_outcomes::text<sw::DeadlineExceeded>(outcomes[0]),
             ContainsSubstring("rank 1") && ContainsSubstring("pipeline_runner_test.cpp"));
  CHECK(outcomes[1] != nullptr);
}

TEST_CASE("stages that exchange different shapes get a typed error on both sides") {
  const sw::Schedule schedule = sw::make_schedule<sw::OneFOneB>(2, 4);
  const auto outcomes = broken_run(2, rank_outcomes::ample, schedule, [](int rank, ToyPipeline& pipeline) {
    pipeline.stages[0].elements = 5 + rank;
  });
  for (const auto& outcome : outcomes)
    CHECK_THAT(rank_outcomes::text<sw::CollectiveMismatch>(outcome),
               ContainsSubstring("both sides of a message must agree on the count"));
}

TEST_CASE("a schedule with a missing action or a cycle is rejected on every rank before anything runs") {
  const auto refused = [](const std::string& csv) {
    const sw::Schedule schedule = sw::schedule_from_csv(csv, "own.csv");
    const auto outcomes = rank_outcomes::of(2, rank_outcomes::ample, [&](sw::HostCommunicator world) {
      ToyPipeline pipeline(world, schedule.placement());
      Runner runner(world, schedule, pipeline.chunks());
    });
    const std::string text = rank_outcomes::text<sw::InvalidArgument>(outcomes[0]);
    CHECK(rank_outcomes::text<sw::InvalidArgument>(outcomes[1]) == text);
    return text;
  };
  CHECK_THAT(refused("0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n"), ContainsSubstring("own.csv") &&
                                                            ContainsSubstring("cannot be run") &&
                                                            ContainsSubstring("1B1 is missing on rank 1"));
  CHECK_THAT(refused("0F0,0I0,0F1,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n"),
             ContainsSubstring("0W0 is missing on rank 0"));
  CHECK_THAT(refused("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"), ContainsSubstring("ranks wait for one another") &&
                                                                ContainsSubstring("rank 0 at step 1") &&
                                                                ContainsSubstring("rank 1 at step 0"));
  CHECK_THAT(refused("0F0,0W0,0I0\n1F0,1I0,1W0\n"), ContainsSubstring("0W0 comes before 0I0"));
}

namespace {

/// A loss of half the squared sum of all microbatches, whose gradient is that sum.
struct SquaredSumLoss {
  static constexpr bool needs_whole_batch = true;
  double sum = 0;
  SquaredSumLoss& operator+=(const SquaredSumLoss& other) {
    sum += other.sum;
    return *this;
  }
};

struct WholeBatchStage : ToyStage {
  using Loss = SquaredSumLoss;
  double outputs = 0; ///< Of the forwards so far.
  double slope = 0;   ///< The derivative of the loss, known when all forwards are done.

  std::optional<Tensor> forward(std::optional<Tensor> in, const Batch& batch, Saved& saved, Loss& loss) {
    ToyStage::Loss own;
    auto out = ToyStage::forward(std::move(in), batch, saved, own);
    outputs += own.sum;
    loss.sum += own.sum;
    return out;
  }
  void end_forwards() { slope = std::exchange(outputs, 0); }
  std::optional<Tensor> input_gradient(std::optional<Tensor> gradient, Saved& saved) {
    if (number + 1 == stages) {
      gradient.emplace(mesh, Tensor::Shape{elements});
      sw::fill(*gradient, slope);
    }
    return ToyStage::handed_back(std::move(gradient), saved);
  }
  std::optional<Tensor> backward(std::optional<Tensor> gradient, const Batch& batch, Saved& saved,
                                 sw::PassPosition position) {
    auto out = input_gradient(std::move(gradient), saved);
    weight_gradient(batch, saved, position);
    return out;
  }
};

} // namespace

TEST_CASE("a loss over the whole batch has seen all forwards before its first backward, under GPipe") {
  constexpr int ranks = 3;
  constexpr int microbatches = 4;
  const auto compiled = sw::make_schedule<sw::GPipe>(ranks, microbatches);
  const sw::ForwardsFirstSchedule named{sw::make_schedule("gpipe", ranks, microbatches)};
  CHECK(on_ranks(ranks, [&](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world.split(world.rank(), 0), sw::extent<sw::axis::dp>(1)};
          const auto check = [&](const auto& schedule) {
            WholeBatchStage stage{{.mesh = mesh, .number = world.rank(), .stages = ranks}};
            sw::PipelineRunner<WholeBatchStage> runner(world, schedule, {&stage});
            static_cast<void>(runner.run(batches_of(microbatches)));
            const double sum = product_without(ranks, -1) * 5 * (1 + 1.5 + 2 + 2.5);
            findings.expect(near(stage.weight, sum * sum / stage.factor()), "the gradient is ", stage.weight);
          };
          check(compiled);
          check(named);
        }) == "");
  CHECK_THROWS_AS(sw::ForwardsFirstSchedule{sw::make_schedule("1f1b", ranks, microbatches)},
                  sw::InvalidArgument);
}

namespace {

/// A stage with a part that needs the whole batch on the ranks that hold one.
struct ChosenStage : WholeBatchStage {
  using Loss = ToyStage::Loss;
  static constexpr bool may_read_whole_batch = true;
  [[nodiscard]] bool reads_whole_batch() const { return number == 1; }

  std::optional<Tensor> forward(std::optional<Tensor> in, const Batch& batch, Saved& saved, Loss& loss) {
    return ToyStage::forward(std::move(in), batch, saved, loss);
  }
  std::optional<Tensor> count(std::optional<Tensor> in, const Batch& batch, Saved& saved) {
    Loss unused;
    auto out = ToyStage::forward(std::move(in), batch, saved, unused);
    ++counted;
    return out;
  }
  int counted = 0;
};

} // namespace

TEST_CASE("all ranks refuse a schedule that cannot carry the loss of a part that one of them holds") {
  constexpr int ranks = 3;
  constexpr int microbatches = 4;
  const auto outcomes_of = [](const sw::Schedule& schedule) {
    return rank_outcomes::of(ranks, rank_outcomes::ample, [&](sw::HostCommunicator world) {
      const sw::DeviceMesh mesh{world.split(world.rank(), 0), sw::extent<sw::axis::dp>(1)};
      ChosenStage stage{{{.mesh = mesh, .number = world.rank(), .stages = ranks}}};
      sw::PipelineRunner<ChosenStage> runner(world, schedule, {&stage});
    });
  };
  for (const auto& outcome : outcomes_of(sw::make_schedule("1f1b", ranks, microbatches)))
    CHECK_THAT(
        rank_outcomes::text<sw::InvalidArgument>(outcome),
        ContainsSubstring(
            "a loss that needs the whole batch must run under a schedule whose forwards all precede its backwards"));
  for (const sw::Schedule& schedule :
       {sw::make_schedule("gpipe", ranks, microbatches),
        sw::Schedule(sw::CountingFirst(sw::make_schedule("1f1b", ranks, microbatches)))})
    for (const auto& outcome : outcomes_of(schedule))
      CHECK(outcome == nullptr);
}

TEST_CASE("recomputed passes are counted once, under every schedule") {
  constexpr int ranks = 4;
  constexpr int microbatches = 8;
  for (const sw::Schedule& schedule : all_schedules(ranks, microbatches)) {
    INFO(schedule.name());
    CHECK(on_ranks(ranks, [&](sw::HostCommunicator world, Findings& findings) {
            ToyPipeline model(world, schedule.placement());
            for (ToyStage& stage : model.stages)
              stage.replays = true;
            Runner runner(world, schedule, model.chunks());
            static_cast<void>(runner.run(batches_of(microbatches)));
            for (const ToyStage& stage : model.stages) {
              findings.expect(stage.seen.values()[0] == 5 * stage.weight_passes, "stage ", stage.number,
                              " saw ", stage.seen.values()[0], " elements of ", stage.weight_passes,
                              " microbatches");
              findings.expect(stage.work_done == 2 * stage.weight_passes, "the work was done ",
                              stage.work_done, " times");
            }
          }) == "");
  }
}
