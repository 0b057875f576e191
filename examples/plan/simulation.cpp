// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Simulates a plan's step and reports where the time goes.

#include "simulation.hpp"

#include <command_line/checks.hpp>
#include <command_line/words.hpp>

#include <shardwright/io/step_trace.hpp>
#include <shardwright/io/write_text.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/simulate/drawing.hpp>
#include <shardwright/plan/simulate/simulate_step.hpp>
#include <shardwright/schedule/text/number_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace plan_example {

using namespace command_line;
namespace sw = shardwright;

namespace {

std::string seconds_text(double value) {
  return sw::number_text(value, value >= 100 ? 1 : value >= 1 ? 3 : 5) + " s";
}

std::string change_text(double now, double before) {
  const double change = now / before - 1;
  return std::fabs(change) < 0.0005 ? std::string("as much")
                                    : (change > 0 ? "+" : "") + sw::percent_text(change);
}

/// The main cause of a class's waits.
std::string reason(const sw::RankClass& one, double step) {
  std::string longest = "for the others' end";
  double most = step - one.end;
  for (const sw::Activity kind :
       {sw::Activity::wait_input, sw::Activity::wait_send, sw::Activity::wait_peers})
    if (one.of(kind) > most) {
      most = one.of(kind);
      longest = kind == sw::Activity::wait_input  ? "for inputs of other stages"
                : kind == sw::Activity::wait_send ? "for room to send"
                                                  : "for other replicas";
    }
  return longest;
}

nlohmann::ordered_json json_of(const sw::StepSimulation& simulation) {
  nlohmann::ordered_json out{{"step_seconds", simulation.step_seconds},
                             {"classes", simulation.classes.size()},
                             {"events", simulation.events}};
  for (const sw::RankClass& one : simulation.classes) {
    nlohmann::ordered_json rank{{"rank", one.rank},   {"stage", one.pipeline_rank},
                                {"count", one.count}, {"slowest", one.slowest},
                                {"end", one.end},     {"waiting", one.waiting(simulation.step_seconds)}};
    for (std::size_t kind = 0; kind < one.seconds.size(); ++kind)
      rank["seconds"][std::string(sw::activity_names[kind])] = one.seconds[kind];
    out["ranks"].push_back(std::move(rank));
  }
  return out;
}

} // namespace

sw::Straggler parse_straggler(const std::string& word) {
  sw::Straggler out{-1};
  bool slow = false;
  std::istringstream parts(word);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? std::string() : part.substr(equals + 1);
    if (name == "rank") {
      out.rank = whole_number<std::int64_t>(value).value_or(-1);
      if (out.rank < 0)
        throw UsageError("--straggler needs a whole number from 0 up after rank=, but has '" + value + "'");
    } else if (name == "factor" || name == "link") {
      const std::optional<double> number = real_number(value);
      if (!number || !(*number >= 1) || *number > 1e6)
        throw UsageError("--straggler needs a number from 1 to a million after " + name + "=, but has '" +
                         value + "' (2 is half as fast)");
      (name == "factor" ? out.factor : out.link) = *number;
      slow = true;
    } else {
      throw UsageError("--straggler has the unknown part '" + part +
                       "' (write --straggler rank=5,factor=2; link=3 slows its links)");
    }
  }
  if (out.rank < 0 || !slow)
    throw UsageError("--straggler needs a rank and a factor or a link (write --straggler rank=5,factor=2)");
  return out;
}

SimulatedPlan simulate_plan(const Options& options, const sw::Plan& plan) {
  const auto simulate = [&](const sw::SimulationOptions& how) {
    return sw::simulate_step(options.model, options.cluster, options.run, plan.configuration, how);
  };
  SimulatedPlan out;
  out.assumed = simulate({.contention = false, .even_stages = true});
  out.whole = simulate({.contention = false});
  out.shared = simulate({});
  sw::SimulationOptions asked = options.simulation;
  asked.timelines = options.trace.empty() && options.timeline_svg.empty() ? 0 : 4;
  out.asked = simulate(asked);
  return out;
}

