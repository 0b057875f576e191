// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The element types of safetensors files: names, bits, and the C++ types that hold them.

#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/low_precision.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {

/// @brief Element types, in the format's own order: files hold tensors of later ones first.
enum class Dtype : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

namespace detail {

struct DtypeFacts {
  std::string_view name;
  unsigned bits;
};

// By the value of Dtype.
inline constexpr std::array<DtypeFacts, 22> dtypes{
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};

} // namespace detail

/// @brief Name in a file, such as "BF16".
[[nodiscard]] constexpr std::string_view name_of(Dtype dtype) noexcept {
  return detail::dtypes[static_cast<std::size_t>(dtype)].name;
}

/// @brief Bits of one element; F4 and F6 fill no whole byte.
[[nodiscard]] constexpr unsigned bits_of(Dtype dtype) noexcept {
  return detail::dtypes[static_cast<std::size_t>(dtype)].bits;
}

/// @brief The element type of that name, if it is one.
[[nodiscard]] constexpr std::optional<Dtype> find_dtype(std::string_view name) noexcept {
  for (std::size_t i = 0; i < detail::dtypes.size(); ++i)
    if (detail::dtypes[i].name == name)
      return static_cast<Dtype>(i);
  return std::nullopt;
}

/// @brief A C++ type that holds an element type of files: real numbers of 16 to 64 bits, std::complex<float>,
/// integers, and bool. std::complex<double> is one, so that dtype_of can refuse it with a sentence.
template <class Element>
concept StoredElement = ComplexElement<Element> ||
    ((std::integral<Element> || std::floating_point<Element> || std::same_as<Element, bfloat16> ||
      std::same_as<Element, float16>)&&sizeof(Element) <= 8);

/// @brief The element type that a C++ type holds.
template <StoredElement Element> [[nodiscard]] constexpr Dtype dtype_of() noexcept {
  if constexpr (std::same_as<Element, bool>)
    return Dtype::boolean;
  else if constexpr (ComplexElement<Element>) {
    static_assert(
        sizeof(Element) == 8,
        "safetensors: complex elements must be of float, because the format's only complex type is C64 (convert them to std::complex<float>, or save the parts as doubles)");
    return Dtype::c64;
  } else if constexpr (std::same_as<Element, bfloat16>)
    return Dtype::bf16;
  else if constexpr (std::same_as<Element, float16>)
    return Dtype::f16;
  else if constexpr (std::floating_point<Element>)
    return sizeof(Element) == 4 ? Dtype::f32 : Dtype::f64;
  else if constexpr (sizeof(Element) == 1)
    return std::is_signed_v<Element> ? Dtype::i8 : Dtype::u8;
  else if constexpr (sizeof(Element) == 2)
    return std::is_signed_v<Element> ? Dtype::i16 : Dtype::u16;
  else if constexpr (sizeof(Element) == 4)
    return std::is_signed_v<Element> ? Dtype::i32 : Dtype::u32;
  else
    return std::is_signed_v<Element> ? Dtype::i64 : Dtype::u64;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors
