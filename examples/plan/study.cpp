// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Asks the planner all questions about a run.

#include "study.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <utility>

namespace plan_example {

namespace sw = shardwright;

namespace {

bool pairs(const sw::Plan& plan) {
  const sw::PlanSchedule schedule = plan.configuration.schedule;
  return plan.found() && plan.configuration.pp > 1 && plan.configuration.ep > 1 &&
         (schedule == sw::PlanSchedule::dual_pipe || schedule == sw::PlanSchedule::dual_pipe_v);
}

/// A number of sequences near the given one that is divisible by the number of chips, or by a half, a quarter
/// and so on of it as needed; nothing if that does not help.
std::optional<std::int64_t> divisible(const Options& options, const sw::SearchSpace& space) {
  for (std::int64_t over = options.cluster.chips(); over > 0; over /= 2) {
    sw::RunSpec run = options.run;
    run.sequences = over * std::llround(static_cast<double>(run.sequences) / static_cast<double>(over));
    if (run.sequences > 0 && sw::search(options.model, options.cluster, run, space).problem !=
                                 sw::PlanProblem::batch_not_divisible)
      return run.sequences;
    if (over % 2 != 0)
      break;
  }
  return {};
}

/// The best plan of another number of sequences, and what it saves compared with that of the given one.
std::optional<Rounder> with_sequences(const Options& options, const sw::Plan& best, std::int64_t sequences) {
  Rounder out{sequences};
  sw::RunSpec run = options.run;
  run.sequences = sequences;
  out.plan = sw::search(options.model, options.cluster, run, options.space);
  if (!out.plan.found())
    return {};
  out.saves =
      1 - out.plan.cost.step_seconds / out.plan.cost.tokens / (best.cost.step_seconds / best.cost.tokens);
  return out;
}

/// The number of sequences within 5% that has the most factors of two, if it saves time per token: prime
/// numbers leave no data parallelism.
std::optional<Rounder> rounder_of(const Options& options, const sw::Plan& best) {
  const std::int64_t given = options.run.sequences;
  std::int64_t near = given;
  for (std::int64_t power = 2; power <= given; power *= 2) {
    const std::int64_t multiple =
        power * std::llround(static_cast<double>(given) / static_cast<double>(power));
    if (20 * std::abs(multiple - given) <= given)
      near = multiple;
  }
  if (near == given)
    return {};
  const std::optional<Rounder> out = with_sequences(options, best, near);
  return out && out->saves > 0.02 ? out : std::nullopt;
}

/// The nearest numbers of sequences that the chips divide, or that divide the chips, if the given one does
/// neither.
std::vector<Rounder> dividing_of(const Options& options, const sw::Plan& best) {
  const std::int64_t given = options.run.sequences, chips = options.cluster.chips();
  if (given % chips == 0 || chips % given == 0)
    return {};
  std::int64_t below = given / chips * chips, above = below + chips;
  if (const sw::Divisors divisors = sw::divisors_of(chips); given < chips)
    for (int i = 0; i + 1 < divisors.count && divisors[i] < given; ++i) {
      below = divisors[i];
      above = divisors[i + 1];
    }
  std::vector<Rounder> out;
  for (const std::int64_t near : {below, above})
    if (const auto one = with_sequences(options, best, near))
      out.push_back(*one);
  return out;
}

using Ends = std::vector<std::future<Counterfactual>>;

/// Where the best plan's pipeline ends; each resource has its own thread, since it takes dozens of searches.
Ends ends_of(const Options& options, const sw::SearchSpace& space) {
  Ends out;
  for (const sw::Resource resource : {sw::Resource::scale_out_bandwidth, sw::Resource::scale_up_bandwidth,
                                      sw::Resource::memory, sw::Resource::tokens})
    if (sw::amount_of({options.cluster, options.run}, resource) > 0)
      out.push_back(std::async(std::launch::async, [&options, space, resource] {
        return Counterfactual{resource, sw::pipeline_ends(options.model, options.cluster, options.run,
                                                          resource, most_factor, space)};
      }));
  return out;
}

std::vector<Counterfactual> all_of(Ends ends) {
  std::vector<Counterfactual> out;
  for (std::future<Counterfactual>& one : ends)
    out.push_back(one.get());
  return out;
}

std::vector<sw::Resource> varied(const Options& options) {
  std::vector<sw::Resource> out{sw::Resource::scale_up_bandwidth, sw::Resource::domain, sw::Resource::chips,
                                sw::Resource::tokens, sw::Resource::memory};
  if (options.cluster.domain_count > 1)
    out.front() = sw::Resource::scale_out_bandwidth;
  return out;
}

Study timeless_study_of(const Options& options, bool with_sweeps) {
  const sw::ModelSpec& model = options.model;
  const sw::ClusterSpec& cluster = options.cluster;
  const sw::RunSpec& run = options.run;
  const sw::SearchSpace& space = options.space;
  Study out;
  const sw::FinishedSearch found = sw::finished_search(model, cluster, run, space);
  out.best = found.best;
  sw::SearchSpace unpaired = space;
  unpaired.schedule = sw::PlanSchedule::one_f_one_b;
  const bool also_unpaired = pairs(out.best) && !space.schedule && !space.pp;
  Ends ends, unpaired_ends; // found concurrently with the following
  if (out.best.found() && out.best.configuration.pp > 1 && !space.pp && space.chunks.value_or(1) == 1) {
    ends = ends_of(options, space);
    if (also_unpaired)
      unpaired_ends = ends_of(options, unpaired);
  }
  sw::SearchSpace flat = space;
  flat.pp = 1;
  flat.chunks = {}; // stages of a pipeline
  // Each of these runs one or more searches.
  const auto beside = [](auto ask) { return std::async(std::launch::async, ask); };
  auto usual = beside([&] { return sw::recipe(model, cluster, run); });
  auto without_pipeline = beside([&] { return sw::search(model, cluster, run, flat); });
  if (!out.best.found()) {
    if (out.best.problem == sw::PlanProblem::out_of_memory)
      for (const sw::Resource resource : {sw::Resource::memory, sw::Resource::chips})
        out.turns.push_back({resource, sw::plan_begins(model, cluster, run, resource, most_factor, space)});
  } else {
    auto gains = beside([&] { return sw::gains(found, model, cluster, run, space); });
    auto rounder = beside([&] { return rounder_of(options, out.best); });
    auto dividing = beside([&] { return dividing_of(options, out.best); });
    // The plan comes first, so that it is simulated however long the others take.
    std::vector<sw::Plan> last = sw::last_candidates(found, model, cluster, run);
    std::stable_partition(last.begin(), last.end(),
                          [&](const sw::Plan& one) { return one.configuration == out.best.configuration; });
    out.simulated = sw::rank_by_simulation(model, cluster, run, last);
    out.gains = gains.get();
    out.runners_up = sw::runners_up(found, model, cluster, run);
    out.rounder = rounder.get();
    out.dividing = dividing.get();
  }
  out.usual = usual.get();
  out.without_pipeline = without_pipeline.get();
  if (out.without_pipeline.problem == sw::PlanProblem::batch_not_divisible)
    out.divisible_sequences = divisible(options, out.best.found() ? flat : space);
  if (out.best.found())
    out.turns = all_of(std::move(ends));
  out.turns_unpaired = all_of(std::move(unpaired_ends));
  if (!with_sweeps || sw::is_unusable(out.best.problem))
    return out;
  const sw::Situation now{cluster, run};
  const auto sweep_of = [&](sw::Resource resource, int per_doubling, const sw::SearchSpace& within,
                            const sw::FinishedSearch* known) {
    return std::async(std::launch::async, [&, resource, per_doubling, within, known] {
      return sw::sweep(model, now, resource, sw::sweep_factors(now, resource, per_doubling), within, known);
    });
  };
  std::vector<std::future<sw::Sweep>> sweeps;
  for (const sw::Resource resource : varied(options))
    sweeps.push_back(sweep_of(resource, sweeps.empty() ? 2 : 1, space, &found));
  if (also_unpaired)
    out.unpaired_sweep = sweep_of(varied(options).front(), 2, unpaired, nullptr).get();
  for (std::future<sw::Sweep>& one : sweeps)
    out.sweeps.push_back(one.get());
  return out;
}

/// Takes the times of plans as those of the measured program, if there is one. The order of plans, and what
/// they save or lose, stay the same.
void scale(const Options& options, sw::Plan& plan) {
  if (options.program)
    plan.cost = options.program->of(plan.cost, options.model);
}
void scale(const Options& options, sw::Sweep& sweep) {
  for (sw::SweepPoint& point : sweep.points) {
    scale(options, point.best);
    scale(options, point.without_pipeline);
  }
}
void scale(const Options& options, Study& study) {
  for (sw::Plan* plan : {&study.best, &study.usual, &study.without_pipeline})
    scale(options, *plan);
  for (sw::Plan& plan : study.runners_up)
    scale(options, plan);
  for (sw::SimulatedRank& one : study.simulated) {
    scale(options, one.plan);
    one.seconds *= options.program ? options.program->factor : 1;
  }
  for (sw::Sweep& sweep : study.sweeps)
    scale(options, sweep);
  if (study.unpaired_sweep)
    scale(options, *study.unpaired_sweep);
}

} // namespace

sw::Sweep sweep_of(const Options& options) {
  const sw::Situation now{options.cluster, options.run};
  sw::Sweep out =
      sw::sweep(options.model, now, *options.sweep, sw::sweep_factors(now, *options.sweep), options.space);
  scale(options, out);
  return out;
}

Study study_of(const Options& options, bool with_sweeps) {
  const auto begin = std::chrono::steady_clock::now();
  Study out = timeless_study_of(options, with_sweeps);
  scale(options, out);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return out;
}

} // namespace plan_example
