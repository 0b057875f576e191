// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Writes studies as JSON.

#include "study_json.hpp"

#include "launch.hpp"
#include "parts.hpp"
#include "report.hpp"

#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/cost/timetable.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace plan_example {

namespace sw = shardwright;
using Json = nlohmann::ordered_json;

namespace {

Json object_of(const Parts& parts) {
  Json out = Json::object();
  for (const auto& [name, value] : parts)
    out[name] = value;
  return out;
}

std::int64_t microbatches_of(const Options& options, const sw::PlanConfiguration& plan) {
  return options.run.sequences / (static_cast<std::int64_t>(plan.dp) * plan.microbatch);
}

/// A plan with its cost; if none fits, the legal plan that needs the least memory.
Json plan_object(const Options& options, const sw::Plan& found) {
  if (!found.found() && found.problem != sw::PlanProblem::out_of_memory)
    return {{"problem", sw::problem_text(found.problem)}};
  const sw::PlanConfiguration& plan = found.configuration;
  const sw::StepCost& cost = found.cost;
  Json out;
  if (!found.found())
    out["problem"] = sw::problem_text(found.problem);
  out["plan"] = {{"text", sw::plan_text(plan)},
                 {"tp", plan.tp},
                 {"cp", plan.cp},
                 {"pp", plan.pp},
                 {"schedule", sw::schedule_name(plan.schedule)},
                 {"chunks", plan.chunks},
                 {"ep", plan.ep},
                 {"dp", plan.dp},
                 {"zero_stage", plan.zero_stage},
                 {"shard_ranks", plan.shard_ranks},
                 {"microbatch", plan.microbatch},
                 {"microbatches", microbatches_of(options, plan)},
                 {"recomputation", sw::recomputation_text(plan)},
                 {"order", sw::order_text(plan)},
                 {"experts_outside", plan.experts_outside}};
  out["passes"] = {{"forward", cost.passes.forward},
                   {"input_gradient", cost.passes.input_gradient},
                   {"weight_gradient", cost.passes.weight_gradient}};
  out["step_seconds"] = cost.step_seconds;
  out["least_seconds"] = cost.least_seconds;
  out["most_seconds"] = cost.most_seconds;
  out["tokens_per_second_per_chip"] = cost.tokens_per_second_per_chip();
  out["mfu_causal"] = cost.mfu(sw::FlopsConvention::causal);
  out["mfu_non_causal"] = cost.mfu(sw::FlopsConvention::non_causal);
  out["hfu_causal"] = cost.hfu(sw::FlopsConvention::causal);
  out["hfu_non_causal"] = cost.hfu(sw::FlopsConvention::non_causal);
  out["seconds"] = object_of(time_parts(cost));
  for (std::size_t i = 0; i < traffic_names().size(); ++i)
    out["traffic"][traffic_names()[i]] = {{"bytes", cost.traffic[i].bytes},
                                          {"seconds", cost.traffic[i].seconds},
                                          {"exposed_seconds", cost.traffic[i].exposed_seconds},
                                          {"hidden_seconds", cost.traffic[i].hidden_seconds()}};
  out["bytes"] = object_of(memory_parts(cost.memory));
  out["memory_bytes"] = cost.memory.total();
  out["evaluations"] = found.evaluations;
  return out;
}

/// The memory that each rank of one pipeline needs: the states of the fullest rank, and as many of its
/// activations as the schedule keeps on the rank.
Json ranks_of(const Options& options, const sw::Plan& found) {
  std::vector<int> peaks{1};
  if (found.configuration.pp > 1) {
    const sw::Timetable table = sw::plan_timetable(found.configuration, options.run, found.cost);
    peaks.clear();
    for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank)
      peaks.push_back(table.peak(rank));
  }
  const double most = *std::max_element(peaks.begin(), peaks.end());
  Json out = Json::array();
  for (const int peak : peaks) {
    sw::MemoryCost memory = found.cost.memory;
    memory.activations *= peak / most;
    out.push_back(
        {{"in_flight", peak}, {"bytes", object_of(memory_parts(memory))}, {"memory_bytes", memory.total()}});
  }
  return out;
}

Json decided_by(const sw::Plan& slow, const sw::Plan& fast) {
  const DecidingPart part = deciding_part(slow.cost, fast.cost);
  return {{"part", part.name},
          {"seconds", part.slow_seconds},
          {"best_seconds", part.fast_seconds},
          {"helps", part.remedy()}};
}

