// SPDX-License-Identifier: Apache-2.0
// Arithmetic of f16, bf16 and pairs of them: PTX ISA 9.0, section 9.7.4.
//
// Sums and products go through float, which has more than twice the bits of the result plus two, so that
// rounding twice gives what rounding once would (Figueroa, 1995); a fused product and sum goes through
// double, rounded to odd.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "../run/rounding.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

struct Half {
  static float value(std::uint16_t bits) { return f16_value(bits); }
  static std::uint16_t nearest(float value) { return f16_nearest(value); }
  static constexpr Format format = format_f16;
  static constexpr float smallest_normal = 0x1p-14F;
};
struct Brain {
  static float value(std::uint16_t bits) { return bf16_value(bits); }
  static std::uint16_t nearest(float value) { return bf16_nearest(value); }
  static constexpr Format format = format_bf16;
  static constexpr float smallest_normal = 0x1p-126F;
};

struct Add {
  template <class N> static std::uint16_t of(std::uint16_t a, std::uint16_t b) {
    return N::nearest(N::value(a) + N::value(b));
  }
};
struct Subtract {
  template <class N> static std::uint16_t of(std::uint16_t a, std::uint16_t b) {
    return N::nearest(N::value(a) - N::value(b));
  }
};
struct Multiply {
  template <class N> static std::uint16_t of(std::uint16_t a, std::uint16_t b) {
    return N::nearest(N::value(a) * N::value(b));
  }
};

/// a * b + c as a double whose last bit says whether anything was cut off. The product is exact.
double odd_sum(double product, double c) {
  const double sum = product + c;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part); // Knuth's exact error of a sum
  if (error == 0 || !std::isfinite(sum) || (std::bit_cast<std::uint64_t>(sum) & 1) != 0)
    return sum;
  return std::nextafter(sum, error > 0 ? std::numeric_limits<double>::infinity()
                                       : -std::numeric_limits<double>::infinity());
}
struct FusedMultiplyAdd {
  template <class N> static std::uint16_t of(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
    return static_cast<std::uint16_t>(
        encode(odd_sum(double{N::value(a)} * N::value(b), double{N::value(c)}), N::format));
  }
};
struct Negate {
  template <class N> static std::uint16_t of(std::uint16_t a) { return a ^ 0x8000; }
};
struct Absolute {
  template <class N> static std::uint16_t of(std::uint16_t a) { return a & 0x7fff; }
};
template <bool maximum, bool passes_nan> struct Extreme {
  template <class N> static std::uint16_t of(std::uint16_t a, std::uint16_t b) {
    const float x = N::value(a), y = N::value(b);
    if (x != x || y != y)
      return passes_nan || (x != x && y != y) ? std::uint16_t{0x7fff} : (x != x ? b : a);
    const bool first = x < y || (x == y && std::signbit(x));
    return first != maximum ? a : b;
  }
};
struct Exp2 {
  template <class N> static std::uint16_t of(std::uint16_t a) {
    return static_cast<std::uint16_t>(encode(std::exp2(double{N::value(a)}), N::format));
  }
};
struct HyperbolicTangent {
  template <class N> static std::uint16_t of(std::uint16_t a) {
    return static_cast<std::uint16_t>(encode(std::tanh(double{N::value(a)}), N::format));
  }
};

/// What .ftz, .sat and .relu do around an operation.
template <class F> struct Flushing {
  template <class N> static std::uint16_t flushed(std::uint16_t a) {
    return std::fabs(N::value(a)) < N::smallest_normal ? a & 0x8000 : a;
  }
  template <class N, class... T> static std::uint16_t of(T... values) {
    return flushed<N>(F::template of<N>(flushed<N>(values)...));
  }
};
template <class F> struct Saturating {
  template <class N, class... T> static std::uint16_t of(T... values) {
    const std::uint16_t result = F::template of<N>(values...);
    const float value = N::value(result);
    return value > 0 ? (value < 1 ? result : N::nearest(1.0F)) : std::uint16_t{0};
  }
};
template <class F> struct Rectifying {
  template <class N, class... T> static std::uint16_t of(T... values) {
    const std::uint16_t result = F::template of<N>(values...);
    const float value = N::value(result);
    return value < 0 || result == 0x8000 ? std::uint16_t{0} : result;
  }
};

