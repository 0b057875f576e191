// SPDX-License-Identifier: Apache-2.0
// Arithmetic of f32 and f64: PTX ISA 9.0, section 9.7.3.
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "../run/rounding.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

/// Results that are not a number have one encoding: all bits set but the sign (f32), or the usual one (f64).
template <class T> T canonical(T value) {
  if constexpr (std::is_same_v<T, float>)
    return value != value ? std::bit_cast<float>(0x7fffffffU) : value;
  else
    return value;
}

/// Subnormal numbers become zero, with their sign.
template <class T> T flushed(T value) {
  return std::fabs(value) < std::numeric_limits<T>::min() ? std::copysign(T{0}, value) : value;
}

/// To [0, 1]; not a number becomes 0.
template <class T> T saturated(T value) { return value > 0 ? (value < 1 ? value : T{1}) : T{0}; }

template <class F> struct Flushing {
  template <class... T> auto operator()(T... values) const { return flushed(F{}(flushed(values)...)); }
};
template <class F> struct Saturating {
  template <class... T> auto operator()(T... values) const { return saturated(F{}(values...)); }
};
template <class F> struct Canonical {
  template <class... T> auto operator()(T... values) const { return canonical(F{}(values...)); }
};

struct Add {
  template <class T> T operator()(T a, T b) const { return a + b; }
};
struct Subtract {
  template <class T> T operator()(T a, T b) const { return a - b; }
};
struct Multiply {
  template <class T> T operator()(T a, T b) const { return a * b; }
};
struct Divide {
  template <class T> T operator()(T a, T b) const { return a / b; }
};
struct FusedMultiplyAdd {
  template <class T> T operator()(T a, T b, T c) const { return std::fma(a, b, c); }
};
struct Reciprocal {
  template <class T> T operator()(T a) const { return T{1} / a; }
};
struct SquareRoot {
  template <class T> T operator()(T a) const { return std::sqrt(a); }
};

/// An approximation may be off by some units in the last place; here it is as good as the host's function.
/// The input of sin and cos is reduced exactly, better than the device does for large ones.
template <float (*function)(float)> struct Approximation {
  float operator()(float a) const { return function(a); }
};
using Exp2 = Approximation<static_cast<float (*)(float)>(std::exp2)>;
using Log2 = Approximation<static_cast<float (*)(float)>(std::log2)>;
using Sine = Approximation<static_cast<float (*)(float)>(std::sin)>;
using Cosine = Approximation<static_cast<float (*)(float)>(std::cos)>;
using HyperbolicTangent = Approximation<static_cast<float (*)(float)>(std::tanh)>;
struct ReciprocalRoot {
  float operator()(float a) const { return static_cast<float>(1 / std::sqrt(double{a})); }
};

/// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 see and set the upper 32 bits only; subnormal numbers are
/// zero.
template <class F> struct UpperHalf {
  double operator()(double a) const {
    constexpr std::uint64_t upper = 0xffffffff00000000;
    const double seen = flushed(std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) & upper));
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(flushed(F{}(seen))) & upper);
  }
};
struct ReciprocalRootOfDouble {
  double operator()(double a) const { return 1 / std::sqrt(a); }
};

/// A minimum passes over what is not a number, unless .NaN is there; -0 is less than +0.
template <bool maximum, bool passes_nan, bool magnitude> struct Extreme {
  template <class T> T operator()(T a, T b) const {
    if (a != a || b != b)
      return passes_nan || (a != a && b != b) ? std::bit_cast<T>(Nan<T>) : (a != a ? b : a);
    const T x = magnitude ? std::fabs(a) : a, y = magnitude ? std::fabs(b) : b;
    const bool first = x < y || (x == y && std::signbit(a));
    const T result = first != maximum ? a : b;
    return magnitude ? std::copysign(std::fabs(result), std::signbit(a) != std::signbit(b) ? T{-1} : T{1})
                     : result;
  }
  template <class T>
  static constexpr auto Nan = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>(
      sizeof(T) == 4 ? 0x7fffffff : 0x7ff8000000000000);
};

