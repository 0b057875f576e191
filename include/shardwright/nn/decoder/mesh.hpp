// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The meshes of a decoder: for one stage, and for a pipeline of stages.

#include <shardwright/layout/axis.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The mesh of a decoder or a pipeline stage: replicas of shard groups, and data, expert, context and
/// tensor parallel ranks. Those of ep split the batch like dp, and own experts. Ranks of tp are neighbours.
using DecoderMesh = DeviceMesh<axis::dpr, axis::dp, axis::ep, axis::cp, axis::tp>;

/// @brief The mesh of a pipeline of decoder stages; pp is outermost.
using DecoderPipelineMesh = DeviceMesh<axis::pp, axis::dpr, axis::dp, axis::ep, axis::cp, axis::tp>;

/// @brief The axes of a DecoderMesh over which ZeRO may shard what is replicated in a model with experts; for
/// Zero3Over and the like.
using MoeZeroAxes = AxisList<axis::dp, axis::ep, axis::cp>;

/// @brief Extents of a DecoderMesh.
struct DecoderExtents {
  int dpr = 1; ///< Replicas of a shard group.
  int dp = 1;
  int cp = 1;
  int tp = 1;
  int ep = 1;

  /// @brief Ranks that split the batch.
  [[nodiscard]] int data_ranks() const noexcept { return dpr * dp * ep; }
  [[nodiscard]] int ranks() const noexcept { return dpr * dp * ep * cp * tp; }
  /// @brief "dp=2,tp=2", without axes of extent 1.
  [[nodiscard]] std::string text() const {
    std::string out;
    const auto append = [&out](const char* name, int extent) {
      if (extent > 1)
        out.append(out.empty() ? "" : ",").append(name).append("=").append(std::to_string(extent));
    };
    append("dpr", dpr), append("dp", dp), append("ep", ep), append("cp", cp), append("tp", tp);
    return out.empty() ? "one rank" : out;
  }
};

/// @brief The mesh of these extents over `ranks`. Collective; cost: that of a DeviceMesh.
[[nodiscard]] inline DecoderMesh decoder_mesh(const HostCommunicator& ranks, const DecoderExtents& extents) {
  using namespace axis;
  return DecoderMesh(ranks, extent<dpr>(extents.dpr), extent<dp>(extents.dp), extent<ep>(extents.ep),
                     extent<cp>(extents.cp), extent<tp>(extents.tp));
}

/// @brief A pipeline of `stages` ranks, each of which is a mesh of these extents. Collective; cost: that
/// of a DeviceMesh.
[[nodiscard]] inline DecoderPipelineMesh decoder_pipeline_mesh(const HostCommunicator& ranks, int stages,
                                                               const DecoderExtents& extents) {
  using namespace axis;
  return DecoderPipelineMesh(ranks, extent<pp>(stages), extent<dpr>(extents.dpr), extent<dp>(extents.dp),
                             extent<ep>(extents.ep), extent<cp>(extents.cp), extent<tp>(extents.tp));
}

/// @brief The mesh of this rank's stages: the pipeline's without its axis. Collective; cost: that of a
/// DeviceMesh.
[[nodiscard]] inline DecoderMesh stage_mesh(const DecoderPipelineMesh& whole) {
  using namespace axis;
  return decoder_mesh(whole.communicator<dpr, dp, ep, cp, tp>(), {.dpr = whole.extent<dpr>(),
                                                                  .dp = whole.extent<dp>(),
                                                                  .cp = whole.extent<cp>(),
                                                                  .tp = whole.extent<tp>(),
                                                                  .ep = whole.extent<ep>()});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
