// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/timetable.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/simulate/drawing.hpp>
#include <shardwright/plan/simulate/simulate_step.hpp>
#include <shardwright/plan/simulate/step_seconds.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace shardwright;
using shardwright_test::Approx;
using shardwright_test::ContainsSubstring;

namespace {

constexpr std::array<PlanSchedule, plan_schedule_count> all_schedules{
    PlanSchedule::gpipe, PlanSchedule::one_f_one_b, PlanSchedule::interleaved,
    PlanSchedule::zb_h1, PlanSchedule::zb_h2,       PlanSchedule::interleaved_zb,
    PlanSchedule::zb_v,  PlanSchedule::dual_pipe,   PlanSchedule::dual_pipe_v};

/// The step time of the cost model without the terms that the simulation leaves out: statistical jitter, and
/// uneven stages.
double counted(const StepCost& cost) {
  return cost.step_seconds - cost.straggler_seconds - cost.imbalance_seconds;
}

/// Whether the work behind which the cost model hides the data-parallel traffic of a pipeline is long enough.
/// If it is not, idle time of the pipeline hides more of the traffic in the simulation.
bool data_fits(const PlanConfiguration& plan, const StepCost& cost, const SharedCalibration& shared) {
  const TrafficCost& data = cost.of(Traffic::data);
  return plan.pp == 1 || data.exposed_seconds <= data.seconds * shared.data_exposed * (1 + 1e-12);
}

template <class Function> int for_each_plan(const Function& function) {
  int plans = 0;
  for (const char* name : {"llama-3.1-8b", "llama-3.1-70b", "deepseek-v3"})
    for (const ChipSpec& chip : {chip::h100, chip::gb200, chip::tpu_v5p})
      for (const int tp : {1, 4})
        for (const int pp : {1, 2, 8})
          for (const int zero : {1, 2, 3})
            for (const PlanSchedule schedule : all_schedules) {
              const ModelSpec& model = *find_model(name);
              const PlanConfiguration plan{.tp = tp,
                                           .cp = pp == 2 ? 2 : 1,
                                           .pp = pp,
                                           .chunks = takes_chunks(schedule) ? 2 : 1,
                                           .schedule = schedule,
                                           .ep = model.experts.used() ? 8 : 1,
                                           .dp = 64 / (tp * pp * (pp == 2 ? 2 : 1)),
                                           .zero_stage = zero,
                                           .microbatch = 1,
                                           .recomputation = Recompute::selective};
              const ClusterSpec cluster = cluster_of(chip, 64);
              const RunSpec run{.sequences = 128, .sequence_length = 4096};
              if ((pp == 1 && schedule != PlanSchedule::gpipe) ||
                  problem_of(model, cluster, run, plan) != PlanProblem::none)
                continue;
              INFO(std::string(name) << " on " << std::string(chip.name) << ", " << plan_text(plan));
              function(model, cluster, run, plan);
              ++plans;
            }
  return plans;
}

const ModelSpec& small = *find_model("llama-3.1-8b");
const RunSpec batch{.sequences = 64, .sequence_length = 4096};

StepSimulation simulated(const PlanConfiguration& plan, const SimulationOptions& options,
                         std::int64_t chips = 32) {
  return simulate_step(small, cluster_of(chip::h100, chips), batch, plan, options);
}

} // namespace

