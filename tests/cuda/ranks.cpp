// SPDX-License-Identifier: Apache-2.0
// Several ranks that are threads and share the GPU: transitions with the bits of the host, and trainings that
// shard the model state, the matrices, the sequence and the layers, compared with the host's.

#include "support/ranks.hpp"
#include "compare.hpp"
#include "nn/device_training.hpp"
#include "nn/zero_training.hpp"
#include "support/launch_ranks.cpp" // a device program is one unit
#include "tensor/transition_check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using cuda_test::Device;
using nn_test::PipelineWay;

bool found_nothing(const char* what, const std::string& findings) {
  std::printf("%s: %s\n", what, findings.empty() ? "the bits of the host" : findings.c_str());
  return findings.empty();
}

/// ZeRO-3 on the device and on the host. Losses, norms and parameters differ by the rounding of the two;
/// memory is allocated only in the first two steps.
template <class Element>
bool trains_as_on_the_host(const nn_test::Problem& problem, const PipelineWay& way, double tolerance) {
  using Layouts = sw::DecoderLayouts<true, sw::Zero3>;
  const sw::Schedule schedule = sw::make_schedule("1f1b", way.pp, way.inside.accumulation);
  const auto host = nn_test::pipeline_outcomes(way, [&](const sw::HostCommunicator& world) {
    return nn_test::train_pipeline_with<Layouts, Element>(world, problem, way, schedule, {});
  });
  const auto device = nn_test::device_outcomes(way, [&](const sw::HostCommunicator& world) {
    return nn_test::train_on_device<Layouts, Element, Device>(world, problem, way, schedule);
  });
  double numbers = 0;
  double parameters = 0;
  bool steady = true;
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    const nn_test::Outcome& run = device[rank].pipeline.training;
    const nn_test::Outcome& reference = host[rank].training;
    numbers = std::max({numbers, nn_test::largest_difference(run.losses, reference.losses),
                        nn_test::largest_difference(run.norms, reference.norms)});
    parameters = std::max(parameters, nn_test::largest_parameter_difference(run, reference));
    steady = steady && run.tokens == reference.tokens && device[rank].pool.back() == device[rank].pool[1];
  }
  std::printf("%s, %zu bytes an element: losses and norms %.3g, allowed %.3g; parameters %.3g; %s\n",
              way.text().c_str(), sizeof(Element), numbers, tolerance, parameters,
              steady ? "steady memory" : "the memory or the tokens are not those of two steps before");
  // If a gradient is about zero, AdamW's first steps follow its sign.
  return steady && numbers <= tolerance && parameters <= 0.1;
}

} // namespace

int main(int argc, char** argv) {
  return cuda_test::device_program(argc, argv, [] {
    bool sound = true;
    for (const int ranks : {1, 2, 3, 4}) {
      const std::string what = "transitions on " + std::to_string(ranks) + " ranks";
      sound &= found_nothing(what.c_str(),
                             shardwright_test::on_ranks(ranks, transition_check::over_one_axis<Device>));
    }
    sound &= found_nothing("transitions over two axes",
                           shardwright_test::on_ranks(4, transition_check::over_two_axes<Device>));
    nn_test::Problem problem = nn_test::zero_problem();
    problem.steps = 6;
    for (const PipelineWay& way :
         {PipelineWay{.pp = 1, .inside = {.accumulation = 2}},
          PipelineWay{.pp = 1, .inside = {.dp = 2, .tp = 2, .sequence_parallel = true, .accumulation = 2}},
          PipelineWay{.pp = 2, .inside = {.dp = 2, .accumulation = 4}},
          PipelineWay{.pp = 2, .inside = {.sequence_parallel = true, .accumulation = 2, .cp = 2}}}) {
      problem.config.recompute.kind = way.pp == 2 ? sw::Recompute::full : sw::Recompute::none;
      problem.config.dropout = way.inside.tp == 2 ? 0.1 : 0.0;
      sound &= trains_as_on_the_host<float>(problem, way, 1e-3);
      sound &= trains_as_on_the_host<sw::bfloat16>(problem, way, 8 * 0x1p-7);
    }
    return sound;
  });
}
