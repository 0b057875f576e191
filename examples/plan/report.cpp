// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Plans and evaluations as text.

#include "report.hpp"

#include "launch.hpp"
#include "parts.hpp"
#include "short_text.hpp"

#include <command_line/limits.hpp>
#include <plan/published/run.hpp>
#include <plan/published/validation.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/schedule/text/number_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace plan_example {

namespace sw = shardwright;

namespace {

std::string listed(const Parts& parts, double unit, double least) {
  std::string out;
  for (const auto& [name, value] : parts)
    if (value > least)
      out += (out.empty() ? "" : ", ") + name + " " + short_text(value / unit);
  return out;
}

std::string rates(const sw::StepCost& cost) {
  return short_text(cost.step_seconds) + " s a step, " + short_text(cost.tokens_per_second_per_chip()) +
         " tokens/s per chip, MFU " + sw::percent_text(cost.mfu(sw::FlopsConvention::causal)) + " (causal; " +
         sw::percent_text(cost.mfu(sw::FlopsConvention::non_causal)) + " counted without the mask)";
}

std::string decided(const sw::StepCost& slow, const sw::StepCost& fast) {
  const DecidingPart part = deciding_part(slow, fast);
  return part.name + ", " + short_text(part.slow_seconds) + " s > " + short_text(part.fast_seconds) +
         " s (what helps: " + std::string(part.remedy()) + ")";
}

/// The time of the usual recipe's plan beside that of the best one, which may have to keep fixed values.
std::string beside_recipe(const sw::StepCost& usual, const sw::StepCost& best) {
  const double ratio = usual.step_seconds / best.step_seconds;
  return ratio > 1.005 ? sw::number_text(ratio, 2) + " times the time; decided by " + decided(usual, best)
         : ratio < 0.995
             ? sw::percent_text(1 - ratio) + " less time, but less simple, or without what --fix asks for"
             : std::string("as fast as the plan");
}

std::string quantity(const Options& options, sw::Resource resource, double factor) {
  const sw::Situation more = sw::with_more({options.cluster, options.run}, resource, factor);
  const double amount = sw::amount_of(more, resource);
  const auto per_domain = [&] {
    if (options.cluster.domain_count < 2)
      return std::string();
    return " (" + short_text(amount * static_cast<double>(options.cluster.domains[0].chips) / 1e9) +
           " GB/s per domain)";
  };
  switch (resource) {
  case sw::Resource::scale_up_bandwidth:
    return short_text(amount / 1e9) + " GB/s per chip" + per_domain();
  case sw::Resource::scale_out_bandwidth:
    return short_text(amount / 1e9) + " GB/s of egress per chip" + per_domain();
  case sw::Resource::tokens:
    return short_text(amount / static_cast<double>(options.cluster.chips())) + " tokens per chip and step";
  default:
    const Unit unit = unit_of(resource);
    return short_text(amount / unit.size) + " " + unit.name;
  }
}

std::string ends(const Options& options, const std::vector<Counterfactual>& turns) {
  std::string out;
  for (const auto& [resource, factor] : turns) {
    const std::string name(sw::resource_names[static_cast<std::size_t>(resource)]);
    out += !factor       ? "  no " + name + " up to 64 times as much makes the pipeline disappear\n"
           : *factor > 1 ? "  the pipeline disappears above " + quantity(options, resource, *factor) + " (" +
                               short_text(*factor) + " times the " + name + ")\n"
                         : "  no pipeline is needed\n";
    if (factor && *factor == 1)
      break;
  }
  return out;
}

std::string without_pipeline(const Options& options, const Study& study) {
  const sw::Plan& flat = study.without_pipeline;
  std::string out = "the best without a pipeline:\n";
  if (flat.found())
    return out + "  " + sw::plan_text(flat.configuration) + "\n  " + rates(flat.cost) + "\n  decided by " +
           decided(flat.cost, study.best.cost) + "\n";
  out += "  none: " + std::string(sw::problem_text(flat.problem));
  if (flat.problem == sw::PlanProblem::out_of_memory)
    out += ", the least is " + short_text(flat.cost.memory.total() / 1e9) + " of " +
           short_text(options.cluster.chip.memory_bytes / 1e9) + " GB";
  if (study.divisible_sequences)
    out += " (" + std::to_string(*study.divisible_sequences) + " sequences do)";
  return out + "\n";
}

std::string runners_up(const Study& study) {
  std::string out = "runners-up, and what they lose:\n";
  for (const sw::Plan& one : study.runners_up)
    out += "  " +
           (one.cost.step_seconds < study.best.cost.step_seconds
                ? "nothing (" + sw::percent_text(1 - one.cost.step_seconds / study.best.cost.step_seconds) +
                      " faster, but less simple)"
                : sw::percent_text(loss_of(one, study.best))) +
           ": " + sw::plan_text(one.configuration) + "\n";
  return study.runners_up.empty() ? std::string() : out;
}

/// The cost of a number of sequences that chips cannot share evenly, or that has few divisors.
std::string lost_by_batch(const Options& options, const Study& study) {
  const std::string given = std::to_string(options.run.sequences);
  std::string out;
  if (!study.dividing.empty())
    out += "batch   " + given + " sequences and " + std::to_string(options.cluster.chips()) +
           " chips: neither divides the other; the nearest numbers that do:\n";
  for (const Rounder& one : study.dividing)
    out += "        " + std::to_string(one.sequences) + ": " + sw::percent_text(std::fabs(one.saves)) +
           (one.saves < 0 ? " more" : " less") + " time per token, with " +
           sw::plan_text(one.plan.configuration) + "\n";
  if (!study.rounder)
    return out;
  const Rounder& rounder = *study.rounder;
  return out + "batch   " + given + " sequences have few divisors: " + std::to_string(rounder.sequences) +
         " would take " + sw::percent_text(rounder.saves) + " less time per token, with " +
         sw::plan_text(rounder.plan.configuration) + "\n";
}

std::string launch_text(const Options& options, const Study& study) {
  const Launch launch = launch_of(options, study.best.configuration);
  if (launch.reasons.empty())
    return "launch  " + launch.command + "\n";
  std::string out = "launch  not by train_gpt of this library:";
  for (const std::string& reason : launch.reasons)
    out += (&reason == &launch.reasons.front() ? " " : "; ") + reason;
  return out + "\n";
}

std::string where_it_ends(const Options& options, const Study& study) {
  std::string out = "where the pipeline ends:\n";
  if (study.best.configuration.pp == 1)
    return out + "  no pipeline is needed\n";
  if (study.turns.empty())
    return out + "  pp is settled\n";
  out += ends(options, study.turns);
  if (!study.turns_unpaired.empty())
    out += "with 1F1B, whose pipeline hides no traffic of experts:\n" + ends(options, study.turns_unpaired);
  return out;
}

} // namespace

