// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A model of three parameters whose gradients a test writes itself.

#include <shardwright/core/philox.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace train_test {

namespace sw = shardwright;
using sw::axis::dp;
using sw::axis::tp;

/// @brief Adds a rank's share of a gradient: random numbers, different on every rank. A GradAccumulator must
/// hold them.
template <class Model> void add_random_gradients(Model& model, std::uint64_t seed, int rank) {
  std::uint64_t number = 0;
  model.for_each_parameter([&](auto& parameter) {
    ++number;
    auto slot = parameter.gradient_slot();
    auto* const data = slot.tensor.mutable_data();
    using Element = std::remove_reference_t<decltype(*data)>;
    for (std::size_t i = 0; i < slot.tensor.local_size(); ++i) {
      const auto word = sw::random_words({seed, 16 * number + static_cast<std::uint64_t>(rank)}, i).word[0];
      const auto old = slot.beta == Element(0) ? Element(0) : slot.beta * data[i];
      data[i] = old + static_cast<Element>(2 * sw::unit_interval(word) - 1);
    }
  });
}

/// @brief A matrix in uneven parts over tp, a replicated vector, and a matrix that is also sharded over dp.
template <class Element> struct ToyModel {
  using target = sw::DefaultTarget;
  using OverTokens = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
  using Matrix = sw::Parameter<sw::Layout<2, sw::Shard<1, tp>>,
                               sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dp>>, Element>;
  using Vector = sw::Parameter<sw::Layout<1>, sw::Layout<1, sw::Partial<sw::Sum, dp, tp>>, Element>;
  using Spread = sw::Parameter<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>,
                               sw::Layout<2, sw::Partial<sw::Sum, dp>, sw::Shard<1, tp>>, Element>;

  explicit ToyModel(const sw::DeviceMesh<dp, tp>& mesh)
      : matrix("matrix", {mesh, {3, 5}}), vector("vector", {mesh, {7}}), spread("spread", {mesh, {5, 4}}) {
    std::uint64_t number = 0;
    for_each_parameter([&](auto& parameter) {
      parameter.fill_weights([&](auto& weights) { sw::fill_normal(weights, {1, ++number}); });
    });
  }

  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    visit(matrix);
    visit(vector);
    visit(spread);
  }

  void add_gradients(std::uint64_t seed, int rank) { add_random_gradients(*this, seed, rank); }

  Matrix matrix;
  Vector vector;
  Spread spread;
};

/// @brief All elements of a tensor, in double, on every rank. Collective.
template <class Tensor> [[nodiscard]] std::vector<double> whole(const Tensor& tensor) {
  const auto all = sw::redistribute<sw::Layout<Tensor::tensor_rank>>(tensor);
  return {all.data(), all.data() + all.local_size()};
}

using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;

} // namespace train_test
