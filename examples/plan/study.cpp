// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Asks the planner all questions about a run.

#include "study.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>

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
std::optional<std::int64_t> divisible(const Options& options, sw::Searches& searches, bool without_pipeline) {
  for (std::int64_t over = options.cluster.chips(); over > 0; over /= 2) {
    sw::Situation near{options.cluster, options.run};
    near.run.sequences =
        over * std::llround(static_cast<double>(near.run.sequences) / static_cast<double>(over));
    if (near.run.sequences > 0 &&
        (without_pipeline ? searches.without_pipeline(near, options.space) : searches.of(near, options.space))
                .best.problem != sw::PlanProblem::batch_not_divisible)
      return near.run.sequences;
    if (over % 2 != 0)
      break;
  }
  return {};
}

/// The best plan of another number of sequences, and what it saves compared with that of the given one.
std::optional<Rounder> with_sequences(const Options& options, sw::Searches& searches, const sw::Plan& best,
                                      std::int64_t sequences) {
  sw::Situation other{options.cluster, options.run};
  other.run.sequences = sequences;
  const sw::Plan& plan = searches.of(other, options.space).best;
  if (!plan.found())
    return {};
  return Rounder{sequences, plan,
                 1 - plan.cost.step_seconds / plan.cost.tokens / (best.cost.step_seconds / best.cost.tokens)};
}

/// The number of sequences within 5% that has the most factors of two, if it saves time per token: prime
/// numbers leave no data parallelism.
std::optional<Rounder> rounder_of(const Options& options, sw::Searches& searches, const sw::Plan& best) {
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
  const std::optional<Rounder> out = with_sequences(options, searches, best, near);
  return out && out->saves > 0.02 ? out : std::nullopt;
}

/// The nearest numbers of sequences that the chips divide, or that divide the chips, if the given one does
/// neither.
std::vector<Rounder> dividing_of(const Options& options, sw::Searches& searches, const sw::Plan& best) {
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
    if (const auto one = with_sequences(options, searches, best, near))
      out.push_back(*one);
  return out;
}

std::vector<sw::Resource> varied(const Options& options) {
  std::vector<sw::Resource> out{sw::Resource::scale_up_bandwidth, sw::Resource::domain, sw::Resource::chips,
                                sw::Resource::tokens, sw::Resource::memory};
  if (options.cluster.domain_count > 1)
    out.front() = sw::Resource::scale_out_bandwidth;
  return out;
}

using Tasks = std::vector<std::function<void()>>;

/// Runs tasks in this order, on a thread for each core.
void run_all(const Tasks& tasks) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t at = next++; at < tasks.size(); at = next++)
      tasks[at]();
  };
  std::vector<std::future<void>> others;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& one : others)
    one.get();
}

/// What a study asks, as tasks that write into different parts of it.
class Questions {
public:
  Questions(const Options& options, sw::Searches& searches, Study& study)
      : options_(options), searches_(searches), study_(study), now_{options.cluster, options.run},
        found_(searches.of(now_, options.space)), unpaired_(options.space) {
    unpaired_.schedule = sw::PlanSchedule::one_f_one_b;
    study_.best = found_.best;
    also_unpaired_ = pairs(found_.best) && !options.space.schedule && !options.space.pp;
  }

  void ask(bool with_sweeps) {
    const sw::SearchSpace& space = options_.space;
    const sw::Plan& best = found_.best;
    tasks_.push_back([&] { study_.usual = sw::recipe(searches_, now_); });
    tasks_.push_back([&] { study_.without_pipeline = searches_.without_pipeline(now_, space).best; });
    if (best.found()) {
      tasks_.push_back([&] { study_.rounder = rounder_of(options_, searches_, best); });
      tasks_.push_back([&] { study_.dividing = dividing_of(options_, searches_, best); });
    }
    if (with_sweeps && !sw::is_unusable(best.problem))
      sweep();
    if (best.found()) {
      for (std::size_t i = 0; i < sw::binding_resources; ++i)
        search_at(static_cast<sw::Resource>(i), 2, space);
      tasks_.push_back([&] { find_gains(); });
    }
    turns();
    run_all(tasks_);
    if (study_.rounder &&
        std::any_of(study_.dividing.begin(), study_.dividing.end(),
                    [&](const Rounder& one) { return one.sequences == study_.rounder->sequences; }))
      study_.rounder.reset(); // said once
    study_.runners_up = sw::runners_up(searches_, now_, options_.space);
    if (study_.without_pipeline.problem == sw::PlanProblem::batch_not_divisible)
      study_.divisible_sequences = divisible(options_, searches_, best.found());
  }

private:
  /// A single domain has no network between domains, and is as large as the cluster.
  void find_gains() {
    const auto saved = sw::gains(searches_, now_, options_.space);
    for (std::size_t i = 0; i < saved.size(); ++i)
      if (const auto resource = static_cast<sw::Resource>(i);
          now_.cluster.domain_count > 1 ||
          (resource != sw::Resource::scale_out_bandwidth && resource != sw::Resource::domain))
        study_.gains.push_back({resource, saved[i]});
  }

