// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Element types and reduction operations as run-time values, for messages between ranks and for
/// fingerprints.

#include <shardwright/core/config.hpp>
#include <shardwright/core/fixed_point.hpp>
#include <shardwright/core/low_precision.hpp>

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
  float16
};
#pragma GCC diagnostic pop

/// @brief The operation with which a reduction combines elements. `average` is a sum of real elements,
/// divided once by the number of ranks; `ordered_sum` one of integers, which has the same bits in any order.
enum class ReduceOp : std::uint8_t { sum, average, product, maximum, minimum, ordered_sum };

/// @brief Whether a reduction of sums is the sum of the reductions.
[[nodiscard]] constexpr bool is_linear(ReduceOp op) noexcept {
  return op == ReduceOp::sum || op == ReduceOp::average;
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
    return 8;
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

template <class Element> constexpr bool is_element_type() {
  using E = std::remove_cv_t<Element>;
  return std::is_same_v<E, float> || std::is_same_v<E, double> || is_narrow<E> ||
         std::is_same_v<E, FixedPoint> || (std::is_integral_v<E> && (sizeof(E) == 4 || sizeof(E) == 8)) ||
         std::is_same_v<E, unsigned char> || std::is_same_v<E, std::byte>;
}

} // namespace detail

/// @brief An element type that collectives support.
template <class Element>
concept CollectiveElement = detail::is_element_type<Element>();

/// @brief The run-time value of a C++ element type; FixedPoint is an integer to a collective.
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
  else if constexpr (sizeof(E) == 1)
    return ElementType::uint8;
  else if constexpr (sizeof(E) == 4)
    return std::is_signed_v<E> ? ElementType::int32 : ElementType::uint32;
  else
    return std::is_signed_v<E> ? ElementType::int64 : ElementType::uint64;
}

namespace detail {

/// Calls `function(std::type_identity<Element>{})` with the C++ type of an element type.
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
    return function(std::type_identity<float>{});
  case ElementType::float64:
    return function(std::type_identity<double>{});
  case ElementType::bfloat16:
    return function(std::type_identity<bfloat16>{});
  case ElementType::float16:
    return function(std::type_identity<float16>{});
  }
}

} // namespace detail

} // namespace shardwright::inline SHARDWRIGHT_ABI