std::string simulation_report(const Options& options, const sw::Plan& plan, const SimulatedPlan& simulated) {
  const sw::StepSimulation& asked = simulated.asked;
  std::string out = "simulated step, " + std::to_string(asked.chips) + " chips in " +
                    std::to_string(asked.classes.size()) + " classes of ranks, " +
                    std::to_string(asked.events) + " events:\n";
  const sw::StepCost cost =
      sw::evaluate(options.model, options.cluster, options.run, plan.configuration); // of even stages, too
  const double counted = cost.step_seconds - cost.straggler_seconds - cost.imbalance_seconds;
  const auto line = [&out](std::string name, double now, const std::string& beside) {
    name.resize(44, ' ');
    out += "  " + name + seconds_text(now) + (beside.empty() ? "" : ", " + beside) + "\n";
  };
  line("even stages, no shared links", simulated.assumed.step_seconds,
       "and the cost without uneven stages and jitter " + seconds_text(counted));
  line("stages of whole layers", simulated.whole.step_seconds,
       change_text(simulated.whole.step_seconds, simulated.assumed.step_seconds));
  line("and shared links", simulated.shared.step_seconds,
       change_text(simulated.shared.step_seconds, simulated.whole.step_seconds));
  const sw::SimulationOptions& how = options.simulation;
  if (!how.stragglers.empty() || how.jitter > 0 || how.oversubscription > 1)
    line("and what was asked for", asked.step_seconds,
         change_text(asked.step_seconds, simulated.shared.step_seconds));

  std::vector<const sw::RankClass*> order;
  for (const sw::RankClass& one : asked.classes)
    order.push_back(&one);
  const double step = asked.step_seconds;
  std::stable_sort(order.begin(), order.end(), [step](const sw::RankClass* left, const sw::RankClass* right) {
    return left->waiting(step) > right->waiting(step);
  });
  const auto rank_line = [&](const sw::RankClass& one) {
    out += "  " + sw::class_text(one) + " (stage " + std::to_string(one.pipeline_rank) + "): compute " +
           seconds_text(one.of(sw::Activity::compute)) + ", waits " + seconds_text(one.waiting(step)) +
           ", most " + reason(one, step) + "\n";
  };
  out += "who waits longest:\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i)
    rank_line(*order[i]);
  if (order.size() > 3) {
    out += "who waits least:\n";
    rank_line(*order.back());
  }
  // The peers of a slow chip wait for it layer by layer, which their class counts as computation.
  for (const sw::RankClass& one : asked.classes)
    if (one.slowest > 1)
      out += "  a chip that is " + sw::number_text(one.slowest, 2) + " times as slow makes its class (" +
             sw::class_text(one) + ") take " +
             seconds_text(one.of(sw::Activity::compute) * (1 - 1 / one.slowest)) + " longer to compute\n";
  return out;
}

std::string with_simulation(const std::string& plan_json, const SimulatedPlan& simulated) {
  nlohmann::ordered_json out = nlohmann::ordered_json::parse(plan_json);
  out["simulation"] = json_of(simulated.asked);
  out["simulation"]["even_stages_seconds"] = simulated.assumed.step_seconds;
  out["simulation"]["whole_layers_seconds"] = simulated.whole.step_seconds;
  out["simulation"]["shared_links_seconds"] = simulated.shared.step_seconds;
  return out.dump(2) + "\n";
}

std::vector<std::string> write_timelines(const Options& options, const sw::Plan& plan,
                                         const SimulatedPlan& simulated) {
  std::vector<std::string> out;
  if (!options.trace.empty()) {
    sw::write_text(options.trace, sw::step_trace(simulated.asked));
    out.push_back(options.trace.string());
  }
  if (!options.timeline_svg.empty()) {
    const std::string title =
        std::string(options.model.name) + " on " + std::string(options.cluster.name) + ", a simulated step";
    sw::write_text(options.timeline_svg,
                   sw::draw_step(simulated.asked, {title, sw::plan_text(plan.configuration), "s"}));
    out.push_back(options.timeline_svg.string());
  }
  return out;
}

} // namespace plan_example