/// A plan compared with the best one, with the part of the step in which it loses most.
Json beside(const Options& options, const sw::Plan& other, const sw::Plan& best) {
  Json out = plan_object(options, other);
  if (other.found() && best.found() && other.cost.step_seconds > best.cost.step_seconds)
    out["decided_by"] = decided_by(other, best);
  return out;
}

Json turns_of(const Options& options, const std::vector<Counterfactual>& turns) {
  Json out = Json::array();
  for (const auto& [resource, factor] : turns) {
    const sw::Situation now{options.cluster, options.run};
    Json one{{"resource", sw::resource_names[static_cast<std::size_t>(resource)]},
             {"unit", unit_of(resource).name},
             {"unit_size", unit_of(resource).size},
             {"now", sw::amount_of(now, resource)},
             {"factor", nullptr},
             {"amount", nullptr}};
    if (factor) {
      one["factor"] = *factor;
      one["amount"] =
          sw::amount_of(sw::with_more({options.cluster, options.run}, resource, *factor), resource);
    }
    out.push_back(one);
  }
  return out;
}

/// What times are scaled by: measured runs of a file or, without any (`runs` is 0, `file` empty), the usual
/// factor of programs that are not named; null if they are not scaled.
Json measured_of(const Options& options) {
  if (!options.program)
    return nullptr;
  return {{"file", options.measured.string()},
          {"runs", options.program->runs},
          {"factor", options.program->factor}};
}

Json inputs_of(const Options& options) {
  const sw::ModelSpec& model = options.model;
  const sw::ChipSpec& chip = options.cluster.chip;
  const sw::ModelSize size = sw::size_of(model);
  Json domains = Json::array();
  for (int level = 0; level < options.cluster.domain_count; ++level) {
    const sw::DomainSpec& domain = options.cluster.domains[static_cast<std::size_t>(level)];
    domains.push_back({{"chips", domain.chips},
                       {"bandwidth", domain.bandwidth},
                       {"latency_seconds", domain.latency_seconds},
                       {"torus_dimensions", domain.torus_dimensions}});
  }
  return {{"model",
           {{"layers", model.layers},
            {"hidden", model.hidden},
            {"heads", model.heads},
            {"experts", model.experts.count},
            {"active_experts", model.experts.active},
            {"vocabulary", model.vocabulary},
            {"parameters", size.total},
            {"active_parameters", size.active},
            {"source", model.source}}},
          {"chip",
           {{"name", chip.name},
            {"peak_bf16", chip.peak_bf16},
            {"peak", chip.peak(options.run.precision)},
            {"memory_bytes", chip.memory_bytes},
            {"memory_bandwidth", chip.memory_bandwidth},
            {"source", chip.source}}},
          {"chips", options.cluster.chips()},
          {"domains", domains},
          {"cluster_source", options.cluster.source},
          {"optimizer_bytes",
           {{"parameter", options.run.optimizer.parameter_bytes},
            {"gradient", options.run.optimizer.gradient_bytes},
            {"state", options.run.optimizer.state_bytes}}}};
}

} // namespace

Json sweep_points_json(const Options& options, const sw::Sweep& sweep) {
  const Unit unit = unit_of(sweep.resource);
  const auto point_plan = [](const sw::Plan& plan) -> Json {
    if (!plan.found())
      return {{"problem", sw::problem_text(plan.problem)}};
    return {{"plan", sw::plan_text(plan.configuration)},
            {"pp", plan.configuration.pp},
            {"step_seconds", plan.cost.step_seconds},
            {"tokens_per_second_per_chip", plan.cost.tokens_per_second_per_chip()},
            {"mfu_causal", plan.cost.mfu(sw::FlopsConvention::causal)},
            {"mfu_non_causal", plan.cost.mfu(sw::FlopsConvention::non_causal)}};
  };
  Json out{{"resource", sw::resource_names[static_cast<std::size_t>(sweep.resource)]},
           {"title", unit.title},
           {"unit", unit.name},
           {"unit_size", unit.size},
           {"now", sw::amount_of({options.cluster, options.run}, sweep.resource)},
           {"pipeline_ends_amount", nullptr},
           {"points", Json::array()}};
  if (sweep.pipeline_ends)
    out["pipeline_ends_amount"] = sw::amount_of(
        sw::with_more({options.cluster, options.run}, sweep.resource, *sweep.pipeline_ends), sweep.resource);
  for (const sw::SweepPoint& point : sweep.points)
    out["points"].push_back({{"factor", point.factor},
                             {"amount", sweep.amount(point)},
                             {"best", point_plan(point.best)},
                             {"without_pipeline", point_plan(point.without_pipeline)}});
  return out;
}

