// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The training of a small decoder on a host target and on the device, for device programs that each
/// compile some of its element types.

#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>

#include "cuda/compare.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cuda_test {

using Mesh = sw::DecoderMesh;

template <class Tensor> void keep(Results& results, std::string name, const Tensor& tensor) {
  results.add(std::move(name), sw::gather(tensor, 0));
}

[[nodiscard]] inline sw::DecoderConfig small_config() {
  sw::DecoderConfig config;
  config.layers = 2;
  config.width = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.hidden = 24;
  config.vocabulary = 20;
  config.sequence = 12;
  config.initial_deviation = 0.1;
  return config;
}

/// Two steps of a small decoder, the second with packed documents: losses, norms and parameters.
template <class Target, class Element, bool sequence_parallel> Results training(const Mesh& mesh) {
  using Model = sw::SingleStageModel<sw::Decoder<sw::DecoderLayouts<sequence_parallel>, Element, Target>>;
  using Ids = typename Model::Batch::Ids;
  Model model(mesh, small_config(), 7);
  sw::GradAccumulator<Model> accumulator(model);
  sw::AdamW optimizer;
  Results results;
  const std::vector<std::int32_t> lengths[4] = {{5, 1, 6}, {}, {1, 1, 2}, {11}};
  for (int step = 0; step < 2; ++step) {
    std::vector<std::int32_t> tokens(48);
    std::vector<std::int32_t> next(48);
    for (int i = 0; i < 48; ++i) {
      tokens[static_cast<std::size_t>(i)] = (7 * i + step) % 20;
      next[static_cast<std::size_t>(i)] = i % 6 == 5 ? -1 : (11 * i + step) % 20;
    }
    using Layout = typename sw::DecoderLayouts<sequence_parallel>::Ids;
    const Ids ids(sw::scatter<Layout, Target>(mesh, 0, tokens, {4, 12}));
    const Ids targets(sw::scatter<Layout, Target>(mesh, 0, next, {4, 12}));
    typename Model::Batch batch{ids.share(), targets.share(), {}};
    if (step == 1) { // packed
      std::vector<std::int32_t> starts(48);
      for (std::size_t row = 0; row < 4; ++row)
        sw::fill_document_starts(lengths[row], std::span(starts).subspan(12 * row, 12));
      using Starts = typename decltype(batch.mask)::starts_layout;
      batch.mask = sw::documents(sw::causal, sw::scatter<Starts, Target>(mesh, 0, starts, {4, 12}));
    }
    accumulator.add(model.forward_backward(batch));
    const auto step_summary = accumulator.finish();
    optimizer.step(model, step_summary, 1e-3);
    accumulator.restart();
    const sw::GradientSummary summary = step_summary.read();
    const auto evaluated = static_cast<double>(model.evaluate(batch).read().loss.value);
    const std::string at = " of step " + std::to_string(step + 1);
    results.add("loss, norm, next loss" + at,
                std::vector{summary.loss.value, summary.gradient_norm, evaluated});
    keep(results, "predictions" + at, sw::redistribute<sw::Layout<3>>(model.predict(batch)));
  }
  model.for_each_parameter([&](auto& parameter) {
    keep(results, "parameter " + std::to_string(results.all().size()), parameter.stored());
  });
  return results;
}

template <class Element, bool sequence_parallel>
bool trains_as_on_the_host(const Mesh& mesh, const char* what, double tolerance) {
  return agrees(what, training<Device, Element, sequence_parallel>(mesh),
                training<Host, Element, sequence_parallel>(mesh), tolerance);
}

} // namespace cuda_test
