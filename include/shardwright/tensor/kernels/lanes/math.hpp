// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Exponential, logarithm, sigmoid, tanh, the normal distribution and square root on vector lanes; on
/// a device they call the device's own functions.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Constants of the exponential: exp(x) = 2^n (1 + r + r^2 q(r)), n = round(x / ln 2), r = x - n ln 2, with q
/// the interpolation of (exp(r) - 1 - r) / r^2 at the Chebyshev nodes of |r| <= ln(2)/2.
template <class Element> struct ExponentialConstants;

template <> struct ExponentialConstants<float> {
  static constexpr float limit = 104.0f;         // exp(-104) rounds to 0, exp(104) is infinite
  static constexpr float normal_limit = 87.0f;   // exp(-87) is a normal number
  static constexpr float round_bias = 0x1.8p23f; // adding it leaves round(x) in the low bits
  static constexpr float ln2_high = 0x1.62e4p-1f;
  static constexpr float ln2_low = 0x1.7f7d1cp-20f;
  static constexpr int exponent_bias = 127;
  static constexpr int mantissa_bits = 23;

  template <class Value> SHARDWRIGHT_FUNCTION static Value q(Value r) {
    Value p = 0.0013926183587713494f * r + 0.0083631790527225781f;
    p = p * r + 0.041666554617204574f;
    p = p * r + 0.16666576989698775f;
    return p * r + 0.5f;
  }
};

template <> struct ExponentialConstants<double> {
  static constexpr double limit = 746.0;
  static constexpr double normal_limit = 708.0;
  static constexpr double round_bias = 0x1.8p52;
  static constexpr double ln2_high = 0x1.62e42feep-1;
  static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr int exponent_bias = 1023;
  static constexpr int mantissa_bits = 52;

  template <class Value> SHARDWRIGHT_FUNCTION static Value q(Value r) {
    Value p = 2.510038549551032e-08 * r + 2.7620088445409746e-07;
    p = p * r + 2.7557268459997064e-06;
    p = p * r + 2.4801521295954376e-05;
    p = p * r + 0.00019841269863053618;
    p = p * r + 0.0013888888917213717;
    p = p * r + 0.0083333333333300615;
    p = p * r + 0.041666666666624129;
    p = p * r + 0.16666666666666669;
    return p * r + 0.50000000000000011;
  }
};

/// The parts of an exponential: exp(x) = mantissa * 2^exponent, for |x| not above the limit; `less_one` is
/// mantissa - 1 without its rounding.
template <class Element> struct SplitExponential {
  using Integers = typename Vector<IntegerOf<Element>, lane_count<Element>>::type;
  using Constants = ExponentialConstants<Element>;
  Lanes<Element> less_one;
  Lanes<Element> mantissa;
  Integers exponent;

  SHARDWRIGHT_FUNCTION explicit SplitExponential(Lanes<Element> x) {
    const Lanes<Element> bias = broadcast<Element>(Constants::round_bias);
    const Lanes<Element> shifted = x * Element(1.4426950408889634074) + bias;
    const Lanes<Element> whole = shifted - bias;
    exponent = as_bits<Integers>(shifted) - as_bits<Integers>(bias);
    const Lanes<Element> r = (x - whole * Constants::ln2_high) - whole * Constants::ln2_low;
    less_one = Constants::q(r) * (r * r) + r;
    mantissa = less_one + Element(1);
  }

  SHARDWRIGHT_FUNCTION static Lanes<Element> power_of_two(Integers exponent) {
    return as_bits<Lanes<Element>>((exponent + Constants::exponent_bias) << Constants::mantissa_bits);
  }
};

