// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The program of every rank of a pipeline in one step: operations in order, with the times of the
/// cost model.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/cost/calibration.hpp>
#include <shardwright/plan/cost/collective_time.hpp>
#include <shardwright/plan/cost/compute_time.hpp>
#include <shardwright/plan/cost/evaluate.hpp>
#include <shardwright/plan/cost/links.hpp>
#include <shardwright/plan/cost/memory.hpp>
#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/cost/stage_pass.hpp>
#include <shardwright/plan/cost/timetable.hpp>
#include <shardwright/plan/cost/traffic.hpp>
#include <shardwright/plan/simulate/step_program.hpp>
#include <shardwright/plan/spec/configuration.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/stage_message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Makes the program of a plan out of the terms of `evaluate`.
class StepProgramMaker {
public:
  StepProgramMaker(const ModelSpec& model, const ClusterSpec& cluster, const RunSpec& run,
                   const PlanConfiguration& plan, const Calibration& calibration, bool even_stages,
                   bool merged)
      : plan_(plan), shared_(calibration.shared), merged_(merged),
        cost_(evaluate(model, cluster, run, plan, calibration)), out_{simulated_schedule(plan, run)} {
    const PlanLinks links = plan_links(cluster, plan, copies_of(model, run), shared_);
    const PlanGroups<LinkShares> shares = plan_shares({cluster, shared_}, plan, copies_of(model, run));
    const LayerTraffic traffic = layer_traffic(model, cluster, run, plan, links, shared_);
    const RankComputation computed = rank_computation(model, cluster, run, plan, calibration);
    links_ = {shares.tensor, shares.context, shares.expert};
    const double experts = static_cast<double>(model.expert_layers()) / model.stacked_layers();
    const double dense = static_cast<double>(model.dense_layers()) / model.stacked_layers();
    const LayerPasses each(model, computed, traffic, repeats_of(run, plan), shared_,
                           pass_form(plan, microbatches_of(run, plan)));
    const StagePlacement& placement = out_.schedule.placement();
    const int all = model.stacked_layers(), stages = placement.stages();
    chunks_ = stages / placement.ranks;
    for (int stage = 0; stage < stages; ++stage) {
      const bool end = stage == 0 || stage + 1 == stages;
      const double layers = even_stages ? static_cast<double>(all) / stages
                            : ends_are_layers(model, plan)
                                ? all / stages + (end ? 0 : 1)
                                : layers_of(all, placement.rank_of(stage, 0)) / chunks_;
      const double head = even_stages ? 1.0 / stages : stage + 1 == stages ? 1 : 0;
      const StageLayers held{layers * dense, layers * experts, head};
      stages_.push_back(stage_pass(held, each));
      traffic_.push_back(stage_traffic(held, each));
    }
    const double sends = 2.0 * out_.schedule.microbatches() * placement.stages() / placement.ranks;
    message_seconds_ = plan.pp > 1 ? links.pipeline.seconds(cost_.of(Traffic::pipeline).bytes / sends) : 0;
    out_.send_seconds = message_seconds_ * shared_.send_exposed;
    out_.send_link = link(shares.pipeline);
    const DataBytes bytes = data_bytes(run, plan, shared_);
    reduced_ = bytes.reduced / bytes.together();
    const DataSeconds data = data_seconds(cluster, plan, HeldParameters(model, size_of(model), plan).most(),
                                          links, bytes.together(), bytes.rounds, bytes.copied);
    data_seconds_ = data.sum();
    if (data_seconds_ > 0) {
      LinkShares together{};
      add(together, shares.data, data.dense / data_seconds_);
      add(together, shares.copies, data.copies / data_seconds_);
      add(together, shares.expert_data, data.experts / data_seconds_);
      for (double& share : together) // sums over copies run beside gathers as far as these leave room
        share = std::min(share, 1.0);
      data_link_ = link(together);
    }
    plan_collectives();
  }

