// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transitions of a device target, compared bitwise with the host's, which add in the same order.

#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/halos.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace transition_check {

namespace sw = shardwright;
using shardwright_test::Findings;

/// @brief Random numbers, different on each rank of the mesh.
[[nodiscard]] inline std::vector<float> numbers(std::size_t count, int rank) {
  std::vector<float> out(count);
  std::uint64_t bits = 5 + 77 * static_cast<std::uint64_t>(rank);
  for (float& each : out) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    each = static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f;
  }
  return out;
}

template <class L, class Target, class Mesh>
[[nodiscard]] sw::ShardedTensor<L, float, Target> filled(const Mesh& mesh) {
  sw::ShardedTensor<L, float, Target> out(mesh, {13, 10});
  sw::set_local_values(out, numbers(out.local_size(), mesh.rank()));
  return out;
}

[[nodiscard]] inline bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0);
}

/// @brief One transition: blocking and started, from a source that is kept and from one that is moved in.
template <class Device, class From, class To, class Mesh>
void same_on_both(const Mesh& mesh, Findings& findings, const char* what) {
  const auto host = sw::local_values(sw::redistribute<To>(filled<From, sw::DefaultTarget>(mesh)));
  const auto source = filled<From, Device>(mesh);
  const auto expect = [&](const auto& tensor, const char* how) {
    findings.expect(same_bits(sw::local_values(tensor), host), what, ", ", how, ", on rank ", mesh.rank());
  };
  auto pending = sw::redistribute_async<To>(source);
  expect(pending.wait(), "started");
  expect(sw::redistribute<To>(source), "at once");
  expect(sw::redistribute<To>(filled<From, Device>(mesh)), "from a source that is given up");
}

/// @brief Halos that are filled, refreshed, added to their owners and dropped.
template <class Device, class Plain, class Haloed, class Mesh>
void halos_on_both(const Mesh& mesh, Findings& findings, const char* what) {
  const auto run = [&]<class Target>(std::type_identity<Target>) {
    std::vector<std::vector<float>> out;
    auto tensor = sw::redistribute<Haloed>(filled<Plain, Target>(mesh));
    out.push_back(sw::local_values(tensor));
    sw::set_local_values(tensor, numbers(tensor.local_size(), mesh.rank()));
    sw::refresh_halos(tensor);
    out.push_back(sw::local_values(tensor));
    sw::set_local_values(tensor, numbers(tensor.local_size(), mesh.rank()));
    sw::add_halos(tensor);
    out.push_back(sw::local_values(tensor));
    out.push_back(sw::local_values(sw::redistribute<Plain>(tensor)));
    return out;
  };
  const auto host = run(std::type_identity<sw::DefaultTarget>{});
  const auto device = run(std::type_identity<Device>{});
  for (std::size_t i = 0; i < host.size(); ++i)
    findings.expect(same_bits(device[i], host[i]), what, ", step ", i, ", on rank ", mesh.rank());
}

/// @brief Every kind of collective over one axis. Collective.
template <class Device> void over_one_axis(const sw::HostCommunicator& world, Findings& findings) {
  using sw::axis::dp;
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Columns = sw::Layout<2, sw::Shard<1, dp>>;
  using Unsummed = sw::Layout<2, sw::Partial<sw::Sum, dp>>;
  using Whole = sw::Layout<2>;
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  same_on_both<Device, Unsummed, Whole>(mesh, findings, "all_reduce");
  same_on_both<Device, Unsummed, Rows>(mesh, findings, "reduce_scatter of rows");
  same_on_both<Device, Unsummed, Columns>(mesh, findings, "reduce_scatter of columns");
  same_on_both<Device, Rows, Whole>(mesh, findings, "all_gather of rows");
  same_on_both<Device, Columns, Whole>(mesh, findings, "all_gather of columns");
  same_on_both<Device, Rows, Columns>(mesh, findings, "all_to_all");
  same_on_both<Device, Columns, Rows>(mesh, findings, "all_to_all back");
  same_on_both<Device, sw::Layout<2, sw::Partial<sw::Max, dp>>, Whole>(mesh, findings, "a maximum");
  using Haloed = sw::Layout<2, sw::Shard<0, dp, sw::Halo<1>>>;
  using Ring = sw::Layout<2, sw::Shard<1, dp, sw::PeriodicHalo<1>>>;
  halos_on_both<Device, Rows, Haloed>(mesh, findings, "halos of rows");
  halos_on_both<Device, Columns, Ring>(mesh, findings, "periodic halos of columns");
  // To one rank and back.
  const auto rows = filled<Rows, Device>(mesh);
  const auto scattered = sw::scatter<Rows, Device>(mesh, 0, sw::gather(rows, 0), {13, 10});
  findings.expect(same_bits(sw::local_values(scattered), sw::local_values(rows)), "scatter of a gather");
}

/// @brief Transitions over two axes, on four ranks. Collective.
template <class Device> void over_two_axes(const sw::HostCommunicator& world, Findings& findings) {
  using sw::axis::dp, sw::axis::tp;
  const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
  same_on_both<Device, sw::Layout<2, sw::Partial<sw::Sum, dp>, sw::Partial<sw::Sum, tp>>, sw::Layout<2>>(
      mesh, findings, "a merged all_reduce");
  same_on_both<Device, sw::Layout<2, sw::Partial<sw::Sum, dp>, sw::Shard<1, tp>>,
               sw::Layout<2, sw::Shard<0, dp>>>(mesh, findings, "several collectives");
}

} // namespace transition_check
