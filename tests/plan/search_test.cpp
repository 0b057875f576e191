// SPDX-License-Identifier: Apache-2.0

#include "plan/dense_model.hpp"
#include "support/catch.hpp"

#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/search/explanation.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/search/searches.hpp>
#include <shardwright/plan/search/static_plan.hpp>
#include <shardwright/plan/simulate/simulate_step.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

using namespace shardwright;
using plan_test::dense;
using plan_test::experts;

namespace {

ClusterSpec small_cluster(std::int64_t chips, std::int64_t each, double scale_out, double memory) {
  ClusterSpec cluster = cluster_of(chip::h100, chips, each, scale_out);
  cluster.chip.memory_bytes = memory;
  return cluster;
}

/// Every configuration that is legal, in all orders or in the usual one, found without any pruning. Those
/// that differ in recomputation only are neighbours.
std::vector<PlanConfiguration> all_plans(const ModelSpec& model, const ClusterSpec& cluster,
                                         const RunSpec& run, int orders = plan_order_count) {
  std::vector<PlanConfiguration> out;
  const int chips = static_cast<int>(cluster.chips());
  PlanConfiguration plan;
  for (plan.tp = 1; plan.tp <= chips; ++plan.tp)
    for (plan.cp = 1; plan.cp * plan.tp <= chips; ++plan.cp)
      for (plan.pp = 1; plan.pp * plan.cp * plan.tp <= chips; ++plan.pp) {
        if (chips % (plan.tp * plan.cp * plan.pp) != 0)
          continue;
        plan.dp = chips / (plan.tp * plan.cp * plan.pp);
        plan.sequence_parallel = run.sequence_length % (plan.tp * plan.cp) == 0;
        for (plan.ep = 1; plan.ep <= std::max(1, model.experts.count); ++plan.ep)
          for (plan.microbatch = 1; plan.microbatch <= run.sequences; ++plan.microbatch)
            for (plan.zero_stage = 0; plan.zero_stage <= 3; ++plan.zero_stage)
              for (int schedule = 0; schedule < plan_schedule_count; ++schedule) {
                plan.schedule = static_cast<PlanSchedule>(schedule);
                if (plan.pp == 1 && plan.schedule != PlanSchedule::one_f_one_b)
                  continue;
                const bool interleaved = takes_chunks(plan.schedule);
                for (plan.chunks = interleaved ? 2 : 1; plan.chunks <= (interleaved ? most_chunks : 1);
                     ++plan.chunks)
                  if (tries_chunks(model.stacked_layers(), plan.pp, plan.chunks) &&
                      problem_of(model, cluster, run, plan) == PlanProblem::none)
                    for (int order = 0; order < orders; ++order)
                      for (const bool outside : {false, true})
                        for (int recomputation = 0; recomputation < 3; ++recomputation) {
                          if (outside && orders == 1)
                            continue;
                          out.push_back(plan);
                          out.back().order = static_cast<PlanOrder>(order);
                          out.back().experts_outside = outside;
                          out.back().recomputation = static_cast<Recompute>(recomputation);
                        }
              }
      }
  return out;
}

struct CostedPlan {
  PlanConfiguration plan{};
  double seconds = 0, bytes = 0;
};

std::vector<CostedPlan> costed(const std::vector<PlanConfiguration>& plans, const ModelSpec& model,
                               const ClusterSpec& cluster, const RunSpec& run) {
  std::vector<CostedPlan> out;
  for (const PlanConfiguration& plan : plans) {
    const StepCost cost = evaluate(model, cluster, run, plan);
    out.push_back({plan, cost.step_seconds, cost.memory.total()});
  }
  return out;
}

bool same_but_recomputation(PlanConfiguration left, const PlanConfiguration& right) {
  left.recomputation = right.recomputation;
  return left == right;
}

/// The definition of a search's result, over all plans of a space, with the default headroom.
void compare_with(const std::vector<CostedPlan>& plans, const ModelSpec& model, const ClusterSpec& cluster,
                  const RunSpec& run, const SearchSpace& space) {
  const double tolerance = space.tolerance;
  const double capacity = cluster.chip.memory_bytes * 0.92;
  double least = std::numeric_limits<double>::infinity(), smallest = least;
  std::vector<CostedPlan> fitting; // with the least recomputation
  for (const CostedPlan& one : plans) {
    smallest = std::min(smallest, one.bytes);
    if (one.bytes > capacity || (!fitting.empty() && same_but_recomputation(fitting.back().plan, one.plan)))
      continue;
    fitting.push_back(one);
    least = std::min(least, one.seconds);
  }
  int simplest = most_complexity + 1;
  double seconds = least;
  for (const CostedPlan& one : fitting) {
    if (one.seconds > least * (1 + tolerance))
      continue;
    if (complexity(one.plan) < simplest || (complexity(one.plan) == simplest && one.seconds < seconds)) {
      simplest = complexity(one.plan);
      seconds = one.seconds;
    }
  }
  CAPTURE(model.name, cluster.chips(), run.sequences, tolerance, plans.size(), least, seconds, simplest);
  const Plan found = search(model, cluster, run, space);
  REQUIRE(found.found() == (simplest <= most_complexity));
  if (!found.found()) {
    REQUIRE(found.problem == (plans.empty() ? PlanProblem::batch_not_divisible : PlanProblem::out_of_memory));
    REQUIRE((plans.empty() || found.cost.memory.total() == smallest));
    return;
  }
  CAPTURE(plan_text(found.configuration));
  REQUIRE(complexity(found.configuration) == simplest);
  REQUIRE(std::abs(found.cost.step_seconds - seconds) <= 1e-12 * seconds);
  REQUIRE(problem_of(model, cluster, run, found.configuration) == PlanProblem::none);
}

void compare_with_all(const ModelSpec& model, ClusterSpec cluster, const RunSpec& run) {
  const std::vector<CostedPlan> plans = costed(all_plans(model, cluster, run), model, cluster, run);
  for (const double memory : {14e9, 24e9, 80e9})
    for (const double tolerance : {0.0, 0.02}) {
      cluster.chip.memory_bytes = memory;
      compare_with(plans, model, cluster, run, {.tolerance = tolerance});
    }
}

/// A model, a cluster and a run, small enough to try every plan.
struct RandomProblem {
  ModelSpec model{};
  ClusterSpec cluster{};
  RunSpec run{};

