// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Spirals for the Mlp.

#include "mlp.hpp"
#include "task.hpp"

namespace models {

template <class Plan> struct MlpTask : SampleTask {
  using Model = Mlp<Plan>;

  [[nodiscard]] static MlpConfig config(const Options& options) { return {.recompute = options.recompute}; }
  [[nodiscard]] static auto sample(const MlpConfig& config, std::uint64_t seed) {
    return [=](std::uint64_t number) { return spiral_point(seed, number, config.classes); };
  }
  [[nodiscard]] static std::string_view unit(const Options&) { return "sample"; }
  template <class Batch, class Mesh, class MakeSample>
  [[nodiscard]] static Batch batch(const Mesh& mesh, const MlpConfig& config, const Rows& rows,
                                   MakeSample sample) {
    typename Model::Points points(mesh, {rows.count, config.features});
    typename Model::Labels labels(mesh, {rows.count});
    load(points, rows, sample, &Sample::features);
    load(labels, rows, sample, &Sample::targets);
    return {points.share(), labels.share()};
  }
};

} // namespace models
