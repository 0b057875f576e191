// SPDX-License-Identifier: Apache-2.0
// The training of a decoder in float, compiled for the device; on a machine with a GPU, run by one rank and
// compared with the host; with several GPUs, run by two ranks on two of them.
#include "cuda/training.hpp"

#include <cstdio>

// Compiled for the device as well, although a single rank has no ring.
template class shardwright::detail::RingAttention<float, shardwright::CudaTarget>;

int main(int argc, char** argv) {
  using namespace cuda_test;
  return device_program(argc, argv, [] {
    bool sound = true;
    static_cast<void>(sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
      const Mesh mesh = sw::decoder_mesh(world, {});
      sound &= trains_as_on_the_host<float, false>(mesh, "training in float", 1e-3);
      sound &= trains_as_on_the_host<float, true>(mesh, "training in float, sequence parallel", 1e-3);
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
