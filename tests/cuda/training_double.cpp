// SPDX-License-Identifier: Apache-2.0
// The training of a decoder in double, compiled for the device; on a machine with a GPU, run by one rank and
// compared with the host.
#include "cuda/training.hpp"

int main(int argc, char** argv) {
  using namespace cuda_test;
  return device_program(argc, argv, [] {
    bool sound = true;
    static_cast<void>(sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
      const Mesh mesh = sw::decoder_mesh(world, {});
      sound &= trains_as_on_the_host<double, false>(mesh, "training in double", 1e-9);
      sound &= trains_as_on_the_host<double, true>(mesh, "training in double, sequence parallel", 1e-9);
    }));
    return sound;
  });
}
