// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <cmath>
#include <string>

using namespace shardwright;
using shardwright_test::Approx;

namespace {

constexpr const ModelSpec& llama_70b = *find_model("Llama-3.1-70B");
static_assert(llama_70b.name == "llama-3.1-70b" && find_model("llama-3.1-7") == nullptr);
static_assert(find_chip("h800")->scale_up_bandwidth == 200e9 && find_cluster("none") == nullptr);
constexpr RunSpec batch{.sequences = 512, .sequence_length = 8192};
constexpr PlanConfiguration usual{
    .tp = 4, .cp = 2, .pp = 4, .chunks = 5, .schedule = PlanSchedule::interleaved, .dp = 8, .zero_stage = 1};
constexpr ClusterSpec cluster = cluster_of(chip::h100, 256);

/// A plan that the compiler evaluates.
constexpr StepCost compiled = evaluate(llama_70b, cluster, batch, usual);
static_assert(compiled.problem == PlanProblem::none);
static_assert(compiled.mfu(FlopsConvention::non_causal) > compiled.mfu(FlopsConvention::causal));
static_assert(compiled.least_seconds < compiled.step_seconds &&
              compiled.step_seconds < compiled.most_seconds);

double sum_of_parts(const StepCost& cost) {
  return cost.matmul_seconds + cost.attention_seconds + cost.elementwise_seconds + cost.overhead_seconds +
         cost.optimizer_seconds + cost.imbalance_seconds + cost.bubble_seconds + cost.straggler_seconds +
         cost.exposed_seconds();
}

PlanProblem problem(PlanConfiguration plan, const RunSpec& run = batch, const ModelSpec& model = llama_70b,
                    const ClusterSpec& on = cluster) {
  return evaluate(model, on, run, plan).problem;
}

} // namespace

TEST_CASE("evaluations by the compiler and by the program agree", "[evaluate]") {
  const StepCost cost = evaluate(llama_70b, cluster, batch, usual);
  CHECK(cost.step_seconds == Approx(compiled.step_seconds).epsilon(1e-12));
  CHECK(cost.memory.total() == Approx(compiled.memory.total()).epsilon(1e-12));
  CHECK(microbatches_of(batch, usual) == 64); // 512 sequences on 8 ranks, one at a time
  CHECK(cost.tokens_per_second_per_chip() == Approx(512.0 * 8192 / (256 * cost.step_seconds)));
}

TEST_CASE("every configuration of every model has finite parts that add up to the total", "[evaluate]") {
  int evaluated = 0;
  for (const ModelSpec& model : model_catalogue)
    for (const ChipSpec& chip : {chip::a100_80, chip::h100, chip::gb200, chip::tpu_v5p})
      for (const int tp : {1, 8})
        for (const int pp : {1, 4})
          for (const int zero : {0, 1, 2, 3})
            for (const Recompute again : {Recompute::none, Recompute::selective, Recompute::full}) {
              const PlanConfiguration plan{.tp = tp,
                                           .pp = pp,
                                           .ep = model.experts.used() ? 8 : 1,
                                           .dp = 512 / (tp * pp),
                                           .zero_stage = zero,
                                           .recomputation = again};
              const StepCost cost =
                  evaluate(model, cluster_of(chip, 512), {.sequences = 2048, .sequence_length = 4096}, plan);
              INFO(std::string(model.name) << " tp " << tp << " pp " << pp << " zero " << zero);
              REQUIRE(std::isfinite(cost.step_seconds));
              REQUIRE(cost.step_seconds > 0);
              REQUIRE(sum_of_parts(cost) == Approx(cost.step_seconds));
              REQUIRE(cost.mfu(FlopsConvention::causal) < 1);
              REQUIRE(cost.hfu(FlopsConvention::causal) >= cost.mfu(FlopsConvention::causal));
              REQUIRE((pp == 1) == (cost.bubble_seconds == 0));
              REQUIRE((tp == 1) == (cost.of(Traffic::tensor).bytes == 0));
              for (const TrafficCost& one : cost.traffic) {
                REQUIRE(one.bytes >= 0);
                REQUIRE(one.exposed_seconds <= one.seconds * (1 + 1e-12));
              }
              ++evaluated;
            }
  CHECK(evaluated == 27 * 4 * 48);
}