  explicit RandomProblem(unsigned seed) {
    std::mt19937 random(seed);
    const auto one_of = [&random](auto... values) {
      const std::array all{values...};
      return all[random() % all.size()];
    };
    model = {.name = "random",
             .layers = one_of(4, 8, 9, 12, 30),
             .hidden = one_of(1024, 4096, 7168),
             .heads = 8,
             .key_value_heads = 8,
             .feed_forward = one_of(4096, 16384),
             .vocabulary = one_of(32000, 128000),
             .prediction_layers = one_of(0, 0, 1)};
    if (one_of(true, true, false))
      model.experts = {.count = one_of(4, 8),
                       .active = one_of(1, 4),
                       .width = one_of(512, 4096),
                       .leading_dense_layers = one_of(0, 1)};
    const int chips = one_of(4, 6, 8), domain = one_of(2, 4);
    const double network = one_of(1e9, 10e9, 50e9), memory = one_of(24e9, 80e9, 1e12);
    cluster = small_cluster(chips, domain, network, memory);
    run = {.sequences = one_of(12, 16, 20, 24), .sequence_length = one_of(512, 4096)};
    run.dispatch = one_of(ExpertDispatch::fused, ExpertDispatch::all_to_all);
  }
};

constexpr ModelSpec llama = *find_model("llama-3.1-70b");
constexpr ClusterSpec thousand = cluster_of(chip::h100, 1024);
constexpr RunSpec large_batch{.sequences = 2048, .sequence_length = 8192};
constexpr ClusterSpec sixteen = cluster_of(chip::h100, 16);
constexpr RunSpec small_batch{.sequences = 64, .sequence_length = 2048};

} // namespace

TEST_CASE("a search finds the same plan as trying every plan in every order", "[search]") {
  for (const ModelSpec& model : {dense, experts}) {
    for (const std::int64_t chips : {1, 6})
      compare_with_all(model, small_cluster(chips, 2, 10e9, 80e9), {24, 2048});
    for (const double scale_out : {2e9, 50e9})
      compare_with_all(model, small_cluster(16, 4, scale_out, 80e9), {24, 2048});
  }
  // Three levels, and a torus.
  ClusterSpec nested = small_cluster(16, 2, 100e9, 80e9);
  nested.domains[2] = {16, 4e9, 3.5e-6, 0};
  nested.domains[1].chips = 8;
  nested.domain_count = 3;
  compare_with_all(experts, nested, {12, 2048});
  ClusterSpec torus = cluster_of(chip::tpu_v5e, 16);
  torus.domains[0].bandwidth /= 20;
  compare_with_all(experts, torus, {12, 2048});
}

TEST_CASE("a search finds the best of all plans with any schedule that is fixed", "[search]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const RandomProblem one(seed);
    // Two plans that differ by rounding only are equally fast.
    SearchSpace space{.order = PlanOrder::usual, .experts_outside = false, .tolerance = 1e-12};
    if (seed % 4 < 3)
      space.recomputation = static_cast<Recompute>(seed % 4);
    std::vector<PlanConfiguration> plans = all_plans(one.model, one.cluster, one.run, 1);
    std::erase_if(plans, [&](const PlanConfiguration& each) {
      return space.recomputation && each.recomputation != *space.recomputation;
    });
    const std::vector<CostedPlan> all = costed(plans, one.model, one.cluster, one.run);
    CAPTURE(seed);
    compare_with(all, one.model, one.cluster, one.run, space);
    for (int schedule = 0; schedule < plan_schedule_count; ++schedule) {
      space.schedule = static_cast<PlanSchedule>(schedule);
      std::vector<CostedPlan> with;
      for (const CostedPlan& each : all)
        if (each.plan.pp == 1 || each.plan.schedule == space.schedule)
          with.push_back(each);
      CAPTURE(schedule);
      compare_with(with, one.model, one.cluster, one.run, space);
    }
  }
}