struct Absolute {
  template <class T> T operator()(T a) const { return std::fabs(a); }
};
struct Negate {
  template <class T> T operator()(T a) const { return -a; }
};
struct CopySign {
  template <class T> T operator()(T sign, T size) const { return std::copysign(size, sign); }
};

template <class T, class F> void rounded_binary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const RoundingScope scope(static_cast<Rounding>(in.mode));
  binary<T, T, F>(warp, in, lanes);
}
template <class T, class F> void rounded_ternary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const RoundingScope scope(static_cast<Rounding>(in.mode));
  ternary<T, T, T, F>(warp, in, lanes);
}
template <class T, class F> void rounded_unary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const RoundingScope scope(static_cast<Rounding>(in.mode));
  unary<T, T, F>(warp, in, lanes);
}

Rounding rounding(Build& build) {
  const std::string_view word = build.words.take_one_of({"rn", "rz", "rm", "rp"});
  return word == "rz"   ? Rounding::zero
         : word == "rm" ? Rounding::down
         : word == "rp" ? Rounding::up
                        : Rounding::nearest;
}

template <class T, class F, int operands> Execute chosen(bool nearest) {
  if constexpr (operands == 1)
    return nearest ? unary<T, T, F> : rounded_unary<T, F>;
  else if constexpr (operands == 2)
    return nearest ? binary<T, T, F> : rounded_binary<T, F>;
  else
    return nearest ? ternary<T, T, T, F> : rounded_ternary<T, F>;
}

void operands(Build& build, Type type, std::size_t count) {
  build.out.to = build.to(0, type);
  for (std::size_t i = 0; i < count; ++i)
    build.out.from[i] = build.from(i + 1, type);
}

/// An operation that rounds: with .ftz, .sat and a direction.
template <class F, int count> void rounds(Build& build, Type type) {
  const Rounding direction = rounding(build);
  const bool ftz = build.words.take("ftz"), sat = build.words.take("sat");
  build.out.mode = static_cast<std::uint8_t>(direction);
  operands(build, type, count);
  const bool nearest = direction == Rounding::nearest;
  if (type == Type::f64 && !ftz && !sat)
    return build.emit(chosen<double, Canonical<F>, count>(nearest));
  if (type == Type::f64)
    build.unsupported("f64 has neither .ftz nor .sat");
  if (ftz)
    build.emit(sat ? chosen<float, Saturating<Flushing<F>>, count>(nearest)
                   : chosen<float, Canonical<Flushing<F>>, count>(nearest));
  else
    build.emit(sat ? chosen<float, Saturating<F>, count>(nearest)
                   : chosen<float, Canonical<F>, count>(nearest));
}

/// An operation that does not round: with .ftz.
template <class F, int count> void exact(Build& build, Type type) {
  const bool ftz = build.words.take("ftz");
  operands(build, type, count);
  if (type == Type::f64)
    return build.emit(chosen<double, F, count>(true));
  build.emit(ftz ? chosen<float, Flushing<F>, count>(true) : chosen<float, F, count>(true));
}

template <class F> void approximate(Build& build, Type type) {
  if (!build.words.take("approx") || type != Type::f32)
    build.unsupported("it approximates f32");
  const bool ftz = build.words.take("ftz");
  operands(build, type, 1);
  build.emit(ftz ? unary<float, float, Canonical<Flushing<F>>> : unary<float, float, Canonical<F>>);
}

/// rcp, rsqrt and sqrt: approximations too, of which those of f64 see the upper half.
template <class Rounded, class Approximated, class Half> void root_or_reciprocal(Build& build, Type type) {
  Words rest = build.words;
  if (!rest.take("approx")) {
    if constexpr (!std::is_void_v<Rounded>)
      return rounds<Rounded, 1>(build, type);
    else
      build.unsupported("it must be .approx");
  }
  if (type == Type::f32)
    return approximate<Approximated>(build, type);
  if constexpr (!std::is_void_v<Half>) {
    build.words.take("approx");
    if (!build.words.take("ftz"))
      build.unsupported("an approximation in f64 needs .ftz");
    operands(build, type, 1);
    build.emit(unary<double, double, UpperHalf<Half>>);
  }
}