TEST_CASE("an invalid configuration is described", "[evaluate]") {
  CHECK(problem(usual) == PlanProblem::none);
  auto plan = usual;
  plan.dp = 0;
  CHECK(problem(plan) == PlanProblem::empty_input);
  CHECK(evaluate(llama_70b, cluster, batch, plan).step_seconds == 0);
  CHECK(problem(usual, {}) == PlanProblem::empty_input);
  CHECK(problem(usual, batch, {}) == PlanProblem::empty_input);
  CHECK(problem(usual, batch, llama_70b, {}) == PlanProblem::empty_input);
  plan = usual;
  plan.dp = 16;
  CHECK(problem(plan) == PlanProblem::chips_differ);
  CHECK(problem(usual, {.sequences = 513, .sequence_length = 8192}) == PlanProblem::batch_not_divisible);
  plan = {.tp = 128, .dp = 2};
  CHECK(problem(plan) == PlanProblem::heads_not_divisible);
  CHECK(problem(usual, {.sequences = 512, .sequence_length = 8191}) == PlanProblem::sequence_not_divisible);
  plan = usual;
  plan.chunks = 32;
  CHECK(problem(plan) == PlanProblem::layers_too_few);
  // Of 80 layers, embedding and output matrix: 82 stages of an interleaved schedule, at most 80 of any other.
  STATIC_REQUIRE(has_layers_for(PlanSchedule::interleaved, 2, 41, 80));
  STATIC_REQUIRE(!has_layers_for(PlanSchedule::interleaved, 4, 21, 80));
  STATIC_REQUIRE(has_layers_for(PlanSchedule::one_f_one_b, 80, 1, 80));
  STATIC_REQUIRE(!has_layers_for(PlanSchedule::one_f_one_b, 81, 1, 80));
  STATIC_REQUIRE(!has_layers_for(PlanSchedule::zb_v, 41, 1, 80));
  plan = usual;
  plan.ep = 2;
  CHECK(problem(plan) == PlanProblem::experts_not_divisible);
  plan = usual;
  plan.schedule = PlanSchedule::dual_pipe;
  CHECK(problem(plan, {.sequences = 8 * 9, .sequence_length = 8192}) == PlanProblem::schedule_rule);
  plan = {.dp = 256};
  CHECK(problem(plan) == PlanProblem::out_of_memory);
  CHECK(problem_text(PlanProblem::none) == "it can run");
  CHECK(problem_text(problem(plan)) == "a chip has too little memory"); // the last one
}

TEST_CASE("numbers beyond the planner's limits are a separate problem", "[evaluate]") {
  STATIC_REQUIRE(is_unusable(PlanProblem::too_large));
  STATIC_REQUIRE(is_unusable(PlanProblem::empty_input));
  STATIC_REQUIRE_FALSE(is_unusable(PlanProblem::out_of_memory));
  const RunSpec endless{.sequences = std::int64_t{1} << 40, .sequence_length = 4096};
  CHECK(problem(usual, endless) == PlanProblem::too_large);
  CHECK(search(llama_70b, cluster, endless).problem == PlanProblem::too_large);
  CHECK(evaluate(llama_70b, cluster, endless, usual).step_seconds == 0);
  ModelSpec wide = llama_70b;
  wide.hidden = 2'000'000'000;
  CHECK(problem(usual, batch, wide) == PlanProblem::too_large);
  wide = llama_70b;
  wide.experts = {.count = 8, .active = 2, .width = 1 << 20, .shared = 1 << 20};
  CHECK(problem(usual, batch, wide) == PlanProblem::too_large);
}

TEST_CASE("more bandwidth, memory speed or compute rate never slows a step", "[evaluate]") {
  for (const ModelSpec& model : model_catalogue) {
    const PlanConfiguration plan{
        .tp = 8, .pp = 2, .ep = model.experts.used() ? 8 : 1, .dp = 16, .zero_stage = 1};
    const auto seconds = [&](auto change) {
      ClusterSpec on = cluster_of(chip::h100, 256);
      change(on);
      return evaluate(model, on, {.sequences = 1024, .sequence_length = 4096}, plan).step_seconds;
    };
    INFO(std::string(model.name));
    const double now = seconds([](ClusterSpec&) {});
    CHECK(seconds([](ClusterSpec& on) { on.domains[0].bandwidth *= 2; }) < now);
    CHECK(seconds([](ClusterSpec& on) { on.domains[1].bandwidth *= 2; }) < now);
    CHECK(seconds([](ClusterSpec& on) { on.chip.memory_bandwidth *= 2; }) < now);
    CHECK(seconds([](ClusterSpec& on) { on.chip.peak_bf16 *= 2; }) < now);
  }
}