  [[nodiscard]] StepProgram make() {
    for (int rank = 0; rank < out_.schedule.ranks(); ++rank) {
      const std::span<const Step> steps = out_.schedule.steps(rank);
      operations_ = {};
      operations_.reserve((merged_ ? 3 : 9) * steps.size() + 16);
      parts_.clear();
      for (std::size_t i = 0; i < steps.size(); ++i)
        add_step(steps[i], static_cast<int>(i));
      add_ending();
      out_.ranks.push_back(std::move(operations_));
    }
    return std::move(out_);
  }

private:
  using Kind = StepOperation::Kind;

  /// One rank has no pipeline, whatever schedule the plan names.
  [[nodiscard]] static Schedule simulated_schedule(PlanConfiguration plan, const RunSpec& run) {
    if (plan.pp == 1)
      plan.schedule = PlanSchedule::one_f_one_b;
    return schedule_of(plan, run);
  }

  /// As evenly as whole layers allow; the ranks with embedding and head are the last to have one more.
  [[nodiscard]] double layers_of(int layers, int rank) const {
    const StagePlacement& placement = out_.schedule.placement();
    const int head = placement.rank_of(placement.stages() - 1, 0), ranks = placement.ranks;
    const int turn = rank == head ? ranks - 1 : rank == 0 ? ranks - 2 : rank - 1;
    return layers / ranks + (turn < layers % ranks ? 1 : 0);
  }

  [[nodiscard]] std::uint16_t link(const LinkShares& shares) {
    const auto found = std::find(out_.shares.begin(), out_.shares.end(), shares);
    const auto number = static_cast<std::uint16_t>(found - out_.shares.begin());
    if (found == out_.shares.end())
      out_.shares.push_back(shares);
    return number;
  }
  static void add(LinkShares& sum, const LinkShares& shares, double times) {
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += times * shares[i];
  }
  void add(Kind kind, Activity activity, int index, double seconds = 0, std::uint16_t on = 0) {
    operations_.push_back({kind, activity, on, index, seconds});
  }

  /// The time and the traffic of a step's one or two passes, which are the same for every microbatch.
  struct StepParts {
    Step step{}; ///< Of microbatch 0.
    double compute = 0, hidden = 0, sent_before = 0, reduced = 0, reduced_last = 0, together = 0;
    std::uint16_t hidden_link = 0;
    std::array<double, 3> exposed{};
    std::array<bool, 2> sends{};
  };
  [[nodiscard]] const StepParts& parts_of(Step step) {
    step.first.microbatch = step.second.microbatch = 0;
    for (const StepParts& one : parts_)
      if (one.step == step)
        return one;
    StepParts& out = parts_.emplace_back();
    out.step = step;
    LinkShares hidden_links{};
    for (int i = 0; i < step.size(); ++i) {
      const Action& action = step[i];
      const StagePass& stage = stages_[static_cast<std::size_t>(action.stage)];
      const StageTraffic& of_stage = traffic_[static_cast<std::size_t>(action.stage)];
      const LayerTraffic sent = action.pass == Pass::forward           ? of_stage.forward
                                : action.pass == Pass::weight_gradient ? LayerTraffic{}
                                                                       : of_stage.returned;
      out.compute += stage.passes.of(action.pass) - sent.exposed_seconds() - stage.waiting.of(action.pass);
      const TrafficCost after = reduced_after(action.pass);
      out.reduced += reduced_beside(stage, action.pass);
      out.reduced_last += after.exposed_seconds;
      out.compute += shared_.contention * after.hidden_seconds();
      const std::array<TrafficCost, 3> traffic{sent.tensor, sent.context, sent.expert};
      for (std::size_t kind = 0; kind < traffic.size(); ++kind) {
        out.exposed[kind] += traffic[kind].exposed_seconds;
        out.hidden += traffic[kind].hidden_seconds();
        add(hidden_links, links_[kind], traffic[kind].hidden_seconds());
      }
      if (const auto made = output_of(out_.schedule.placement(), action); made && made->is_sent()) {
        out.sends[static_cast<std::size_t>(i)] = true;
        out.sent_before += message_seconds_ - out_.send_seconds;
      }
    }
    if (out.hidden > 0) {
      for (double& share : hidden_links) // so far seconds of each link
        share /= out.hidden;
      out.hidden_link = link(hidden_links);
    }
    const double before = std::max(0.0, out.compute - out.sent_before);
    out.together = std::max({before + std::min(out.compute, out.sent_before), before + out.sent_before,
                             out.hidden, out.reduced}) +
                   out.reduced_last + out.exposed[0] + out.exposed[1] + out.exposed[2];
    return out;
  }

