// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Exponential, sigmoid and square root on vector lanes; on a device they are the device's own
/// functions.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <cmath>
#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Constants of the exponential: exp(x) = 2^n (1 + r + r^2 q(r)), n = round(x / ln 2), r = x - n ln 2, with q
/// the interpolation of (exp(r) - 1 - r) / r^2 at the Chebyshev nodes of |r| <= ln(2)/2.
template <class Element>
struct ExponentialConstants;

template <>
struct ExponentialConstants<float> {
  static constexpr float limit = 104.0f;         // exp(-104) rounds to 0, exp(104) is infinite
  static constexpr float normal_limit = 87.0f;   // exp(-87) is a normal number
  static constexpr float round_bias = 0x1.8p23f; // adding it leaves round(x) in the low bits
  static constexpr float ln2_high = 0x1.62e4p-1f;
  static constexpr float ln2_low = 0x1.7f7d1cp-20f;
  static constexpr int exponent_bias = 127;
  static constexpr int mantissa_bits = 23;

  template <class Value>
  SHARDWRIGHT_FUNCTION static Value q(Value r) {
    Value p = 0.0013926183587713494f * r + 0.0083631790527225781f;
    p = p * r + 0.041666554617204574f;
    p = p * r + 0.16666576989698775f;
    return p * r + 0.5f;
  }
};

template <>
struct ExponentialConstants<double> {
  static constexpr double limit = 746.0;
  static constexpr double normal_limit = 708.0;
  static constexpr double round_bias = 0x1.8p52;
  static constexpr double ln2_high = 0x1.62e42feep-1;
  static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr int exponent_bias = 1023;
  static constexpr int mantissa_bits = 52;

  template <class Value>
  SHARDWRIGHT_FUNCTION static Value q(Value r) {
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

/// The parts of an exponential: exp(x) = mantissa * 2^exponent, for |x| not above the limit.
template <class Element>
struct SplitExponential {
  using Integers = typename Vector<IntegerOf<Element>, lane_count<Element>>::type;
  using Constants = ExponentialConstants<Element>;
  Lanes<Element> mantissa;
  Integers exponent;

  SHARDWRIGHT_FUNCTION explicit SplitExponential(Lanes<Element> x) {
    const Lanes<Element> bias = broadcast<Element>(Constants::round_bias);
    const Lanes<Element> shifted = x * Element(1.4426950408889634074) + bias;
    const Lanes<Element> whole = shifted - bias;
    exponent = as_bits<Integers>(shifted) - as_bits<Integers>(bias);
    const Lanes<Element> r = (x - whole * Constants::ln2_high) - whole * Constants::ln2_low;
    mantissa = Constants::q(r) * (r * r) + r + Element(1);
  }

  SHARDWRIGHT_FUNCTION static Lanes<Element> power_of_two(Integers exponent) {
    return as_bits<Lanes<Element>>((exponent + Constants::exponent_bias) << Constants::mantissa_bits);
  }
};

#if defined(__CUDA_ARCH__)
/// 2^x, with results below the normal range as zero: one instruction, within 2 units in the last place.
__device__ inline float power_of_two_of(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
#endif

/// exp of every lane, within 2 units in the last place; NaN stays NaN, overflow gives infinity, underflow is
/// gradual.
template <class Element>
SHARDWRIGHT_FUNCTION inline Lanes<Element> exp_of(Lanes<Element> x) {
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
    // Two factors, because 2^n alone leaves the normal range before the product does.
    const auto half = parts.exponent >> 1;
    return parts.mantissa * parts.power_of_two(half) * parts.power_of_two(parts.exponent - half);
  }
#endif
}

/// exp of every lane for x <= 0, as a softmax needs it: NaN stays NaN, results below the normal range become
/// zero.
///
/// Cheaper than exp_of, and no result is subnormal: those cost processors a hundred cycles and more, here and
/// in the products that follow. On a device, the relative error of floats grows as |x| 2^-24.
template <class Element>
SHARDWRIGHT_FUNCTION inline Lanes<Element> exp_of_nonpositive(Lanes<Element> x) {
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
template <class Element>
SHARDWRIGHT_FUNCTION inline Lanes<Element> sigmoid_of(Lanes<Element> x) {
#if defined(__CUDA_ARCH__)
  // The exact division of floats costs ten instructions, which would hold memory up.
  if constexpr (std::is_same_v<Element, float>)
    return Lanes<Element>::each([&x](std::size_t i) {
      return __fdividef(1.0f, 1.0f + power_of_two_of(x.v[i] * -1.4426950408889634f));
    });
#endif
  return Element(1) / (Element(1) + exp_of<Element>(-x));
}

/// Square root of every lane.
template <class Element>
SHARDWRIGHT_FUNCTION inline Lanes<Element> sqrt_of(Lanes<Element> x) {
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