TEST_CASE("a host that launches more slowly than a chip computes binds", "[evaluate]") {
  const ModelSpec& small = *find_model("llama-3.1-8b");
  const auto overhead = [&](std::int64_t length, const ChipSpec& on) {
    const PlanConfiguration plan{.tp = 8, .dp = 8};
    return evaluate(small, cluster_of(on, 64), {.sequences = 64, .sequence_length = length}, plan)
        .overhead_seconds;
  };
  CHECK(overhead(512, chip::h100) > overhead(8192, chip::h100));
  CHECK(overhead(512, chip::h100) > 1.25 * overhead(512, chip::gb200));   // coupled
  CHECK(overhead(512, chip::tpu_v5p) < 0.25 * overhead(512, chip::h100)); // nothing to launch
}

TEST_CASE("exposed all-to-alls cost more than those overlapped with other microbatches", "[evaluate]") {
  const ModelSpec& model = *find_model("qwen3-235b-a22b");
  RunSpec run{.sequences = 2048, .sequence_length = 4096};
  const PlanConfiguration plan{.pp = 8, .ep = 32, .dp = 32, .zero_stage = 1};
  const StepCost launched = evaluate(model, cluster, run, plan);
  run.overlapped_experts = true;
  const StepCost overlapped = evaluate(model, cluster, run, plan);
  CHECK(overlapped.of(Traffic::expert).exposed_seconds < 0.5 * launched.of(Traffic::expert).exposed_seconds);
  CHECK(overlapped.step_seconds < launched.step_seconds);
}

TEST_CASE("the cost of copies of tokens depends on their dispatch", "[evaluate]") {
  const ModelSpec& model = *find_model("qwen3-235b-a22b");
  RunSpec run{.sequences = 2048, .sequence_length = 4096};
  const PlanConfiguration plan{.pp = 8, .ep = 32, .dp = 32, .zero_stage = 1};
  const auto of = [&](ExpertDispatch dispatch) {
    run.dispatch = dispatch;
    return evaluate(model, cluster, run, plan);
  };
  const StepCost fused = of(ExpertDispatch::fused), sized = of(ExpertDispatch::all_to_all),
                 padded = of(ExpertDispatch::padded);
  // Top 8 of 32 ranks in four nodes: a copy for each of 2.6 to 4 nodes, or one for each of 8 experts.
  CHECK(sized.of(Traffic::expert).seconds > 2 * fused.of(Traffic::expert).seconds);
  CHECK(sized.of(Traffic::expert).seconds == Approx(padded.of(Traffic::expert).seconds));
  CHECK(sized.elementwise_seconds > fused.elementwise_seconds);
  CHECK(sized.elementwise_seconds == Approx(padded.elementwise_seconds));
  CHECK(padded.overhead_seconds < sized.overhead_seconds); // no host waits for counts
  // DeepSeek-V3's routing: four of eight groups, each of which is split over two of sixteen domains.
  const TokenCopies limited = copies_of(*find_model("deepseek-v3"), {});
  CHECK(limited.merged);
  CHECK(limited.reached_of(8) == 4);
  CHECK(limited.reached_of(16) == 8);
  CHECK(copies_of(model, run).reached_of(8) == 8);
  // A host launches the kernels of every expert of its chip.
  run.dispatch = ExpertDispatch::fused;
  const auto launches = [&](int ep, std::int64_t length) {
    RunSpec shorter = run;
    shorter.sequence_length = length;
    return evaluate(model, cluster, shorter, {.pp = 8, .ep = ep, .dp = 32, .zero_stage = 1}).overhead_seconds;
  };
  CHECK(launches(4, 512) > 1.5 * launches(32, 512));
}

