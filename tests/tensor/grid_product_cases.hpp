// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks of products over a grid against plain sums in double, for ranks of any transport.

#include "support/ranks.hpp"
#include "tensor/halo_cases.hpp"

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace tensor_test {

struct depth : axis_tag<depth> {
  static constexpr std::string_view name = "depth";
};

/// Counts the broadcasts of a rank, and the bytes that it receives by them.
class CountedBroadcasts final : public detail::DecoratedTransport<HostCommunicator> {
public:
  struct Counts {
    int calls = 0;
    std::size_t bytes = 0;
  };
  CountedBroadcasts(HostCommunicator below, Counts& counts)
      : DecoratedTransport(std::move(below)), counts_(counts) {}
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    if (call.operation == Operation::broadcast) {
      ++counts_.calls;
      counts_.bytes += call.root == rank() ? 0 : call.count * size_of(call.element);
    }
    return below().start(call);
  }

protected:
  [[nodiscard]] std::shared_ptr<Transport> around(HostCommunicator part) const override {
    return std::make_shared<CountedBroadcasts>(std::move(part), counts_);
  }

private:
  Counts& counts_;
};

/// C = A B, and C = A B + 3 C, of given rows, contracted extent and columns, in exact numbers.
template <class Grid, class Result, class Element = double, class Mesh>
void check_grid_product(const Mesh& mesh, CountedBroadcasts::Counts& counts,
                        const std::array<std::int64_t, 3>& shape, const std::string& name,
                        Findings& findings) {
  const std::int64_t m = shape[0], k = shape[1], n = shape[2]; // clang 14 captures no structured binding
  ShardedTensor<Grid, Element> a(mesh, {m, k}), b(mesh, {k, n});
  fill_numbers(a, 1);
  fill_numbers(b, 2);
  counts = {};
  ShardedTensor<Result, AccumulationElement<Element>> c(mesh, {m, n});
  matmul_into(c, a, b);
  const CountedBroadcasts::Counts counted = counts;
  matmul_into(c, a, b, 3);
  const auto whole = redistribute<Grid>(c);
  for_each_element(whole, [&](std::size_t i, const std::array<std::int64_t, 2>& at, bool) {
    double sum = 0;
    for (std::int64_t l = 0; l < k; ++l)
      sum += number_at(std::array{at[0], l}, 1) * number_at(std::array{l, at[1]}, 2);
    findings.expect(static_cast<double>(whole.data()[i]) == 4 * sum, name, ": element ", at[0], ", ", at[1]);
  });
  if constexpr (std::is_same_v<Element, double>) {
    // Without C in memory before, the same elements.
    const auto fresh = redistribute<Grid>(matmul<Result>(a, b));
    for (std::size_t i = 0; i < fresh.local_size(); ++i)
      findings.expect(4 * fresh.data()[i] == whole.data()[i], name, ": fresh");
  }
  if (mesh.rank() != 0)
    return;
  using Plan = GridProduct<Result>;
  const auto binding = detail::bind_axes(mesh.core(), Result::axes);
  findings.expect(counted.bytes ==
                      static_cast<std::size_t>(Plan::bytes(binding.extents, shape, sizeof(Element))),
                  name, ": bytes ", counted.bytes);
  const int directions = (detail::places(Plan::row_axes, binding.extents) > 1) +
                         (detail::places(Plan::column_axes, binding.extents) > 1);
  findings.expect(counted.calls == directions * Plan::steps(binding.extents, k), name, ": broadcasts ",
                  counted.calls);
}

/// The gradients of a product that no tape records, in exact numbers: dY B^T + 2 dX, and A^T dY + 2 dW.
template <class Grid, class Mesh>
void check_grid_gradients(const Mesh& mesh, const std::array<std::int64_t, 3>& shape, const std::string& name,
                          Findings& findings) {
  const std::int64_t m = shape[0], k = shape[1], n = shape[2]; // clang 14 captures no structured binding
  ShardedTensor<Grid, double> a(mesh, {m, k}), b(mesh, {k, n}), y(mesh, {m, n});
  fill_numbers(a, 1);
  fill_numbers(b, 2);
  fill_numbers(y, 3);
  auto left = matmul_input_gradient(y, b);
  auto right = matmul_weight_gradient(a, y);
  const auto transposed = matmul_transposed(y, b);
  for (std::size_t i = 0; i < left.local_size(); ++i)
    findings.expect(transposed.data()[i] == left.data()[i], name, ": transposed ", i);
  matmul_input_gradient_into(left, y, b, 2);
  matmul_weight_gradient_into(right, a, y, 2);
  const auto check = [&](const auto& found, std::int64_t terms, const char* what, const auto& term) {
    const auto whole = redistribute<Layout<2>>(found);
    for_each_element(whole, [&](std::size_t i, const std::array<std::int64_t, 2>& at, bool) {
      double sum = 0;
      for (std::int64_t l = 0; l < terms; ++l)
        sum += term(at, l);
      findings.expect(whole.data()[i] == 3 * sum, name, ": ", what, " of ", at[0], ", ", at[1]);
    });
  };
  check(left, n, "left gradient", [](const auto& at, std::int64_t l) {
    return number_at(std::array{at[0], l}, 3) * number_at(std::array{at[1], l}, 2);
  });
  check(right, m, "right gradient", [](const auto& at, std::int64_t l) {
    return number_at(std::array{l, at[0]}, 1) * number_at(std::array{l, at[1]}, 3);
  });
}

/// Every grid of the ranks, in two and three dimensions.
inline void check_grid_products(const HostCommunicator& world, Findings& findings) {
  CountedBroadcasts::Counts counts;
  const HostCommunicator counted(std::make_shared<CountedBroadcasts>(world, counts));
  for (int layers = 1; layers <= world.size(); ++layers)
    for (int rows = 1; rows * layers <= world.size(); ++rows) {
      if (world.size() % (rows * layers) != 0)
        continue;
      const int columns = world.size() / (rows * layers);
      const DeviceMesh mesh{counted, extent<x>(rows), extent<depth>(layers), extent<y>(columns)};
      const std::string on =
          " on " + std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(layers);
      using Grid = Layout<2, Shard<0, x>, Shard<1, y>>;
      // Uneven blocks, empty ones, nothing to add, and more panels than one for each block.
      for (const auto& shape :
           {std::array<std::int64_t, 3>{13, 19, 11}, {3, 5, 2}, {4, 0, 3}, {2, 1100, 3}}) {
        check_grid_product<Grid, Grid>(mesh, counts, shape, "grid" + on, findings);
        check_grid_product<Grid, Layout<2, Shard<0, x>, Shard<1, y>, Partial<Sum, depth>>>(
            mesh, counts, shape, "layers" + on, findings);
      }
      // Ranks of a column count in the order of the mesh, which is neither that of the blocks nor of names.
      using Nested = Layout<2, Shard<0, depth, x>, Shard<1, y>>;
      check_grid_product<Nested, Nested>(mesh, counts, {13, 19, 11}, "nested" + on, findings);
      for (const auto& shape : {std::array<std::int64_t, 3>{13, 19, 11}, {3, 5, 2}, {4, 0, 3}}) {
        check_grid_gradients<Grid>(mesh, shape, "gradients" + on, findings);
        check_grid_gradients<Nested>(mesh, shape, "nested gradients" + on, findings);
      }
      if (layers == 1)
        check_grid_product<Grid, Grid, bfloat16>(mesh, counts, {13, 19, 11}, "narrow" + on, findings);
    }
}

} // namespace tensor_test
