// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of the tests of single building blocks: whole tensors on the host, and finite
/// differences of them.

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace nn_test {

namespace sw = shardwright;
using Vector = std::vector<double>;
using Mesh = sw::DeviceMesh<sw::axis::dp, sw::axis::tp>;

/// @brief Extents of dp and tp.
struct Extents {
  int data = 1;
  int tensor = 1;
};

/// @brief Meshes of one to four ranks.
inline constexpr std::array<Extents, 6> block_meshes{{{1, 1}, {2, 1}, {1, 2}, {3, 1}, {1, 3}, {2, 2}}};

[[nodiscard]] inline Mesh mesh_of(const sw::HostCommunicator& world, Extents extents) {
  return Mesh(world, sw::extent<sw::axis::dp>(extents.data), sw::extent<sw::axis::tp>(extents.tensor));
}

/// @brief All elements of a tensor on every rank. Collective.
template <class Tensor> [[nodiscard]] Vector whole_of(const Tensor& tensor) {
  const auto all = sw::redistribute<sw::Layout<Tensor::tensor_rank>>(tensor);
  return Vector(all.data(), all.data() + all.local_size());
}

/// @brief Normal numbers that do not depend on the mesh.
template <class L, class AnyMesh>
[[nodiscard]] sw::ShardedTensor<L, double>
random_tensor(const AnyMesh& mesh, const typename sw::ShardedTensor<L, double>::Shape& shape,
              std::uint64_t number) {
  sw::ShardedTensor<L, double> out(mesh, shape);
  sw::fill_normal(out, {11, number});
  return out;
}

/// @brief The gradient of a scalar function by central differences of fourth order.
template <class Function> [[nodiscard]] Vector finite_differences(const Function& function, Vector at) {
  constexpr double step = 2e-3;
  Vector out(at.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double before = at[i];
    const auto value = [&](double shift) {
      at[i] = before + shift;
      return function(at);
    };
    out[i] = (8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))) / (12 * step);
    at[i] = before;
  }
  return out;
}

[[nodiscard]] inline double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

/// @brief The largest difference, relative to the largest element of the reference.
[[nodiscard]] inline double difference(const Vector& values, const Vector& reference) {
  if (values.size() != reference.size())
    return std::numeric_limits<double>::infinity();
  double largest = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double each = std::abs(values[i] - reference[i]);
    largest = each <= largest ? largest : std::isnan(each) ? std::numeric_limits<double>::infinity() : each;
    magnitude = std::max(magnitude, std::abs(reference[i]));
  }
  return largest / magnitude;
}

/// @brief Accumulates the gradients of a test.
template <class L> struct GradientOf {
  using Tensor = sw::ShardedTensor<L, double>;
  struct Slot {
    Tensor& tensor;
    double beta;
  };
  [[nodiscard]] Slot slot() { return {tensor, first ? (first = false, 0.0) : 1.0}; }
  [[nodiscard]] Vector whole() const { return whole_of(sw::redistribute<sw::Gradient<L>>(tensor)); }

  Tensor tensor;
  bool first = true;
};

} // namespace nn_test
