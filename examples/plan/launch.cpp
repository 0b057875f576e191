// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Writes a plan as options of train_gpt, or says which features that program lacks for it.

#include "launch.hpp"

#include <shardwright/plan/cost/plan_text.hpp>
#include <shardwright/plan/spec/recompute.hpp>

namespace plan_example {

namespace sw = shardwright;

namespace {

/// The features of a model that train_gpt's decoder lacks.
std::vector<std::string> missing_of_model(const sw::ModelSpec& model) {
  std::vector<std::string> out;
  const auto lacks = [&out](bool needed, const char* what) {
    if (needed)
      out.emplace_back(std::string("its layers have no ") + what);
  };
  lacks(model.experts.used(), "experts");
  lacks(model.latent.used(), "latent attention");
  lacks(model.window_layers > 0, "sliding windows");
  lacks(model.parallel_block, "parallel blocks");
  lacks(model.state_space.used(), "state spaces");
  lacks(model.prediction_layers > 0, "multi-token prediction behind them");
  lacks(model.biases || model.position_rows > 0, "biases or learned positions");
  lacks(!model.gated, "feed-forward of two matrices");
  lacks(!model.latent.used() && model.width_per_head() * model.heads != model.hidden,
        "heads of a width other than hidden / heads");
  return out;
}

/// The features of a run and its plan that train_gpt lacks.
std::vector<std::string> missing_of_plan(const Options& options, const sw::PlanConfiguration& plan) {
  std::vector<std::string> out;
  const sw::ModelSpec& model = options.model;
  if (const sw::ChipGeneration chip = options.cluster.chip.generation;
      chip == sw::ChipGeneration::tpu || chip == sw::ChipGeneration::generic)
    out.emplace_back("the library has kernels for NVIDIA's chips only");
  if (options.run.precision != sw::Precision::bf16)
    out.emplace_back("on GPUs its products are in bf16 (--precision bf16)");
  if (options.run.reproducible)
    out.emplace_back("its reproducible training runs on hosts");
  if (plan.zero_stage == 1 || plan.zero_stage == 2)
    out.emplace_back("in bf16 it shards nothing or everything (--fix zero=0 or zero=3)");
  if (plan.shard_ranks > 0)
    out.emplace_back("it shards over all data-parallel ranks");
  if (plan.recomputation == sw::Recompute::selective && !plan.recomputed.empty())
    out.emplace_back(
        "it recomputes attention or whole layers, not a list of operations (--fix recomputation=selective)");
  if (plan.order != sw::PlanOrder::usual)
    out.emplace_back("its mesh is in the usual order");
  if (plan.cp > 1 && model.key_value_heads % (plan.tp * plan.cp) != 0)
    out.emplace_back("in bf16 its cp splits " + std::to_string(model.key_value_heads) +
                     " key and value heads over tp x cp = " + std::to_string(plan.tp * plan.cp) +
                     " (--fix cp=1)");
  if (model.vocabulary % plan.tp != 0 || model.key_value_heads % plan.tp != 0)
    out.emplace_back("its tp must divide vocabulary and key and value heads");
  return out;
}

} // namespace

Launch launch_of(const Options& options, const sw::PlanConfiguration& plan) {
  Launch out{{}, missing_of_model(options.model)};
  for (std::string& reason : missing_of_plan(options, plan))
    out.reasons.push_back(std::move(reason));
  if (!out.reasons.empty())
    return out;
  const sw::ModelSpec& model = options.model;
  const auto number = [](const char* name, std::int64_t value) {
    return std::string(" ") + name + " " + std::to_string(value);
  };
  std::string mesh;
  for (const auto& [axis, extent] : {std::pair("pp", plan.pp), std::pair("dp", plan.dp),
                                     std::pair("cp", plan.cp), std::pair("tp", plan.tp)})
    if (extent > 1)
      mesh += std::string(mesh.empty() ? "" : ",") + axis + "=" + std::to_string(extent);
  out.command = "mpirun -n " + std::to_string(plan.chips()) + " train_gpt --target cuda --mesh " +
                (mesh.empty() ? "dp=1" : mesh);
  if (plan.pp > 1) {
    out.command += " --schedule " + std::string(sw::schedule_name(plan.schedule));
    if (takes_chunks(plan.schedule))
      out.command += number("--chunks", plan.chunks);
  }
  out.command +=
      number("--layers", model.layers) + number("--d-model", model.hidden) + number("--heads", model.heads) +
      number("--kv-heads", model.key_value_heads) + number("--hidden", model.feed_forward) +
      number("--vocabulary", model.vocabulary) + (model.tied_embeddings ? " --tied" : "") +
      number("--sequence", options.run.sequence_length) + number("--batch", options.run.sequences) +
      number("--microbatch", plan.microbatch) + " --precision bf16" + number("--zero", plan.zero_stage) +
      (plan.tp > 1 ? " --sequence-parallel" : "");
  if (plan.recomputation != sw::Recompute::none)
    out.command += " --recompute " + std::string(sw::name_of(plan.recomputation));
  return out;
}

} // namespace plan_example