TEST_CASE("a search finds the best of all reproducible plans", "[search]") {
  // Without the policy, tp or cp may be 3 or 6.
  compare_with_all(dense, small_cluster(6, 2, 10e9, 80e9), reproducible({24, 1536}));
}

TEST_CASE("a search finds the best of all plans whose states few ranks share", "[search]") {
  const RunSpec run{24, 2048};
  for (const int shards : {2, 4}) {
    ClusterSpec cluster = small_cluster(16, 4, 10e9, 80e9);
    std::vector<PlanConfiguration> plans = all_plans(dense, cluster, run);
    for (PlanConfiguration& each : plans)
      each.shard_ranks = shards;
    std::erase_if(plans, [&](const PlanConfiguration& each) { return each.dp * each.cp % shards != 0; });
    const std::vector<CostedPlan> all = costed(plans, dense, cluster, run);
    for (const double memory : {14e9, 24e9}) {
      cluster.chip.memory_bytes = memory;
      compare_with(all, dense, cluster, run, {.shard_ranks = shards});
      const Plan found = search(dense, cluster, run, {.shard_ranks = shards});
      CHECK((!found.found() || found.configuration.shard_ranks == shards));
    }
  }
  CHECK_FALSE(search(experts, sixteen, small_batch, {.shard_ranks = 2}).found());
  CHECK(plan_text({.dp = 8, .zero_stage = 3, .shard_ranks = 4}) == "dp=8 ZeRO-3 shard_ranks=4 microbatch=1");
}

TEST_CASE("a search finds the best of all plans with any memory", "[search]") {
  // A microbatch of 5 sequences, but none of 4, allows DualPipe, which here needs less memory than 1F1B.
  const ModelSpec model{.name = "wide",
                        .layers = 4,
                        .hidden = 4096,
                        .heads = 8,
                        .key_value_heads = 8,
                        .feed_forward = 4096,
                        .vocabulary = 128000,
                        .prediction_layers = 1};
  const RunSpec run{.sequences = 20, .sequence_length = 128};
  ClusterSpec cluster = small_cluster(2, 2, 10e9, 80e9);
  const SearchSpace space{.pp = 2, .order = PlanOrder::usual, .experts_outside = false, .tolerance = 0};
  std::vector<PlanConfiguration> plans = all_plans(model, cluster, run, 1);
  std::erase_if(plans, [](const PlanConfiguration& each) { return each.pp != 2; });
  const std::vector<CostedPlan> all = costed(plans, model, cluster, run);
  for (const CostedPlan& each : all) {
    cluster.chip.memory_bytes = each.bytes / 0.92 * (1 + 1e-9); // so that it just fits
    compare_with(all, model, cluster, run, space);
  }
}

TEST_CASE("fixed choices are kept, and a restricted search finds no better plan", "[search]") {
  const ClusterSpec cluster = small_cluster(32, 8, 50e9, 80e9);
  const Plan best = search(experts, cluster, small_batch, {.tolerance = 0});
  for (const int pp : {1, 2, 4, 8}) {
    const Plan fixed = search(experts, cluster, small_batch, {.pp = pp, .tolerance = 0});
    REQUIRE(fixed.configuration.pp == pp);
    REQUIRE(fixed.cost.step_seconds >= best.cost.step_seconds);
  }
  const Plan all = search(experts, cluster, small_batch,
                          {.tp = 2,
                           .cp = 2,
                           .pp = 2,
                           .ep = 8,
                           .dp = 4,
                           .chunks = 3,
                           .microbatch = 4,
                           .zero_stage = 2,
                           .schedule = PlanSchedule::interleaved,
                           .recomputation = Recompute::full,
                           .order = PlanOrder::usual,
                           .experts_outside = true});
  REQUIRE(all.configuration == PlanConfiguration{2, 2, 2, 3, PlanSchedule::interleaved, 8, 4, 2, 4,
                                                 Recompute::full, true, PlanOrder::usual, true});
  REQUIRE(search(experts, cluster, small_batch, {.tp = 3}).problem == PlanProblem::batch_not_divisible);
}

TEST_CASE("a fixed number of stages per rank is kept, and many are found where they help", "[search]") {
  const ModelSpec& gpt = *find_model("gpt3-175b"); // 96 layers
  const ClusterSpec cluster = cluster_of(chip::a100_80, 512);
  const RunSpec run{.sequences = 2048, .sequence_length = 2048};
  CHECK(search(gpt, cluster, run).configuration.chunks > 4);
  for (const int chunks : {2, 5, 8}) {
    const Plan plan = search(gpt, cluster, run, {.chunks = chunks});
    REQUIRE(plan.found());
    CHECK(plan.configuration.chunks == chunks);
    CHECK(takes_chunks(plan.configuration.schedule));
  }
  CHECK(search(gpt, cluster, run, {.chunks = 1}).configuration.chunks == 1);
  CHECK_FALSE(search(gpt, cluster, run, {.pp = 1, .chunks = 8}).found());
  CHECK_FALSE(search(gpt, cluster, run, {.pp = 16, .chunks = 7}).found()); // 112 of 98 stages
  CHECK_FALSE(search(gpt, cluster, run, {.chunks = 8, .schedule = PlanSchedule::zb_v}).found());
  CHECK_FALSE(Searches(dense).needs_no_pipeline({sixteen, small_batch}, {.chunks = 2}));
  // 126 layers, embedding and output matrix are 16 x 8 stages.
  const Plan deep = search(*find_model("llama-3.1-405b"), cluster_of(chip::h100, 1024), {256, 8192},
                           {.tp = 8, .pp = 16, .chunks = 8});
  REQUIRE(deep.found());
  CHECK(deep.configuration.chunks == 8);
}

