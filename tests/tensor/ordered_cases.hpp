// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks of sums over ranks on a Reproducible target against a plain tree, for ranks of any
/// transport.

#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ordered_test {

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::Findings;
using Ordered = Reproducible<DefaultTarget>;

/// Part `part` of element `i` of a sum: numbers of many sizes, so that the order of a sum shows.
template <class Element> Element part_of(std::int64_t part, std::int64_t i) {
  std::uint64_t bits = static_cast<std::uint64_t>(8 * i + part + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u;
  const double number = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  return static_cast<Element>(static_cast<float>(std::ldexp(number, static_cast<int>(bits % 7) - 3)));
}

/// The plain tree over parts [first, first + count), each node rounded to the element.
template <class Element> Element tree_of(std::int64_t first, std::int64_t count, std::int64_t i) {
  if (count == 1)
    return part_of<Element>(first, i);
  const std::int64_t half = count / 2;
  const auto left = static_cast<AccumulationElement<Element>>(tree_of<Element>(first, half, i));
  return static_cast<Element>(
      left + static_cast<AccumulationElement<Element>>(tree_of<Element>(first + half, half, i)));
}

/// All forms of the transition of a sum to one layout.
template <class To, class From> void check_forms(const From& from, const char* what, Findings& findings) {
  using Element = typename From::value_type;
  const auto expect = [&](const auto& tensor, const char* form) {
    const auto offset = detail::local_offset_of<To>(from.core(), from.shape());
    const auto local = tensor.local_shape();
    bool equal = true;
    for (std::int64_t row = 0; row < local[0]; ++row)
      for (std::int64_t column = 0; column < local[1]; ++column)
        equal = equal && tensor.data()[row * local[1] + column] ==
                             tree_of<Element>(0, ordered_parts,
                                              (offset[0] + row) * from.shape()[1] + offset[1] + column);
    findings.expect(equal, what, ", ", form, ", ", from.core().world().size(), " ranks, ",
                    name_of(element_type_of<Element>()));
  };
  expect(redistribute<To>(from), "redistribute");
  expect(redistribute_async<To>(from).wait(), "redistribute_async");
  expect(redistribute<To>(from.clone()), "in place");
  ShardedTensor<To, Element, Ordered> into(from.resources(), from.shape());
  redistribute_into(from, into);
  expect(into, "redistribute_into");
}

template <class Element, class Mesh> void check_sums(const Mesh& mesh, Findings& findings) {
  using Sums = Layout<2, Partial<Sum, dp, tp>>;
  ShardedTensor<Sums, Element, Ordered> sums(mesh, {13, 5}); // uneven blocks for every extent
  const std::int64_t parts = ordered_parts / mesh.core().world().size();
  for (std::int64_t i = 0; i < 65; ++i)
    sums.mutable_data()[i] = tree_of<Element>(parts * mesh.rank(), parts, i);
  check_forms<Layout<2>>(sums, "whole", findings);
  check_forms<Layout<2, Shard<0, tp>>>(sums, "rows over tp", findings);
  check_forms<Layout<2, Shard<1, dp, tp>>>(sums, "columns over both", findings);
  check_forms<Layout<2, Shard<0, tp, dp>>>(sums, "rows over both, tp outside", findings);
}

/// Integers add up to the same in any order and on any number of ranks.
inline void check_fixed_point(const HostCommunicator& world, Findings& findings) {
  const DeviceMesh mesh{world, extent<dp>(world.size())};
  ShardedTensor<Layout<1, Partial<Sum, dp>>, FixedPoint, Ordered> sums(mesh, {37});
  for (std::int64_t i = 0; i < 37; ++i)
    sums.mutable_data()[i] = FixedPoint::of(part_of<float>(world.rank() % 8, i) - 4);
  const auto whole = redistribute<Layout<1>>(redistribute<Layout<1, Shard<0, dp>>>(sums));
  bool equal = true;
  for (std::int64_t i = 0; i < 37; ++i) {
    FixedPoint sum;
    for (int rank = 0; rank < world.size(); ++rank)
      sum += FixedPoint::of(part_of<float>(rank % 8, i) - 4);
    equal = equal && whole.data()[i] == sum;
  }
  findings.expect(equal, "fixed point, ", world.size(), " ranks");
}

/// Extents that cut no subtrees are named before anything moves.
inline void check_refusal(const HostCommunicator& world, Findings& findings) {
  const DeviceMesh mesh{world, extent<tp>(world.size())};
  ShardedTensor<Layout<1, Partial<Sum, tp>>, float, Ordered> sums(mesh, {4});
  std::fill_n(sums.mutable_data(), 4, 1.0F);
  std::string sentence;
  try {
    static_cast<void>(redistribute<Layout<1>>(sums));
  } catch (const InvalidArgument& error) {
    sentence = error.what();
  }
  findings.expect(sentence.find("Reproducible: the axes that split a sum") != std::string::npos &&
                      sentence.find("tp=" + std::to_string(world.size()) + " (choose") != std::string::npos,
                  "a sum over ranks that are no power of two says: ", sentence);
}

/// Both parts of complex numbers are summed as floats are.
inline void check_complex(const HostCommunicator& world, Findings& findings) {
  const DeviceMesh mesh{world, extent<tp>(world.size())};
  ShardedTensor<Layout<1, Partial<Sum, tp>>, std::complex<float>, Ordered> sums(mesh, {37});
  const std::int64_t parts = ordered_parts / world.size();
  for (std::int64_t i = 0; i < 37; ++i)
    sums.mutable_data()[i] = {tree_of<float>(parts * world.rank(), parts, i),
                              tree_of<float>(parts * world.rank(), parts, i + 37)};
  const auto whole = redistribute<Layout<1>>(redistribute<Layout<1, Shard<0, tp>>>(sums));
  bool equal = true;
  for (std::int64_t i = 0; i < 37; ++i)
    equal = equal && whole.data()[i] == std::complex<float>(tree_of<float>(0, ordered_parts, i),
                                                            tree_of<float>(0, ordered_parts, i + 37));
  findings.expect(equal, "complex numbers, ", world.size(), " ranks");
}

/// Everything on the meshes of a world of up to eight ranks.
inline void check_world(const HostCommunicator& world, Findings& findings) {
  check_fixed_point(world, findings);
  if (!std::has_single_bit(static_cast<unsigned>(world.size())))
    return check_refusal(world, findings);
  check_complex(world, findings);
  for (int outer = 1; outer <= world.size(); outer *= 2) {
    const DeviceMesh mesh{world, extent<dp>(outer), extent<tp>(world.size() / outer)};
    check_sums<float>(mesh, findings);
    check_sums<double>(mesh, findings);
    check_sums<bfloat16>(mesh, findings);
    check_sums<float16>(mesh, findings);
  }
}

} // namespace ordered_test
