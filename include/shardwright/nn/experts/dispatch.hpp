// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief dispatch and combine: send tokens to their experts, and return the weighted sums.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/apply.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/experts/exchange.hpp>
#include <shardwright/tensor/experts/make_route.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/ordered_products.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class Choices, class Tokens, class Number> struct DispatchChoices {
  static constexpr bool alike = any_invalid<Choices, Tokens> || std::is_same_v<Choices, Tokens>;
  static constexpr bool integers = std::is_same_v<Number, std::int32_t>;
  static_assert(
      alike,
      "dispatch: the experts must be chosen in the layout in which the tokens are read (redistribute the choices, or read the tokens in their layout)");
  static_assert(integers, "dispatch: the chosen experts must be of type std::int32_t (convert them)");
  static constexpr bool value = alike && integers;
};

template <class Gates, class Rows> struct CombineGates {
  static constexpr bool value =
      std::is_same_v<typename Gates::value_type, AccumulationElement<typename Rows::value_type>> &&
      std::is_same_v<typename Gates::target, typename Rows::target>;
  static_assert(
      value,
      "combine: the gates must have the element type of the rows, or float if that has 16 bits, and the same target (convert the gates)");
};

/// The trace shows the layout of the rows.
template <class Rows, class Target> struct CombinesWholeRows {
  static constexpr bool value = !is_reproducible<Target> || any_invalid<Rows> ||
                                (!Rows::value.has_partial() && Rows::value.shard(1).empty());
  static_assert(
      value,
      "combine: on a Reproducible target each rank must hold whole rows, neither Partial nor sharded in their columns, because it adds the slots of a token, and the columns of a gate's gradient, before ranks add theirs (redistribute the rows to the layout in which they were dispatched)");
};

template <class Owner> struct DispatchOwners {
  static constexpr bool value = Axis<Owner>;
  static_assert(
      value,
      "dispatch: its template arguments must be the axes whose ranks own the experts, as in dispatch<ep> (the number of experts belongs in the ExpertSet)");
};

/// The leaves of tokens whose choices have layout L, [tokens..., slots].
template <class L, class Shape>
[[nodiscard]] LeavesOfTokens leaves_of(const MeshCore& core, const Shape& shape, SourceLocation where) {
  const auto tokens = std::span<const std::int64_t>(shape).first(shape.size() - 1);
  const auto leaf =
      static_cast<std::int64_t>(ordered_leaf("dispatch", core, L::value, L::axes, tokens, where));
  std::int64_t most = 1; // tokens of a rank
  for (std::size_t d = 0; d < tokens.size(); ++d) {
    const std::int64_t ranks = ranks_along(core, L::value, L::axes, static_cast<int>(d));
    most *= (tokens[d] + ranks - 1) / ranks;
  }
  return {leaf, (most + leaf - 1) / leaf};
}

/// Makes the route for choices in the layout of the tokens.
template <class Owners, class L, class Id, class Target>
[[nodiscard]] std::shared_ptr<const ExpertRoute> expert_route(TargetResources<Target>& resources,
                                                              const ShardedTensor<L, Id, Target>& choices,
                                                              const ExpertSet& set, SourceLocation where) {
  MeshCore& core = resources.core();
  const AxisBinding owners = bind_axes(core, Owners::names);
  const AxisBinding split = bind_axes(core, L::axes);
  std::int64_t spread = 1;
  for (std::size_t i = 0; i < L::axes.size(); ++i)
    spread *= split.extents[i];
  const std::span<const int> order(owners.mesh_axis.data(), Owners::names.size());
  const std::int64_t slots = choices.shape()[static_cast<std::size_t>(L::tensor_rank - 1)];
  LeavesOfTokens leaves;
  if constexpr (is_reproducible<Target>)
    leaves = leaves_of<L>(core, choices.shape(), where);
  return make_expert_route(resources, std::span<const std::int32_t>(choices.data(), choices.local_size()),
                           slots, order, spread, set, leaves, where);
}