TEST_CASE("a compiler fuses operations between products, but not attention", "[evaluate]") {
  const PlanConfiguration plan{.dp = 256, .zero_stage = 3};
  const auto of = [&](KernelStack stack) {
    return evaluate(llama_70b, cluster, {.sequences = 256, .sequence_length = 8192, .stack = stack}, plan);
  };
  const StepCost tuned = of(KernelStack::tuned), plain = of(KernelStack::plain),
                 compiled = of(KernelStack::compiled);
  CHECK(compiled.elementwise_seconds == Approx(tuned.elementwise_seconds));
  CHECK(compiled.elementwise_seconds < plain.elementwise_seconds);
  CHECK(compiled.attention_seconds == Approx(plain.attention_seconds));
  CHECK(compiled.attention_seconds > tuned.attention_seconds);
  const RunSpec flash{.sequences = 256, .sequence_length = 8192, .flash_2 = true};
  CHECK(evaluate(llama_70b, cluster, flash, plan).attention_seconds == Approx(plain.attention_seconds));
  const RunSpec vendors{
      .sequences = 256, .sequence_length = 8192, .stack = KernelStack::plain, .vendors_attention = true};
  CHECK(evaluate(llama_70b, cluster, vendors, plan).attention_seconds == Approx(tuned.attention_seconds));
}

TEST_CASE("a checkpoint that stops early runs neither last products nor the return of tokens again",
          "[evaluate]") {
  const auto of = [&](Recompute kind, bool early) {
    return evaluate(*find_model("qwen3-30b-a3b"), cluster,
                    {.sequences = 256, .sequence_length = 4096, .stops_early = early},
                    {.ep = 8, .dp = 256, .zero_stage = 3, .recomputation = kind});
  };
  const StepCost none = of(Recompute::none, true), early = of(Recompute::full, true),
                 full = of(Recompute::full, false);
  CHECK(none.step_seconds == of(Recompute::none, false).step_seconds);
  // The last products are a third of the experts'; of four all-to-alls of a layer that is run again, one.
  CHECK(early.matmul_seconds - none.matmul_seconds < 0.85 * (full.matmul_seconds - none.matmul_seconds));
  const auto returned = [](const StepCost& cost) { return cost.of(Traffic::expert).bytes; };
  CHECK(returned(early) == Approx(returned(none) * 1.25));
  CHECK(returned(full) == Approx(returned(none) * 1.5));
}

TEST_CASE("a compiler runs no product again that no gradient reads, and PyTorch overlaps none with traffic",
          "[evaluate]") {
  const auto of = [&](KernelStack stack, bool split) {
    const PlanConfiguration plan{.tp = 8, .dp = 32, .zero_stage = 1, .recomputation = Recompute::full};
    return evaluate(llama_70b, cluster,
                    {.sequences = 256, .sequence_length = 8192, .stack = stack, .overlapped_tensor = split},
                    plan);
  };
  const double plain = of(KernelStack::plain, false).matmul_seconds;
  CHECK(of(KernelStack::compiled, false).matmul_seconds < 0.97 * plain);
  CHECK(of(KernelStack::tuned, false).matmul_seconds == Approx(plain));
  const auto exposed = [&](KernelStack stack, bool split) {
    const StepCost cost = of(stack, split);
    return cost.of(Traffic::tensor).exposed_seconds / cost.of(Traffic::tensor).seconds;
  };
  CHECK(exposed(KernelStack::plain, false) == Approx(1));
  CHECK(exposed(KernelStack::plain, true) == Approx(exposed(KernelStack::tuned, false)));
  CHECK(exposed(KernelStack::tuned, true) < exposed(KernelStack::tuned, false));
}