  void add_step(const Step& step, int number) {
    const StepParts& parts = parts_of(step);
    const bool data = data_each_microbatch(plan_) && data_seconds_ > 0;
    add(Kind::receive, Activity::wait_input, number);
    if (data && step.first.pass == Pass::forward) // no pipeline, and so one pass
      add(Kind::join, Activity::data, 2 * step.first.microbatch);
    if (merged_)
      add(Kind::compute, Activity::compute, number, parts.together);
    else
      add_parts(parts, number);
    for (int i = 0; i < step.size(); ++i)
      if (parts.sends[static_cast<std::size_t>(i)])
        add(Kind::send, Activity::wait_send, 2 * number + i);
    if (data && makes_weight_gradient(step.first.pass)) {
      add(Kind::await, Activity::data, 2 * step.first.microbatch);
      run_together(2 * step.first.microbatch + 1);
    }
  }
  void add_parts(const StepParts& parts, int number) {
    if (parts.hidden > 0)
      add(Kind::hide, hiding(), number, parts.hidden, parts.hidden_link);
    if (parts.reduced > 0)
      add(Kind::hide, Activity::data, number, parts.reduced, data_link_);
    // Sends that begin before the end of a pass overlap its last part.
    add(Kind::compute, Activity::compute, number, std::max(0.0, parts.compute - parts.sent_before));
    if (parts.sent_before > 0) {
      add(Kind::hide, Activity::pipeline, number, parts.sent_before, out_.send_link);
      add(Kind::compute, Activity::compute, number, std::min(parts.compute, parts.sent_before));
    }
    if (parts.hidden > 0 || parts.sent_before > 0 || parts.reduced > 0)
      add(Kind::settle,
          parts.hidden > 0    ? hiding()
          : parts.reduced > 0 ? Activity::data
                              : Activity::pipeline,
          number);
    if (parts.reduced_last > 0)
      add(Kind::move, Activity::data, number, parts.reduced_last, data_link_);
    constexpr std::array<Activity, 3> kinds{Activity::tensor, Activity::context, Activity::expert};
    for (std::size_t kind = 0; kind < kinds.size(); ++kind)
      if (parts.exposed[kind] > 0)
        add(Kind::move, kinds[kind], number, parts.exposed[kind], link(links_[kind]));
  }
  /// Seconds of ZeRO-2's reductions that a pass hides: all backward passes do.
  [[nodiscard]] double reduced_beside(const StagePass& stage, Pass pass) const {
    const double backward = chunks_ * (stage.passes.input_gradient + stage.passes.weight_gradient);
    return pass == Pass::forward ? 0 : cost_.reduction.hidden_seconds() * stage.passes.of(pass) / backward;
  }
  /// The reductions whose exposed part follows a pass, and which slow it down: with the input gradient.
  [[nodiscard]] TrafficCost reduced_after(Pass pass) const {
    const bool counted = pass != Pass::forward && pass != Pass::weight_gradient;
    return (counted ? 1 / chunks_ : 0) * cost_.reduction;
  }
  [[nodiscard]] Activity hiding() const {
    return plan_.ep > 1 ? Activity::expert : plan_.tp > 1 ? Activity::tensor : Activity::context;
  }

  /// The collectives of data parallelism: the part that overlaps passes, and the rest after it, one after the
  /// other.
  void plan_collectives() {
    if (data_seconds_ <= 0)
      return;
    const double microbatches = out_.schedule.microbatches();
    const double exposed =
        cost_.of(Traffic::data).exposed_seconds - microbatches * cost_.reduction.exposed_seconds;
    const auto add_pair = [&](double seconds, double after) {
      out_.collectives.push_back({seconds - after, data_link_});
      out_.collectives.push_back({after, data_link_});
    };
    if (data_each_microbatch(plan_))
      for (int microbatch = 0; microbatch < out_.schedule.microbatches(); ++microbatch)
        add_pair(data_seconds_, exposed / microbatches);
    else
      for (const double part : {reduced_, 1 - reduced_})
        if (part > 0)
          add_pair(part * data_seconds_, part * exposed);
  }
  void run_together(int collective) {
    add(Kind::join, Activity::data, collective);
    add(Kind::await, Activity::data, collective);
  }