/// The sum of each token's rows, in the order of its slots, each times its gate if there are any.
template <LayoutType L, class Rows, std::size_t rank, class Number>
[[nodiscard]] auto summed_slots(const Rows& rows, const std::array<std::int64_t, rank>& shape,
                                const Number* gates, SourceLocation where) {
  using Element = typename Rows::value_type;
  const ExpertRoute& route = rows.shape().route();
  ShardedTensor<L, Element, typename Rows::target> out(rows.resources(), shape, where);
  const auto width = static_cast<std::size_t>(rows.local_shape()[1]);
  const auto tokens = static_cast<std::size_t>(route.tokens);
  const auto slots = static_cast<std::size_t>(route.slots);
  Element* const to = out.mutable_data();
  return_rows(rows.resources(), route, rows.data(), width, where,
              [&]<class Sent>(const Sent& sent, const auto& loop) {
                const std::size_t numbers = sizeof(std::int32_t) + (gates == nullptr ? 0 : sizeof(Number));
                kernels::moves("sw::sum_slots", rows.resources().execution(),
                               tokens * ((slots + 1) * width * sizeof(Element) + slots * numbers));
                loop.lanes("sw::sum_slots", tokens,
                           kernels::SumSlots<Element, Sent, !is_reproducible<typename Rows::target>>{
                               sent, route.place(), gates, slots, to, width});
              });
  return out;
}

/// The tokens' rows at their experts.
template <LayoutType L, class Tokens>
[[nodiscard]] auto dispatched(const Tokens& tokens, const std::shared_ptr<const ExpertRoute>& route,
                              SourceLocation where) {
  constexpr std::size_t last = Tokens::tensor_rank - 1;
  ShardedTensor<L, typename Tokens::value_type, typename Tokens::target> rows(
      tokens.resources(), RaggedShape(route, tokens.shape()[last]), where);
  send_rows(tokens.resources(), *route, tokens.data(), rows.mutable_data(),
            static_cast<std::size_t>(tokens.local_shape()[last]), where);
  return rows;
}

/// The gradient of gates, whose numbers come back from the experts while these compute theirs.
template <class Rows, class Gates> class ReturningGates final : public LateGradient {
  using Number = typename Gates::element;
  using Target = typename Gates::target;
  using Numbers = MovingNumbers<Target, Number>;

public:
  /// @param products of each row at the experts
  ReturningGates(Gates& gates, std::shared_ptr<const ExpertRoute> route, BufferHandle products)
      : gates_(gates), route_(std::move(route)), products_(std::move(products)) {
    if (!route_->exchanges())
      return;
    returning_.emplace(
        Numbers::to_tokens(gates_.resources(), *route_, static_cast<const Number*>(products_.data())));
    products_ = BufferHandle();
  }

  void finish() override {
    const MemoryFor memory(MemoryKind::activations, "combine");
    ShardedTensor<GateGradientLayout<typename Rows::layout, typename Gates::layout>, Number, Target> to_gates(
        gates_.resources(), gates_.shape());
    const auto* const sent = returning_ ? returning_->wait() : static_cast<const Number*>(products_.data());
    using Sent = kernels::PackedRows<Number>;
    kernels::run("sw::take_gates", to_gates.execution(), to_gates.local_size(),
                 kernels::TakeNumbers<Number, Sent>{Sent{sent, 1}, route_->place(), to_gates.mutable_data()});
    returning_.reset();
    products_ = BufferHandle();
    route_.reset();
    gates_.give(std::move(to_gates));
  }

private:
  Gates& gates_;
  std::shared_ptr<const ExpertRoute> route_;
  BufferHandle products_;
  std::optional<Numbers> returning_;
};

} // namespace detail

namespace operation {

/// @brief Dispatch with its gradient, the sum of each token's rows: both use the same route, which a replay
/// reuses.
template <Axis... Owners> struct Dispatch {
  static constexpr std::string_view name = "dispatch";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  std::shared_ptr<const detail::ExpertRoute> route;

  template <AnyShardedTensor X> [[nodiscard]] auto forward(SourceLocation where, const X& x) const {
    return detail::dispatched<DispatchLayout<typename X::layout, AxisList<Owners...>>>(x, route, where);
  }
  template <AnyShardedTensor G, AnyShardedTensor X, AnyShardedTensor Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X& x, const Y&) const {
    using L = CombineLayout<typename G::layout, typename X::layout>;
    using Number = AccumulationElement<typename X::value_type>;
    return detail::summed_slots<L>(y_gradient, x.shape(), static_cast<const Number*>(nullptr), {});
  }
};

