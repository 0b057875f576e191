// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Element types and reduction operations as run-time values, for messages between ranks and for
/// fingerprints.

#include <shardwright/core/config.hpp>
#include <shardwright/core/fixed_point.hpp>
#include <shardwright/core/low_precision.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

// g++ warns that the last two enumerators shadow the types of their names, although they need ElementType::.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// @brief Element types that collectives support.
enum class ElementType : std::uint8_t {
  uint8,
  int32,
  int64,
  uint32,
  uint64,
  float32,
  float64,
  bfloat16,
  float16,
  complex64, ///< Two floats, as numpy names it.
  complex128 ///< Two doubles.
};
#pragma GCC diagnostic pop

/// @brief The operation with which a reduction combines elements. `average` is a sum of real elements,
/// divided once by the number of ranks; `ordered_sum` one of integers, which has the same bits in any order.
enum class ReduceOp : std::uint8_t { sum, average, product, maximum, minimum, ordered_sum };

/// @brief Whether a reduction of sums is the sum of the reductions.
[[nodiscard]] constexpr bool is_linear(ReduceOp op) noexcept {
  return op == ReduceOp::sum || op == ReduceOp::average;
}

/// @brief Whether an element is two real numbers, the real part first.
[[nodiscard]] constexpr bool is_complex(ElementType type) noexcept {
  return type == ElementType::complex64 || type == ElementType::complex128;
}

/// @brief Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(ElementType type) noexcept {
  switch (type) {
  case ElementType::uint8:
    return 1;
  case ElementType::bfloat16:
  case ElementType::float16:
    return 2;
  case ElementType::int32:
  case ElementType::uint32:
  case ElementType::float32:
    return 4;
  case ElementType::int64:
  case ElementType::uint64:
  case ElementType::float64:
  case ElementType::complex64:
    return 8;
  case ElementType::complex128:
    return 16;
  }
  return 0;
}

/// @brief Name for messages, such as "float32".
[[nodiscard]] constexpr std::string_view name_of(ElementType type) noexcept {
  switch (type) {
  case ElementType::uint8:
    return "uint8";
  case ElementType::int32:
    return "int32";
  case ElementType::int64:
    return "int64";
  case ElementType::uint32:
    return "uint32";
  case ElementType::uint64:
    return "uint64";
  case ElementType::float32:
    return "float32";
  case ElementType::float64:
    return "float64";
  case ElementType::bfloat16:
    return "bfloat16";
  case ElementType::float16:
    return "float16";
  case ElementType::complex64:
    return "complex64";
  case ElementType::complex128:
    return "complex128";
  }
  return "unknown";
}

/// @brief Name for messages, such as "sum".
[[nodiscard]] constexpr std::string_view name_of(ReduceOp op) noexcept {
  switch (op) {
  case ReduceOp::sum:
    return "sum";
  case ReduceOp::average:
    return "average";
  case ReduceOp::product:
    return "product";
  case ReduceOp::maximum:
    return "maximum";
  case ReduceOp::minimum:
    return "minimum";
  case ReduceOp::ordered_sum:
    return "ordered sum";
  }
  return "unknown";
}

/// @brief True for types that are stored in two bytes and computed as floats.
template <class Element>
inline constexpr bool is_narrow =
    std::is_same_v<std::remove_cv_t<Element>, bfloat16> || std::is_same_v<std::remove_cv_t<Element>, float16>;

/// @brief The accumulation type, also used for statistics, gradient accumulators, master weights and moments:
/// float for bfloat16 and float16, the element itself for others.
template <class Element>
using AccumulationElement = std::conditional_t<is_narrow<Element>, float, std::remove_cv_t<Element>>;

/// @brief float, double, bfloat16 or float16.
template <class Element>
concept RealElement = std::is_floating_point_v<AccumulationElement<Element>>;

namespace detail {

/// Found by its members, because the header of std::complex includes streams. Kokkos::complex is aligned to
/// both parts, and is not one.
template <class Element> struct ComplexParts { using Real = Element; };
template <class Element>
requires requires(const Element& z) {
  typename Element::value_type;
  { z.real() } -> std::same_as<typename Element::value_type>;
  { z.imag() } -> std::same_as<typename Element::value_type>;
  requires std::is_same_v<typename Element::value_type, float> ||
      std::is_same_v<typename Element::value_type, double>;
  requires alignof(Element) == alignof(typename Element::value_type);
}
struct ComplexParts<Element> {
  using Real = typename Element::value_type;
};

} // namespace detail

