// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The parameters of a model, whole, on the first rank.

#include "run_result.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/tensor/scatter_gather.hpp>

#include <utility>
#include <vector>

namespace trainer {

/// @brief The tensors that the ranks of a pipeline hold, each with its stage, in the order of the stages.
/// Collective.
[[nodiscard]] std::vector<NamedTensor> gather_stages(const shardwright::HostCommunicator& pipeline,
                                                     const std::vector<std::pair<int, NamedTensor>>& own);

/// @brief All parameters, in the order of the model. Collective.
template <class Model, class Mesh>
[[nodiscard]] std::vector<NamedTensor> gather_parameters(Model& model, const Mesh& mesh,
                                                         const shardwright::HostCommunicator& pipeline) {
  std::vector<std::pair<int, NamedTensor>> own;
  model.for_each_stage([&](auto& stage) {
    stage.for_each_parameter([&](auto& parameter) {
      const auto values = shardwright::gather(parameter.stored(), 0);
      const auto& shape = parameter.stored().shape(); // of words, if they are quantized
      if (mesh.rank() == 0 && parameter.first_copy())
        own.emplace_back(
            stage.first_unit(),
            NamedTensor{parameter.name(), {shape.begin(), shape.end()}, {values.begin(), values.end()}});
    });
  });
  return gather_stages(pipeline, own);
}

} // namespace trainer