TEST_CASE("another order of the axes wins if its links are better", "[search]") {
  // With ports of 400 GB/s and without DualPipe, another axis inside a node pays off.
  const ModelSpec kimi = *find_model("kimi-k2");
  ClusterSpec cluster = *cluster_of_name("h800x2048");
  cluster.domains[1].bandwidth *= 8;
  const RunSpec run{.sequences = 16384, .sequence_length = 4096};
  SearchSpace unpaired, one_order = usual_order;
  unpaired.schedule = one_order.schedule = PlanSchedule::one_f_one_b;
  const Plan best = search(kimi, cluster, run, unpaired);
  const Plan usual = search(kimi, cluster, run, one_order);
  REQUIRE((best.configuration.order != PlanOrder::usual || best.configuration.experts_outside));
  REQUIRE(usual.configuration.order == PlanOrder::usual);
  REQUIRE(best.cost.step_seconds < usual.cost.step_seconds * 0.99);
  PlanConfiguration inside = best.configuration;
  inside.order = PlanOrder::usual;
  inside.experts_outside = false;
  CHECK(evaluate(kimi, cluster, run, inside).step_seconds > best.cost.step_seconds * 1.01);

  // In one domain behind a switch, no order is better than the default one.
  const ClusterSpec rack = cluster_of(chip::gb200, 64);
  CHECK(search(experts, rack, {64, 2048}, {.tolerance = 0}).configuration.order == PlanOrder::usual);
}

TEST_CASE("the plans of published runs are within 5% of the best, one within 7%", "[search]") {
  const auto over_best = [](const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                            const SearchSpace& published, double loss = 0.05) {
    const Plan best = search(model, cluster, run, {.recomputed = published.recomputed}),
               told = search(model, cluster, run, published);
    INFO(std::string(model.name) << " on " << cluster.chips() << " " << std::string(cluster.chip.name) << ": "
                                 << plan_text(best.configuration));
    REQUIRE(told.found());
    CHECK(told.cost.step_seconds <= (1 + loss) * best.cost.step_seconds);
    CHECK(best.cost.memory.total() <= 0.92 * cluster.chip.memory_bytes);
    return best.configuration;
  };
  const ModelSpec& v3 = *find_model("deepseek-v3");
  const RunSpec rack{.sequences = 4096, .sequence_length = 4096, .precision = Precision::fp8};
  // NVIDIA's of a rack and more: data/further_runs.csv. A pipeline as deep as theirs.
  // Four ranks, which the planner cannot tell from 8; and two, which fill more of a chip than it would.
  const RecomputedOperations latents{LayerOperation::latent_projections};
  const int of_gb200 = over_best(v3, cluster_of(chip::gb200, 256, 64), rack,
                                 {.tp = 1, .cp = 1, .pp = 4, .ep = 64, .recomputed = latents})
                           .pp;
  CHECK((of_gb200 == 4 || of_gb200 == 8));
  // 6.1% over the planner's, which has ep = 128.
  CHECK(over_best(v3, cluster_of(chip::gb300, 256, 64), rack,
                  {.tp = 1, .cp = 1, .pp = 2, .ep = 32, .recomputed = latents, .headroom = 0.07}, 0.07)
            .pp == 2);
  // arXiv 2412.19437, section 3: 16 ranks, which the planner cannot tell from 32.
  const PlanConfiguration nodes =
      over_best(v3, cluster_of(chip::h800, 2048),
                {.sequences = 15360, .sequence_length = 4096, .precision = Precision::fp8},
                {.tp = 1, .cp = 1, .pp = 16, .ep = 64, .zero_stage = 1});
  CHECK((nodes.pp == 16 || nodes.pp == 32));
  CHECK((nodes.tp == 1 && nodes.cp == 1 && nodes.zero_stage == 1));
  // arXiv 2406.11704, table 2.
  over_best(*find_model("nemotron-4-340b"), cluster_of(chip::h100, 6144),
            {.sequences = 2304, .sequence_length = 4096}, {.tp = 8, .cp = 1, .pp = 12});
  // arXiv 2204.02311, section 4: no pipeline, tensor parallel over 12 chips, in two pods.
  const ModelSpec palm{.name = "palm-540b",
                       .layers = 118,
                       .hidden = 18432,
                       .heads = 48,
                       .key_value_heads = 1,
                       .head_width = 256,
                       .feed_forward = 73728,
                       .vocabulary = 256000,
                       .tied_embeddings = true,
                       .parallel_block = true};
  CHECK(over_best(palm, cluster_of(chip::tpu_v4, 6144, 3072), {.sequences = 2048, .sequence_length = 2048},
                  {.tp = 12, .cp = 1, .pp = 1})
            .pp == 1);
}