TEST_CASE("without contention and stragglers a step takes as long as its cost says", "[simulate_step]") {
  int exact = 0, bounded = 0;
  const int plans = for_each_plan([&](const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                                      const PlanConfiguration& plan) {
    Calibration calibration = calibration_of(cluster.chip.generation);
    const SimulationOptions options{.contention = false, .even_stages = true};
    {
      // The cost of exposed sends is an upper bound, so the step may be shorter by up to that time. It may be
      // longer by the sends that the heaviest stage would hide, for which even stages wait.
      const StepCost cost = evaluate(model, cluster, run, plan, calibration);
      const double seconds = simulate_step(model, cluster, run, plan, options, calibration).step_seconds;
      const double unhidden = std::min(cost.imbalance_seconds, cost.of(Traffic::pipeline).hidden_seconds());
      REQUIRE(seconds <= (counted(cost) + unhidden) * 1.005);
      if (data_fits(plan, cost, calibration.shared)) {
        REQUIRE(seconds >= counted(cost) - cost.of(Traffic::pipeline).exposed_seconds - 1e-9 * seconds);
        ++bounded;
      }
    }
    calibration.shared.send_exposed = 0;
    const StepCost cost = evaluate(model, cluster, run, plan, calibration);
    const double seconds = simulate_step(model, cluster, run, plan, options, calibration).step_seconds;
    if (data_fits(plan, cost, calibration.shared)) {
      REQUIRE(seconds == Approx(counted(cost)).epsilon(1e-9));
      ++exact;
      if (plan.schedule == PlanSchedule::gpipe) // whose uneven stages the cost counts exactly
        REQUIRE(simulate_step(model, cluster, run, plan, {.contention = false}, calibration).step_seconds ==
                Approx(counted(cost) + cost.imbalance_seconds).epsilon(1e-9));
    } else {
      REQUIRE(seconds <= counted(cost) * (1 + 1e-9));
    }
  });
  CHECK(plans > 200);
  CHECK(exact > 150);
  CHECK(bounded > 150);
}

TEST_CASE("the cost of random plans is within 3% of their simulation for nearly all", "[simulate_step]") {
  std::mt19937 random(1); // the same numbers everywhere
  const auto below = [&](unsigned most) { return static_cast<int>(random() % most); };
  constexpr std::array<int, 7> stages{1, 2, 3, 4, 6, 8, 12}, batches{4, 8, 12, 16, 20, 24, 32};
  int plans = 0, near = 0;
  while (plans < 800) {
    const ModelSpec& model = model_catalogue[static_cast<std::size_t>(below(model_catalogue.size()))];
    const ChipSpec& chip = chip_catalogue[static_cast<std::size_t>(below(chip_catalogue.size()))];
    PlanConfiguration plan{.tp = 1 << below(4),
                           .cp = 1 << below(2),
                           .pp = stages[static_cast<std::size_t>(below(stages.size()))],
                           .schedule = all_schedules[static_cast<std::size_t>(below(plan_schedule_count))],
                           .ep = model.experts.used() ? 1 << below(6) : 1,
                           .dp = 1 << below(6),
                           .zero_stage = below(4),
                           .microbatch = 1 << below(2),
                           .recomputation = static_cast<Recompute>(below(3)),
                           .order = static_cast<PlanOrder>(below(plan_order_count))};
    plan.chunks = takes_chunks(plan.schedule) ? 2 + below(3) : 1;
    const int microbatches = batches[static_cast<std::size_t>(below(batches.size()))];
    const ClusterSpec cluster = cluster_of(chip, plan.chips(), 8);
    const RunSpec run{.sequences = std::int64_t{microbatches} * plan.dp * plan.microbatch,
                      .sequence_length = 4096};
    if (problem_of(model, cluster, run, plan) != PlanProblem::none)
      continue;
    const StepCost cost = evaluate(model, cluster, run, plan);
    const double seconds = simulate_step(model, cluster, run, plan, {.contention = false}).step_seconds;
    const double off = (cost.step_seconds - cost.straggler_seconds) / seconds - 1;
    INFO(std::string(model.name) << " on " << std::string(chip.name) << ", " << plan_text(plan) << ", "
                                 << microbatches << " microbatches");
    REQUIRE(std::fabs(off) < 0.25);
    near += std::fabs(off) <= 0.03 ? 1 : 0;
    ++plans;
  }
  CHECK(near >= 0.99 * plans);
}

