// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks the gradients of an operation in every layout in which it has a meaning: the building blocks
/// of the list of operations.

#include "support/ranks.hpp"

#include <shardwright/layout/describe.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/check_gradients.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace operations_test {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;

/// @brief Whether a propagation rule accepts layouts: the library's error, as a number.
template <class Rule, class... Layouts>
inline constexpr bool accepts = sw::detail::Propagation<Rule, Layouts...>::valid;

template <class L> inline constexpr bool linear = accepts<sw::detail::LinearRule, L>;
/// @brief Nothing is Partial.
template <class L> inline constexpr bool nonlinear = !L::value.has_partial();
/// @brief Nothing is Partial, and rows are whole.
template <class L> inline constexpr bool rowwise = nonlinear<L>&& L::value.shard(L::tensor_rank - 1).empty();

template <class... Layouts> struct Candidates {};

/// @brief The possible effects of an axis on a tensor of `rank` dimensions: none, sharding one, or leaving it
/// a sum.
template <int rank, class A, class Dimensions = std::make_integer_sequence<int, rank>> struct OverOne;
template <int rank, class A, int... dimensions>
struct OverOne<rank, A, std::integer_sequence<int, dimensions...>> {
  using type = Candidates<sw::Layout<rank>, sw::Layout<rank, sw::Shard<dimensions, A>>...,
                          sw::Layout<rank, sw::Partial<sw::Sum, A>>>;
};

/// @brief Placement number p of an axis: 0 for none, d + 1 for a shard of dimension d, rank + 1 for a sum.
template <int rank, int first, int second> struct OverTwoHolder {
  static constexpr sw::LayoutValue value = [] {
    sw::LayoutValue layout;
    layout.tensor_rank = rank;
    int axis = 0;
    for (const int placement : {first, second}) {
      if (placement > rank)
        layout.set_partial(axis, sw::ReduceOp::sum);
      else if (placement > 0)
        layout.shard(placement - 1).push_back(axis);
      ++axis;
    }
    return layout;
  }();
};
template <int rank, class Numbers = std::make_integer_sequence<int, (rank + 2) * (rank + 2)>> struct OverTwo;
template <int rank, int... numbers> struct OverTwo<rank, std::integer_sequence<int, numbers...>> {
  template <int number>
  using at = sw::detail::LayoutOf<sw::AxisList<dp, tp>,
                                  OverTwoHolder<rank, number / (rank + 2), number % (rank + 2)>>;
  using type = Candidates<at<numbers>...>;
};

/// @brief A tensor of random numbers; if it is Partial, they differ between ranks.
template <class L, class Mesh, std::size_t rank>
[[nodiscard]] auto random_operand(const Mesh& mesh, const std::array<std::int64_t, rank>& shape, double low,
                                  double high, std::uint64_t number) {
  sw::ShardedTensor<L, double> out(mesh, shape);
  const std::uint64_t part = L::value.has_partial() ? static_cast<std::uint64_t>(mesh.rank()) + 1 : 0;
  sw::ShardedTensor<sw::Gradient<L>, double> numbers(mesh, shape);
  if constexpr (rank == 0)
    sw::fill(numbers, 0.5 * (low + high));
  else
    sw::fill_uniform(numbers, {7, number + 100 * part}, low, high);
  for (std::size_t i = 0; i < out.local_size(); ++i)
    out.mutable_data()[i] = numbers.data()[i];
  return out;
}

/// @brief A parameter of random numbers.
template <class Compute, class Raw, class Mesh, std::size_t rank>
[[nodiscard]] auto random_parameter(const Mesh& mesh, const char* name,
                                    const std::array<std::int64_t, rank>& shape, std::uint64_t number) {
  return sw::Parameter<Compute, Raw, double>(name, random_operand<Compute>(mesh, shape, 0.5, 1.5, number));
}

/// @brief Records a wrong gradient, with the operation and the layouts.
template <class... Layouts, class Check>
void note(Findings& findings, std::string_view name, const Check& check) {
  std::string layouts;
  ((layouts += (layouts.empty() ? "" : ", ") + sw::describe<Layouts>()), ...);
  try {
    check();
    findings.expect(true, name);
  } catch (const sw::GradientMismatch& error) {
    findings.expect(false, name, " of ", layouts, ": ", error.what());
  }
}