TEST_CASE("a plan leaves the requested headroom", "[search]") {
  for (const double headroom : {0.0, 0.08, 0.3}) {
    const Plan plan = search(llama, thousand, large_batch, {.headroom = headroom});
    REQUIRE(plan.found());
    CHECK(plan.cost.memory.total() <= (1 - headroom) * thousand.chip.memory_bytes);
  }
  CHECK(search(llama, thousand, large_batch, {.headroom = 0.99}).problem == PlanProblem::out_of_memory);
}

TEST_CASE("a search at run time gives the simplest plan near the fastest simulated one", "[search]") {
  int changed = 0, differ = 0;
  for (const char* name : {"mixtral-8x22b", "llama-65b"})
    for (const std::int64_t chips : {112, 160, 220}) {
      const ModelSpec& model = *find_model(name);
      const ClusterSpec cluster = cluster_of(chip::gb200, chips);
      const RunSpec run{2 * chips, 4096};
      const SearchSpace space;
      const Plan before = search(model, cluster, run, space);
      Searches searches(model);
      const FinishedSearch& ended = searches.of({cluster, run}, space);
      CAPTURE(name, chips);
      REQUIRE(ended.best.found());
      const StepCost& cost = ended.best.cost;
      const auto seconds = [&](const PlanConfiguration& plan) {
        return simulate_step(model, cluster, run, plan, {.contention = false}).step_seconds;
      };
      const double simulated = seconds(ended.best.configuration);
      CHECK(cost.step_seconds - cost.straggler_seconds == Approx(simulated).epsilon(1e-9));
      CHECK(simulated_cost(model, {cluster, run}, ended.best.configuration).step_seconds ==
            Approx(cost.step_seconds).epsilon(1e-12));
      CHECK(cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds + cost.overhead_seconds +
                cost.imbalance_seconds + cost.bubble_seconds + cost.exposed_seconds() +
                cost.optimizer_seconds + cost.straggler_seconds ==
            Approx(cost.step_seconds));
      CHECK((cost.imbalance_seconds >= 0 && cost.bubble_seconds >= 0));
      CHECK(simulated <= (1 + space.tolerance) * seconds(before.configuration));
      for (const auto& other : ended.state.fastest)
        CHECK((other.measure == 0 || other.measure >= ended.state.best_seconds));
      changed += ended.best.configuration != before.configuration ? 1 : 0;
      differ += std::abs(before.cost.step_seconds / cost.step_seconds - 1) > 1e-6 ? 1 : 0;
    }
  CHECK(changed > 0);
  CHECK(differ > 0);
}

TEST_CASE("runners-up are other plans, in ascending order of loss", "[search]") {
  Searches searches(experts);
  const Plan& best = searches.of({sixteen, small_batch}).best;
  const std::vector<Plan> others = runners_up(searches, {sixteen, small_batch}, {}, 4);
  REQUIRE(others.size() == 4);
  double last = 0;
  for (const Plan& one : others) {
    CHECK(one.configuration != best.configuration);
    CHECK(problem_of(experts, sixteen, small_batch, one.configuration) == PlanProblem::none);
    CHECK(one.cost.step_seconds >= last);
    last = one.cost.step_seconds;
  }
}

TEST_CASE("the inner axes of an order are neighbours", "[search]") {
  const auto order = [](PlanAxis a, PlanAxis b, PlanAxis c, PlanAxis d) { return plan_order(a, b, c, d); };
  STATIC_REQUIRE(plan_order(PlanAxis::tp, PlanAxis::cp, PlanAxis::dp, PlanAxis::pp) == PlanOrder::usual);
  PlanConfiguration plan{.tp = 2, .cp = 4, .pp = 8, .dp = 16};
  plan.order = order(PlanAxis::pp, PlanAxis::dp, PlanAxis::tp, PlanAxis::cp);
  const detail::PlacedAxes placed(plan);
  CHECK(placed[PlanAxis::pp].stride == 1);
  CHECK(placed[PlanAxis::dp].stride == 8);
  CHECK(placed[PlanAxis::tp].stride == 8 * 16);
  CHECK(placed[PlanAxis::cp].stride == 8 * 16 * 2);
  CHECK(plan_text(plan).ends_with(" order=pp,dp,tp,cp"));
  // With a pipeline inside a node of eight, its sends go over NVLink, and tensor parallelism over the ports.
  const ClusterSpec cluster = cluster_of(chip::h100, 1024);
  const PlanLinks links = plan_links(cluster, plan, 0, {}), usual = [&] {
    plan.order = PlanOrder::usual;
    return plan_links(cluster, plan, 0, {});
  }();
  CHECK(links.pipeline.per_byte < usual.pipeline.per_byte / 5);
  CHECK(links.tensor.per_byte > 5 * usual.tensor.per_byte);
  // No order is better than the one with the fewest links.
  for (int number = 0; number < plan_order_count; ++number)
    for (const bool outside : {false, true})
      for (const ClusterSpec& on : {cluster, cluster_of(chip::tpu_v5p, 1024)}) {
        plan.ep = 32;
        plan.order = static_cast<PlanOrder>(number);
        plan.experts_outside = outside;
        REQUIRE(least_links(on, plan, 8, {}).no_worse_than(plan_links(on, plan, 8, {})));
        // 96 ranks are 24 of the 72 along dp and 4 of those along tp, if dp is the inner one.
        const ClusterSpec racks = cluster_of(chip::gb200, 16128);
        PlanConfiguration parts{.tp = 8, .pp = 28, .ep = 96, .dp = 72};
        parts.order = plan.order;
        parts.experts_outside = outside;
        REQUIRE(least_links(racks, parts, 8, {}).no_worse_than(plan_links(racks, parts, 8, {})));
      }
}

