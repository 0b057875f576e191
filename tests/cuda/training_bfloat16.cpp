// SPDX-License-Identifier: Apache-2.0
// The training of a decoder in bfloat16, compiled for the device; on a machine with a GPU, run by one rank
// and compared with the host.
#include "cuda/training.hpp"

int main(int argc, char** argv) {
  using namespace cuda_test;
  return device_program(argc, argv, [] {
    bool sound = true;
    static_cast<void>(sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
      const Mesh mesh = sw::decoder_mesh(world, {});
      sound &= trains_as_on_the_host<sw::bfloat16, true>(mesh, "training in bfloat16", 8 * 0x1p-7);
    }));
    return sound;
  });
}