Json study_json(const Options& options, const Study& study) {
  Json out{{"command", options.command},
           {"model", options.model.name},
           {"cluster", options.cluster.name},
           {"sequences", options.run.sequences},
           {"sequence_length", options.run.sequence_length},
           {"tokens", options.run.tokens()},
           {"precision", precision_name(options.run.precision)},
           {"measured", measured_of(options)},
           {"problem", nullptr}};
  out["unnamed_program"] = nullptr;
  if (study.unnamed)
    out["unnamed_program"] = {{"step_seconds", study.unnamed->step_seconds},
                              {"least_seconds", study.unnamed->least_seconds},
                              {"most_seconds", study.unnamed->most_seconds}};
  out.update(plan_object(options, study.best));
  if (!study.best.found())
    out["problem_text"] = no_plan_report(options, study);
  if (study.best.found() || study.best.problem == sw::PlanProblem::out_of_memory)
    out["ranks"] = ranks_of(options, study.best);
  out["binding"] = Json::array();
  for (const auto& [resource, saves] : study.gains)
    out["binding"].push_back({{"resource", sw::resource_names[static_cast<std::size_t>(resource)]},
                              {"unit", unit_of(resource).name},
                              {"unit_size", unit_of(resource).size},
                              {"now", sw::amount_of({options.cluster, options.run}, resource)},
                              {"saves", saves}});
  out["runners_up"] = Json::array();
  for (const sw::Plan& one : study.runners_up)
    out["runners_up"].push_back({{"plan", sw::plan_text(one.configuration)},
                                 {"step_seconds", one.cost.step_seconds},
                                 {"loses", loss_of(one, study.best)}});
  out["headroom"] = options.space.headroom;
  out["memory_free"] = 1 - study.best.cost.memory.total() / options.cluster.chip.memory_bytes;
  out["second_copy_bytes"] = second_copy_bytes(study.best);
  out["programs"] = nullptr;
  if (study.best.found() && study.best.configuration.pp > 1)
    out["programs"] = programs_with(study.best.configuration.schedule);
  out["took_seconds"] = study.seconds;
  out["launch"] = nullptr;
  if (study.best.found()) {
    const Launch launch = launch_of(options, study.best.configuration);
    out["launch"] = {{"command", launch.command}, {"reasons", launch.reasons}};
  }
  out["recipe"] = beside(options, study.usual, study.best);
  out["without_pipeline"] = beside(options, study.without_pipeline, study.best);
  out["divisible_sequences"] = nullptr;
  if (study.divisible_sequences)
    out["divisible_sequences"] = *study.divisible_sequences;
  out["rounder_sequences"] = nullptr;
  if (study.rounder)
    out["rounder_sequences"] = {{"sequences", study.rounder->sequences},
                                {"saves", study.rounder->saves},
                                {"plan", sw::plan_text(study.rounder->plan.configuration)}};
  out["dividing_sequences"] = Json::array();
  for (const Rounder& one : study.dividing)
    out["dividing_sequences"].push_back({{"sequences", one.sequences},
                                         {"saves", one.saves},
                                         {"plan", sw::plan_text(one.plan.configuration)}});
  out["turns"] = turns_of(options, study.turns);
  out["turns_with_1f1b"] = turns_of(options, study.turns_unpaired);
  out["sweeps"] = Json::array();
  for (const sw::Sweep& sweep : study.sweeps)
    out["sweeps"].push_back(sweep_points_json(options, sweep));
  out["sweep_with_1f1b"] = nullptr;
  if (study.unpaired_sweep)
    out["sweep_with_1f1b"] = sweep_points_json(options, *study.unpaired_sweep);
  out["inputs"] = inputs_of(options);
  return out;
}

std::string plan_json(const Options& options, const Study& study) {
  return study_json(options, study).dump(2) + "\n";
}

std::string sweep_json(const Options& options, const sw::Sweep& sweep) {
  Json out = sweep_points_json(options, sweep);
  out["measured"] = measured_of(options);
  return out.dump(2) + "\n";
}

} // namespace plan_example
