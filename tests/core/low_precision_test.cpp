// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/core/element.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

namespace sw = shardwright;
using sw::bfloat16;
using sw::float16;

namespace {

template <class Number> constexpr int digits = std::numeric_limits<Number>::digits;

/// The value of a bit pattern from the definition of the format (IEEE 754, section 3.4).
template <class Number> double value_of(std::uint32_t bits) {
  const int stored = digits<Number> - 1;
  const int bias = std::numeric_limits<Number>::max_exponent - 1;
  const auto exponent = static_cast<int>((bits & 0x7fffu) >> stored);
  const double fraction = static_cast<double>(bits & ((1u << stored) - 1u));
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == 2 * bias + 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0)
    return sign * std::ldexp(fraction, 1 - bias - stored);
  return sign * std::ldexp(std::ldexp(1.0, stored) + fraction, exponent - bias - stored);
}

/// The nearest number of the format, ties to even, by the rounding of doubles to integers.
template <class Number> double rounded(double value) {
  using Limits = std::numeric_limits<Number>;
  if (!std::isfinite(value) || value == 0)
    return value;
  const int exponent = std::max(std::ilogb(value), Limits::min_exponent - 1);
  const double quantum = std::ldexp(1.0, exponent - digits<Number> + 1);
  const double out = std::nearbyint(value / quantum) * quantum;
  return std::abs(out) < std::ldexp(1.0, Limits::max_exponent)
             ? out
             : std::copysign(std::numeric_limits<double>::infinity(), value);
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2);
static_assert(std::is_trivially_copyable_v<bfloat16> && std::is_trivially_default_constructible_v<bfloat16>);
static_assert(float(bfloat16(1.0f)) == 1.0f && float(float16(-0.5)) == -0.5f && bfloat16(3) == 3);
static_assert(bfloat16(257).bits() == bfloat16(256).bits() && bfloat16(259) == 260); // ties to even
static_assert(float16(65519.0) == std::numeric_limits<float16>::max());
static_assert(float16(65520.0) == std::numeric_limits<float16>::infinity());
static_assert(std::numeric_limits<bfloat16>::epsilon() == 0x1p-7f);
// The powers of ten among the normal numbers: from 1e-37 to 1e38, and from 1e-4 to 1e4.
static_assert(std::numeric_limits<bfloat16>::min_exponent10 == -37);
static_assert(std::numeric_limits<bfloat16>::max_exponent10 == 38);
static_assert(std::numeric_limits<float16>::min_exponent10 == -4);
static_assert(std::numeric_limits<float16>::max_exponent10 == 4);
static_assert(std::numeric_limits<float16>::epsilon() == 0x1p-10f);
static_assert(std::numeric_limits<float16>::max() == 65504 &&
              std::numeric_limits<float16>::min() == 0x1p-14f);
static_assert(std::numeric_limits<float16>::denorm_min() == 0x1p-24f);
static_assert(std::numeric_limits<bfloat16>::lowest() == -0x1.fep127f);
// Arithmetic is float's, and nothing becomes narrow by itself.
static_assert(std::is_same_v<decltype(bfloat16() * float16()), float>);
static_assert(!std::is_convertible_v<float, bfloat16> && !std::is_convertible_v<bfloat16, float16>);
static_assert(std::is_same_v<sw::AccumulationElement<float16>, float> &&
              std::is_same_v<sw::AccumulationElement<double>, double>);
static_assert(sw::element_type_of<bfloat16>() == sw::ElementType::bfloat16 &&
              sw::size_of(sw::element_type_of<const float16>()) == 2);
static_assert(sw::RealElement<float16> && sw::RealElement<double> && !sw::RealElement<int>);

} // namespace

TEMPLATE_TEST_CASE("Every bit pattern widens to its value and comes back", "[core]", bfloat16, float16) {
  bool values = true, back = true, from_double = true;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto number = TestType::from_bits(static_cast<std::uint16_t>(bits));
    const float wide = number;
    values = values && same(static_cast<double>(wide), value_of<TestType>(bits));
    // A NaN stays one of its sign; a signalling one becomes quiet.
    const std::uint32_t quiet = std::isnan(wide) ? 1u << (digits<TestType> - 2) : 0u;
    back = back && TestType(wide).bits() == (bits | quiet);
    from_double = from_double && same(TestType(static_cast<double>(wide)), value_of<TestType>(bits));
  }
  CHECK(values);
  CHECK(back);
  CHECK(from_double);
}

TEMPLATE_TEST_CASE("Rounding takes the nearer of two neighbours, or the even one in a tie", "[core]",
                   bfloat16, float16) {
  bool equal = true;
  const auto check = [&equal](float value) {
    equal = equal && same(TestType(value), rounded<TestType>(static_cast<double>(value)));
  };
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint32_t bits = 0; bits < 0x7fffu; ++bits) {
    const double low = value_of<TestType>(bits), high = value_of<TestType>(bits + 1);
    if (!std::isfinite(low) || !std::isfinite(high))
      continue;
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      check(sign * middle);
      check(sign * std::nextafter(middle, infinity));
      check(sign * std::nextafter(middle, -infinity));
    }
  }
  CHECK(equal);
}

TEMPLATE_TEST_CASE("Random floats and doubles are rounded once", "[core]", bfloat16, float16) {
  std::mt19937_64 random(7);
  bool floats = true, doubles = true;
  for (int i = 0; i < 1'000'000; ++i) {
    const std::uint64_t bits = random();
    float single = 0;
    const auto low = static_cast<std::uint32_t>(bits);
    std::memcpy(&single, &low, sizeof single);
    floats = floats && same(TestType(single), rounded<TestType>(static_cast<double>(single)));
    // Around a tie that a float cannot distinguish from its neighbours.
    const auto number = TestType::from_bits(static_cast<std::uint16_t>(bits >> 48U));
    const double half = std::abs(static_cast<double>(number)) * std::ldexp(1.0, -digits<TestType>);
    const double near =
        static_cast<double>(number) + half * (1 + static_cast<double>(bits % 5 - 2) * 0x1p-30);
    doubles = doubles && same(TestType(near), rounded<TestType>(near));
  }
  CHECK(floats);
  CHECK(doubles);
}

#if defined(__GNUC__)
TEMPLATE_TEST_CASE("Vectors are rounded and widened like single numbers", "[core]", bfloat16, float16) {
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::uint32_t Words __attribute__((vector_size(16)));
  std::mt19937 random(8);
  bool narrowed = true, widened = true;
  for (int i = 0; i < 300'000; ++i) {
    Words bits{};
    for (int l = 0; l < 4; ++l)
      bits[l] = static_cast<std::uint32_t>(random());
    Floats values{};
    std::memcpy(&values, &bits, sizeof values);
    const Words narrow = TestType::format::template narrow<Words>(values);
    const Words half = bits & 0xffffu;
    const Floats wide = TestType::format::template widen<Floats>(half);
    for (int l = 0; l < 4; ++l) {
      narrowed = narrowed && (narrow[l] & 0xffffu) == TestType(values[l]).bits();
      widened = widened && same(wide[l], TestType::from_bits(static_cast<std::uint16_t>(half[l])));
    }
  }
  CHECK(narrowed);
  CHECK(widened);
}
#endif
