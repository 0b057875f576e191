// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks of halos against the whole tensor, for ranks of any transport.

#include "support/ranks.hpp"

#include <shardwright/tensor/halos.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace tensor_test {

using namespace shardwright;
using shardwright_test::Findings;

struct x : axis_tag<x> {
  static constexpr std::string_view name = "x";
};
struct y : axis_tag<y> {
  static constexpr std::string_view name = "y";
};

/// A small whole number that depends on every coordinate: sums and products of few are exact.
template <std::size_t rank> double number_at(const std::array<std::int64_t, rank>& at, std::uint64_t seed) {
  std::uint64_t hash = seed * 0x9e3779b97f4a7c15u + 1;
  for (const std::int64_t index : at)
    hash = (hash ^ static_cast<std::uint64_t>(index + 77)) * 0xff51afd7ed558ccdu >> 3;
  return static_cast<double>(hash % 17) - 8;
}

/// Calls visit(index in memory, global coordinates, whether the rank owns the element) for a block with its
/// halos.
template <class Tensor, class Visit> void for_each_element(const Tensor& tensor, Visit visit) {
  constexpr std::size_t rank = Tensor::tensor_rank;
  const auto local = tensor.local_shape();
  const auto owned = tensor.owned_shape();
  const auto offset = tensor.local_offset();
  for (std::size_t i = 0; i < tensor.local_size(); ++i) {
    std::array<std::int64_t, rank> at{};
    bool own = true;
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = rank; d-- > 0; rest /= local[d]) {
      const std::int64_t inside = rest % local[d] - Tensor::layout::value.halo(static_cast<int>(d)).before();
      own = own && inside >= 0 && inside < owned[d];
      at[d] = offset[d] + inside;
    }
    visit(i, at, own);
  }
}

/// The element that a halo element is a copy of; false beyond the ends.
template <class L, std::size_t rank>
bool wrap(std::array<std::int64_t, rank>& at, const std::array<std::int64_t, rank>& shape) {
  for (std::size_t d = 0; d < rank; ++d) {
    if (L::value.halo(static_cast<int>(d)).periodic())
      at[d] = (at[d] + shape[d]) % shape[d];
    if (at[d] < 0 || at[d] >= shape[d])
      return false;
  }
  return true;
}

template <class Tensor> void fill_numbers(Tensor& tensor, std::uint64_t seed) {
  using Element = typename Tensor::value_type;
  auto* const data = tensor.mutable_data();
  for_each_element(tensor, [&](std::size_t i, const auto& at, bool own) {
    if (own)
      data[i] = static_cast<Element>(number_at(at, seed));
  });
}

/// Whether every element equals its owner's, and is `beyond` beyond the ends.
template <class Tensor> bool holds_numbers(const Tensor& tensor, std::uint64_t seed, double beyond) {
  using Element = typename Tensor::value_type;
  bool good = true;
  for_each_element(tensor, [&](std::size_t i, auto at, bool) {
    const bool inside = wrap<typename Tensor::layout>(at, tensor.shape());
    good = good && tensor.data()[i] == static_cast<Element>(inside ? number_at(at, seed) : beyond);
  });
  return good;
}

/// Sum over all ranks of the products of the elements in memory, halos included.
template <class Left, class Right> double product_in_memory(const Left& left, const Right& right) {
  std::array<double, 1> sum{};
  for (std::size_t i = 0; i < left.local_size(); ++i)
    sum[0] += static_cast<double>(left.data()[i]) * static_cast<double>(right.data()[i]);
  HostCommunicator world = left.core().world();
  world.all_reduce_in_place(sum);
  return sum[0];
}

