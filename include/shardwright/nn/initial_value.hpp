// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Initial parameter values that depend on the seed and not on the mesh.

#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A tensor of ones.
template <LayoutType L, class Element, class Target, class Mesh>
[[nodiscard]] ShardedTensor<L, Element, Target>
ones(const Mesh& mesh, const typename ShardedTensor<L, Element, Target>::Shape& shape) {
  ShardedTensor<L, Element, Target> out(mesh, shape);
  fill(out, Element(1));
  return out;
}

/// @brief Normal numbers of mean 0, keyed by (seed, tensor, global element index).
template <LayoutType L, class Element, class Target, class Mesh>
[[nodiscard]] ShardedTensor<L, Element, Target>
normal(const Mesh& mesh, const typename ShardedTensor<L, Element, Target>::Shape& shape, std::uint64_t seed,
       std::uint64_t tensor, double deviation) {
  ShardedTensor<L, Element, Target> out(mesh, shape);
  fill_normal(out, {seed, tensor}, 0.0, deviation);
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