TEST_CASE("no order has better links than the bound, whatever the domains and the torus", "[search]") {
  std::minstd_rand random(7);
  const auto one_of = [&random](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  const SharedCalibration shared = calibration_of(ChipGeneration::hopper).shared;
  int bound = 0; // groups of experts for which it is more than half of the time
  for (int trial = 0; trial < 20'000; ++trial) {
    PlanConfiguration plan{.tp = one_of({1, 2, 3, 4, 6, 8}),
                           .cp = one_of({1, 2, 3, 4, 8}),
                           .pp = one_of({1, 2, 5, 7, 8, 12}),
                           .dp = one_of({1, 2, 4, 6, 9, 16, 21, 24, 64})};
    for (const int ep : {2, 3, 8, 12, 32, 96, 128})
      if (plan.tp * plan.cp * plan.dp % ep == 0 && random() % 2 == 0)
        plan.ep = ep;
    ClusterSpec on = cluster_of(trial % 3 == 0   ? chip::h100
                                : trial % 3 == 1 ? chip::tpu_v5p
                                                 : chip::tpu_v5e,
                                plan.chips(), one_of({2, 4, 8, 9, 18, 36, 64, 72}));
    if (on.domain_count == 2 && random() % 3 == 0) {
      on.domains[1].chips = one_of({2, 2, 3, 5}) * on.domains[0].chips / one_of({1, 2}); // or do not nest
      on.domains[2] = detail::scale_out_domain(on.chip, 10e9, plan.chips());
      on.domain_count = on.domains[1].chips < plan.chips() ? 3 : 2;
      on.domains[static_cast<std::size_t>(on.domain_count - 1)].chips = plan.chips();
    }
    on.domains[1].bandwidth *= one_of({1, 4, 64});
    plan.order = static_cast<PlanOrder>(random() % plan_order_count);
    plan.experts_outside = random() % 2 == 0;
    const TokenCopies copies(one_of({1, 4, 8}), one_of({0, 4}), 8, random() % 2 == 0);
    const PlanLinks least = least_links(on, plan, copies, shared),
                    links = plan_links(on, plan, copies, shared);
    CAPTURE(trial, plan.tp, plan.cp, plan.pp, plan.dp, plan.ep, on.domain_count, on.domains[0].chips);
    REQUIRE(least.no_worse_than(links));
    bound += links.expert.per_byte > 0 && least.expert.per_byte > links.expert.per_byte / 2 ? 1 : 0;
  }
  CHECK(bound > 1000);
}

TEST_CASE("a situation is searched once, whichever thread asks first", "[search]") {
  Searches searches(experts);
  const Situation now{sixteen, small_batch};
  const FinishedSearch* first = &searches.of(now);
  std::array<const FinishedSearch*, 4> others{};
  std::vector<std::thread> threads;
  for (const FinishedSearch*& other : others)
    threads.emplace_back([&] { other = &searches.of(now, {.pp = 1}); });
  for (std::thread& one : threads)
    one.join();
  CHECK(first == &searches.of(with_more({sixteen, small_batch}, Resource::memory, 1)));
  CHECK(first != &searches.of(with_more({sixteen, small_batch}, Resource::memory, 2)));
  for (const FinishedSearch* other : others)
    CHECK(other == &searches.without_pipeline(now));
  CHECK(first->best.configuration == Searches(experts).of(now).best.configuration);
  CHECK(others[0]->best.configuration == search(experts, sixteen, small_batch, {.pp = 1}).configuration);
}

TEST_CASE("an empty specification has no plan", "[search]") {
  REQUIRE(search({}, sixteen, small_batch).problem == PlanProblem::empty_input);
  REQUIRE(search(dense, {}, small_batch).problem == PlanProblem::empty_input);
  REQUIRE(search(dense, sixteen, {}).problem == PlanProblem::empty_input);
}

TEST_CASE("clusters are named by chip and number", "[search]") {
  STATIC_REQUIRE(cluster_of_name("h800x2048")->source == "arXiv 2412.19437, section 3.1");
  STATIC_REQUIRE(cluster_of_name("A100x24")->chip.memory_bytes == 80e9);
  STATIC_REQUIRE(chip_of_word("a100")->name == "A100-80GB-SXM");
  STATIC_REQUIRE(chip_of_word("A100-40GB-SXM")->peak_bf16 == 312e12);
  STATIC_REQUIRE(!chip_of_word("a1000"));
  STATIC_REQUIRE(cluster_of_name("v5px64")->chip.name == "TPUv5p");
  STATIC_REQUIRE(cluster_of_name("h100-80gb-sxmx16")->chips() == 16);
  for (const char* wrong : {"h100x0", "h100x", "h100", "x8", "h900x8", "h100x-8", "h100x99999999999", ""})
    REQUIRE(!cluster_of_name(wrong));
}

TEST_CASE("a recipe is a plan of its kind and not faster than the best", "[search]") {
  const ClusterSpec cluster = small_cluster(32, 8, 50e9, 24e9);
  const Plan best = search(experts, cluster, small_batch, {.tolerance = 0});
  Searches searches(experts);
  const Plan usual = recipe(searches, {cluster, small_batch});
  REQUIRE(usual.found());
  REQUIRE(usual.configuration.tp == 8);
  REQUIRE(usual.cost.step_seconds >= best.cost.step_seconds);
  REQUIRE(!search(experts, cluster, small_batch,
                  {.tp = 8, .cp = 1, .pp = usual.configuration.pp - 1, .schedule = PlanSchedule::one_f_one_b})
               .found());
}

TEST_CASE("doubling a binding resource of the best plan saves time", "[search]") {
  Searches searches(dense);
  const Plan best = searches.of({sixteen, small_batch}, {.tolerance = 0}).best;
  REQUIRE(best.found());
  const std::array<double, binding_resources> saved = gains(searches, {sixteen, small_batch});
  const Situation faster = with_more({sixteen, small_batch}, Resource::peak, 2);
  const Plan plan = searches.of(faster, {.tolerance = 0}).best;
  const double share = saved[static_cast<std::size_t>(Resource::peak)];
  CHECK(share > 0.1);
  CHECK(std::abs(share - (1 - plan.cost.step_seconds / best.cost.step_seconds)) < 1e-12);
}

TEST_CASE("the saving from more of a resource is a share of the time", "[search]") {
  const auto at = [](const auto& of, Resource resource) { return of[static_cast<std::size_t>(resource)]; };
  for (const char* name : {"llama-2-7b", "gpt-22b", "llama-2-70b"})
    for (const char* chips : {"h100x8", "h100x16", "h100x64"})
      for (const std::int64_t sequences : {16, 64, 256}) {
        CAPTURE(name, chips, sequences);
        const ModelSpec& model = *find_model(name);
        const ClusterSpec cluster = *cluster_of_name(chips);
        const RunSpec run{sequences, 2048};
        Searches searches(model);
        const std::array<double, binding_resources> saved = gains(searches, {cluster, run});
        for (const double share : saved)
          CHECK((share >= 0 && share < 1));
        if (cluster.domain_count == 1) { // nothing can be increased
          CHECK(at(saved, Resource::scale_out_bandwidth) == 0);
          CHECK(at(saved, Resource::domain) == 0);
        }
        const Plan best = search(model, cluster, run, {.tolerance = 0});
        CHECK((at(saved, Resource::peak) > 0.1) == best.found());
        for (const Resource resource : {Resource::memory, Resource::scale_up_bandwidth,
                                        Resource::scale_out_bandwidth, Resource::peak, Resource::tokens}) {
          const Situation more = with_more({cluster, run}, resource, 2);
          const Plan plan = search(model, more.cluster, more.run, {.tolerance = 0});
          CHECK((!best.found() ||
                 plan.cost.step_seconds * best.cost.tokens <= best.cost.step_seconds * plan.cost.tokens));
        }
      }
}

TEST_CASE("needs_no_pipeline agrees with a complete search, whether that is known or not", "[search]") {
  int without = 0, with = 0;
  for (const ModelSpec& model : {dense, experts})
    for (const double network : {1e9, 5e9, 50e9})
      for (const double memory : {1e9, 4e9, 14e9, 80e9})
        for (const double tolerance : {0.0, 0.01, 0.1}) {
          const ClusterSpec cluster = small_cluster(64, 8, network, memory);
          const RunSpec run{64, 2048};
          const Plan best = Searches(model).of({cluster, run}, {.tolerance = tolerance}).best;
          const bool none = best.found() && best.configuration.pp == 1;
          CAPTURE(network, memory, tolerance);
          Searches searches(model);
          for (const bool known : {false, true}) {
            CAPTURE(known);
            if (known)
              REQUIRE(searches.of({cluster, run}, {.tolerance = tolerance}).best.problem == best.problem);
            CHECK(searches.needs_no_pipeline({cluster, run}, {.tolerance = tolerance}) == none);
          }
          ++(none ? without : with);
        }
  CHECK(without > 0);
  CHECK(with > 0);
  CHECK_FALSE(Searches(dense).needs_no_pipeline({sixteen, small_batch}, {.pp = 2}));
}

TEST_CASE("at the end of a pipeline's range the plan has none, and just before it has one", "[search]") {
  const ClusterSpec cluster = small_cluster(64, 8, 1e9, 14e9);
  const RunSpec run{64, 2048};
  REQUIRE(search(dense, cluster, run).configuration.pp > 1);
  const auto pp_with = [&](Resource resource, double factor) {
    const Situation more = with_more({cluster, run}, resource, factor);
    return Searches(dense).of(more).best.configuration.pp;
  };
  int ends = 0;
  Searches searches(dense);
  for (const Resource resource : {Resource::memory, Resource::scale_out_bandwidth, Resource::tokens}) {
    const std::optional<double> factor = pipeline_ends(searches, {cluster, run}, resource);
    CAPTURE(resource_names[static_cast<std::size_t>(resource)]);
    if (!factor) {
      REQUIRE(pp_with(resource, 256) > 1);
      continue;
    }
    ++ends;
    REQUIRE(pp_with(resource, *factor) == 1);
    REQUIRE(pp_with(resource, resource == Resource::tokens ? *factor / 2 : *factor / 1.03) > 1);
  }
  REQUIRE(ends > 0);
}

TEST_CASE("divisors come in ascending order", "[search]") {
  for (const std::int64_t number : {1, 2, 4, 12, 97, 144, 15360, 16384, 720720}) {
    const Divisors divisors = divisors_of(number);
    int at = 0;
    for (std::int64_t value = 1; value <= number; ++value)
      if (number % value == 0)
        REQUIRE((at < divisors.count && divisors[at++] == value));
    REQUIRE(at == divisors.count);
  }
}

TEST_CASE("the compiler finds the plan that the program finds", "[search]") {
  constexpr Plan few = plan<dense, sixteen, small_batch>();
  STATIC_REQUIRE(few.found());
  REQUIRE(search(dense, sixteen, small_batch).configuration == few.configuration);

  constexpr Plan routed = plan<experts, sixteen, small_batch>();
  STATIC_REQUIRE(routed.configuration.ep > 1);
  REQUIRE(search(experts, sixteen, small_batch).configuration == routed.configuration);

  constexpr Plan many = plan<llama, thousand, large_batch>();
  STATIC_REQUIRE(many.found());
  STATIC_REQUIRE(many.cost.memory.total() <= chip::h100.memory_bytes);
  REQUIRE(search(llama, thousand, large_batch).configuration == many.configuration);

  using Types = PlanTypes<many.configuration>;
  STATIC_REQUIRE(Types::Mesh{{}, {}, {}, {}}.size() == 1024);
  if constexpr (many.configuration.pp > 1)
    STATIC_REQUIRE(Types::Schedule::prove(many.configuration.pp, 2 * many.configuration.pp).holds());
}

TEST_CASE("a plan names its schedule and the layouts of its parameters", "[search]") {
  using Sharded = PlanTypes<PlanConfiguration{
      .tp = 2, .pp = 4, .schedule = PlanSchedule::zb_v, .dp = 2, .zero_stage = 3}>;
  STATIC_REQUIRE(std::is_same_v<Sharded::Schedule, PipelineSchedule<ZBV>>);
  STATIC_REQUIRE(std::is_same_v<Sharded::Zero, Zero3>);
  STATIC_REQUIRE(Sharded::Mesh{{}, {}, {}, {}}.extent_of<axis::pp>() == 4);
  STATIC_REQUIRE(
      std::is_same_v<Sharded::Mesh, MeshShape<StaticExtent<axis::pp, 4>, StaticExtent<axis::dp, 2>,
                                              StaticExtent<axis::cp, 1>, StaticExtent<axis::tp, 2>>>);
  using Ordered = PlanTypes<PlanConfiguration{
      .tp = 2,
      .pp = 4,
      .dp = 8,
      .order = plan_order(PlanAxis::pp, PlanAxis::tp, PlanAxis::cp, PlanAxis::dp)}>;
  STATIC_REQUIRE(
      std::is_same_v<Ordered::Mesh, MeshShape<StaticExtent<axis::dp, 8>, StaticExtent<axis::cp, 1>,
                                              StaticExtent<axis::tp, 2>, StaticExtent<axis::pp, 4>>>);
  STATIC_REQUIRE(Sharded::microbatches(64) == 32);
  STATIC_REQUIRE(std::is_same_v<Sharded::Zero::Stored<Layout<2, Shard<0, axis::tp>>>,
                                Layout<2, Shard<0, axis::tp, axis::dp, axis::cp>>>);
  constexpr PlanOrder outwards = plan_order(PlanAxis::pp, PlanAxis::tp, PlanAxis::cp, PlanAxis::dp);
  STATIC_REQUIRE(axes_of(outwards)[0] == PlanAxis::pp && axes_of(outwards)[3] == PlanAxis::dp);
  CHECK(order_text({.tp = 2, .pp = 4, .dp = 8, .order = outwards}) == "pp,tp,dp");
  CHECK(order_text({.tp = 2, .pp = 4, .dp = 8}) == "tp,dp,pp");
  using Plain = PlanTypes<PlanConfiguration{}>;
  STATIC_REQUIRE(std::is_same_v<Plain::Policy, OneFOneB>);
  STATIC_REQUIRE(std::is_same_v<Plain::Zero, DataParallel>);
}
