// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Plans and evaluations as text and JSON.

#include "report.hpp"

#include <shardwright/plan/explanation.hpp>
#include <shardwright/plan/plan_text.hpp>
#include <shardwright/plan/published_run.hpp>
#include <shardwright/plan/run_validation.hpp>
#include <shardwright/schedule/number_text.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace plan_example {

namespace sw = shardwright;

namespace {

/// A number with three or four digits.
std::string short_text(double value) {
  const double size = std::fabs(value);
  return sw::number_text(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

using Parts = std::vector<std::pair<std::string, double>>;

Parts time_parts(const sw::StepCost& cost) {
  return {{"matrix products", cost.matmul_seconds},
          {"attention", cost.attention_seconds},
          {"memory-bound operations", cost.elementwise_seconds},
          {"launches and contention", cost.overhead_seconds},
          {"optimizer", cost.optimizer_seconds},
          {"uneven stages", cost.imbalance_seconds},
          {"pipeline bubble", cost.bubble_seconds},
          {"tensor-parallel traffic", cost.of(sw::Traffic::tensor).exposed_seconds},
          {"context-parallel traffic", cost.of(sw::Traffic::context).exposed_seconds},
          {"expert traffic", cost.of(sw::Traffic::expert).exposed_seconds},
          {"pipeline sends", cost.of(sw::Traffic::pipeline).exposed_seconds},
          {"data-parallel traffic", cost.of(sw::Traffic::data).exposed_seconds},
          {"stragglers", cost.straggler_seconds}};
}

Parts memory_parts(const sw::MemoryCost& memory) {
  return {{"parameters", memory.parameters}, {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},   {"activations", memory.activations},
          {"logits", memory.logits},         {"buffers", memory.buffers}};
}

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

/// The part of a step in which one plan loses most against another.
std::string deciding_part(const sw::StepCost& slow, const sw::StepCost& fast) {
  const Parts left = time_parts(slow), right = time_parts(fast);
  std::size_t most = 0;
  for (std::size_t i = 1; i < left.size(); ++i)
    if (left[i].second - right[i].second > left[most].second - right[most].second)
      most = i;
  return left[most].first + " " + short_text(left[most].second) + " s > " + short_text(right[most].second) +
         " s";
}

std::string quantity(const Options& options, sw::Resource resource, double factor) {
  const sw::Situation more = sw::with_more(options.cluster, options.run, resource, factor);
  const auto outermost = static_cast<std::size_t>(options.cluster.domain_count - 1);
  switch (resource) {
  case sw::Resource::memory:
    return short_text(more.cluster.chip.memory_bytes / 1e9) + " GB";
  case sw::Resource::scale_up_bandwidth:
    return short_text(more.cluster.domains[0].bandwidth / 1e9) + " GB/s per chip (" +
           short_text(more.cluster.domains[0].bandwidth *
                      static_cast<double>(options.cluster.domains[0].chips) / 1e9) +
           " GB/s per domain)";
  case sw::Resource::scale_out_bandwidth:
    return short_text(more.cluster.domains[outermost].bandwidth / 1e9) + " GB/s of egress per chip (" +
           short_text(more.cluster.domains[outermost].bandwidth *
                      static_cast<double>(options.cluster.domains[0].chips) / 1e9) +
           " GB/s per domain)";
  case sw::Resource::peak:
    return short_text(more.cluster.chip.peak_bf16 / 1e12) + " TFLOP/s";
  case sw::Resource::tokens:
    return short_text(static_cast<double>(more.run.tokens()) / static_cast<double>(options.cluster.chips())) +
           " tokens per chip and step";
  }
  return {};
}

std::string counterfactuals(const Options& options, const sw::Plan& found) {
  if (found.configuration.pp == 1)
    return "  no pipeline is needed\n";
  std::string out;
  for (const sw::Resource resource : {sw::Resource::scale_out_bandwidth, sw::Resource::scale_up_bandwidth,
                                      sw::Resource::memory, sw::Resource::tokens}) {
    const std::optional<double> factor =
        sw::pipeline_ends(options.model, options.cluster, options.run, resource, 64, options.space);
    const std::string name(sw::resource_names[static_cast<std::size_t>(resource)]);
    out += factor ? "  the pipeline disappears above " + quantity(options, resource, *factor) + " (" +
                        short_text(*factor) + " times the " + name + ")\n"
                  : "  no " + name + " up to 64 times as much makes the pipeline disappear\n";
  }
  return out;
}

} // namespace

std::string plan_report(const Options& options, const sw::Plan& found) {
  const sw::StepCost& cost = found.cost;
  const double memory = options.cluster.chip.memory_bytes;
  std::string out = std::string(options.model.name) + " on " + std::string(options.cluster.name) + ", " +
                    std::to_string(options.run.sequences) + " sequences of " +
                    std::to_string(options.run.sequence_length) + " tokens (" +
                    short_text(static_cast<double>(options.run.tokens()) / 1e6) + " M a step)\n";
  out += "plan    " + sw::plan_text(found.configuration) + "\n";
  out += "step    " + rates(cost) + "\n        four of five published runs lie within " +
         short_text(cost.least_seconds) + " to " + short_text(cost.most_seconds) +
         " s for such a prediction\n";
  out += "time    " + listed(time_parts(cost), 1, 0.0005 * cost.step_seconds) + " (s)\n";
  out += "memory  " + short_text(cost.memory.total() / 1e9) + " of " + short_text(memory / 1e9) +
         " GB: " + listed(memory_parts(cost.memory), 1e9, 5e6) + " (GB)\n";
  out += "search  " + std::to_string(found.evaluations) + " configurations costed\n";

  out += "what binds (time per token that the best plan saves with twice as much):\n";
  const auto gains = sw::gains(options.model, options.cluster, options.run, found);
  for (std::size_t i = 0; i < gains.size(); ++i)
    out += "  " + std::string(sw::resource_names[i]) + ": " +
           (gains[i] < 0.005 ? "nothing, it has slack" : sw::percent_text(gains[i])) + "\n";

  const sw::Plan usual = sw::recipe(options.model, options.cluster, options.run);
  out += "the usual recipe (tensor parallel over the domain, stages until it fits, then data parallel):\n";
  if (usual.found())
    out += "  " + sw::plan_text(usual.configuration) + "\n  " + rates(usual.cost) + "\n  " +
           (usual.cost.step_seconds > cost.step_seconds
                ? sw::number_text(usual.cost.step_seconds / cost.step_seconds, 2) +
                      " times the time; decided by " + deciding_part(usual.cost, cost)
                : "as fast as the plan") +
           "\n";
  else
    out += "  finds no plan: " + std::string(sw::problem_text(usual.problem)) + "\n";
  sw::SearchSpace flat = options.space;
  flat.pp = 1;
  if (found.configuration.pp > 1) {
    const sw::Plan without = sw::search(options.model, options.cluster, options.run, flat);
    out += "the best without a pipeline:\n";
    out += without.found() ? "  " + sw::plan_text(without.configuration) + "\n  " + rates(without.cost) +
                                 "\n  decided by " + deciding_part(without.cost, cost) + "\n"
                           : "  none: " + std::string(sw::problem_text(without.problem)) + ", the least is " +
                                 short_text(without.cost.memory.total() / 1e9) + " GB\n";
  }
  out += "where the pipeline ends:\n" + counterfactuals(options, found);
  return out;
}

std::string plan_json(const Options& options, const sw::Plan& found) {
  const sw::PlanConfiguration& plan = found.configuration;
  nlohmann::ordered_json out{{"model", options.model.name},
                             {"cluster", options.cluster.name},
                             {"sequences", options.run.sequences},
                             {"sequence_length", options.run.sequence_length},
                             {"plan",
                              {{"tp", plan.tp},
                               {"cp", plan.cp},
                               {"pp", plan.pp},
                               {"schedule", sw::schedule_name(plan.schedule)},
                               {"chunks", plan.chunks},
                               {"ep", plan.ep},
                               {"dp", plan.dp},
                               {"zero_stage", plan.zero_stage},
                               {"microbatch", plan.microbatch},
                               {"recomputation", sw::recomputation_name(plan.recomputation)}}},
                             {"step_seconds", found.cost.step_seconds},
                             {"least_seconds", found.cost.least_seconds},
                             {"most_seconds", found.cost.most_seconds},
                             {"tokens_per_second_per_chip", found.cost.tokens_per_second_per_chip()},
                             {"mfu_causal", found.cost.mfu(sw::FlopsConvention::causal)},
                             {"mfu_non_causal", found.cost.mfu(sw::FlopsConvention::non_causal)},
                             {"hfu_causal", found.cost.hfu(sw::FlopsConvention::causal)},
                             {"evaluations", found.evaluations}};
  for (const auto& [name, value] : time_parts(found.cost))
    out["seconds"][name] = value;
  for (const auto& [name, value] : memory_parts(found.cost.memory))
    out["bytes"][name] = value;
  return out.dump(2) + "\n";
}

std::string evaluation_report(const std::string& csv) {
  const std::vector<sw::PublishedRun> rows = sw::read_published_runs(csv);
  std::string out, left;
  std::vector<double> all;
  std::map<std::string, std::vector<double>> by_source, by_chip;
  std::size_t timed = 0;
  for (const sw::RunOutcome& one : sw::evaluate_runs(rows)) {
    timed += one.timed ? 1 : 0;
    if (!one.handled() || !one.timed) {
      left += "  " + one.id + ": " +
              (one.handled() ? "neither a step time nor tokens/s were published" : one.run.not_handled) +
              "\n";
      continue;
    }
    out += one.id + ": predicted " + short_text(one.cost.step_seconds) + " s, measured " +
           short_text(one.run.measured_seconds) + " s, " + (one.error() > 0 ? "+" : "") +
           sw::percent_text(one.error()) + "\n";
    all.push_back(one.error());
    by_source[one.source].push_back(one.error());
    by_chip[std::string(one.run.cluster.chip.name)].push_back(one.error());
  }
  const auto line = [](const std::string& name, const std::vector<double>& errors) {
    const sw::ErrorSummary summary = sw::summary_of(errors);
    return name + ": " + std::to_string(summary.rows) + " rows, median error " +
           sw::percent_text(summary.median) + ", P90 " + sw::percent_text(summary.ninetieth) + ", bias " +
           sw::percent_text(summary.bias) + "\n";
  };
  out += "\nnot compared:\n" + (left.empty() ? std::string("  none\n") : left) + "\nby source:\n";
  for (const auto& [name, errors] : by_source)
    out += "  " + line(name, errors);
  out += "\nby chip:\n";
  for (const auto& [name, errors] : by_chip)
    out += "  " + line(name, errors);
  out += "\n" + std::to_string(rows.size()) + " rows, " + std::to_string(timed) + " of them timed, " +
         std::to_string(all.size()) + " compared\n";
  return all.empty() ? out : out + line("all", all);
}

} // namespace plan_example