/// All operations on halos, for one layout and shape.
template <class Haloed, class Element, class Mesh, std::size_t rank>
void check_halos(const Mesh& mesh, const std::array<std::int64_t, rank>& shape, const std::string& name,
                 Findings& findings) {
  using Plain = WithoutHalos<Haloed>;
  ShardedTensor<Plain, Element> plain(mesh, shape);
  fill_numbers(plain, 1);
  const auto filled = redistribute<Haloed>(plain);
  findings.expect(filled.shape() == shape && filled.owned_shape() == plain.local_shape(), name, ": shapes");
  findings.expect(holds_numbers(filled, 1, 0), name, ": redistribute fills halos");
  const auto again = redistribute<Plain>(filled);
  findings.expect(holds_numbers(again, 1, 0), name, ": redistribute drops halos");
  const auto whole = redistribute<Layout<rank>>(filled);
  findings.expect(holds_numbers(whole, 1, 0), name, ": redistribute from halos to the whole");
  findings.expect(holds_numbers(redistribute<Haloed>(whole), 1, 0), name, ": redistribute from the whole");

  ShardedTensor<Haloed, Element> kept(mesh, shape);
  for (std::size_t i = 0; i < kept.local_size(); ++i)
    kept.mutable_data()[i] = Element(99);
  fill_numbers(kept, 2);
  refresh_halos(kept);
  findings.expect(holds_numbers(kept, 2, 99), name, ": refresh_halos");
  fill_numbers(kept, 3);
  refresh_halos(kept);
  findings.expect(holds_numbers(kept, 3, 99), name, ": refresh_halos again");
  redistribute_into(plain, kept);
  findings.expect(holds_numbers(kept, 1, 0), name, ": redistribute_into");
  ShardedTensor<Plain, Element> back(mesh, shape);
  redistribute_into(kept, back);
  findings.expect(holds_numbers(back, 1, 0), name, ": redistribute_into without halos");

  // <H x, y> = <x, H' y> for any numbers in all of y.
  ShardedTensor<Haloed, Element> y_numbers(mesh, shape);
  for (std::size_t i = 0; i < y_numbers.local_size(); ++i)
    y_numbers.mutable_data()[i] = static_cast<Element>(
        number_at(std::array<std::int64_t, 2>{static_cast<std::int64_t>(i), mesh.core().world().rank()}, 5));
  const double left = product_in_memory(filled, y_numbers);
  add_halos(y_numbers);
  bool cleared = true;
  for_each_element(y_numbers, [&](std::size_t i, const auto&, bool own) {
    cleared = cleared && (own || y_numbers.data()[i] == Element(0));
  });
  findings.expect(cleared, name, ": add_halos clears them");
  const auto adjoint = redistribute<Plain>(std::move(y_numbers));
  findings.expect(left == product_in_memory(plain, adjoint), name, ": add_halos is the adjoint");
}

/// Every shape of a mesh with a given number of ranks: a rank's coordinates must not matter. Blocks of 46 and
/// 23 elements are uneven on up to eight ranks, and none is narrower than a halo.
template <class Element> void check_meshes(const HostCommunicator& world, Findings& findings) {
  for (int a = 1; a <= world.size(); ++a) {
    if (world.size() % a != 0)
      continue;
    const int b = world.size() / a;
    const DeviceMesh mesh{world, extent<x>(a), extent<y>(b)};
    const std::string on = " on " + std::to_string(a) + " x " + std::to_string(b);
    check_halos<Layout<1, Shard<0, x, Halo<1>>>, Element>(mesh, std::array<std::int64_t, 1>{46}, "line" + on,
                                                          findings);
    check_halos<Layout<1, Shard<0, y, x, PeriodicHalo<2, 1>>>, Element>(mesh, std::array<std::int64_t, 1>{46},
                                                                        "ring over both axes" + on, findings);
    check_halos<Layout<2, Shard<0, x, Halo<2, 0>>>, Element>(mesh, std::array<std::int64_t, 2>{46, 3},
                                                             "rows" + on, findings);
    check_halos<Layout<2, Shard<0, x, Halo<1>>, Shard<1, y, Halo<1>>>, Element>(
        mesh, std::array<std::int64_t, 2>{46, 23}, "grid" + on, findings);
    check_halos<Layout<2, Shard<0, x, PeriodicHalo<1, 2>>, Shard<1, y, PeriodicHalo<2, 1>>>, Element>(
        mesh, std::array<std::int64_t, 2>{23, 46}, "torus" + on, findings);
    check_halos<Layout<2, Shard<0, x, PeriodicHalo<1>>, Shard<1, y, Halo<0, 2>>>, Element>(
        mesh, std::array<std::int64_t, 2>{23, 46}, "cylinder" + on, findings);
    check_halos<Layout<2, Shard<1, x, Halo<1>>>, Element>(mesh, std::array<std::int64_t, 2>{3, 46},
                                                          "columns" + on, findings);
    check_halos<Layout<3, Shard<0, x, Halo<1>>, Shard<2, y, PeriodicHalo<1>>>, Element>(
        mesh, std::array<std::int64_t, 3>{23, 2, 23}, "box" + on, findings);
    check_halos<Layout<4, Shard<1, x, Halo<1>>, Shard<3, y, Halo<2>>>, Element>(
        mesh, std::array<std::int64_t, 4>{2, 23, 3, 23}, "four dimensions" + on, findings);
  }
}

} // namespace tensor_test
