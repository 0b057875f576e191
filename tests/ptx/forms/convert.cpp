// SPDX-License-Identifier: Apache-2.0
// Conversion: PTX ISA 9.0, section 9.7.9.22.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "../run/rounding.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

/// Values of Instruction::flags.
constexpr std::uint8_t flush = 1, saturate = 2, rectify = 4, finite = 8, to_whole = 16;

float read(float a) { return a; }
double read(double a) { return a; }

template <class T> T flushed(T value, std::uint8_t flags) {
  return (flags & flush) != 0 && std::fabs(value) < 0x1p-126 && std::is_same_v<T, float>
             ? std::copysign(T{0}, value)
             : value;
}

template <class T> T whole(T value, Rounding rounding) {
  switch (rounding) {
  case Rounding::zero:
    return std::trunc(value);
  case Rounding::down:
    return std::floor(value);
  case Rounding::up:
    return std::ceil(value);
  default:
    return std::nearbyint(value);
  }
}

/// Beyond the range a conversion to an integer gives the nearest end of it, and for what is not a number 0.
template <class To, class From> To to_integer(From value, Rounding rounding) {
  if (value != value)
    return 0;
  const From rounded = whole(value, rounding);
  constexpr double end = sizeof(To) == 8 ? (std::is_signed_v<To> ? 0x1p63 : 0x1p64)
                                         : static_cast<double>(std::numeric_limits<To>::max()) + 1;
  if (static_cast<double>(rounded) >= end)
    return std::numeric_limits<To>::max();
  if (static_cast<double>(rounded) <= static_cast<double>(std::numeric_limits<To>::min()))
    return std::numeric_limits<To>::min();
  return static_cast<To>(rounded);
}

