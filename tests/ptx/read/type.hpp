// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The types of PTX: how wide they are and which C++ type computes with them.

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace ptx {

enum class Type : std::uint8_t {
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64, // clang-format off
  f16, bf16, f16x2, bf16x2, tf32, f32, f64, e4m3x2, e5m2x2 // clang-format on
};

/// @brief The type of a word such as `u32`; nothing if it names none.
std::optional<Type> type_of(std::string_view word);

std::string_view name(Type);

/// @brief Bits of a value; 1 for a predicate.
unsigned bits(Type);

inline bool is_signed(Type t) { return t >= Type::s8 && t <= Type::s64; }
inline bool is_unsigned(Type t) { return t >= Type::u8 && t <= Type::u64; }
inline bool is_integer(Type t) { return is_signed(t) || is_unsigned(t); }
inline bool is_bits(Type t) { return t >= Type::b8 && t <= Type::b128; }
inline bool is_half(Type t) { return t >= Type::f16 && t <= Type::bf16x2; }

/// @brief The unsigned type of a width.
inline Type bits_type(unsigned width) {
  switch (width) {
  case 1:
    return Type::pred;
  case 8:
    return Type::b8;
  case 16:
    return Type::b16;
  case 32:
    return Type::b32;
  case 64:
    return Type::b64;
  default:
    return Type::b128;
  }
}

/// @brief 128 bits, which move and compare but do not compute.
struct Bits128 {
  std::uint64_t low = 0, high = 0;

  friend bool operator==(const Bits128&, const Bits128&) = default;
};

/// @brief Calls `call(std::type_identity<T>{})` with the C++ type of an integer, bit or full floating-point
/// type.
/// @returns false if the type is none of them.
template <class Call> bool with_type(Type type, Call call) {
  switch (type) {
  case Type::b8:
  case Type::u8:
    call(std::type_identity<std::uint8_t>{});
    return true;
  case Type::b16:
  case Type::u16:
    call(std::type_identity<std::uint16_t>{});
    return true;
  case Type::b32:
  case Type::u32:
    call(std::type_identity<std::uint32_t>{});
    return true;
  case Type::b64:
  case Type::u64:
    call(std::type_identity<std::uint64_t>{});
    return true;
  case Type::s8:
    call(std::type_identity<std::int8_t>{});
    return true;
  case Type::s16:
    call(std::type_identity<std::int16_t>{});
    return true;
  case Type::s32:
    call(std::type_identity<std::int32_t>{});
    return true;
  case Type::s64:
    call(std::type_identity<std::int64_t>{});
    return true;
  case Type::f32:
    call(std::type_identity<float>{});
    return true;
  case Type::f64:
    call(std::type_identity<double>{});
    return true;
  default:
    return false;
  }
}

/// @brief Calls `call(std::type_identity<T>{})` with the unsigned C++ type of a width of 8 to 128 bits.
template <class Call> void with_width(unsigned width, Call call) {
  switch (width) {
  case 8:
    return call(std::type_identity<std::uint8_t>{});
  case 16:
    return call(std::type_identity<std::uint16_t>{});
  case 32:
    return call(std::type_identity<std::uint32_t>{});
  case 64:
    return call(std::type_identity<std::uint64_t>{});
  default:
    return call(std::type_identity<Bits128>{});
  }
}

} // namespace ptx