std::string headline(const Options& options) {
  return std::string(options.model.name) + " on " + std::string(options.cluster.name) + ", " +
         std::to_string(options.run.sequences) +
         (options.run.sequences == 1 ? " sequence of " : " sequences of ") +
         std::to_string(options.run.sequence_length) + " tokens (" +
         short_text(static_cast<double>(options.run.tokens()) / 1e6) + " M a step)" +
         (options.program ? "\ntimes are scaled by " + sw::number_text(options.program->factor, 2) +
                                (options.program->runs == 0
                                     ? std::string(", as of programs that are not named")
                                     : ", from " + std::to_string(options.program->runs) +
                                           (options.program->runs == 1 ? " run of " : " runs of ") +
                                           options.measured.string())
                          : std::string());
}

std::string plan_report(const Options& options, const Study& study) {
  const sw::Plan& found = study.best;
  const sw::StepCost& cost = found.cost;
  const double memory = options.cluster.chip.memory_bytes;
  std::string out = headline(options) + "\n";
  out += "plan    " + sw::plan_text(found.configuration) + "\n";
  if (found.configuration.pp > 1)
    out += "its schedule is in " + programs_with(found.configuration.schedule) + "\n";
  else if (options.space.schedule)
    out += "        schedule=" + std::string(sw::schedule_name(*options.space.schedule)) +
           " is for a pipeline, and this plan has none (fix pp above 1 to ask for one)\n";
  out += "step    " + rates(cost) + "\n        of the peak of " + short_text(cost.peak_flops / 1e12) +
         " TFLOP/s in " + std::string(precision_name(options.run.precision)) + "; four of five " +
         (!options.program             ? "published runs"
          : options.program->runs == 0 ? "runs of programs that are not named"
                                       : "other runs of one program") +
         " lie within " + short_text(cost.least_seconds) + " to " + short_text(cost.most_seconds) +
         " s for such a prediction\n";
  if (study.unnamed)
    out += "        with a program that was not tuned for its chips: usually " +
           short_text(study.unnamed->step_seconds) + " s, four of five within " +
           short_text(study.unnamed->least_seconds) + " to " + short_text(study.unnamed->most_seconds) +
           " s (--program names yours)\n";
  out += "time    " + listed(time_parts(cost), 1, 0.0005 * cost.step_seconds) + " (s)\n";
  out += "memory  " + short_text(cost.memory.total() / 1e9) + " of " + short_text(memory / 1e9) +
         " GB: " + listed(memory_parts(cost.memory), 1e9, 5e6) + " (GB)\n        " +
         sw::percent_text(1 - cost.memory.total() / memory) + " are left free, of which a plan must leave " +
         sw::percent_text(options.space.headroom) + "\n";
  if (const double twice = second_copy_bytes(found); twice > 0)
    out += "        DualPipe keeps every stage on two ranks: " + short_text(twice / 1e9) +
           " GB of parameters and gradients are second copies, which dualpipev does without\n";
  out += "search  " + std::to_string(found.evaluations) +
         " configurations costed, the last candidates simulated\n";
  out += lost_by_batch(options, study) + launch_text(options, study);

  out += "what binds (time per token that the fastest plan saves with twice as much):\n";
  for (const Gain& one : study.gains)
    out += "  " + std::string(sw::resource_names[static_cast<std::size_t>(one.resource)]) + ": " +
           (one.slack() ? "nothing, it has slack" : sw::percent_text(one.saves)) + "\n";

  out += runners_up(study);
  const sw::Plan& usual = study.usual;
  out +=
      options.cluster.domains[0].torus_dimensions > 0
          ? "the usual recipe (ZeRO-3, and tensor parallel as far as that helps):\n"
          : "the usual recipe (tensor parallel over the domain, stages until it fits, then data parallel):\n";
  if (usual.found())
    out += "  " + sw::plan_text(usual.configuration) + "\n  " + rates(usual.cost) + "\n  " +
           beside_recipe(usual.cost, cost) + "\n";
  else
    out += "  finds no plan: " + std::string(sw::problem_text(usual.problem)) + "\n";
  if (found.configuration.pp > 1)
    out += without_pipeline(options, study);
  return out + where_it_ends(options, study) + "took " + short_text(study.seconds) + " s\n";
}