/// @brief The type of the real and imaginary parts: float of std::complex<float>; of a real element, itself.
template <class Element> using RealPart = typename detail::ComplexParts<std::remove_cv_t<Element>>::Real;

/// @brief std::complex<float> or std::complex<double>, on every target: kernels read it as two reals, as
/// [complex.numbers] allows, and no function of it is called on a device.
template <class Element>
concept ComplexElement = !std::is_same_v<RealPart<Element>, std::remove_cv_t<Element>>;

/// @brief A real or complex element: what has gradients, and what vectors are made of. Matrix products take
/// real ones.
template <class Element>
concept FieldElement = RealElement<Element> || ComplexElement<Element>;

namespace detail {

template <class Element> constexpr bool is_element_type() {
  using E = std::remove_cv_t<Element>;
  return std::is_same_v<E, float> || std::is_same_v<E, double> || is_narrow<E> || ComplexElement<E> ||
         std::is_same_v<E, FixedPoint> || (std::is_integral_v<E> && (sizeof(E) == 4 || sizeof(E) == 8)) ||
         std::is_same_v<E, unsigned char> || std::is_same_v<E, std::byte>;
}

} // namespace detail

/// @brief An element type that collectives support.
template <class Element>
concept CollectiveElement = detail::is_element_type<Element>();

/// @brief The run-time value of a C++ element type; FixedPoint travels as an integer.
template <CollectiveElement Element> [[nodiscard]] constexpr ElementType element_type_of() noexcept {
  using E = std::remove_cv_t<Element>;
  if constexpr (std::is_same_v<E, float>)
    return ElementType::float32;
  else if constexpr (std::is_same_v<E, double>)
    return ElementType::float64;
  else if constexpr (std::is_same_v<E, bfloat16>)
    return ElementType::bfloat16;
  else if constexpr (std::is_same_v<E, float16>)
    return ElementType::float16;
  else if constexpr (std::is_same_v<E, FixedPoint>)
    return ElementType::int64;
  else if constexpr (ComplexElement<E>)
    return sizeof(E) == 8 ? ElementType::complex64 : ElementType::complex128;
  else if constexpr (sizeof(E) == 1)
    return ElementType::uint8;
  else if constexpr (sizeof(E) == 4)
    return std::is_signed_v<E> ? ElementType::int32 : ElementType::uint32;
  else
    return std::is_signed_v<E> ? ElementType::int64 : ElementType::uint64;
}

namespace detail {

/// An element's parts: the element itself if it is real.
template <class Element> SHARDWRIGHT_FUNCTION auto* as_parts(Element* elements) {
  if constexpr (!ComplexElement<Element>)
    return elements;
  else if constexpr (std::is_const_v<Element>)
    return reinterpret_cast<const RealPart<Element>*>(elements);
  else
    return reinterpret_cast<RealPart<Element>*>(elements);
}
template <class Element> inline constexpr std::size_t parts_in = sizeof(Element) / sizeof(RealPart<Element>);

/// The floating-point and complex types: those whose sums are rounded.
[[nodiscard]] constexpr bool is_rounded(ElementType type) noexcept {
  return type == ElementType::float32 || type == ElementType::float64 || type == ElementType::bfloat16 ||
         type == ElementType::float16 || is_complex(type);
}

/// The numbers of an element that sums and averages treat separately.
[[nodiscard]] constexpr std::size_t parts_of(ElementType type) noexcept { return is_complex(type) ? 2 : 1; }

/// Calls `function(std::type_identity<Element>{})` with the C++ type of an element type, or of its parts_of
/// parts.
template <class Function> constexpr void with_element(ElementType type, Function&& function) {
  switch (type) {
  case ElementType::uint8:
    return function(std::type_identity<std::uint8_t>{});
  case ElementType::int32:
    return function(std::type_identity<std::int32_t>{});
  case ElementType::int64:
    return function(std::type_identity<std::int64_t>{});
  case ElementType::uint32:
    return function(std::type_identity<std::uint32_t>{});
  case ElementType::uint64:
    return function(std::type_identity<std::uint64_t>{});
  case ElementType::float32:
  case ElementType::complex64:
    return function(std::type_identity<float>{});
  case ElementType::float64:
  case ElementType::complex128:
    return function(std::type_identity<double>{});
  case ElementType::bfloat16:
    return function(std::type_identity<bfloat16>{});
  case ElementType::float16:
    return function(std::type_identity<float16>{});
  }
}

} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
