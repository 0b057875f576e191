// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Plain numbers as operands of tensors: what an element can hold, and which ranks must give the same.

#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/agreement.hpp>

#include <array>
#include <complex>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A number that may differ between the ranks along the axes, such as a weight of their rows. It acts
/// only on tensors that are split over these axes: all copies, and all parts of a sum, need the same number.
///
/// `x * PerRank<dp>(weight)`. A plain number may also differ between ranks with different blocks; this one
/// says so, and the compiler then checks the layout.
template <Axis... Axes> class PerRank {
public:
  static_assert(sizeof...(Axes) > 0, "PerRank: it must name the axes along which ranks differ (name one)");
  explicit constexpr PerRank(double value) noexcept : value_(value) {}
  [[nodiscard]] constexpr double value() const noexcept { return value_; }

private:
  double value_;
};

namespace detail {

/// Names the tensor's layout and the axis.
template <class L, class A> struct PerRankOver {
  static constexpr int index = axis_index(L::axes, A::name);
  static constexpr bool value = index >= 0 && L::value.dimension_of(index) >= 0;
  static_assert(
      value,
      "PerRank: the tensor must be split over the axis along which the number differs, but it is replicated or Partial there (give all its ranks one number, or redistribute the tensor)");
};

/// Names the tensor's element.
template <class Element> struct TakesRounded {
  static_assert(
      FieldElement<Element>,
      "Operation: a tensor of integers takes only whole numbers, because others would be rounded before they are used (write 2 in place of 2.0, or use floating-point elements)");
};

/// A number as the values that ranks compare: the parts of a complex one.
template <class Number> [[nodiscard]] auto given_numbers(const char* what, const Number& number) {
  if constexpr (ComplexElement<Number>)
    return std::array<GivenNumber, 2>{GivenNumber(what, number.real(), 0),
                                      GivenNumber(what, number.imag(), 1)};
  else
    return std::array<GivenNumber, 1>{GivenNumber(what, number)};
}

/// Compares a number for a tensor of layout `L`, in checked builds.
template <class L, class Number>
void agreed_number([[maybe_unused]] const MeshCore& core, [[maybe_unused]] std::string_view operation,
                   [[maybe_unused]] SourceLocation where, [[maybe_unused]] const char* what,
                   [[maybe_unused]] const Number& number) {
  if constexpr (always_checked)
    require_agreement(core, operation, given_numbers(what, number), SplittingAxes<L>::names, where);
}

[[noreturn, gnu::noinline]] inline void reject_number(const std::string& number, ElementType type,
                                                      SourceLocation where) {
  throw InvalidArgument("Operation: a number must fit the tensor's element, but " + number +
                            " does not fit " + std::string(name_of(type)) + " (use a wider element)",
                        {.where = where});
}

/// A number beside a tensor of a layout and element, and the line that gives it.
template <class Element, class L> class NumberBeside {
public:
  static constexpr bool is_rounded = FieldElement<Element>; // unlike an integer
  using Value = std::conditional_t<ComplexElement<Element>, std::complex<double>,
                                   std::conditional_t<is_rounded, double, Element>>;
  static_assert(is_rounded || std::is_arithmetic_v<Value>,
                "Operation: the elements must be numbers, not bytes (use an integer element)");

  /// @throws InvalidArgument if an integer element cannot hold it.
  template <class Given>
  requires std::integral<Given> NumberBeside(const Given& given,
                                             SourceLocation line = SourceLocation::current())
      : value(static_cast<Value>(given)), where(line) {
    if constexpr (!is_rounded) {
      using Wide = std::conditional_t<std::is_signed_v<Given>, std::int64_t, std::uint64_t>;
      if (!std::in_range<Element>(static_cast<Wide>(given)))
        reject_number(std::to_string(given), element_type_of<Element>(), line);
    }
  }
  template <class Given>
  requires(!std::integral<Given> && std::is_convertible_v<Given, double>)
      NumberBeside(const Given& given, SourceLocation line = SourceLocation::current())
      : value(static_cast<Value>(static_cast<double>(given))), where(line) {
    static_cast<void>(TakesRounded<Element>{});
  }
  template <ComplexElement Given>
  NumberBeside(const Given& given, SourceLocation line = SourceLocation::current()) : value(), where(line) {
    static_assert(
        ComplexElement<Element>,
        "Operation: a real tensor must not be combined with a complex number, because the result would be complex (use a tensor of complex elements)");
    if constexpr (ComplexElement<Element>)
      value = Value(given);
  }
  /// Checks that the tensor's blocks differ along the axes.
  template <class... Axes>
  NumberBeside(const PerRank<Axes...>& given, SourceLocation line = SourceLocation::current())
      : value(static_cast<Value>(given.value())), where(line) {
    static_cast<void>(TakesRounded<Element>{});
    static_cast<void>((true && ... && PerRankOver<L, Axes>::value));
  }

  /// The number times -1, which wraps for unsigned elements.
  [[nodiscard]] NumberBeside opposite() const {
    NumberBeside out = *this;
    if constexpr (is_rounded)
      out.value = -value;
    else
      out.value = static_cast<Value>(std::uint64_t{0} - static_cast<std::uint64_t>(value));
    return out;
  }

  Value value;
  SourceLocation where;
};

/// Empty for what is not an operand, so that other operators are not considered.
template <class X> struct NumberBesideOf {};
template <class X>
requires requires { typename X::layout; }
struct NumberBesideOf<X> {
  using type = NumberBeside<std::remove_const_t<typename X::element>, typename X::layout>;
};
template <class X>
requires requires { typename X::compute_layout; }
struct NumberBesideOf<X> {
  using type = NumberBeside<typename X::element, typename X::compute_layout>;
};

/// A plain number as the other operand of X, converted implicitly.
template <class X> using NumberFor = typename NumberBesideOf<std::remove_cvref_t<X>>::type;

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
