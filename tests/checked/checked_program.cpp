// SPDX-License-Identifier: Apache-2.0
// Tests a build with SHARDWRIGHT_CHECKED: all tensors that ranks make on a mesh are compared, new ones hold
// NaN, and what a program declares to be replicated is compared.

#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

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

/// A model of one parameter, and sums of a loss that each rank says that all have.
struct OneWeight {
  using Vector = sw::Layout<1>;
  sw::Parameter<Vector, sw::Layout<1, sw::Partial<sw::Sum, dp>>> weight;
  auto members() { return sw::members("weight", weight); }
};
void add_replicated(const sw::HostCommunicator& world, double loss, std::int64_t count) {
  const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(2));
  sw::ShardedTensor<OneWeight::Vector> weight(mesh, {3});
  sw::fill(weight, 1.0f);
  OneWeight model{{"weight", std::move(weight)}};
  sw::GradAccumulator accumulator(model);
  const sw::CountedLoss<sw::Layout<0>> sums{{loss}, {count}};
  accumulator.add(sw::assume_replicated(sums));
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

  const auto replicated = [](double loss, std::int64_t count) -> std::string {
    try {
      sw::launch({.ranks = 2}, [&](const sw::HostCommunicator& world) {
        add_replicated(world, world.rank() == 0 ? 3.0 : loss, world.rank() == 0 ? 2 : count);
      });
    } catch (const sw::ConfigurationMismatch& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::string same = replicated(3.0, 2), losses = replicated(4.0, 2), counts = replicated(3.0, 5);
  expect(same == "nothing", "equal sums, not: " + same);
  expect(
      losses.find("assume_replicated: all ranks along dp must give the same loss, but it is 3 on rank 0 and "
                  "4 on rank 1") != std::string::npos,
      "both losses, not: " + losses);
  expect(counts.find("the same count, but it is 2 on rank 0 and 5 on rank 1") != std::string::npos,
         "both counts, not: " + counts);

  sw::launch({.ranks = 1}, [](const sw::HostCommunicator& world) {
    const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(1));
    const sw::ShardedTensor<sw::Layout<1>, double> fresh(mesh, {5});
    for (std::size_t i = 0; i < fresh.local_size(); ++i)
      expect(std::isnan(fresh.data()[i]), "NaN in a new tensor");
  });
  return failures == 0 ? 0 : 1;
}
