// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tensors and parameters that check_gradients perturbs in a direction and restores.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/checks/gradient_comparison.hpp>
#include <shardwright/train/tape.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// out = 1 at a given global index, else 0.
template <class Element, std::size_t rank> struct OneElement {
  Element* out;
  std::array<std::int64_t, rank> offset, local, global;
  std::int64_t element;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (std::size_t d = rank; d-- > 0;) {
      index += (offset[d] + rest % local[d]) * stride;
      rest /= local[d];
      stride *= global[d];
    }
    out[i] = index == element ? Element(1) : Element(0);
  }
};

/// A direction in layout `L`, which must not be Partial.
template <LayoutType L, class Target> class Direction {
  using Tensor = ShardedTensor<L, double, Target>;

public:
  Direction(TargetResources<Target>& resources, const typename Tensor::Shape& shape)
      : tensor_(resources, shape) {}

  void point_randomly(RandomKey key) {
    if constexpr (L::tensor_rank == 0)
      fill(tensor_, 1.0);
    else
      fill_uniform(tensor_, key, -1.0, 1.0);
  }
  void point_at(std::size_t element) {
    kernels::run("sw::point", tensor_.execution(), tensor_.local_size(),
                 OneElement<double, static_cast<std::size_t>(L::tensor_rank)>{
                     tensor_.mutable_data(), tensor_.local_offset(), tensor_.local_shape(), tensor_.shape(),
                     static_cast<std::int64_t>(element)});
  }
  /// This rank's part of the sum of the products.
  template <class G> [[nodiscard]] double times(const G& gradient) const {
    return counts_once<L>(tensor_.core()) ? local_number(dot(tensor_, gradient)) : 0;
  }
  template <class G> [[nodiscard]] static double square(const G& gradient) {
    return counts_once<L>(gradient.core()) ? local_number(dot(gradient, gradient)) : 0;
  }
  [[nodiscard]] const Tensor& tensor() const noexcept { return tensor_; }

private:
  template <class Scalar> [[nodiscard]] static double local_number(const Scalar& scalar) {
    double number = 0;
    copy_to_host<Target>(scalar.execution(), scalar.data(), &number, 1);
    return number;
  }

  Tensor tensor_;
};

/// Whether this rank's part of a Partial value is the one that is perturbed.
template <LayoutType L> [[nodiscard]] bool perturbs_part(const MeshCore& core) {
  for (std::size_t i = 0; i < L::axes.size(); ++i)
    if (L::value.is_partial(static_cast<int>(i)) && core.coordinate(core.axis_index(L::axes[i])) != 0)
      return false;
  return true;
}

template <class Tensor> class PerturbedTensor final : public PerturbedInput {
public:
  using L = typename Tensor::layout;
  using Target = typename Tensor::target;
  static_assert(
      std::is_same_v<typename Tensor::value_type, double>,
      "check_gradients: the inputs must be double, because difference quotients in other element types are too coarse (convert them first)");

  PerturbedTensor(std::string name, const Tensor& tensor)
      : name_(std::move(name)), origin_(tensor.share()), tensor_(tensor.clone()),
        direction_(tensor.resources(), tensor.shape()) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::vector<std::int64_t> shape() const override {
    return {tensor_.shape().begin(), tensor_.shape().end()};
  }
  void point_randomly(RandomKey key) override { direction_.point_randomly(key); }
  void point_at(std::size_t element) override { direction_.point_at(element); }
  void perturb(double step) override {
    if (tensor_.local_size() == 0)
      return;
    kernels::copy(tensor_.execution(), vector_of(origin_), mutable_vector_of(tensor_));
    if (step != 0 && perturbs_part<L>(tensor_.core()))
      kernels::axpy(tensor_.execution(), step, vector_of(direction_.tensor()), mutable_vector_of(tensor_));
  }
  [[nodiscard]] double slope() override { return direction_.times(*gradient_); }
  [[nodiscard]] double square() override { return direction_.square(*gradient_); }

  [[nodiscard]] MeshCore& mesh_core() const { return origin_.core(); }
  [[nodiscard]] auto on(Tape<Target>& tape) const { return tape.variable(tensor_); }
  template <class V> void take_gradient(const Tape<Target>& tape, const V& var) {
    gradient_.emplace(tape.gradient(var));
  }

private:
  std::string name_;
  ShardedTensor<L, const double, Target> origin_;
  ShardedTensor<L, double, Target> tensor_;
  Direction<Gradient<L>, Target> direction_;
  std::optional<ShardedTensor<Gradient<L>, const double, Target>> gradient_;
};

template <class P> class PerturbedParameter final : public PerturbedInput {
  using L = typename P::state_layout;

public:
  static_assert(
      std::is_same_v<typename P::element, double>,
      "check_gradients: the parameters must be double, because difference quotients in other element types are too coarse (build the model with a plan whose element is double)");

  explicit PerturbedParameter(P& parameter)
      : parameter_(parameter), direction_(parameter.resources(), parameter.shape()) {
    parameter.update_weights([this](auto& weights) { origin_.emplace(weights.clone()); });
  }
  [[nodiscard]] std::string name() const override { return parameter_.name(); }
  [[nodiscard]] std::vector<std::int64_t> shape() const override {
    return {parameter_.shape().begin(), parameter_.shape().end()};
  }
  void point_randomly(RandomKey key) override { direction_.point_randomly(key); }
  void point_at(std::size_t element) override { direction_.point_at(element); }
  void perturb(double step) override {
    parameter_.update_weights([&](auto& weights) {
      if (weights.local_size() == 0)
        return;
      kernels::copy(weights.execution(), vector_of(*origin_), mutable_vector_of(weights));
      if (step != 0)
        kernels::axpy(weights.execution(), step, vector_of(direction_.tensor()), mutable_vector_of(weights));
    });
  }
  [[nodiscard]] double slope() override { return direction_.times(parameter_.gradient()); }
  [[nodiscard]] double square() override { return direction_.square(parameter_.gradient()); }

private:
  P& parameter_;
  std::optional<ShardedTensor<L, double, typename P::target>> origin_;
  Direction<L, typename P::target> direction_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
