// SPDX-License-Identifier: Apache-2.0
// Training steps that wait for nothing, compiled for the device; on a machine with a GPU, steps that are
// replayed as a CUDA graph are compared with steps that are enqueued call by call.
#include "cuda/training.hpp"

#include <shardwright/tensor/memory/shared_memory.hpp>
#include <shardwright/train/training.hpp>

#include <cstdio>
#include <optional>
#include <span>

namespace {

using namespace cuda_test;

/// Steps that wait for nothing: the losses and norms of their reports, and the parameters after them. From
/// the third step on, steps are replays of a CUDA graph if `captured` is set.
template <class Element> Results reported_training(const Mesh& mesh, bool captured) {
  using Model = sw::SingleStageModel<sw::Decoder<sw::DecoderLayouts<true>, Element, Device>>;
  using Batch = typename Model::Batch;
  Model model(mesh, small_config(), 7);
  sw::Training<Model> training(mesh, model, sw::AdamW(), {.capture = captured});
  typename Batch::Ids ids(mesh, {4, 12});
  typename Batch::Ids targets(mesh, {4, 12});
  std::vector<Batch> batches;
  sw::Uploads<std::int32_t, Device> uploads(96);
  const auto upload = [&](std::int64_t step) {
    batches.clear(); // their handles forbid to write
    for (std::size_t i = 0; i < 48; ++i) {
      uploads.half()[i] = static_cast<std::int32_t>((7 * i + static_cast<std::size_t>(step)) % 20);
      uploads.half()[48 + i] = static_cast<std::int32_t>((11 * i + static_cast<std::size_t>(step)) % 20);
    }
    uploads.upload(0, ids);
    uploads.upload(48, targets);
    uploads.flip();
    batches.push_back({ids.share(), targets.share(), {}});
    return std::span<const Batch>(batches);
  };
  Results results;
  const auto note = [&](const sw::StepReport& report) {
    results.add("loss, norm of step " + std::to_string(report.step),
                std::vector{report.loss, report.gradient_norm});
    if (captured && !report.note.empty())
      std::printf("%s\n", report.note.c_str());
  };
  for (int step = 0; step < 6; ++step)
    if (const std::optional<sw::StepReport> report = training.step(upload, 1e-3 * (step + 1)))
      note(*report);
  while (const std::optional<sw::StepReport> report = training.settle(upload))
    note(*report);
  model.for_each_parameter([&](auto& parameter) {
    keep(results, "parameter " + std::to_string(results.all().size()), parameter.stored());
  });
  return results;
}

} // namespace

int main(int argc, char** argv) {
  using namespace cuda_test;
  return device_program(argc, argv, [] {
    bool sound = true;
    static_cast<void>(sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
      const Mesh mesh = sw::decoder_mesh(world, {});
      sound &= agrees("steps that are replayed as a graph", reported_training<sw::bfloat16>(mesh, true),
                      reported_training<sw::bfloat16>(mesh, false), 0);
    }));
    return sound;
  });
}