/// @brief The weighted sum of each token's rows. Both gradients are computed at the experts, to which one
/// exchange sends that of the sum and the gates; those of the gates come back later.
struct Combine {
  static constexpr std::string_view name = "combine";
  static constexpr std::array<GradientReads, 2> gradients_read{{{.right = true}, {.left = true}}};
  template <class Rows, class Gates> using Late = detail::ReturningGates<Rows, Gates>;

  template <AnyShardedTensor Rows, AnyShardedTensor Gates>
  [[nodiscard]] auto forward(SourceLocation where, const Rows& rows, const Gates& gates) const {
    using L = CombineLayout<typename Rows::layout, typename Gates::layout>;
    if constexpr (detail::any_invalid<L> || !detail::CombineGates<Gates, Rows>::value ||
                  !detail::CombinesWholeRows<typename Rows::layout, typename Rows::target>::value) {
      return ShardedTensor<InvalidLayout, typename Rows::value_type, typename Rows::target>(rows.resources(),
                                                                                            {}, where);
    } else {
      detail::require_one_mesh("combine", rows, gates, where);
      const detail::ExpertRoute& route = rows.shape().route();
      if (static_cast<std::int64_t>(gates.local_size()) != route.tokens * route.slots)
        detail::reject_operation("combine",
                                 "the gates must be those of the dispatched tokens, one for each of their " +
                                     std::to_string(route.slots) + " slots, but their shape is " +
                                     detail::text_of(gates.shape()) + " (take both from one router)",
                                 rows.core(), where);
      return detail::summed_slots<L>(rows, detail::with_last(gates.shape(), rows.shape().columns()),
                                     gates.data(), where);
    }
  }
  template <class G, class Rows, class Gates>
  void gradients(const G& y_gradient, std::optional<Late<Rows, Gates>>& late, Rows& rows,
                 Gates& gates) const {
    using Number = typename Gates::element;
    using Target = typename Rows::target;
    const bool of_rows = rows.wants_gradient();
    const bool of_gates = gates.wants_gradient();
    const auto input = of_gates ? rows.read() : rows.outline();
    auto& resources = y_gradient.resources();
    auto route = input.shape().shared_route();
    const auto count = static_cast<std::size_t>(route->rows());
    std::optional<detail::MovingNumbers<Target, Number>> moving;
    if (of_rows)
      moving.emplace(
          detail::MovingNumbers<Target, Number>::to_experts(resources, *route, gates.read().data()));
    ShardedTensor<Gradient<typename Rows::layout>, typename Rows::element, Target> to_rows(resources,
                                                                                           input.shape());
    const auto width = static_cast<std::size_t>(to_rows.local_shape()[1]);
    detail::send_rows(resources, *route, y_gradient.data(), to_rows.mutable_data(), width, {});
    auto block = of_gates ? detail::new_block<Number>(resources, count, {}) : detail::BufferHandle();
    Number* const products = of_gates ? static_cast<Number*>(block.data()) : nullptr;
    // Scales the rows in place, or takes their products with the input, or both.
    kernels::moves("sw::gate_rows", y_gradient.execution(),
                   count * width * ((of_rows ? 2 : 1) + (of_gates ? 1 : 0)) * sizeof(typename Rows::element),
                   count * ((of_rows ? 1 : 0) + (of_gates ? 1 : 0)) * sizeof(Number));
    kernels::run_lanes(
        "sw::gate_rows", y_gradient.execution(), count,
        kernels::GateRows<typename Rows::element>{to_rows.mutable_data(), of_gates ? input.data() : nullptr,
                                                  of_rows ? moving->wait() : nullptr, products, width});
    if (of_gates)
      gates.await(late.emplace(gates, std::move(route), std::move(block)));
    rows.let_go();
    gates.let_go();
    if (of_rows)
      rows.give(std::move(to_rows));
  }
};

} // namespace operation