TEST_CASE("uneven ZB-V and DualPipe take no less than their cost, and ZB-V hardly more", "[simulate_step]") {
  std::mt19937 random(2);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  for (int plans = 0; plans < 300; ++plans) {
    const bool v = plans % 3 != 0;
    ModelSpec model = *find_model("llama-3.1-8b");
    const int ranks = v ? 2 + below(15) : 4 + 2 * below(7);
    const int microbatches = v ? 2 + below(4 * ranks) : 2 * ranks + 2 * below(ranks);
    model.layers = (2 + below(2)) * ranks + below(ranks);
    model.vocabulary = 16'000 * (1 + below(16)); // from a small part of a layer to two layers
    Calibration calibration = calibration_of(chip::h100.generation);
    calibration.shared.send_exposed = 0; // the cost bounds sends from above
    const PlanConfiguration plan{.pp = ranks,
                                 .schedule = v ? PlanSchedule::zb_v : PlanSchedule::dual_pipe,
                                 .recomputation = static_cast<Recompute>(below(3))};
    const ClusterSpec cluster = cluster_of(chip::h100, ranks, ranks);
    const RunSpec run{.sequences = microbatches, .sequence_length = 4096};
    INFO(plan_text(plan) << ", " << model.layers << " layers, " << model.vocabulary << " tokens, "
                         << microbatches << " microbatches");
    const StepCost cost = evaluate(model, cluster, run, plan, calibration);
    const double seconds =
        simulate_step(model, cluster, run, plan, {.contention = false}, calibration).step_seconds;
    const double bubble_and_more = seconds - (counted(cost) - cost.bubble_seconds);
    if (v && cost.imbalance_seconds > 0) // otherwise it counts as even, although it may be shorter
      REQUIRE(cost.bubble_seconds + cost.imbalance_seconds <= bubble_and_more * (1 + 1e-9));
    REQUIRE(cost.step_seconds - cost.straggler_seconds >= (v ? 0.97 : 0.94) * seconds);
  }
}