template <class To, class From> To clamped(From value) {
  using Wide = __int128;
  return static_cast<To>(
      std::clamp<Wide>(value, std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
}

template <class To, class From>
void integer_to_integer(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const From* const a = warp.row<From>(in.from[0]);
  if ((in.flags & saturate) != 0)
    assign_lanes(warp.row<To>(in.to), lanes, [a](unsigned lane) { return clamped<To>(a[lane]); });
  else
    assign_lanes(warp.row<To>(in.to), lanes, [a](unsigned lane) { return static_cast<To>(a[lane]); });
}

template <class To, class From>
void integer_to_float(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const RoundingScope scope(static_cast<Rounding>(in.mode));
  const From* const a = warp.row<From>(in.from[0]);
  assign_lanes(warp.row<To>(in.to), lanes, [a](unsigned lane) { return static_cast<To>(a[lane]); });
}

template <class To, class From>
void float_to_integer(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const From* const a = warp.row<From>(in.from[0]);
  assign_lanes(warp.row<To>(in.to), lanes, [&](unsigned lane) {
    return to_integer<To>(flushed(read(a[lane]), in.flags), static_cast<Rounding>(in.mode));
  });
}

template <class To, class From> void float_to_float(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto rounding = static_cast<Rounding>(in.mode);
  const RoundingScope scope((in.flags & to_whole) != 0 ? Rounding::nearest : rounding);
  const From* const a = warp.row<From>(in.from[0]);
  assign_lanes(warp.row<To>(in.to), lanes, [&](unsigned lane) {
    const From value = flushed(a[lane], in.flags);
    auto result = static_cast<To>((in.flags & to_whole) != 0 ? whole(value, rounding) : value);
    result = flushed(result, in.flags);
    if ((in.flags & saturate) != 0)
      result = result > 0 ? std::min(result, To{1}) : To{0};
    return std::is_same_v<To, float> && result != result ? static_cast<To>(std::bit_cast<float>(0x7fffffffU))
                                                         : result;
  });
}

// Formats of 16 bits and fewer. What is read is f32, f64 or another such format.

struct Half {
  using Row = std::uint16_t;
  static constexpr Format format = format_f16;
  static float value(Row a) { return f16_value(a); }
};
struct Brain {
  using Row = std::uint16_t;
  static constexpr Format format = format_bf16;
  static float value(Row a) { return bf16_value(a); }
};
struct Single {
  using Row = float;
  static float value(Row a) { return a; }
};
struct Full {
  using Row = double;
  static double value(Row a) { return a; }
};

std::uint16_t narrow(double value, const Instruction& in, const Format& format) {
  if ((in.flags & to_whole) != 0)
    value = whole(value, static_cast<Rounding>(in.mode));
  if ((in.flags & saturate) != 0)
    value = value > 0 ? std::min(value, 1.0) : 0.0;
  if ((in.flags & rectify) != 0 && value <= 0)
    value = 0;
  return static_cast<std::uint16_t>(
      encode(value, format, static_cast<Rounding>(in.mode), (in.flags & finite) != 0));
}

template <class To, class From> void to_small(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto* const a = warp.row<typename From::Row>(in.from[0]);
  std::uint16_t* const to = warp.row<std::uint16_t>(in.to);
  if constexpr (std::is_same_v<From, Single>) { // the common one
    if (in.flags == 0 && static_cast<Rounding>(in.mode) == Rounding::nearest)
      return assign_lanes(to, lanes, [a](unsigned lane) {
        return std::is_same_v<To, Half> ? f16_nearest(a[lane]) : bf16_nearest(a[lane]);
      });
  }
  assign_lanes(to, lanes,
               [&](unsigned lane) { return narrow(double{From::value(a[lane])}, in, To::format); });
}

template <class From, class To> void small_to_float(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint16_t* const a = warp.row<std::uint16_t>(in.from[0]);
  assign_lanes(warp.row<To>(in.to), lanes, [&](unsigned lane) {
    const To value = From::value(a[lane]);
    return (in.flags & saturate) != 0 ? (value > 0 ? std::min(value, To{1}) : To{0}) : value;
  });
}

template <class From, class To>
void small_to_integer(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint16_t* const a = warp.row<std::uint16_t>(in.from[0]);
  assign_lanes(warp.row<To>(in.to), lanes, [&](unsigned lane) {
    return to_integer<To>(From::value(a[lane]), static_cast<Rounding>(in.mode));
  });
}

/// An integer has at most 64 bits, more than a double: rounding it to odd first keeps the second rounding
/// right.
template <class T> double odd_double(T value) {
  auto magnitude = static_cast<std::uint64_t>(value);
  const bool negative = std::is_signed_v<T> && value < 0;
  magnitude = negative ? 0 - magnitude : magnitude;
  if (magnitude >> 53 != 0)
    magnitude = (magnitude >> 11 | ((magnitude & 0x7ff) != 0)) << 11;
  const auto size = static_cast<double>(magnitude);
  return negative ? -size : size;
}
template <class To, class From>
void integer_to_small(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const From* const a = warp.row<From>(in.from[0]);
  assign_lanes(warp.row<std::uint16_t>(in.to), lanes,
               [&](unsigned lane) { return narrow(odd_double(a[lane]), in, To::format); });
}

/// Two floats become a pair; the first is the upper half.
template <class To> void to_pair(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const float* const high = warp.row<float>(in.from[0]);
  const float* const low = warp.row<float>(in.from[1]);
  const auto both = [](std::uint16_t a, std::uint16_t b) { return std::uint32_t{a} << 16 | b; };
  if (in.flags == 0 && static_cast<Rounding>(in.mode) == Rounding::nearest)
    return assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [=](unsigned lane) {
      return std::is_same_v<To, Half> ? both(f16_nearest(high[lane]), f16_nearest(low[lane]))
                                      : both(bf16_nearest(high[lane]), bf16_nearest(low[lane]));
    });
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [&](unsigned lane) {
    return both(narrow(high[lane], in, To::format), narrow(low[lane], in, To::format));
  });
}

/// Pairs of 8 bits; `target` 0 is e4m3, 1 is e5m2.
void to_pair_of_bytes(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const float* const high = warp.row<float>(in.from[0]);
  const float* const low = warp.row<float>(in.from[1]);
  const Format format = in.target == 0 ? format_e4m3 : format_e5m2;
  assign_lanes(warp.row<std::uint16_t>(in.to), lanes, [&](unsigned lane) {
    return static_cast<std::uint16_t>(narrow(high[lane], in, format) << 8 | narrow(low[lane], in, format));
  });
}
void from_pair_of_bytes(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint16_t* const a = warp.row<std::uint16_t>(in.from[0]);
  const Format format = in.target == 0 ? format_e4m3 : format_e5m2;
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [&](unsigned lane) {
    const auto half = [&](unsigned byte) { return narrow(decode(byte & 255, format), in, format_f16); };
    return std::uint32_t{half(a[lane] >> 8U)} << 16 | half(a[lane]);
  });
}

/// A float with the fraction of a tf32.
void to_tf32(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const float* const a = warp.row<float>(in.from[0]);
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [&](unsigned lane) {
    const double value = (in.flags & rectify) != 0 && a[lane] <= 0 ? 0.0 : double{a[lane]};
    return encode(value, format_tf32, static_cast<Rounding>(in.mode)) << 13;
  });
}

