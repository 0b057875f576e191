// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Gathers the loads of all experts of a pipelined model for reports.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/nn/experts/load.hpp>
#include <shardwright/nn/experts/report.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The last step's load of every layer with experts, each once, in the order of the model, on every
/// rank.
///
/// Collective over `pipeline`, the ranks that hold the stages of the model: four all_gathers of names and
/// numbers, and none over the tokens' axes, along which loads are equal.
template <class Model>
[[nodiscard]] std::vector<ExpertLoadReport> expert_loads(Model& model, const HostCommunicator& pipeline) {
  std::vector<std::string> names;
  std::vector<std::int64_t> numbers; // unit, dropped, the bits of two losses, experts, chosen of each
  std::vector<float> biases;
  model.for_each_stage([&](auto& stage) {
    auto unit = static_cast<std::int64_t>(stage.first_unit());
    for (const auto& parts : stage.parts()) {
      for (const auto& each : parts)
        if (const auto* const load = dynamic_cast<const ExpertLoadBase*>(each.part)) {
          const ExpertLoadReport own = load->report();
          names.push_back(own.name);
          numbers.insert(numbers.end(), {unit, own.dropped, std::bit_cast<std::int64_t>(own.balance_loss),
                                         std::bit_cast<std::int64_t>(own.z_loss),
                                         static_cast<std::int64_t>(own.bias.size())});
          numbers.insert(numbers.end(), own.chosen.begin(), own.chosen.end());
          numbers.resize(numbers.size() + own.bias.size() - own.chosen.size());
          biases.insert(biases.end(), own.bias.begin(), own.bias.end());
        }
      ++unit;
    }
  });
  struct Placed {
    std::int64_t unit;
    ExpertLoadReport load;
  };
  std::vector<Placed> found;
  const auto all_names = gather_texts(pipeline, names);
  const auto all_numbers = all_gather_v(pipeline, numbers);
  const auto all_biases = all_gather_v(pipeline, biases);
  for (std::size_t rank = 0; rank < all_names.size(); ++rank) {
    auto number = all_numbers[rank].begin();
    auto bias = all_biases[rank].begin();
    for (const std::string& name : all_names[rank]) {
      const std::int64_t unit = *number++, dropped = *number++;
      const auto balance = std::bit_cast<double>(*number++), z = std::bit_cast<double>(*number++);
      const std::int64_t experts = *number++;
      found.push_back(
          {unit, {name, {number, number + experts}, {bias, bias + experts}, dropped, balance, z}});
      number += experts;
      bias += experts;
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.unit < b.unit; });
  std::vector<ExpertLoadReport> out;
  for (Placed& each : found)
    if (out.empty() || out.back().name != each.load.name) // copies of a stage report the same
      out.push_back(std::move(each.load));
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
