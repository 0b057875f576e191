// SPDX-License-Identifier: Apache-2.0
// Operations on tensors and the training of a decoder, compiled for the device; on a machine with a GPU, run
// by one rank and compared with the host; with several GPUs, by a rank on each of two.
#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder_mesh.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/tensor/shared_memory.hpp>
#include <shardwright/train/training.hpp>
#include <shardwright/train/whole_model.hpp>

#include "cuda/compare.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

// Compiled for the device as well, though one rank alone has no ring.
template class shardwright::detail::RingAttention<float, shardwright::CudaTarget>;

namespace {

using namespace cuda_test;
using namespace sw::axis;

using Mesh = sw::DecoderMesh;

template <class Tensor>
void keep(std::vector<double>& results, const Tensor& tensor) {
  const auto whole = sw::gather(tensor, 0);
  results.insert(results.end(), whole.begin(), whole.end());
}

/// Every operation on tensors, on random numbers and on integers.
template <class Target, class Element>
std::vector<double> operations(const Mesh& mesh) {
  using Sharded = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
  using Tensor = sw::ShardedTensor<Sharded, Element, Target>;
  std::vector<double> results;
  Tensor x(mesh, {12, 8});
  sw::fill_normal(x, {5, 1});
  Tensor y = sw::sigmoid(x);
  keep(results, sw::add(x, y));
  keep(results, sw::multiply(x, y));
  sw::scale_in_place(y, 3.0);
  keep(results, sw::scale(y, -0.5));
  keep(results, sw::gelu_tanh(x));
  keep(results, sw::gelu_erf(x));
  keep(results, x - y);
  keep(results, x / y);
  keep(results, sw::redistribute<sw::Layout<0>>(sw::dot(x, y)));
  keep(results, sw::norm(x));
  keep(results, sw::silu(x));
  keep(results, sw::relu(x));
  keep(results, sw::exp(x));
  keep(results, sw::log(y));
  keep(results, sw::sqrt(y));
  keep(results, sw::square(x));
  keep(results, sw::tanh(x));
  keep(results, sw::convert<double>(x));
  keep(results, x.clone());

  sw::ShardedTensor<sw::Layout<1, sw::Shard<0, tp>>, Element, Target> bias(mesh, {8});
  sw::fill_uniform(bias, {5, 2});
  keep(results, sw::add(x, bias));
  keep(results, sw::multiply(x, bias));
  keep(results, sw::redistribute<sw::Layout<1, sw::Shard<0, dp>>>(sw::sum<1>(x)));
  keep(results, sw::redistribute<sw::Layout<1>>(sw::reduce<sw::Max, 0>(x)));
  keep(results, sw::redistribute<sw::Layout<1>>(sw::reduce<sw::Min, 0>(x)));
  keep(results, sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Sum>(x)));
  keep(results, sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Product>(y)));

  sw::ShardedTensor<sw::Layout<2, sw::Shard<0, tp>>, Element, Target> w(mesh, {8, 4});
  sw::fill_normal(w, {5, 3});
  const auto product = sw::matmul(x, w);
  keep(results, sw::redistribute<sw::Layout<2, sw::Shard<0, dp>>>(product));

  std::vector<std::int64_t> numbers(30);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::int64_t>(i * i) - 100;
  const auto integers = sw::scatter<sw::Layout<2, sw::Shard<0, dp>>, Target>(mesh, 0, numbers, {6, 5});
  keep(results, sw::add(integers, integers));
  keep(results, sw::redistribute<sw::Layout<1>>(sw::reduce<sw::Max, 0>(integers)));
  keep(results, sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Min>(integers)));
  return results;
}

sw::DecoderConfig small_config() {
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

/// Two steps of a small decoder: losses, norms and parameters.
template <class Target, class Element, bool sequence_parallel>
std::vector<double> training(const Mesh& mesh) {
  using Model = sw::WholeModel<sw::Decoder<sw::DecoderLayouts<sequence_parallel>, Element, Target>>;
  using Ids = typename Model::Batch::Ids;
  Model model(mesh, small_config(), 7);
  sw::GradAccumulator<Model> accumulator(model);
  sw::AdamW optimizer;
  std::vector<double> results;
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
    const typename Model::Batch batch{ids.share(), targets.share(), {}};
    accumulator.add(model.forward_backward(batch));
    const auto step_summary = accumulator.finish();
    optimizer.step(model, step_summary, 1e-3);
    accumulator.restart();
    const sw::GradientSummary summary = step_summary.read();
    results.push_back(summary.loss.value);
    results.push_back(summary.gradient_norm);
    results.push_back(static_cast<double>(model.evaluate(batch).read().loss.value));
    keep(results, sw::redistribute<sw::Layout<3>>(model.predict(batch)));
  }
  model.for_each_parameter([&](auto& parameter) { keep(results, parameter.stored()); });
  return results;
}