  /// A search that a later question needs.
  void search_at(sw::Resource resource, double factor, const sw::SearchSpace& space) {
    tasks_.push_back([this, resource, factor, &space] {
      (void)searches_.of(sw::with_more(now_, resource, factor), space);
    });
  }

  /// The searches come first, so that threads share them evenly. With less memory some are not needed.
  void sweep_into(sw::Sweep& out, sw::Resource resource, const sw::SearchSpace& space) {
    const std::vector<double> factors = sw::sweep_factors(now_, resource);
    if (resource != sw::Resource::memory)
      for (const double factor : factors)
        search_at(resource, factor, space);
    sweeps_.push_back([this, &out, resource, factors, &space] {
      out = sw::sweep(searches_, now_, resource, factors, space);
    });
  }

  void sweep() {
    const std::vector<sw::Resource> resources = varied(options_);
    study_.sweeps.resize(resources.size());
    for (std::size_t i = resources.size(); i-- > 0;) // the one of memory, which takes longest, first
      sweep_into(study_.sweeps[i], resources[i], options_.space);
    if (also_unpaired_)
      sweep_into(study_.unpaired_sweep.emplace(), resources.front(), unpaired_);
    tasks_.insert(tasks_.begin(), sweeps_.front());
    tasks_.insert(tasks_.end(), sweeps_.begin() + 1, sweeps_.end());
  }

  /// Where the pipeline ends or, without a plan, where plans begin to exist.
  void turns() {
    const sw::PlanConfiguration& plan = found_.best.configuration;
    std::vector<sw::Resource> resources;
    if (found_.best.found() && plan.pp > 1 && !options_.space.pp && options_.space.chunks.value_or(1) == 1)
      resources = {sw::Resource::scale_out_bandwidth, sw::Resource::scale_up_bandwidth, sw::Resource::memory,
                   sw::Resource::tokens};
    else if (found_.best.problem == sw::PlanProblem::out_of_memory)
      resources = {sw::Resource::memory, sw::Resource::chips};
    std::erase_if(resources, [&](sw::Resource one) { return !(sw::amount_of(now_, one) > 0); });
    turns_into(study_.turns, resources, options_.space);
    if (found_.best.found() && also_unpaired_)
      turns_into(study_.turns_unpaired, resources, unpaired_);
  }
  void turns_into(std::vector<Counterfactual>& out, const std::vector<sw::Resource>& resources,
                  const sw::SearchSpace& space) {
    out.resize(resources.size());
    for (std::size_t i = 0; i < resources.size(); ++i)
      tasks_.push_back([this, &one = out[i], resource = resources[i], &space] {
        one = {resource, found_.best.found()
                             ? sw::pipeline_ends(searches_, now_, resource, most_factor, space)
                             : sw::plan_begins(searches_, now_, resource, most_factor, space)};
      });
  }

  const Options& options_;
  sw::Searches& searches_;
  Study& study_;
  sw::Situation now_;
  const sw::FinishedSearch& found_;
  sw::SearchSpace unpaired_;
  bool also_unpaired_ = false;
  Tasks tasks_, sweeps_;
};

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
  for (sw::Sweep& sweep : study.sweeps)
    scale(options, sweep);
  if (study.unpaired_sweep)
    scale(options, *study.unpaired_sweep);
}

} // namespace

sw::Sweep sweep_of(const Options& options) {
  const sw::Situation now{options.cluster, options.run};
  sw::Searches searches(options.model);
  sw::Sweep out =
      sw::sweep(searches, now, *options.sweep, sw::sweep_factors(now, *options.sweep), options.space);
  scale(options, out);
  return out;
}

Study study_of(const Options& options, bool with_sweeps) {
  const auto begin = std::chrono::steady_clock::now();
  sw::Searches searches(options.model);
  Study out;
  Questions(options, searches, out).ask(with_sweeps);
  if (options.unnamed && out.best.found())
    out.unnamed = ProgramFactor{}.of(
        sw::simulated_cost(options.model, {options.cluster, *options.unnamed}, out.best.configuration),
        options.model);
  scale(options, out);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return out;
}

} // namespace plan_example