TEST_CASE("bytes on the wire, overlap, casts and copies of shards count", "[evaluate]") {
  const ModelSpec llama = *find_model("llama-3.1-70b");
  const ClusterSpec cluster = cluster_of(chip::h100, 512);
  RunSpec run{.sequences = 512, .sequence_length = 4096, .precision = Precision::fp8};
  const PlanConfiguration plan{.tp = 8, .pp = 4, .dp = 16, .zero_stage = 1};
  const auto of = [&](const PlanConfiguration& how) { return evaluate(llama, cluster, run, how); };
  const StepCost usual = of(plan);
  run.optimizer.reduced_bytes = 3; // as usual, with gathers of two bytes
  run.optimizer.gathered_bytes = 1;
  const StepCost narrow = of(plan);
  CHECK(narrow.of(Traffic::data).bytes == Approx(usual.of(Traffic::data).bytes * 4 / 5));
  // Casts are paid once a step, however many microbatches there are, and only of its shards if they precede
  // the gather.
  const double casts =
      calibration_of(ChipGeneration::hopper).shared.weight_cast_bytes / chip::h100.memory_bandwidth;
  const double held = usual.memory.parameters / run.optimizer.parameter_bytes;
  CHECK(usual.optimizer_seconds - narrow.optimizer_seconds == Approx(held * 15 / 16 * casts).epsilon(0.01));
  run.optimizer = {};
  run.sequences = 1024;
  CHECK(of(plan).optimizer_seconds == Approx(usual.optimizer_seconds));
  run.precision = Precision::bf16;
  CHECK(of(plan).optimizer_seconds < usual.optimizer_seconds);
  const StepCost apart = of(plan);
  run.overlapped_tensor = true;
  CHECK(of(plan).of(Traffic::tensor).exposed_seconds < 0.6 * apart.of(Traffic::tensor).exposed_seconds);
  CHECK(of(plan).of(Traffic::tensor).seconds == Approx(apart.of(Traffic::tensor).seconds));
  // Parts that a node's ranks share are gathered inside it, and their gradients summed between nodes: less
  // traffic outside, more memory.
  PlanConfiguration whole{.dp = 512, .zero_stage = 3, .recomputation = Recompute::full}, copied = whole;
  copied.shard_ranks = 8;
  CHECK(of(copied).of(Traffic::data).seconds < 0.9 * of(whole).of(Traffic::data).seconds);
  CHECK(of(copied).memory.optimizer == Approx(64 * of(whole).memory.optimizer));
  copied.shard_ranks = 512;
  CHECK(of(copied).step_seconds == Approx(of(whole).step_seconds));
  copied.shard_ranks = 3;
  CHECK(of(copied).problem == PlanProblem::shards_not_divisible);
}

TEST_CASE("a reproducible run sums integers of 8 bytes, and its products take longer", "[evaluate]") {
  const RunSpec run{.sequences = 2048, .sequence_length = 8192};
  const PlanConfiguration plan{.tp = 8, .dp = 32};
  const StepCost usual = evaluate(llama_70b, cluster, run, plan);
  const StepCost cost = evaluate(llama_70b, cluster, reproducible(run), plan);
  CHECK(cost.memory.gradients == Approx(2 * usual.memory.gradients));
  CHECK(cost.of(Traffic::data).bytes == Approx(usual.of(Traffic::data).bytes * 8 / 3));
  CHECK(cost.matmul_seconds == Approx(1.15 * usual.matmul_seconds));
  CHECK(cost.attention_seconds == usual.attention_seconds);
  const auto problem = [&](const PlanConfiguration& one) {
    return evaluate(llama_70b, cluster, reproducible(run), one).problem;
  };
  CHECK(problem({.tp = 16, .dp = 16}) == PlanProblem::not_reproducible);
  CHECK(problem({.cp = 16, .dp = 16}) == PlanProblem::not_reproducible);
  CHECK(problem({.tp = 8, .cp = 8, .dp = 4}) != PlanProblem::not_reproducible);
}

TEST_CASE("exponentials bound attention, and a faster chip loses more rows of a product", "[evaluate]") {
  const ModelSpec llama = *find_model("llama-3.1-8b");
  const SharedCalibration& shared = calibration_of(ChipGeneration::blackwell).shared;
  const RunSpec run{.sequences = 8, .sequence_length = 8192};
  const PlanConfiguration plan{.dp = 8};
  ClusterSpec cluster = cluster_of(chip::b200, 8);
  const auto of = [&](const RunSpec& how) { return evaluate(llama, cluster, how, plan); };
  const StepCost usual = of(run);
  // Two passes of 32 layers and heads over half of 8192 x 8192 scores, beside the ramp of the kernel.
  cluster.chip.exponentials *= 2;
  const double pairs = attended_tokens(llama, 8192, FlopsConvention::causal);
  const double exponentials = 2.0 * 32 * 32 * 8192 * (pairs + shared.attention_half / 2);
  CHECK(usual.attention_seconds - of(run).attention_seconds ==
        Approx(shared.exponentials_shown * exponentials * (1 / 5e12 - 1 / 10e12)));
  cluster.chip.exponentials = chip::b200.exponentials;
  cluster.chip.peak_bf16 *= 2;
  CHECK(of(run).matmul_seconds > 0.5 * usual.matmul_seconds * 1.02);
  cluster.chip.peak_bf16 = chip::b200.peak_bf16;
  // Programs of a generation's first months are slower, those of later ones are not.
  RunSpec early = run;
  early.chip_months = shared.early_months / 3;
  CHECK(of(early).matmul_seconds == Approx(usual.matmul_seconds * (1 + shared.early_slows * 2 / 3)));
  CHECK(of(early).attention_seconds == Approx(usual.attention_seconds * (1 + shared.early_slows * 2 / 3)));
  CHECK(of(early).elementwise_seconds == Approx(usual.elementwise_seconds));
  early.chip_months = shared.early_months;
  CHECK(of(early).step_seconds == usual.step_seconds);
  // Those from before the first systems are as slow as the first.
  early.chip_months = 0;
  const StepCost first = of(early);
  CHECK(first.matmul_seconds == Approx(usual.matmul_seconds * (1 + shared.early_slows)));
  early.chip_months = -3;
  CHECK(of(early).step_seconds == first.step_seconds);
}

