// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Names of the parts of a plan's time and memory.

#include "parts.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace plan_example {

namespace sw = shardwright;

const std::vector<std::string>& traffic_names() {
  static const std::vector<std::string> names{"tensor-parallel traffic", "context-parallel traffic",
                                              "expert traffic", "pipeline sends", "data-parallel traffic"};
  return names;
}

Parts time_parts(const sw::StepCost& cost) {
  Parts out{{"matrix products", cost.matmul_seconds},
            {"attention", cost.attention_seconds},
            {"memory-bound operations", cost.elementwise_seconds},
            {"launches and contention", cost.overhead_seconds},
            {"optimizer", cost.optimizer_seconds},
            {"uneven stages", cost.imbalance_seconds},
            {"pipeline bubble", cost.bubble_seconds}};
  for (std::size_t i = 0; i < traffic_names().size(); ++i)
    out.emplace_back(traffic_names()[i], cost.traffic[i].exposed_seconds);
  out.emplace_back("stragglers", cost.straggler_seconds);
  return out;
}

Parts memory_parts(const sw::MemoryCost& memory) {
  return {{"parameters", memory.parameters}, {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},   {"activations", memory.activations},
          {"logits", memory.logits},         {"buffers", memory.buffers}};
}

DecidingPart deciding_part(const sw::StepCost& slow, const sw::StepCost& fast) {
  const Parts left = time_parts(slow), right = time_parts(fast);
  std::size_t most = 0;
  for (std::size_t i = 1; i < left.size(); ++i)
    if (left[i].second - right[i].second > left[most].second - right[most].second)
      most = i;
  return {left[most].first, left[most].second, right[most].second};
}

std::string_view DecidingPart::remedy() const {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 13> remedies{
      {{"matrix products", "larger microbatches, less tensor parallelism or less recomputation"},
       {"attention", "less recomputation, or longer parts of a sequence per chip"},
       {"memory-bound operations", "less recomputation, or more chips per sequence"},
       {"launches and contention", "larger microbatches, or less traffic beside computation"},
       {"optimizer", "a higher stage of ZeRO, or more ranks that share states"},
       {"uneven stages", "a number of stages that divides the layers"},
       {"pipeline bubble", "more microbatches, or more stages per rank"},
       {"tensor-parallel traffic", "less tensor parallelism, or all of it inside a domain"},
       {"context-parallel traffic", "less context parallelism, or all of it inside a domain"},
       {"expert traffic", "experts inside a domain, or a schedule that hides their exchanges"},
       {"pipeline sends", "fewer stages"},
       {"data-parallel traffic",
        "larger microbatches, a lower stage of ZeRO, or more bandwidth between domains"},
       {"stragglers", "fewer chips"}}};
  for (const auto& [part, helps] : remedies)
    if (name == part)
      return helps;
  return {};
}

std::string programs_with(sw::PlanSchedule schedule) {
  constexpr std::array<std::string_view, sw::plan_schedule_count> others{
      " and torch.distributed.pipelining",
      ", Megatron-LM, DeepSpeed and torch.distributed.pipelining",
      ", Megatron-LM and torch.distributed.pipelining",
      " and Sea AI Lab's zero-bubble fork of Megatron-LM",
      " and Sea AI Lab's zero-bubble fork of Megatron-LM",
      " and torch.distributed.pipelining",
      ", torch.distributed.pipelining and Sea AI Lab's zero-bubble fork of Megatron-LM",
      " and DeepSeek's DualPipe",
      ", torch.distributed.pipelining and DeepSeek's DualPipe"};
  return "this library" + std::string(others[static_cast<std::size_t>(schedule)]);
}

double second_copy_bytes(const sw::Plan& plan) {
  const bool twice = plan.configuration.pp > 1 && plan.configuration.schedule == sw::PlanSchedule::dual_pipe;
  return twice ? (plan.cost.memory.parameters + plan.cost.memory.gradients) / 2 : 0;
}

std::string_view precision_name(sw::Precision precision) {
  constexpr std::array<std::string_view, 4> names{"bf16", "fp16", "fp8", "fp4"};
  return names[static_cast<std::size_t>(precision)];
}

double loss_of(const sw::Plan& other, const sw::Plan& best) {
  return std::max(0.0, other.cost.step_seconds / best.cost.step_seconds - 1);
}

Unit unit_of(sw::Resource resource) {
  switch (resource) {
  case sw::Resource::memory:
    return {"memory per chip", "GB", 1e9};
  case sw::Resource::scale_up_bandwidth:
    return {"bandwidth inside a domain, one way and per chip", "GB/s", 1e9};
  case sw::Resource::scale_out_bandwidth:
    return {"bandwidth between domains, one way and per chip", "GB/s", 1e9};
  case sw::Resource::peak:
    return {"peak in bf16 per chip", "TFLOP/s", 1e12};
  case sw::Resource::tokens:
    return {"tokens per step", "M", 1e6};
  case sw::Resource::domain:
    return {"chips of a scale-up domain", "chips", 1};
  case sw::Resource::chips:
    return {"chips of the cluster", "chips", 1};
  }
  return {};
}

} // namespace plan_example