/// @brief An operation of one operand, in every layout over one axis that `Entry::legal` allows.
///
/// An entry has `name`, `shape` of the operand, `legal<L>` and `call(x)`, and may have `low` and `high`, the
/// bounds of the operand's elements, and `options`.
template <class Entry> struct OfOne {
  static constexpr double low = -1.5;
  static constexpr double high = 1.5;
  static constexpr sw::GradientCheck options{};

  template <class Mesh> static void check(const Mesh& mesh, Findings& findings) {
    over(mesh, findings, typename OverOne<static_cast<int>(Entry::shape.size()), tp>::type{});
  }

private:
  template <class Mesh, class... Layouts>
  static void over(const Mesh& mesh, Findings& findings, Candidates<Layouts...>) {
    (at<Layouts>(mesh, findings), ...);
  }
  template <class L, class Mesh> static void at(const Mesh& mesh, Findings& findings) {
    if constexpr (Entry::template legal<L>)
      note<L>(findings, Entry::name, [&] {
        const auto x = random_operand<L>(mesh, Entry::shape, Entry::low, Entry::high, 1);
        if constexpr (requires { Entry::template run<L>(mesh, x); })
          Entry::template run<L>(mesh, x);
        else
          static_cast<void>(sw::check_gradients([](auto value) { return Entry::call(std::move(value)); },
                                                sw::members("x", x), Entry::options));
      });
  }
};

/// @brief An operation of two operands, in every pair of layouts over two axes that `Entry::legal` allows.
template <class Entry> struct OfTwo {
  static constexpr double low = -1.5;
  static constexpr double high = 1.5;
  static constexpr sw::GradientCheck options{.directions = 1};

  template <class Mesh> static void check(const Mesh& mesh, Findings& findings) {
    over(mesh, findings, typename OverTwo<static_cast<int>(Entry::left_shape.size())>::type{});
  }

private:
  template <class Mesh, class... Left>
  static void over(const Mesh& mesh, Findings& findings, Candidates<Left...>) {
    (with_left<Left>(mesh, findings, typename OverTwo<static_cast<int>(Entry::right_shape.size())>::type{}),
     ...);
  }
  template <class Left, class Mesh, class... Right>
  static void with_left(const Mesh& mesh, Findings& findings, Candidates<Right...>) {
    (at<Left, Right>(mesh, findings), ...);
  }
  template <class Left, class Right, class Mesh> static void at(const Mesh& mesh, Findings& findings) {
    if constexpr (Entry::template legal<Left, Right>)
      note<Left, Right>(findings, Entry::name, [&] {
        const auto left = random_operand<Left>(mesh, Entry::left_shape, Entry::low, Entry::high, 1);
        const auto right = random_operand<Right>(mesh, Entry::right_shape, Entry::low, Entry::high, 2);
        static_cast<void>(
            sw::check_gradients([](auto x, auto y) { return Entry::call(std::move(x), std::move(y)); },
                                sw::members("left", left, "right", right), Entry::options));
      });
  }
};

/// @brief The operations of a list, one after the other.
template <class... Entries> struct Operations {
  static constexpr std::size_t size = sizeof...(Entries);

  /// @brief Those whose number is `part` modulo `parts`.
  template <std::size_t part, std::size_t parts, class Mesh>
  static void check(const Mesh& mesh, Findings& findings) {
    check_part<part, parts>(mesh, findings, std::make_index_sequence<size>{});
  }

private:
  template <std::size_t part, std::size_t parts, class Mesh, std::size_t... index>
  static void check_part(const Mesh& mesh, Findings& findings, std::index_sequence<index...>) {
    (check_one<index % parts == part, std::tuple_element_t<index, std::tuple<Entries...>>>(mesh, findings),
     ...);
  }
  template <bool taken, class Entry, class Mesh> static void check_one(const Mesh& mesh, Findings& findings) {
    if constexpr (taken)
      Entry::check(mesh, findings);
  }
};

} // namespace operations_test
