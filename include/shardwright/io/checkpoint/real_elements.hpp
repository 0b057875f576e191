// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Converts floating-point numbers from their saved type to another.

#include <shardwright/core/config.hpp>
#include <shardwright/core/low_precision.hpp>
#include <shardwright/io/safetensors/dtype.hpp>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint::detail {

template <class Element>
concept RealElement = std::same_as<Element, float> || std::same_as<Element, double> ||
    std::same_as<Element, bfloat16> || std::same_as<Element, float16>;

/// Whether `dtype` is one of the floating-point types.
[[nodiscard]] constexpr bool is_real(safetensors::Dtype dtype) noexcept {
  using enum safetensors::Dtype;
  return dtype == f16 || dtype == bf16 || dtype == f32 || dtype == f64;
}

template <class From, class To>
[[nodiscard]] std::vector<std::byte> converted_from(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(bytes.size() / sizeof(From) * sizeof(To));
  for (std::size_t i = 0; i < bytes.size() / sizeof(From); ++i) {
    From from;
    std::memcpy(&from, bytes.data() + i * sizeof(From), sizeof(From));
    const To to = static_cast<To>(from);
    std::memcpy(out.data() + i * sizeof(To), &to, sizeof(To));
  }
  return out;
}

/// Rounds each number to the nearest; for the types of RealElement.
template <RealElement To>
[[nodiscard, gnu::noinline]] std::vector<std::byte> converted(safetensors::Dtype from,
                                                              std::span<const std::byte> bytes) {
  switch (from) {
  case safetensors::Dtype::f64:
    return converted_from<double, To>(bytes);
  case safetensors::Dtype::f32:
    return converted_from<float, To>(bytes);
  case safetensors::Dtype::bf16:
    return converted_from<bfloat16, To>(bytes);
  default:
    return converted_from<float16, To>(bytes);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint::detail