TEST_CASE("a plan that a search returns costs what its simulation says", "[simulate_step]") {
  const auto off = [](const char* name, const ChipSpec& chip, std::int64_t chips, const RunSpec& run,
                      const SearchSpace& space = {}) {
    const ModelSpec& model = *find_model(name);
    const ClusterSpec cluster = cluster_of(chip, chips, 8);
    const Plan plan = search(model, cluster, run, space);
    INFO(name << " on " << std::string(chip.name) << ", " << plan_text(plan.configuration));
    REQUIRE(plan.found());
    const double seconds =
        simulate_step(model, cluster, run, plan.configuration, {.contention = false}).step_seconds;
    REQUIRE((plan.cost.step_seconds - plan.cost.straggler_seconds) / seconds == Approx(1).epsilon(0.03));
  };
  // Uneven stages, of which the search would choose ZB-V or DualPipe if it thought them too fast.
  off("llama-3.1-70b", chip::a100_80, 1024, {.sequences = 96, .sequence_length = 4096});
  off("bloom-176b", chip::h100, 12'288, {.sequences = 1152, .sequence_length = 8192});
  off("bloom-176b", chip::a100_80, 768, {.sequences = 96, .sequence_length = 4096});
  // Groups of 14 and of 7 chips cross nodes of 8; stages of single layers.
  for (const int tp : {7, 14})
    off("bloom-176b", chip::h100, 448, {.sequences = 96, .sequence_length = 3584}, {.tp = tp});
  off("llama-3.1-405b", chip::h100, 1024, {.sequences = 256, .sequence_length = 8192},
      {.pp = 16, .chunks = 8});
  // The head is on a rank with fewer layers, and ranks that recompute wait for long input gradients.
  off("llama-3.1-8b", chip::h100, 96, {.sequences = 768, .sequence_length = 4096},
      {.tp = 1, .pp = 12, .chunks = 2, .schedule = PlanSchedule::interleaved_zb});
  off("nemotron-3-ultra", chip::h100, 336, {.sequences = 672, .sequence_length = 4096});
  std::mt19937 random(7);
  for (int searches = 0; searches < 60; ++searches) {
    const auto below = [&](unsigned most) { return static_cast<std::int64_t>(random() % most); };
    constexpr std::array<const char*, 6> models{"llama-3.1-70b", "llama-3.1-405b", "bloom-176b",
                                                "gpt-neox-20b",  "mt-nlg-530b",    "mpt-7b"};
    const char* model = models[static_cast<std::size_t>(below(models.size()))];
    const std::int64_t chips = std::int64_t{64} << below(5);
    const RunSpec run{.sequences = chips / (std::int64_t{1} << below(5)) * (1 + below(7)),
                      .sequence_length = 4096};
    off(model, below(2) == 0 ? chip::a100_80 : chip::h100, chips * (below(3) == 0 ? 3 : 2) * 4, run);
  }
}

TEST_CASE("the events of a pipeline have the times of its proof", "[simulate_step]") {
  for (const PlanSchedule schedule : all_schedules)
    for (const double bandwidth : {450e9, 4e9}) { // sends that take no time, and a good part of a pass
      const PlanConfiguration plan{.pp = 4, .chunks = takes_chunks(schedule) ? 2 : 1, .schedule = schedule};
      ClusterSpec cluster = cluster_of(chip::h100, 4);
      cluster.domains[0].bandwidth = bandwidth;
      const RunSpec run{.sequences = 12, .sequence_length = 4096};
      const StepCost cost = evaluate(small, cluster, run, plan);
      const StepProgram program =
          step_program(small, cluster, run, plan, calibration_of(cluster.chip.generation), true);
      const double parts = chunks_of(schedule, plan.chunks);
      const Timetable table = planned_timetable(
          schedule_of(plan, run), {cost.passes.forward / parts, cost.passes.input_gradient / parts,
                                   cost.passes.weight_gradient / parts, program.send_seconds});
      const StepSimulation simulation = simulate_step(
          small, cluster, run, plan, {.contention = false, .even_stages = true, .timelines = 1});
      REQUIRE(simulation.classes.size() == 4);
      CHECK(class_text({.rank = 3, .count = 1}) == "rank 3");
      CHECK(class_text({.rank = 0, .count = 128}) == "rank 0 and 127 alike");
      for (const RankClass& one : simulation.classes) {
        std::vector<ActivitySpan> passes;
        for (const ActivitySpan& span : one.timeline)
          if (span.activity == Activity::compute && !span.beside)
            passes.push_back(span);
        const std::vector<TimedStep>& steps = table.steps(one.pipeline_rank);
        REQUIRE(passes.size() == steps.size());
        for (std::size_t i = 0; i < steps.size(); ++i) {
          INFO(schedule_name(schedule) << " rank " << one.pipeline_rank << " step " << i);
          REQUIRE(passes[i].step == steps[i].step);
          REQUIRE(passes[i].begin == Approx(steps[i].start).epsilon(1e-9).margin(1e-12));
          REQUIRE(passes[i].end == Approx(steps[i].end).epsilon(1e-9));
        }
      }
    }
}

TEST_CASE("the seconds of a step without shared links are those of its events", "[simulate_step]") {
  int even = 0, copies = 0;
  const int plans = for_each_plan([&](const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                                      const PlanConfiguration& plan) {
    const auto require_same = [&](const PlanConfiguration& one) {
      const double seconds = simulate_step(model, cluster, run, one, {.contention = false}).step_seconds;
      REQUIRE(step_seconds_unshared(model, cluster, run, one) == Approx(seconds).epsilon(1e-12));
    };
    require_same(plan);
    even += std::fabs(evaluate(model, cluster, run, plan).imbalance_seconds) < 1e-12 ? 1 : 0;
    PlanConfiguration copied = plan; // sums over copies of shards beside gathers, in a domain or out of it
    copied.shard_ranks = plan.dp / 2;
    if (problem_of(model, cluster, run, copied) != PlanProblem::none)
      return;
    for (const PlanOrder order :
         {PlanOrder::usual, plan_order(PlanAxis::dp, PlanAxis::tp, PlanAxis::cp, PlanAxis::pp)}) {
      copied.order = order;
      require_same(copied);
    }
    ++copies;
  });
  CHECK(plans > 1000);
  CHECK(even < plans / 2); // most pipelines are uneven
  CHECK(copies > 300);
}

TEST_CASE("the seconds of a step of many microbatches follow from those of fewer", "[simulate_step]") {
  const ModelSpec& model = *find_model("gpt-22b");
  int exact = 0, plans = 0;
  for (int schedule = 0; schedule < plan_schedule_count; ++schedule)
    for (const int microbatches : {70, 80, 98}) {
      PlanConfiguration plan{.tp = 2, .pp = 4, .schedule = static_cast<PlanSchedule>(schedule), .dp = 2};
      plan.chunks = takes_chunks(plan.schedule) ? 3 : 1;
      const ClusterSpec cluster = cluster_of(chip::h100, 16);
      const RunSpec run{.sequences = 2 * microbatches, .sequence_length = 2048};
      if (problem_of(model, cluster, run, plan) != PlanProblem::none)
        continue;
      const double seconds = simulate_step(model, cluster, run, plan, {.contention = false}).step_seconds;
      const double extended = step_seconds_unshared(model, cluster, run, plan);
      CAPTURE(schedule, microbatches);
      CHECK(extended == Approx(seconds).epsilon(0.01));
      exact += std::fabs(extended / seconds - 1) < 1e-12 ? 1 : 0;
      ++plans;
    }
  CHECK(plans > 15);
  CHECK(2 * exact > plans);
}

TEST_CASE("folded ranks do the same as ranks simulated one by one", "[simulate_step]") {
  const std::vector<Straggler> some{{3, 1.5, 1}, {17, 1, 3}, {18, 2, 1}};
  for (const PlanConfiguration& plan :
       {PlanConfiguration{.tp = 2, .pp = 4, .dp = 4, .zero_stage = 1},
        PlanConfiguration{.dp = 32, .zero_stage = 3},
        PlanConfiguration{.cp = 2, .pp = 2, .schedule = PlanSchedule::zb_h1, .dp = 8, .zero_stage = 2},
        PlanConfiguration{.pp = 16, .dp = 2}})
    for (const std::vector<Straggler>& stragglers : {std::vector<Straggler>{}, some})
      for (const double oversubscription : {1.0, 3.0}) {
        const SimulationOptions folded{.oversubscription = oversubscription, .stragglers = stragglers};
        SimulationOptions whole = folded;
        whole.fold = false;
        const StepSimulation few = simulated(plan, folded), all = simulated(plan, whole);
        INFO(plan_text(plan) << " stragglers " << stragglers.size() << " oversubscription "
                             << oversubscription);
        REQUIRE(few.chips == 32);
        REQUIRE(all.chips == 32);
        REQUIRE(few.classes.size() <= all.classes.size());
        if (stragglers.empty())
          REQUIRE(few.classes.size() == static_cast<std::size_t>(plan.pp));
        REQUIRE(few.step_seconds == Approx(all.step_seconds).epsilon(1e-9));
        std::map<int, std::array<double, activity_names.size()>> sums;
        const auto add = [&sums](const StepSimulation& simulation, double sign) {
          for (const RankClass& one : simulation.classes)
            for (std::size_t kind = 0; kind < one.seconds.size(); ++kind)
              sums[one.pipeline_rank][kind] += sign * static_cast<double>(one.count) * one.seconds[kind];
        };
        add(few, 1);
        add(all, -1);
        for (const auto& [rank, seconds] : sums)
          for (const double difference : seconds)
            REQUIRE(std::fabs(difference) <= 1e-8 * all.step_seconds);
      }
}

TEST_CASE("a slow chip slows the chips that step with it, and the others wait", "[simulate_step]") {
  const PlanConfiguration plan{.tp = 2, .dp = 16, .zero_stage = 1};
  const StepSimulation usual = simulated(plan, {}), same = simulated(plan, {.stragglers = {{5, 1, 1}}});
  CHECK(same.step_seconds == usual.step_seconds); // to the bit
  const StepSimulation slow = simulated(plan, {.stragglers = {{5, 1.5, 1}}});
  REQUIRE(slow.classes.size() == 2);
  const RankClass& others = slow.classes[0];
  const RankClass& hit = slow.classes[1];
  CHECK(hit.rank == 4);
  CHECK(hit.count == 2);
  CHECK(others.count == 30);
  const double added = 0.5 * usual.classes[0].of(Activity::compute);
  CHECK(hit.of(Activity::compute) == Approx(1.5 * others.of(Activity::compute)));
  CHECK(others.of(Activity::wait_peers) > 0.8 * added);
  CHECK(hit.of(Activity::wait_peers) == 0);
  CHECK(slow.step_seconds > usual.step_seconds + 0.9 * added);

  // In the middle of a pipeline it makes the other stages wait for their inputs.
  const PlanConfiguration pipeline{.tp = 2, .pp = 4, .dp = 4, .zero_stage = 1};
  const StepSimulation even = simulated(pipeline, {.even_stages = true});
  const StepSimulation held = simulated(pipeline, {.stragglers = {{8 * 2 + 1, 2, 1}}, .even_stages = true});
  CHECK(held.step_seconds > 1.5 * even.step_seconds);
  for (const RankClass& one : held.classes)
    if (one.slowest == 1 && one.rank % 8 == 0 && one.count == 2)
      CHECK(one.of(Activity::wait_input) + one.of(Activity::wait_send) > 0.3 * even.step_seconds);
}

TEST_CASE("slow links, and egress that domains share, lengthen the traffic over them", "[simulate_step]") {
  // 32 chips in nodes of 8, data parallel over the ports: the step grows as the cost model's rule says for
  // traffic that takes twice as long.
  const PlanConfiguration plan{.dp = 32, .zero_stage = 1};
  const StepCost cost = evaluate(small, cluster_of(chip::h100, 32), batch, plan);
  const double data = cost.of(Traffic::data).seconds;
  const double beside =
      0.7 * (cost.passes.forward + cost.passes.input_gradient + cost.passes.weight_gradient);
  const double exposed = std::max(0.15 * data, data - beside),
               doubled = std::max(0.3 * data, 2 * data - beside);
  const double usual = simulated(plan, {}).step_seconds;
  CHECK(usual == Approx(counted(cost)).epsilon(1e-9));
  CHECK(simulated(plan, {.oversubscription = 2}).step_seconds ==
        Approx(usual + doubled - exposed).epsilon(1e-9));
  CHECK(simulated(plan, {.stragglers = {{9, 1, 2}}}).step_seconds ==
        Approx(usual + doubled - exposed).epsilon(1e-9));
  // Nothing leaves a domain that is the whole cluster.
  CHECK(simulated({.dp = 8}, {.oversubscription = 8}, 8).step_seconds ==
        simulated({.dp = 8}, {}, 8).step_seconds);
}

TEST_CASE("kinds of traffic that share a link slow one another", "[simulate_step]") {
  // Tensor parallelism over two nodes and gathers of ZeRO-3 both pass the ports.
  const PlanConfiguration plan{.tp = 16, .dp = 2, .zero_stage = 3};
  const double alone = simulated(plan, {.contention = false}).step_seconds;
  CHECK(simulated(plan, {}).step_seconds > 1.01 * alone);
  // Inside a node tensor parallelism leaves them alone.
  const PlanConfiguration inside{.tp = 8, .dp = 4, .zero_stage = 1};
  CHECK(simulated(inside, {}).step_seconds == Approx(simulated(inside, {.contention = false}).step_seconds));
}

TEST_CASE("jitter is the same for a seed, and grows with the chips that wait for one another",
          "[simulate_step]") {
  const PlanConfiguration plan{.tp = 2, .pp = 2, .dp = 8, .zero_stage = 1};
  const auto seconds = [&](double jitter, std::uint64_t seed) {
    return simulated(plan, {.jitter = jitter, .seed = seed}).step_seconds;
  };
  const double still = seconds(0, 1);
  CHECK(seconds(0.02, 1) == seconds(0.02, 1));
  CHECK(seconds(0.02, 1) != seconds(0.02, 2));
  CHECK(seconds(0.02, 1) > still * 1.005);
  CHECK(seconds(0.04, 1) > seconds(0.02, 1));
  // The slowest of 8 chips that step together: on average the harmonic number, 2.72, times the mean.
  const PlanConfiguration together{.tp = 8, .dp = 1};
  const StepSimulation quiet = simulated(together, {}, 8), loud = simulated(together, {.jitter = 0.01}, 8);
  const double share = loud.classes[0].of(Activity::compute) / quiet.classes[0].of(Activity::compute) - 1;
  CHECK(share == Approx(0.0272).epsilon(0.25)); // 128 passes
}

TEST_CASE("timelines become a trace and a drawing", "[simulate_step]") {
  const PlanConfiguration plan{.tp = 2, .pp = 2, .dp = 8, .zero_stage = 1};
  const StepSimulation simulation = simulated(plan, {.stragglers = {{3, 1.5, 1}}, .timelines = 2});
  REQUIRE(simulation.classes.size() == 4);
  for (const RankClass& one : simulation.classes) {
    // The activities of a rank follow one another and add up to its time.
    double last = 0, sum = 0;
    for (const ActivitySpan& span : one.timeline)
      if (!span.beside) {
        REQUIRE(span.begin >= last - 1e-12);
        last = span.end;
        sum += span.end - span.begin;
      }
    CHECK(sum == Approx(one.end));
    double seconds = 0;
    for (const double one_kind : one.seconds)
      seconds += one_kind;
    CHECK(seconds == Approx(one.end));
  }
  const std::string svg = draw_step(simulation, {"a < b", "s", "s"});
  CHECK_THAT(svg, ContainsSubstring("a &lt; b") && ContainsSubstring("class=\"wait-peers\"") &&
                      ContainsSubstring("class=\"tensor\"") && ContainsSubstring("class=\"F0\"") &&
                      ContainsSubstring("slow by 1.5"));
  CHECK_THROWS_WITH(draw_step(simulated(plan, {}), {}), ContainsSubstring("must have kept its timelines"));
}

TEST_CASE("a plan that cannot be simulated is rejected with the reason", "[simulate_step]") {
  CHECK_THROWS_WITH(simulated({.dp = 16}, {}), ContainsSubstring("must be the number of chips"));
  CHECK_THROWS_WITH(simulated({.dp = 32}, {.stragglers = {{32, 2, 1}}}),
                    ContainsSubstring("the rank must be from 0 to 31, but it is 32"));
  CHECK_THROWS_WITH(simulated({.dp = 32}, {.stragglers = {{1, 0.5, 1}}}),
                    ContainsSubstring("from 1 to a million"));
  CHECK_THROWS_WITH(simulated({.dp = 32}, {.oversubscription = 0}),
                    ContainsSubstring("oversubscription must be"));
  CHECK_THROWS_WITH(simulated({.dp = 32}, {.jitter = -1}), ContainsSubstring("jitter must be"));
}
