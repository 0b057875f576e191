// SPDX-License-Identifier: Apache-2.0
// Tests a build with SHARDWRIGHT_CHECKED: all tensors that ranks make on a mesh are compared, and new ones
// hold NaN.

#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sw = shardwright;
using sw::axis::dp;

namespace {

/// A tensor that no call moves, of another shape on one rank, before a call that all make alike.
void make_and_sum(const sw::HostCommunicator& world, std::int64_t extra) {
  const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(2));
  const sw::ShardedTensor<sw::Layout<1>, float> unmoved(mesh, {12 + (world.rank() == 1 ? extra : 0)});
  sw::ShardedTensor<sw::Layout<1, sw::Partial<sw::Sum, dp>>, float> parts(mesh, {4});
  sw::fill_zero(parts);
  static_cast<void>(sw::redistribute<sw::Layout<1>>(parts));
}

int failures = 0;
void expect(bool holds, const std::string& what) {
  if (holds)
    return;
  ++failures;
  std::fprintf(stderr, "expected: %s\n", what.c_str());
}

} // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const auto said = [](std::int64_t extra) -> std::string {
    try {
      sw::launch({.ranks = 2}, [&](const sw::HostCommunicator& world) { make_and_sum(world, extra); });
    } catch (const sw::CollectiveMismatch& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::string equal = said(0), other = said(1);
  expect(equal == "nothing", "ranks that make equal tensors, not: " + equal);
  expect(other.find("tensor 1 that they made on the mesh is [12] and [13]") != std::string::npos,
         "both shapes, not: " + other);

  sw::launch({.ranks = 1}, [](const sw::HostCommunicator& world) {
    const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(1));
    const sw::ShardedTensor<sw::Layout<1>, double> fresh(mesh, {5});
    for (std::size_t i = 0; i < fresh.local_size(); ++i)
      expect(std::isnan(fresh.data()[i]), "NaN in a new tensor");
  });
  return failures == 0 ? 0 : 1;
}