std::string no_plan_report(const Options& options, const Study& study) {
  const sw::Plan& least = study.best;
  std::string out = "there is no plan for " + std::string(options.model.name) + " on " +
                    std::string(options.cluster.name) + " with " + std::to_string(options.run.sequences) +
                    " sequences of " + std::to_string(options.run.sequence_length) +
                    " tokens: " + std::string(sw::problem_text(least.problem));
  if (least.problem == sw::PlanProblem::out_of_memory)
    out += " (" + short_text(options.cluster.chip.memory_bytes / 1e9) + " GB, of which " +
           sw::percent_text(options.space.headroom) + " stay free; the least is " +
           short_text(least.cost.memory.total() / 1e9) + " GB, with " + sw::plan_text(least.configuration) +
           ")";
  if (study.divisible_sequences)
    out += " (" + std::to_string(*study.divisible_sequences) + " sequences do)";
  if (least.problem != sw::PlanProblem::out_of_memory && options.fixes)
    out += " (leave out some of what --fix asks for)";
  for (const auto& [resource, factor] : study.turns)
    if (factor)
      out += "; there is one from " + quantity(options, resource, *factor) +
             (resource == sw::Resource::memory ? " per chip" : "") + " on";
  return out;
}

namespace {

/// Reads a file of runs, and does something with their outcomes.
template <class Function> auto with_outcomes(const std::string& file, const Function& function) {
  const std::string text = sw::read_text(file, command_line::most_run_bytes);
  try {
    return function(evaluate_runs(read_published_runs(text)));
  } catch (const sw::DataError& error) {
    throw sw::DataError(file + ": " + error.what());
  }
}

std::vector<RunOutcome> outcomes_of(const std::string& file) {
  return with_outcomes(file, [](std::vector<RunOutcome> outcomes) { return outcomes; });
}

/// The fraction of the chip's memory that a run needs.
double memory_share(const RunOutcome& one) {
  return one.cost.memory.total() / one.run.cluster.chip.memory_bytes;
}

std::string error_line(const std::string& name, const std::vector<double>& errors) {
  const ErrorSummary summary = summary_of(errors);
  return name + ": " + std::to_string(summary.rows) + " rows, median error " +
         sw::percent_text(summary.median) + ", P90 " + sw::percent_text(summary.ninetieth) + ", bias " +
         sw::percent_text(summary.bias) + "\n";
}

} // namespace

