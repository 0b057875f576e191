// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The squared error of values, as a LossSum and the number of elements.

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/loss_factor.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/terms.hpp>
#include <shardwright/tensor/memory/device_value.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/train/step/device_loss.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/tape/loss_node.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class X, class T> struct MseOperands {
  static constexpr bool alike = std::is_same_v<typename X::layout, typename T::layout>;
  static_assert(alike, "mse: the target must have the layout of the value (redistribute one of them)");
  static constexpr bool ordered = !is_reproducible<typename X::target>;
  static_assert(
      ordered,
      "mse: on a Reproducible target a loss must consist of loss terms, which squares are too small for (use cross_entropy, or a target that is not Reproducible)");
  static constexpr bool value = alike && ordered && SameElementAndTarget<X, T>::value &&
                                !any_invalid<ElementwiseNonlinearLayout<operation::mse, typename X::layout>>;
};

/// The gradient of x, 2 (x - target) times the loss scale.
struct SquaredErrorSlope {
  kernels::LossFactor factor;
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x, V target) const {
    return (x - target) * (2 * factor.value());
  }
};

struct StoreCount {
  double* to;
  double count;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const { to[0] = count; }
};

template <class X, class T>
[[nodiscard]] auto squared_error(const X& x, const T& target, SourceLocation where) {
  using L = ReduceAllLayout<Sum, ElementwiseNonlinearLayout<operation::mse, typename X::layout>>;
  using Target = typename X::target;
  using Loss = CountedLossOn<L, Target>;
  if constexpr (MseOperands<X, T>::value) {
    require_one_mesh("mse", x, target, where);
    require_shape("mse", "target", target.shape(), x.shape(), x.core(), where);
    Scalars<2, Target> totals(x.resources());
    auto workspace = detail::workspace_of<double>(x.resources(), kernels::reduce_workspace(x.local_size()));
    const auto view = totals.view();
    kernels::squared_distance(x.execution(), vector_of(x), vector_of(target), view,
                              mutable_vector_of(workspace));
    run_once("sw::count", x.execution(), StoreCount{view.data() + 1, static_cast<double>(x.local_size())});
    return counted_loss<L>(std::move(totals));
  } else {
    return Loss{};
  }
}

} // namespace detail

namespace operation {

/// @brief mse of a value on a tape; its gradient is computed with the loss, in the value's memory.
template <class Wanted> struct MseLoss {
  static constexpr std::string_view name = "mse";
  Wanted target;

  template <AnyShardedTensor X> [[nodiscard]] auto loss(SourceLocation where, const X& x) const {
    return detail::squared_error(x, target, where);
  }
  template <AnyShardedTensor X>
  [[nodiscard]] auto loss_and_gradient(SourceLocation where, X&& x, const LossScale& scale) const {
    using Element = typename std::remove_cvref_t<X>::value_type;
    auto sums = detail::squared_error(x, target, where);
    auto [from, out] = reuse(std::forward<X>(x));
    const kernels::CombineOf<detail::SquaredErrorSlope> slope{{scale.in_kernels()}};
    kernels::store_formula("sw::d_mse", out.execution(), slope, kernels::NoElements{},
                           kernels::Elements<Element>{from}, kernels::Elements<Element>{target.data()},
                           out.mutable_data(), out.local_size());
    return std::pair{std::move(sums), std::move(out)};
  }
};

} // namespace operation

/// @brief The sum of (x - target)^2 over all elements, with their number as its count: divided once by the
/// global count, as GradAccumulator does, it is the mean squared error.
///
/// Partial<Sum> over the axes that shard x. No communication. Summed in double, in fixed order.
/// @param target of the layout and shape of x, which must not be Partial
/// @throws InvalidArgument if the shapes differ or the tensors are on two meshes.
template <AnyShardedTensor X, AnyShardedTensor T>
[[nodiscard]] auto mse(const X& x, const T& target, SourceLocation where = SourceLocation::current()) {
  return detail::squared_error(x, target, where);
}
/// @brief The same for a value on a tape. Tape::backward propagates its gradient, 2 (x - target) times the
/// tape's loss scale, whether its result is used or not; to only monitor it, use `mse(x.value(), target)`.
template <detail::TapeOperand X, LayoutType L, class E, class Target>
[[nodiscard]] auto mse(X&& x, const ShardedTensor<L, E, Target>& target,
                       SourceLocation where = SourceLocation::current()) {
  using Wanted = ShardedTensor<L, const std::remove_const_t<E>, Target>;
  if (x.tape().checks_inputs())
    require_equal_inputs(target, where);
  return detail::record_loss(operation::MseLoss<Wanted>{target.share()}, where, std::forward<X>(x));
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
