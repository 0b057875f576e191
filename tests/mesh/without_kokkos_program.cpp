// SPDX-License-Identifier: Apache-2.0
// In a program that does not start Kokkos, every rank that asks for memory throws an error that says so.
#include <shardwright/launch.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstdio>
#include <string>

namespace sw = shardwright;
using sw::axis::dp;

int main() {
  try {
    sw::launch({.ranks = 2}, [](const sw::HostCommunicator& world) {
      const sw::DeviceMesh mesh{world, sw::extent<dp>(2)};
      const sw::ShardedTensor<sw::Layout<1, sw::Shard<0, dp>>> tensor(mesh, {8});
    });
  } catch (const sw::Error& error) {
    std::printf("%s\n", error.what());
    return std::string(error.what()).find("Kokkos must be initialised") == std::string::npos ? 1 : 0;
  }
  std::printf("a tensor was made without Kokkos\n");
  return 1;
}