ProgramFactor read_program(const std::string& file) {
  return with_outcomes(file,
                       [](const std::vector<RunOutcome>& outcomes) { return program_factor(outcomes); });
}

std::string evaluation_report(const std::string& file) {
  std::string out, left, illegal, large, assumed;
  std::vector<double> all;
  std::map<std::string, std::vector<double>> by_source, by_chip;
  std::size_t timed = 0, inside = 0;
  const std::vector<RunOutcome> outcomes = outcomes_of(file);
  for (const RunOutcome& one : outcomes) {
    timed += one.timed ? 1 : 0;
    if (const std::string reason = not_compared(one); !reason.empty()) {
      left += "  " + one.id + ": " + reason + "\n";
      continue;
    }
    const std::string line = one.id + ": predicted " + short_text(one.cost.step_seconds) + " s, measured " +
                             short_text(one.run.measured_seconds) + " s, " + (one.error() > 0 ? "+" : "") +
                             sw::percent_text(one.error()) + "\n";
    if (!one.run.assumed.empty())
      assumed += "  " + one.id + ": " + one.run.assumed + "\n";
    if (!one.legal()) {
      illegal += "  " + line + "    " + std::string(sw::problem_text(one.cost.problem)) + "\n";
      continue;
    }
    if (memory_share(one) > 1)
      large += "  " + one.id + ": " + sw::percent_text(memory_share(one)) + " of its chip's memory\n";
    out += line;
    all.push_back(one.error());
    by_source[one.source].push_back(one.error());
    by_chip[std::string(one.run.cluster.chip.name)].push_back(one.error());
    inside += one.run.measured_seconds >= one.cost.least_seconds &&
                      one.run.measured_seconds <= one.cost.most_seconds
                  ? 1
                  : 0;
  }
  const auto section = [&out](const std::string& title, const std::string& lines) {
    out += "\n" + title + ":\n" + (lines.empty() ? std::string("  none\n") : lines);
  };
  section("not compared", left);
  section("described in a way that breaks a rule, and not counted", illegal);
  section("would not fit, by the planner's estimate", large);
  section("chips, where the name leaves open which", assumed);
  out += "\nby source:\n";
  for (const auto& [name, errors] : by_source)
    out += "  " + error_line(name, errors);
  out += "\nby chip:\n";
  for (const auto& [name, errors] : by_chip)
    out += "  " + error_line(name, errors);
  out += "\n" + std::to_string(outcomes.size()) + " rows, " + std::to_string(timed) + " of them timed, " +
         std::to_string(all.size()) + " compared, " + std::to_string(inside) + " within the interval\n";
  return all.empty() ? out : out + error_line("all", all);
}

std::string evaluation_json(const std::string& file) {
  nlohmann::ordered_json out;
  std::vector<double> errors;
  for (const RunOutcome& one : outcomes_of(file)) {
    nlohmann::ordered_json row{{"id", one.id}, {"source", one.source}};
    if (const std::string reason = not_compared(one); !reason.empty())
      row["not_compared"] = reason;
    if (one.handled()) {
      row["predicted_seconds"] = one.cost.step_seconds;
      row["least_seconds"] = one.cost.least_seconds;
      row["most_seconds"] = one.cost.most_seconds;
      row["memory_share"] = memory_share(one);
      if (!one.legal())
        row["breaks"] = sw::problem_text(one.cost.problem);
      if (!one.run.assumed.empty())
        row["assumed_chip"] = one.run.assumed;
    }
    if (one.handled() && one.timed) {
      row["measured_seconds"] = one.run.measured_seconds;
      row["error"] = one.error();
      if (one.legal())
        errors.push_back(one.error());
    }
    out["runs"].push_back(std::move(row));
  }
  const ErrorSummary summary = summary_of(errors);
  out["summary"] = {{"compared", summary.rows},
                    {"bias", summary.bias},
                    {"median", summary.median},
                    {"ninetieth", summary.ninetieth}};
  return out.dump(2) + "\n";
}

} // namespace plan_example