/// Steps that wait for nothing: losses and norms as their reports say, and what the parameters become. The
/// steps from the third on are replays of a CUDA graph where they are `captured`.
template <class Element>
std::vector<double> reported_training(const Mesh& mesh, bool captured) {
  using Model = sw::WholeModel<sw::Decoder<sw::DecoderLayouts<true>, Element, Device>>;
  using Batch = typename Model::Batch;
  Model model(mesh, small_config(), 7);
  sw::Training<Model> training(mesh, model, sw::AdamW(), {.capture = captured});
  typename Batch::Ids ids(mesh, {4, 12});
  typename Batch::Ids targets(mesh, {4, 12});
  const std::vector<Batch> batches{{ids.share(), targets.share(), {}}};
  sw::Uploads<std::int32_t, Device> uploads(96);
  const auto upload = [&](std::int64_t step) {
    for (std::size_t i = 0; i < 48; ++i) {
      uploads.half()[i] = static_cast<std::int32_t>((7 * i + static_cast<std::size_t>(step)) % 20);
      uploads.half()[48 + i] = static_cast<std::int32_t>((11 * i + static_cast<std::size_t>(step)) % 20);
    }
    uploads.upload(0, ids);
    uploads.upload(48, targets);
    uploads.flip();
    return std::span<const Batch>(batches);
  };
  std::vector<double> results;
  const auto note = [&](const sw::StepReport& report) {
    results.push_back(report.loss);
    results.push_back(report.gradient_norm);
    if (captured && !report.note.empty())
      std::printf("%s\n", report.note.c_str());
  };
  for (int step = 0; step < 6; ++step)
    if (const std::optional<sw::StepReport> report = training.step(upload, 1e-3 * (step + 1)))
      note(*report);
  while (const std::optional<sw::StepReport> report = training.settle(upload))
    note(*report);
  model.for_each_parameter([&](auto& parameter) { keep(results, parameter.stored()); });
  return results;
}

template <class Element, bool sequence_parallel>
bool trains_as_on_the_host(const Mesh& mesh, const char* what, double tolerance) {
  return agrees(what, training<Device, Element, sequence_parallel>(mesh),
                training<Host, Element, sequence_parallel>(mesh), tolerance);
}

} // namespace

int main(int argc, char** argv) {
  return device_program(argc, argv, [] {
    bool sound = true;
    static_cast<void>(sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
      const Mesh mesh = sw::decoder_mesh(world, {});
      sound &=
          agrees("operations in float", operations<Device, float>(mesh), operations<Host, float>(mesh), 1e-4);
      sound &= agrees("operations in double", operations<Device, double>(mesh),
                      operations<Host, double>(mesh), 1e-11);
      sound &= trains_as_on_the_host<float, false>(mesh, "training in float", 1e-3);
      sound &= trains_as_on_the_host<float, true>(mesh, "training in float, sequence parallel", 1e-3);
      sound &= trains_as_on_the_host<double, false>(mesh, "training in double", 1e-9);
      sound &= trains_as_on_the_host<double, true>(mesh, "training in double, sequence parallel", 1e-9);
      sound &= trains_as_on_the_host<sw::bfloat16, true>(mesh, "training in bfloat16", 8 * 0x1p-7);
      sound &= agrees("steps that are replayed as a graph", reported_training<sw::bfloat16>(mesh, true),
                      reported_training<sw::bfloat16>(mesh, false), 0);
    }));
#if defined(SHARDWRIGHT_WITH_NCCL)
    if (sw::CudaTarget::device_count() == 1) {
      std::puts("several GPUs: skipped, for there is one");
      return sound;
    }
    static_cast<void>(sw::launch({.ranks = 2}, [&](sw::HostCommunicator world) {
      sw::CudaTarget::use_device(world.rank());
      const Mesh mesh = sw::decoder_mesh(world, {.dp = 2});
      const auto device = training<Device, float, true>(mesh), host = training<Host, float, true>(mesh);
      if (world.rank() == 0)
        sound &= agrees("training in float on two GPUs", device, host, 1e-3);
    }));
#endif
    return sound;
  });
}