void take_rounding(Build& build) {
  struct Row {
    std::string_view word;
    Rounding rounding;
    bool whole;
  };
  constexpr Row rows[] = {{"rn", Rounding::nearest, false},
                          {"rz", Rounding::zero, false},
                          {"rm", Rounding::down, false},
                          {"rp", Rounding::up, false},
                          {"rna", Rounding::nearest_away, false},
                          {"rni", Rounding::nearest, true},
                          {"rzi", Rounding::zero, true},
                          {"rmi", Rounding::down, true},
                          {"rpi", Rounding::up, true}};
  for (const Row& row : rows) {
    if (!build.words.take(row.word))
      continue;
    build.out.mode = static_cast<std::uint8_t>(row.rounding);
    build.out.flags |= row.whole ? to_whole : std::uint8_t{0};
  }
  build.out.flags |= build.words.take("ftz") ? flush : std::uint8_t{0};
  build.out.flags |= build.words.take("satfinite") ? finite : std::uint8_t{0};
  build.out.flags |= build.words.take("sat") ? saturate : std::uint8_t{0};
  build.out.flags |= build.words.take("relu") ? rectify : std::uint8_t{0};
}

template <class To> void emit_to_small(Build& build, Type from) {
  if (from == Type::f32)
    return build.emit(to_small<To, Single>);
  if (from == Type::f64)
    return build.emit(to_small<To, Full>);
  if (from == Type::f16)
    return build.emit(to_small<To, Half>);
  if (from == Type::bf16)
    return build.emit(to_small<To, Brain>);
  with_type(from, [&]<class From>(std::type_identity<From>) {
    if constexpr (std::is_integral_v<From>)
      build.emit(integer_to_small<To, From>);
  });
}

template <class From> void emit_from_small(Build& build, Type to) {
  with_type(to, [&]<class To>(std::type_identity<To>) {
    if constexpr (std::is_integral_v<To>)
      build.emit(small_to_integer<From, To>);
    else
      build.emit(small_to_float<From, To>);
  });
}

void emit_plain(Build& build, Type to, Type from) {
  with_type(to, [&]<class To>(std::type_identity<To>) {
    with_type(from, [&]<class From>(std::type_identity<From>) {
      if constexpr (std::is_integral_v<To> && std::is_integral_v<From>)
        build.emit(integer_to_integer<To, From>);
      else if constexpr (std::is_integral_v<From>)
        build.emit(integer_to_float<To, From>);
      else if constexpr (std::is_integral_v<To>)
        build.emit(float_to_integer<To, From>);
      else
        build.emit(float_to_float<To, From>);
    });
  });
}

/// Two sources, or pairs.
void conversion_of_pairs(Build& build, Type to, Type from) {
  build.out.to = build.to(0, to);
  if (from == Type::e4m3x2 || from == Type::e5m2x2) {
    build.out.target = from == Type::e5m2x2;
    build.out.from[0] = build.from(1, from);
    if (to != Type::f16x2)
      build.unsupported("pairs of bytes become f16x2");
    return build.emit(from_pair_of_bytes);
  }
  if (from != Type::f32)
    build.unsupported("a pair is made of f32");
  build.out.from[0] = build.from(1, from);
  build.out.from[1] = build.from(2, from);
  build.out.target = to == Type::e5m2x2;
  build.emit(to == Type::f16x2 ? to_pair<Half> : to == Type::bf16x2 ? to_pair<Brain> : to_pair_of_bytes);
}

} // namespace

void build_convert(Build& build) {
  take_rounding(build);
  const Type to = build.type(), from = build.type();
  if (to == Type::f16x2 || to == Type::bf16x2 || to == Type::e4m3x2 || to == Type::e5m2x2)
    return conversion_of_pairs(build, to, from);
  build.out.from[0] = build.from_wide(build.operand(1), from);
  build.out.to = build.to_wide(build.operand(0), to);
  if (to == Type::tf32)
    return build.emit(to_tf32);
  if (to == Type::f16)
    return emit_to_small<Half>(build, from);
  if (to == Type::bf16)
    return emit_to_small<Brain>(build, from);
  if (from == Type::f16)
    return emit_from_small<Half>(build, to);
  if (from == Type::bf16)
    return emit_from_small<Brain>(build, to);
  emit_plain(build, to, from);
}

} // namespace ptx