/// @brief The rows of tokens [tokens..., width] at the experts that they chose: rows grouped by expert, on
/// the ranks along `Owners` that own them.
///
/// No token is dropped. Ranks exchange counts, then rows, by one all_to_all over the flattened owners; within
/// an expert, rows are in the order of the sending ranks and of their tokens. Ranks and experts without
/// tokens take part, too. The gradient is the sum of each token's rows, and a replay uses the same route.
/// Cost: each rank sends its rows, tokens times slots, once. The host waits for the number of choices of each
/// expert.
/// @param experts int32 [tokens..., slots] in the layout of the tokens: below set.experts and distinct for
/// each token, or -1 for a slot without an expert, as for padding
/// @throws InvalidArgument for an expert that does not exist, and, on every rank of the owners, if one of
/// them would receive more than set.most_rows rows; on a Reproducible target also if choices that are not
/// distinct give an expert more than 256 rows of a leaf of tokens.
template <Axis... Owners, Operand X, LayoutType L, class Id, class Target>
[[nodiscard]] auto dispatch(X&& x, const ShardedTensor<L, Id, Target>& experts, const ExpertSet& set,
                            SourceLocation where = SourceLocation::current()) {
  using Given = std::remove_cvref_t<X>;
  using Rows = DispatchLayout<typename Given::layout, AxisList<Owners...>>;
  if constexpr (detail::any_invalid<Rows> ||
                !detail::DispatchChoices<L, typename Given::layout, std::remove_const_t<Id>>::value) {
    return ShardedTensor<InvalidLayout, typename Given::value_type, Target>(x.resources(), {}, where);
  } else {
    detail::require_equal_extents("dispatch", "the choices must be those of the tokens", experts.shape(), 0,
                                  x.shape(), 0, L::tensor_rank - 1, x.resources().core(), where);
    bool checks = always_checked;
    if constexpr (detail::TapeOperand<X>)
      checks = x.tape().checks_inputs();
    if (checks) {
      const std::array numbers{GivenNumber("number of experts", set.experts),
                               GivenNumber("largest number of rows", set.most_rows)};
      detail::require_agreement(x.resources().core(), "dispatch", numbers, detail::no_axes, where);
      require_equal_inputs(experts, where);
    }
    auto route = detail::expert_route<AxisList<Owners...>>(x.resources(), experts, set, where);
    return apply(operation::Dispatch<Owners...>{std::move(route)}, where, std::forward<X>(x));
  }
}

/// @brief Rejects a number in place of the owners, with an error sentence.
template <auto number, Operand X, class Choices> void dispatch(const X&, const Choices&, const ExpertSet&) {
  static_assert(detail::DispatchOwners<std::integral_constant<decltype(number), number>>::value);
}
/// @brief Rejects a type that is not an axis, with an error sentence.
template <class Owner, Operand X, class Choices>
requires(!Axis<Owner>) void dispatch(const X&, const Choices&, const ExpertSet&) {
  static_assert(detail::DispatchOwners<Owner>::value);
}

/// @brief The sum of each token's rows, times its gates [tokens..., slots]: tokens [tokens..., width] as they
/// were dispatched.
///
/// The reverse of dispatch(), and its adjoint if all gates are 1. Rows are added in the order of a token's
/// slots, whatever the mesh. Rows that are Partial give a Partial sum. Cost: each rank receives its tokens'
/// rows once; the gradients cost the same, and one number for each row.
/// @throws InvalidArgument if the gates are not those of the tokens.
template <Operand Rows, Operand Gates>
[[nodiscard]] auto combine(Rows&& rows, Gates&& gates, SourceLocation where = SourceLocation::current()) {
  return apply(operation::Combine{}, where, std::forward<Rows>(rows), std::forward<Gates>(gates));
}

/// @brief The number of rows of each of this rank's experts, in order.
template <LayoutType L, class E, class Target>
requires detail::is_ragged<L>
[[nodiscard]] std::vector<std::int64_t> rows_per_expert(const ShardedTensor<L, E, Target>& rows) {
  const auto& first = rows.shape().route().first_rows;
  std::vector<std::int64_t> out(first.size() - 1);
  for (std::size_t e = 0; e < out.size(); ++e)
    out[e] = first[e + 1] - first[e];
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