#if defined(__CUDACC__) && defined(__CUDA_ARCH__)
/// 2^x, with results below the normal range as zero: one instruction, within 2 units in the last place.
__device__ inline float power_of_two_of(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
#endif

/// exp of every lane, within 2 units in the last place; NaN stays NaN, overflow gives infinity, underflow is
/// gradual.
template <class Element> SHARDWRIGHT_FUNCTION inline Lanes<Element> exp_of(Lanes<Element> x) {
#if defined(__CUDA_ARCH__)
  return Lanes<Element>::each([&x](std::size_t i) { return std::exp(x.v[i]); });
#else
  if constexpr (lane_count<Element> == 1) {
    return std::exp(x);
  } else {
    const Lanes<Element> limit = broadcast<Element>(ExponentialConstants<Element>::limit);
    // Comparisons with a NaN are false, so a NaN passes both clamps.
    x = x > limit ? limit : x;
    x = x < -limit ? -limit : x;
    const SplitExponential<Element> parts(x);
    // Two factors, because 2^n by itself leaves the normal range before the product does.
    const auto half = parts.exponent >> 1;
    return parts.mantissa * parts.power_of_two(half) * parts.power_of_two(parts.exponent - half);
  }
#endif
}

/// exp of every lane for x <= 0, as a softmax needs it: NaN stays NaN, results below the normal range become
/// zero.
///
/// Cheaper than exp_of, and no result is subnormal: subnormals cost a hundred cycles or more, here and in the
/// products that follow. On a device, the relative error of floats grows as |x| 2^-24.
template <class Element> SHARDWRIGHT_FUNCTION inline Lanes<Element> exp_of_nonpositive(Lanes<Element> x) {
#if defined(__CUDA_ARCH__)
  return Lanes<Element>::each([&x](std::size_t i) -> Element {
    if constexpr (std::is_same_v<Element, float>)
      return power_of_two_of(x.v[i] * 1.4426950408889634f);
    else
      return std::exp(x.v[i]);
  });
#else
  if constexpr (lane_count<Element> == 1) {
    return std::exp(x);
  } else {
    const Lanes<Element> lowest = broadcast<Element>(-ExponentialConstants<Element>::normal_limit);
    const SplitExponential<Element> parts(x < lowest ? lowest : x);
    return x < lowest ? Lanes<Element>{} : parts.mantissa * parts.power_of_two(parts.exponent);
  }
#endif
}

/// 1 / (1 + exp(-x)) of every lane.
template <class Element> SHARDWRIGHT_FUNCTION inline Lanes<Element> sigmoid_of(Lanes<Element> x) {
#if defined(__CUDA_ARCH__)
  // Exact division of floats takes ten instructions, which would limit memory throughput.
  if constexpr (std::is_same_v<Element, float>)
    return Lanes<Element>::each([&x](std::size_t i) {
      return __fdividef(1.0f, 1.0f + power_of_two_of(x.v[i] * -1.4426950408889634f));
    });
#endif
  return Element(1) / (Element(1) + exp_of<Element>(-x));
}

/// tanh of every lane, within 3 units in the last place, also near zero: e / (e + 2) of e = exp(2 |x|) - 1,
/// with the sign of x; NaN stays NaN.
template <class Element> SHARDWRIGHT_FUNCTION inline Lanes<Element> tanh_of(Lanes<Element> x) {
#if defined(__CUDA_ARCH__)
  return Lanes<Element>::each([&x](std::size_t i) { return std::tanh(x.v[i]); });
#else
  if constexpr (lane_count<Element> == 1) {
    return std::tanh(x);
  } else {
    const Lanes<Element> zero{};
    const Lanes<Element> lowest = broadcast<Element>(-ExponentialConstants<Element>::normal_limit);
    Lanes<Element> twice = x < zero ? x + x : -(x + x);
    twice = twice < lowest ? lowest : twice;
    const SplitExponential<Element> parts(twice);
    const Lanes<Element> power = parts.power_of_two(parts.exponent);
    const Lanes<Element> e = (power - Element(1)) + power * parts.less_one; // exp(-2 |x|) - 1
    const Lanes<Element> size = e / (e + Element(2));
    return x < zero ? size : zero - size;
  }
#endif
}

/// Constants of the logarithm: with x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)) and s = f / (2 + f),
/// log(1 + f) = f - s (f - r(s^2)), r a polynomial (FreeBSD msun, e_log.c and e_logf.c).
template <class Element> struct LogarithmConstants;

template <> struct LogarithmConstants<float> {
  static constexpr float smallest = 0x1p-126f;
  static constexpr float raise = 0x1p25f; // makes a subnormal number a normal one
  static constexpr std::int32_t raised = 25;
  static constexpr std::int32_t root_of_half = 0x3f3504f3;
  static constexpr float ln2_high = 0x1.62e3p-1f;
  static constexpr float ln2_low = 0x1.2fefa2p-17f;
  template <class Value> SHARDWRIGHT_FUNCTION static Value r(Value z) {
    Value p = 0xf89e26.0p-26f * z + 0x91e9ee.0p-25f;
    p = p * z + 0xccce13.0p-25f;
    return (p * z + 0xaaaaaa.0p-24f) * z;
  }
};

template <> struct LogarithmConstants<double> {
  static constexpr double smallest = 0x1p-1022;
  static constexpr double raise = 0x1p54;
  static constexpr std::int64_t raised = 54;
  static constexpr std::int64_t root_of_half = 0x3fe6a09e667f3bcd;
  static constexpr double ln2_high = 6.93147180369123816490e-01;
  static constexpr double ln2_low = 1.90821492927058770002e-10;
  template <class Value> SHARDWRIGHT_FUNCTION static Value r(Value z) {
    Value p = 1.479819860511658591e-01 * z + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    return (p * z + 6.666666666666735130e-01) * z;
  }
};

/// Natural logarithm of every lane, within 2 units in the last place: -infinity of 0, NaN of a negative
/// number.
template <class Element> SHARDWRIGHT_FUNCTION inline Lanes<Element> log_of(Lanes<Element> x) {
#if defined(__CUDA_ARCH__)
  return Lanes<Element>::each([&x](std::size_t i) { return std::log(x.v[i]); });
#else
  if constexpr (lane_count<Element> == 1) {
    return std::log(x);
  } else {
    using Constants = LogarithmConstants<Element>;
    using Integers = typename SplitExponential<Element>::Integers;
    constexpr int mantissa_bits = ExponentialConstants<Element>::mantissa_bits;
    const Lanes<Element> zero{};
    const auto small = x < broadcast<Element>(Constants::smallest);
    const Integers bits = as_bits<Integers>(small ? x * Constants::raise : x) - Constants::root_of_half;
    const Integers power = bits >> mantissa_bits;
    const Integers whole = small ? power - Constants::raised : power;
    const Lanes<Element> f =
        as_bits<Lanes<Element>>(bits - (power << mantissa_bits) + Constants::root_of_half) - Element(1);
    const Lanes<Element> s = f / (f + Element(2));
    const Lanes<Element> half_square = Element(0.5) * (f * f);
    const Lanes<Element> k = __builtin_convertvector(whole, Lanes<Element>);
    const Lanes<Element> finite =
        k * Constants::ln2_high -
        ((half_square - (s * (half_square + Constants::r(s * s)) + k * Constants::ln2_low)) - f);
    const Lanes<Element> infinity = broadcast<Element>(std::numeric_limits<Element>::infinity());
    const Lanes<Element> positive = x < infinity ? finite : x; // infinity and NaN map to themselves
    return x > zero ? positive : (x == zero ? -infinity : x - x + (zero / zero));
  }
#endif
}

/// Coefficients of (1 + 2 z) exp(z^2) erfc(z) as a polynomial in t = (z - 15/4) / (z + 15/4), the form of
/// Shepherd and Laframboise, Mathematics of Computation 36 (1981), p. 249; interpolated at the Chebyshev
/// nodes of 0 <= z <= `most`.
template <class Element> struct ErrorFunctionConstants;

template <> struct ErrorFunctionConstants<float> {
  static constexpr float most_x = 14.0f;              // beyond, the tail rounds to 0
  static constexpr std::uint32_t upper = 0xfffff000u; // the upper half of a mantissa
  template <class Value> SHARDWRIGHT_FUNCTION static Value p(Value t) {
    Value v = 0.001099996641f * t + 0.00231518549f;
    v = v * t - 0.009928796019f;
    v = v * t + 0.02803435475f;
    v = v * t - 0.05873202591f;
    v = v * t + 0.09236290064f;
    v = v * t - 0.1087918375f;
    v = v * t + 0.08227273549f;
    v = v * t + 0.003584680688f;
    v = v * t - 0.1402405165f;
    return v * t + 1.237512637f;
  }
};

template <> struct ErrorFunctionConstants<double> {
  static constexpr double most_x = 38.8;
  static constexpr std::uint64_t upper = 0xfffffffff8000000u;
  template <class Value> SHARDWRIGHT_FUNCTION static Value p(Value t) {
    Value v = -2.37530404761867426e-9 * t - 7.72723576797986698e-10;
    v = v * t + 3.28519050474490459e-8;
    v = v * t + 1.57287347089609647e-8;
    v = v * t - 2.52778119640079431e-7;
    v = v * t - 4.78819525792505673e-8;
    v = v * t + 1.74837724487491531e-6;
    v = v * t - 9.80313074712995968e-7;
    v = v * t - 1.14431823447386728e-5;
    v = v * t + 2.23872991471177169e-5;
    v = v * t + 5.1648995064347805e-5;
    v = v * t - 0.000290154968729754158;
    v = v * t + 0.000293713645197945544;
    v = v * t + 0.00175562601631940307;
    v = v * t - 0.00974657955012906474;
    v = v * t + 0.0283622774007073495;
    v = v * t - 0.0586933985906061249;
    v = v * t + 0.0923043211615067385;
    v = v * t - 0.108803930141698766;
    v = v * t + 0.0822767384901129617;
    v = v * t + 0.00358541548546353586;
    v = v * t - 0.14024059858554669;
    return v * t + 1.23751263083782758;
  }
};

/// The standard normal distribution at every lane: `below` = (1 + erf(x / sqrt 2)) / 2, and its density, both
/// within 6 units in the last place, also in the tails; tails below the normal range are zero.
template <class Element> struct NormalDistribution {
  Lanes<Element> below;
  Lanes<Element> density;

  SHARDWRIGHT_FUNCTION explicit NormalDistribution(Lanes<Element> x) {
    constexpr Element root_of_half = Element(0.70710678118654752440);
    constexpr Element density_of_0 = Element(0.39894228040143267794);
#if defined(__CUDA_ARCH__)
    below = Lanes<Element>::each(
        [&x](std::size_t i) { return Element(0.5) * std::erfc(-root_of_half * x.v[i]); });
    density = Lanes<Element>::each(
        [&x](std::size_t i) { return density_of_0 * std::exp(Element(-0.5) * x.v[i] * x.v[i]); });
#else
    if constexpr (lane_count<Element> == 1) {
      below = Element(0.5) * std::erfc(-root_of_half * x);
      density = density_of_0 * std::exp(Element(-0.5) * x * x);
    } else {
      using Constants = ErrorFunctionConstants<Element>;
      using Words = Lanes<std::make_unsigned_t<IntegerOf<Element>>, lane_count<Element>>;
      const Lanes<Element> zero{};
      const Lanes<Element> most = broadcast<Element>(Constants::most_x);
      Lanes<Element> a = x < zero ? -x : x;
      a = a > most ? most : a;
      const Lanes<Element> z = a * root_of_half;
      // The square and its rounding error (Dekker, 1971), which an exponential would magnify.
      const Lanes<Element> square = a * a;
      const Lanes<Element> high = as_bits<Lanes<Element>>(as_bits<Words>(a) & Constants::upper);
      const Lanes<Element> error = (high * high - square) + (a - high) * (a + high);
      const Lanes<Element> power =
          exp_of_nonpositive<Element>(Element(-0.5) * square) * (Element(1) - Element(0.5) * error);
      const Lanes<Element> t = (z - Element(3.75)) / (z + Element(3.75));
      const Lanes<Element> tail = power * Constants::p(t) * Element(0.5) / (Element(1) + (z + z));
      below = x < zero ? tail : Element(1) - tail;
      density = density_of_0 * power;
    }
#endif
  }
};

/// Square root of every lane.
template <class Element> SHARDWRIGHT_FUNCTION inline Lanes<Element> sqrt_of(Lanes<Element> x) {
#if defined(__CUDA_ARCH__)
  return Lanes<Element>::each([&x](std::size_t i) { return std::sqrt(x.v[i]); });
#elif !defined(__CUDACC__) && defined(__AVX__)
  // The library function may set errno, which keeps compilers from using the vector instruction.
  Lanes<Element> root;
  if constexpr (std::is_same_v<Element, float>)
    __asm__("vsqrtps %1, %0" : "=v"(root) : "v"(x));
  else
    __asm__("vsqrtpd %1, %0" : "=v"(root) : "v"(x));
  return root;
#else
  if constexpr (lane_count<Element> == 1) {
    return std::sqrt(x);
  } else {
    for (std::size_t i = 0; i < lane_count<Element>; ++i)
      x[i] = std::sqrt(x[i]);
    return x;
  }
#endif
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