void divide(Build& build, Type type) {
  if (build.words.take_one_of({"approx", "full"}).empty())
    return rounds<Divide, 2>(build, type);
  const bool ftz = build.words.take("ftz");
  operands(build, Type::f32, 2);
  build.emit(ftz ? binary<float, float, Canonical<Flushing<Divide>>>
                 : binary<float, float, Canonical<Divide>>);
}

template <bool maximum> void extreme(Build& build, Type type) {
  const bool nan = build.words.take("NaN"), magnitude = build.words.take("xorsign");
  if (magnitude && !build.words.take("abs"))
    build.unsupported(".xorsign needs .abs");
  if (magnitude)
    return nan ? exact<Extreme<maximum, true, true>, 2>(build, type)
               : exact<Extreme<maximum, false, true>, 2>(build, type);
  nan ? exact<Extreme<maximum, true, false>, 2>(build, type)
      : exact<Extreme<maximum, false, false>, 2>(build, type);
}

template <class T> void test_property(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const std::uint32_t set = lanes_where(lanes, [&](unsigned lane) {
    switch (in.mode) {
    case 0:
      return std::isfinite(a[lane]);
    case 1:
      return std::isinf(a[lane]);
    case 2:
      return !std::isnan(a[lane]);
    case 3:
      return std::isnan(a[lane]);
    case 4:
      return std::isnormal(a[lane]);
    default:
      return std::fpclassify(a[lane]) == FP_SUBNORMAL;
    }
  });
  warp.set_predicate(in.to, lanes, set);
}

void test(Build& build, Type type) {
  constexpr std::string_view properties[] = {"finite",     "infinite", "number",
                                             "notanumber", "normal",   "subnormal"};
  build.out.mode = 255;
  for (std::uint8_t i = 0; i < 6; ++i)
    if (build.words.take(properties[i]))
      build.out.mode = i;
  if (build.out.mode == 255)
    build.unsupported("it names no property");
  build.out.to = build.to(0, Type::pred);
  build.out.from[0] = build.from(1, type);
  build.emit(type == Type::f32 ? test_property<float> : test_property<double>);
}

} // namespace

void build_float(Build& build) {
  const Type type = build.type();
  if (type != Type::f32 && type != Type::f64)
    build.unsupported("it computes with no ." + std::string(name(type)));
  switch (build.opcode) {
  case Opcode::add:
    return rounds<Add, 2>(build, type);
  case Opcode::sub:
    return rounds<Subtract, 2>(build, type);
  case Opcode::mul:
    return rounds<Multiply, 2>(build, type);
  case Opcode::fma:
  case Opcode::mad:
    return rounds<FusedMultiplyAdd, 3>(build, type);
  case Opcode::div:
    return divide(build, type);
  case Opcode::rcp:
    return root_or_reciprocal<Reciprocal, Reciprocal, Reciprocal>(build, type);
  case Opcode::sqrt:
    return root_or_reciprocal<SquareRoot, SquareRoot, void>(build, type);
  case Opcode::rsqrt:
    return root_or_reciprocal<void, ReciprocalRoot, ReciprocalRootOfDouble>(build, type);
  case Opcode::sin:
    return approximate<Sine>(build, type);
  case Opcode::cos:
    return approximate<Cosine>(build, type);
  case Opcode::lg2:
    return approximate<Log2>(build, type);
  case Opcode::ex2:
    return approximate<Exp2>(build, type);
  case Opcode::tanh:
    return approximate<HyperbolicTangent>(build, type);
  case Opcode::min:
    return extreme<false>(build, type);
  case Opcode::max:
    return extreme<true>(build, type);
  case Opcode::abs:
    return exact<Absolute, 1>(build, type);
  case Opcode::neg:
    return exact<Negate, 1>(build, type);
  case Opcode::copysign:
    return exact<CopySign, 2>(build, type);
  case Opcode::testp:
    return test(build, type);
  default:
    build.unsupported("it has no form of f32 or f64");
  }
}

} // namespace ptx
