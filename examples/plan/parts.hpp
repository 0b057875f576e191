// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The parts of a plan's time and memory by name, and amounts in customary units.

#include <shardwright/plan/cost/step_cost.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/search/situation.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plan_example {

/// @brief Names and amounts, in a fixed order.
using Parts = std::vector<std::pair<std::string, double>>;

/// @brief Seconds of a step, with exposed communication only. They add up to the step.
[[nodiscard]] Parts time_parts(const shardwright::StepCost& cost);
/// @brief Bytes of the fullest rank.
[[nodiscard]] Parts memory_parts(const shardwright::MemoryCost& memory);
/// @brief The names of the kinds of traffic, in the order of `shardwright::Traffic`.
[[nodiscard]] const std::vector<std::string>& traffic_names();

/// @brief The part of a step in which one plan loses most time to another.
struct DecidingPart {
  std::string name;
  double slow_seconds = 0;
  double fast_seconds = 0;

  /// @brief What a user can do about it: "more microbatches, or more stages per rank".
  [[nodiscard]] std::string_view remedy() const;
};
[[nodiscard]] DecidingPart deciding_part(const shardwright::StepCost& slow,
                                         const shardwright::StepCost& fast);

/// @brief The customary unit of a resource: its title, its name and its size.
struct Unit {
  std::string title;
  std::string name;
  double size = 1;
};
[[nodiscard]] Unit unit_of(shardwright::Resource resource);

/// @brief "bf16", "fp16", "fp8" or "fp4".
[[nodiscard]] std::string_view precision_name(shardwright::Precision precision);

/// @brief The programs known to have a pipeline's schedule: "this library and Megatron-LM".
[[nodiscard]] std::string programs_with(shardwright::PlanSchedule schedule);

/// @brief Bytes of parameters and gradients that a rank holds because DualPipe keeps its stages twice; 0 with
/// any other schedule.
[[nodiscard]] double second_copy_bytes(const shardwright::Plan& plan);

/// @brief The fraction by which a plan is slower than the best one; 0 if it is faster, but less simple.
[[nodiscard]] double loss_of(const shardwright::Plan& other, const shardwright::Plan& best);

} // namespace plan_example