TEST_CASE("interleaved stages hide gradients behind each other, and ends count as layers", "[evaluate]") {
  const ModelSpec llama = *find_model("llama-3.1-405b"); // 126 layers
  const ClusterSpec cluster = cluster_of(chip::h100, 4096);
  const RunSpec run{.sequences = 512, .sequence_length = 8192};
  PlanConfiguration plan{.tp = 8, .pp = 8, .dp = 64, .zero_stage = 1};
  const auto of = [&](const PlanConfiguration& how) { return evaluate(llama, cluster, run, how); };
  const StepCost once = of(plan);
  plan.schedule = PlanSchedule::interleaved;
  plan.chunks = 8;
  const StepCost even = of(plan);
  CHECK(even.of(Traffic::data).seconds == Approx(once.of(Traffic::data).seconds));
  CHECK(even.of(Traffic::data).exposed_seconds < 0.5 * once.of(Traffic::data).exposed_seconds);
  // Two layers for each of 64 stages, one of them the embedding or the head: no rank waits for another's.
  plan.chunks = 7; // 126 layers are not 56 stages of as many
  CHECK(even.imbalance_seconds < 0.5 * of(plan).imbalance_seconds);
}

TEST_CASE("the recipe's levers act as they do in practice", "[evaluate]") {
  const auto cost = [](PlanConfiguration plan, std::int64_t sequences = 2048) {
    return evaluate(llama_70b, cluster, {.sequences = sequences, .sequence_length = 8192}, plan);
  };
  const PlanConfiguration pipeline{.tp = 8, .pp = 8, .dp = 4, .zero_stage = 1};
  auto chunked = pipeline;
  chunked.schedule = PlanSchedule::interleaved;
  chunked.chunks = 5;
  // Chunks divide the bubble and keep more; microbatches dilute it.
  CHECK(cost(chunked).bubble_seconds == Approx(cost(pipeline).bubble_seconds / 5));
  CHECK(cost(chunked).memory.activations > cost(pipeline).memory.activations);
  CHECK(cost(pipeline, 4096).bubble_seconds == Approx(cost(pipeline, 256).bubble_seconds));
  // Recomputation saves memory for a third of the forward and backward work of the layers, but not of the
  // logits.
  auto full = pipeline;
  full.recomputation = Recompute::full;
  CHECK(cost(full).memory.activations < 0.2 * cost(pipeline).memory.activations);
  const double again = cost(full).matmul_seconds / cost(pipeline).matmul_seconds - 1;
  const double logits = static_cast<double>(llama_70b.hidden) * llama_70b.vocabulary;
  CHECK(again == Approx((1 - logits / (size_of(llama_70b).total - logits)) / 3).epsilon(0.002));
  // ZeRO-2 reduces the gradients of every microbatch, ZeRO-1 once a step: (16 x 3 + 2) bytes over 3 + 2.
  PlanConfiguration sharded{.dp = 256, .zero_stage = 1};
  const double once = cost(sharded, 16 * 256).of(Traffic::data).bytes;
  sharded.zero_stage = 2;
  CHECK(cost(sharded, 16 * 256).of(Traffic::data).bytes == Approx(once * 50 / 5));
  // Tensor parallelism beyond a node of eight goes through the ports, and nothing hides that time.
  const double inside = cost({.tp = 8, .dp = 32}).of(Traffic::tensor).seconds;
  const double outside = cost({.tp = 16, .dp = 16}).of(Traffic::tensor).seconds;
  CHECK(outside > 2 * inside);
  CHECK(cost({.tp = 16, .dp = 16}).of(Traffic::tensor).exposed_seconds == Approx(outside));
  CHECK(cost({.tp = 8, .dp = 32}).of(Traffic::tensor).exposed_seconds < 0.8 * inside);
}