  /// Gradients are reduced beside the last passes of a rank, and parameters are gathered beside its first
  /// ones, as far as `data_beside` allows; the rest comes after the passes and after the optimizer.
  void add_ending() {
    const bool once = data_seconds_ > 0 && !data_each_microbatch(plan_);
    const double beside = data_beside(plan_, out_.schedule.microbatches()) * cost_.passes.sum();
    const bool gathers = once && reduced_ < 1, reduces = once && reduced_ > 0;
    const int gather = reduces ? 2 : 0;
    if (reduces) {
      double all = 0;
      for (const StepOperation& operation : operations_)
        all += lasts(operation);
      insert(std::max(0.0, all - reduced_ * beside), {Kind::join, Activity::data, 0});
    }
    if (gathers) {
      insert((1 - reduced_) * beside, {Kind::await, Activity::data, 0, gather});
      insert(0, {Kind::join, Activity::data, 0, gather});
    }
    if (reduces)
      add(Kind::await, Activity::data, 0);
    add(Kind::compute, Activity::optimizer, -1,
        shared_.contention *
            (cost_.of(Traffic::data).hidden_seconds() + cost_.of(Traffic::pipeline).hidden_seconds() -
             out_.schedule.microbatches() * cost_.reduction.hidden_seconds()));
    if (reduces)
      run_together(1);
    add(Kind::compute, Activity::optimizer, -1, cost_.optimizer_seconds);
    if (gathers)
      run_together(gather + 1);
  }

  [[nodiscard]] static double lasts(const StepOperation& operation) {
    return operation.kind == Kind::compute || operation.kind == Kind::move ? operation.seconds : 0;
  }
  /// Inserts an operation after a given number of seconds of work from the beginning, inside another
  /// operation if necessary.
  void insert(double offset, const StepOperation& operation) {
    std::size_t at = 0;
    for (; at < operations_.size() && offset > 0 && lasts(operations_[at]) <= offset; ++at)
      offset -= lasts(operations_[at]);
    const auto place = operations_.begin() + static_cast<std::ptrdiff_t>(at);
    if (at == operations_.size() || lasts(*place) == 0 || offset <= 0) {
      operations_.insert(place, operation);
      return;
    }
    StepOperation rest = *place;
    rest.seconds -= offset;
    place->seconds = offset;
    operations_.insert(place + 1, {operation, rest});
  }

  PlanConfiguration plan_;
  SharedCalibration shared_;
  bool merged_;
  StepCost cost_;
  StepProgram out_;
  std::array<LinkShares, 3> links_{}; // of tensor, context and expert parallelism
  std::vector<StagePass> stages_;
  std::vector<StageTraffic> traffic_;     // of the same
  std::vector<StepOperation> operations_; // of the rank whose program is being made
  std::vector<StepParts> parts_;          // of its steps
  double chunks_ = 1;                     // stages of a rank that a microbatch passes
  double message_seconds_ = 0;
  double data_seconds_ = 0; // once, or with every microbatch
  double reduced_ = 1;      // the part of it that reduces gradients
  std::uint16_t data_link_ = 0;
};

} // namespace detail

/// @brief The operations of a plan's ranks.
/// @param even_stages whether stages have the mean stage's layers and part of the head, or whole layers.
/// @param merged whether each step's passes are one operation, which takes as long if no links are shared.
/// @throws InvalidArgument if the schedule does not allow its numbers.
[[nodiscard]] inline StepProgram step_program(const ModelSpec& model, const ClusterSpec& cluster,
                                              const RunSpec& run, const PlanConfiguration& plan,
                                              const Calibration& calibration, bool even_stages = false,
                                              bool merged = false) {
  return detail::StepProgramMaker(model, cluster, run, plan, calibration, even_stages, merged).make();
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