/// A single value, or a pair of them in a word.
template <class N, class F, class Word> struct Elementwise {
  template <class... T> Word operator()(T... words) const {
    if constexpr (sizeof(Word) == 2)
      return F::template of<N>(words...);
    else
      return F::template of<N>(static_cast<std::uint16_t>(words)...) |
             static_cast<Word>(F::template of<N>(static_cast<std::uint16_t>(words >> 16)...)) << 16;
  }
};

template <class N, class F, class Word, int operands> Execute loop() {
  if constexpr (operands == 1)
    return unary<Word, Word, Elementwise<N, F, Word>>;
  else if constexpr (operands == 2)
    return binary<Word, Word, Elementwise<N, F, Word>>;
  else
    return ternary<Word, Word, Word, Elementwise<N, F, Word>>;
}

template <class F, int operands> void emit(Build& build, Type type) {
  build.out.to = build.to(0, type);
  for (std::size_t i = 0; i < operands; ++i)
    build.out.from[i] = build.from(i + 1, type);
  switch (type) {
  case Type::f16:
    return build.emit(loop<Half, F, std::uint16_t, operands>());
  case Type::f16x2:
    return build.emit(loop<Half, F, std::uint32_t, operands>());
  case Type::bf16:
    return build.emit(loop<Brain, F, std::uint16_t, operands>());
  default:
    return build.emit(loop<Brain, F, std::uint32_t, operands>());
  }
}

template <class F, int operands> void with_flags(Build& build, Type type) {
  build.words.take("rn");
  const bool ftz = build.words.take("ftz"), sat = build.words.take("sat"), relu = build.words.take("relu");
  if (sat && relu)
    build.unsupported("it has .sat or .relu, not both");
  if (ftz)
    return sat    ? emit<Saturating<Flushing<F>>, operands>(build, type)
           : relu ? emit<Rectifying<Flushing<F>>, operands>(build, type)
                  : emit<Flushing<F>, operands>(build, type);
  sat    ? emit<Saturating<F>, operands>(build, type)
  : relu ? emit<Rectifying<F>, operands>(build, type)
         : emit<F, operands>(build, type);
}

} // namespace

void build_half(Build& build) {
  const Type type = build.type();
  switch (build.opcode) {
  case Opcode::add:
    return with_flags<Add, 2>(build, type);
  case Opcode::sub:
    return with_flags<Subtract, 2>(build, type);
  case Opcode::mul:
    return with_flags<Multiply, 2>(build, type);
  case Opcode::fma:
    return with_flags<FusedMultiplyAdd, 3>(build, type);
  case Opcode::neg:
    return with_flags<Negate, 1>(build, type);
  case Opcode::abs:
    return with_flags<Absolute, 1>(build, type);
  case Opcode::min:
    return build.words.take("NaN") ? with_flags<Extreme<false, true>, 2>(build, type)
                                   : with_flags<Extreme<false, false>, 2>(build, type);
  case Opcode::max:
    return build.words.take("NaN") ? with_flags<Extreme<true, true>, 2>(build, type)
                                   : with_flags<Extreme<true, false>, 2>(build, type);
  case Opcode::ex2:
  case Opcode::tanh:
    if (!build.words.take("approx"))
      build.unsupported("it must be .approx");
    return build.opcode == Opcode::ex2 ? with_flags<Exp2, 1>(build, type)
                                       : with_flags<HyperbolicTangent, 1>(build, type);
  default:
    build.unsupported("it has no form of f16 or bf16");
  }
}

} // namespace ptx
