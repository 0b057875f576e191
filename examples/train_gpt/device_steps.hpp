// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What train_gpt keeps for steps on a device: batches at fixed places, reports that the host reads a
/// step later, and the captured step.

#include <shardwright/mesh/cuda_graphs.hpp>
#include <shardwright/tensor/shared_memory.hpp>
#include <shardwright/train/step_graph.hpp>
#include <shardwright/train/step_reports.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace train_gpt {

/// @brief What captures the steps of a target.
template <class Target>
struct CaptureOf;
#if defined(KOKKOS_ENABLE_CUDA)
template <>
struct CaptureOf<shardwright::CudaTarget> {
  using type = shardwright::CudaGraphs;
};
#endif

/// @brief The steps of a run on a device.
template <class Target, class Ids>
struct DeviceSteps {
  using Capture = typename CaptureOf<Target>::type;

  template <class Mesh>
  DeviceSteps(const Mesh& mesh, const typename Ids::Shape& shape, std::size_t passes, std::string obstacle)
      : reports(mesh.world().deadline()),
        graph(Capture(mesh.template execution<Target>()), std::move(obstacle)) {
    for (std::size_t i = 0; i < 2 * passes; ++i)
      tokens.emplace_back(mesh, shape);
    uploads.emplace(2 * passes * tokens.front().local_size());
  }

  std::vector<Ids> tokens; ///< Of each pass the ids, and then the targets.
  std::optional<shardwright::Uploads<std::int32_t, Target>> uploads;
  shardwright::StepReports<Target> reports;
  std::deque<std::int64_t> reported; ///< Steps whose reports are under way.
  shardwright::StepGraph<Capture> graph;
  std::optional<shardwright::DeviceSummary<Target>> summary;
  std::string note;  ///< To go with the next report.
  bool told = false; ///< Whether the run has said what became of the capture.
};

} // namespace train_gpt
