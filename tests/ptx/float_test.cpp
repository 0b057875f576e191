// SPDX-License-Identifier: Apache-2.0
// Arithmetic of f32 and f64, and of f16 and bf16. The expected values are worked out by hand, or by <cmath>
// in a wider type.
#include <cmath>
#include <limits>

#include "ptx/one_instruction.hpp"

namespace {

using namespace ptx_test;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr Word nan32 = 0x7fffffff, quiet32 = 0x7fc00000;
// Between 1 and the next float lie a quarter and three quarters of the step.
constexpr float step = 0x1p-23F;

float number(Word bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }
double full(Word bits) { return std::bit_cast<double>(bits); }

/// The distance of a result from the exact value, in units of its last place.
double units_off(float result, double exact) {
  return std::fabs(result - exact) / std::ldexp(1.0, std::ilogb(exact) - 23);
}

} // namespace

TEST_CASE("sums and products in f32 round as they say", "[ptx]") {
  const float quarter = step / 4, more = 3 * step / 4;
  check({
      {"add.f32 %r, %ra, %rb", {f(1.5F), f(2.25F)}, f(3.75F)},
      {"add.rn.f32 %r, %ra, %rb", {f(1), f(quarter)}, f(1)},
      {"add.rz.f32 %r, %ra, %rb", {f(1), f(more)}, f(1)},
      {"add.rm.f32 %r, %ra, %rb", {f(1), f(more)}, f(1)},
      {"add.rp.f32 %r, %ra, %rb", {f(1), f(quarter)}, f(1 + step)},
      {"add.rm.f32 %r, %ra, %rb", {f(-1), f(-quarter)}, f(-1 - step)},
      {"add.rz.f32 %r, %ra, %rb", {f(-1), f(-more)}, f(-1)},
      {"add.sat.f32 %r, %ra, %rb", {f(0.75F), f(0.75F)}, f(1)},
      {"add.sat.f32 %r, %ra, %rb", {f(-3), f(1)}, f(0)},
      {"add.sat.f32 %r, %ra, %rb", {quiet32, f(1)}, f(0)},
      {"add.f32 %r, %ra, %rb", {f(0x1p-127F), f(0x1p-127F)}, f(0x1p-126F)},
      {"add.ftz.f32 %r, %ra, %rb", {f(0x1p-127F), f(0x1p-127F)}, f(0)},
      {"add.f32 %r, %ra, %rb", {f(infinity), f(-infinity)}, nan32},
      {"sub.f32 %r, %ra, %rb", {f(1.5F), f(2.25F)}, f(-0.75F)},
      {"sub.rp.f32 %r, %ra, %rb", {f(1), f(-quarter)}, f(1 + step)},
      {"sub.ftz.sat.f32 %r, %ra, %rb", {f(5), f(1)}, f(1)},
      {"mul.f32 %r, %ra, %rb", {f(1.5F), f(-2)}, f(-3)},
      {"mul.rz.f32 %r, %ra, %rb", {f(1 + step), f(1 + step)}, f(1 + 2 * step)},
      {"mul.rp.f32 %r, %ra, %rb", {f(1 + step), f(1 + step)}, f(1 + 3 * step)},
      {"mul.ftz.f32 %r, %ra, %rb", {f(-0x1p-100F), f(0x1p-40F)}, f(-0.0F)},
      {"mul.sat.f32 %r, %ra, %rb", {f(3), f(0.25F)}, f(0.75F)},
      {"fma.rn.f32 %r, %ra, %rb, %rc", {f(1 + step), f(1 + step), f(-1 - 2 * step)}, f(step * step)},
      {"fma.rz.f32 %r, %ra, %rb, %rc", {f(1), f(1), f(-quarter / 4)}, f(1 - step / 2)},
      {"fma.rm.f32 %r, %ra, %rb, %rc", {f(1), f(1), f(-quarter / 4)}, f(1 - step / 2)},
      {"fma.rp.f32 %r, %ra, %rb, %rc", {f(1), f(1), f(quarter)}, f(1 + step)},
      {"fma.rn.sat.f32 %r, %ra, %rb, %rc", {f(2), f(2), f(2)}, f(1)},
      {"fma.rn.ftz.f32 %r, %ra, %rb, %rc", {f(0x1p-127F), f(4), f(1)}, f(1)},
      {"mad.rn.f32 %r, %ra, %rb, %rc", {f(2), f(3), f(4)}, f(10)},
      {"div.rn.f32 %r, %ra, %rb", {f(1), f(3)}, 0x3eaaaaab},
      {"div.rz.f32 %r, %ra, %rb", {f(1), f(3)}, 0x3eaaaaaa},
      {"div.rn.ftz.f32 %r, %ra, %rb", {f(0x1p-127F), f(0.5F)}, f(0)},
      {"rcp.rn.f32 %r, %ra", {f(3)}, 0x3eaaaaab},
      {"rcp.rm.f32 %r, %ra", {f(3)}, 0x3eaaaaaa},
      {"sqrt.rn.f32 %r, %ra", {f(2)}, 0x3fb504f3},
      {"sqrt.rp.f32 %r, %ra", {f(2)}, 0x3fb504f4},
      {"sqrt.rn.f32 %r, %ra", {f(-1)}, nan32},
  });
}

TEST_CASE("sums and products in f64", "[ptx]") {
  const double fine = 0x1p-52;
  check({
      {"add.f64 %d, %da, %db", {d(1), d(fine)}, d(1 + fine)},
      {"add.rn.f64 %d, %da, %db", {d(1), d(fine / 4)}, d(1)},
      {"add.rp.f64 %d, %da, %db", {d(1), d(fine / 4)}, d(1 + fine)},
      {"add.rz.f64 %d, %da, %db", {d(1), d(3 * fine / 4)}, d(1)},
      {"sub.f64 %d, %da, %db", {d(1), d(3)}, d(-2)},
      {"sub.rm.f64 %d, %da, %db", {d(-1), d(fine / 4)}, d(-1 - fine)},
      {"mul.f64 %d, %da, %db", {d(1.5), d(-4)}, d(-6)},
      {"mul.rn.f64 %d, %da, %db", {d(1 + fine), d(1 + fine)}, d(1 + 2 * fine)},
      {"mul.rp.f64 %d, %da, %db", {d(1 + fine), d(1 + fine)}, d(1 + 3 * fine)},
      {"fma.rn.f64 %d, %da, %db, %dc", {d(1 + fine), d(1 + fine), d(-1 - 2 * fine)}, d(fine * fine)},
      {"fma.rm.f64 %d, %da, %db, %dc", {d(-1), d(1), d(-fine / 4)}, d(-1 - fine)},
      {"div.rn.f64 %d, %da, %db", {d(1), d(3)}, 0x3fd5555555555555},
      {"div.rp.f64 %d, %da, %db", {d(1), d(3)}, 0x3fd5555555555556},
      {"rcp.rn.f64 %d, %da", {d(4)}, d(0.25)},
      {"sqrt.rn.f64 %d, %da", {d(2)}, 0x3ff6a09e667f3bcd},
      {"sqrt.rm.f64 %d, %da", {d(2)}, 0x3ff6a09e667f3bcc},
      {"rcp.approx.ftz.f64 %d, %da", {d(4)}, d(0.25)},
      {"rsqrt.approx.ftz.f64 %d, %da", {d(4)}, d(0.5)},
      {"abs.f64 %d, %da", {d(-2)}, d(2)},
      {"neg.f64 %d, %da", {d(-2)}, d(2)},
      {"copysign.f64 %d, %da, %db", {d(-0.0), d(3)}, d(-3)},
      {"min.f64 %d, %da, %db", {d(-2), d(1)}, d(-2)},
      {"max.f64 %d, %da, %db", {d(-2), d(1)}, d(1)},
      {"max.f64 %d, %da, %db", {d(NAN), d(1)}, d(1)},
  });
  // The upper half of the word, from the upper half of the input.
  const double third = full(value_of("rcp.approx.ftz.f64 %d, %da", {d(3)}));
  CHECK(std::fabs(third - 1.0 / 3) < 0x1p-21);
  CHECK((std::bit_cast<Word>(third) & 0xffffffff) == 0);
}

TEST_CASE("extremes, signs and properties of floats", "[ptx]") {
  check({
      {"min.f32 %r, %ra, %rb", {f(-2), f(1)}, f(-2)},
      {"max.f32 %r, %ra, %rb", {f(-2), f(1)}, f(1)},
      {"min.f32 %r, %ra, %rb", {quiet32, f(1)}, f(1)},
      {"min.NaN.f32 %r, %ra, %rb", {quiet32, f(1)}, nan32},
      {"max.NaN.f32 %r, %ra, %rb", {f(1), quiet32}, nan32},
      {"min.f32 %r, %ra, %rb", {quiet32, quiet32}, nan32},
      {"min.f32 %r, %ra, %rb", {f(0), f(-0.0F)}, f(-0.0F)},
      {"max.f32 %r, %ra, %rb", {f(-0.0F), f(0)}, f(0)},
      {"max.xorsign.abs.f32 %r, %ra, %rb", {f(-3), f(2)}, f(-3)},
      {"min.xorsign.abs.f32 %r, %ra, %rb", {f(-3), f(-2)}, f(2)},
      {"max.ftz.f32 %r, %ra, %rb", {f(-1), f(0x1p-130F)}, f(0)},
      {"abs.f32 %r, %ra", {f(-2)}, f(2)},
      {"abs.ftz.f32 %r, %ra", {f(-0x1p-130F)}, f(0)},
      {"neg.f32 %r, %ra", {f(2)}, f(-2)},
      {"neg.ftz.f32 %r, %ra", {f(0x1p-130F)}, f(-0.0F)},
      {"copysign.f32 %r, %ra, %rb", {f(-1), f(3)}, f(-3)},
      {"testp.finite.f32 %p, %ra", {f(1)}, 1},
      {"testp.finite.f32 %p, %ra", {f(infinity)}, 0},
      {"testp.infinite.f32 %p, %ra", {f(-infinity)}, 1},
      {"testp.number.f32 %p, %ra", {quiet32}, 0},
      {"testp.notanumber.f64 %p, %da", {d(NAN)}, 1},
      {"testp.normal.f32 %p, %ra", {f(0x1p-130F)}, 0},
      {"testp.subnormal.f32 %p, %ra", {f(0x1p-130F)}, 1},
  });
}

TEST_CASE("approximations lie within their documented errors", "[ptx]") {
  for (const float x : {0.01F, 0.3F, 1.0F, 1.7F, 5.0F, 30.0F}) {
    CAPTURE(x);
    CHECK(units_off(number(value_of("ex2.approx.f32 %r, %ra", {f(x)})), std::exp2(double{x})) <= 2);
    CHECK(units_off(number(value_of("ex2.approx.ftz.f32 %r, %ra", {f(-x)})), std::exp2(-double{x})) <= 2);
    CHECK(std::fabs(number(value_of("lg2.approx.f32 %r, %ra", {f(x)})) - std::log2(double{x})) <=
          0x1p-22 * 8);
    CHECK(units_off(number(value_of("rcp.approx.ftz.f32 %r, %ra", {f(x)})), 1 / double{x}) <= 1);
    CHECK(units_off(number(value_of("rsqrt.approx.f32 %r, %ra", {f(x)})), 1 / std::sqrt(double{x})) <= 2);
    CHECK(units_off(number(value_of("sqrt.approx.f32 %r, %ra", {f(x)})), std::sqrt(double{x})) <= 2);
    CHECK(std::fabs(number(value_of("sin.approx.f32 %r, %ra", {f(x)})) - std::sin(double{x})) <= 0x1p-20);
    CHECK(std::fabs(number(value_of("cos.approx.f32 %r, %ra", {f(x)})) - std::cos(double{x})) <= 0x1p-20);
    CHECK(std::fabs(number(value_of("tanh.approx.f32 %r, %ra", {f(x)})) - std::tanh(double{x})) <= 0x1p-11);
    CHECK(units_off(number(value_of("div.approx.f32 %r, %ra, %rb", {f(x), f(3)})), double{x} / 3) <= 2);
    CHECK(units_off(number(value_of("div.full.f32 %r, %ra, %rb", {f(x), f(3)})), double{x} / 3) <= 2);
  }
  check({
      {"ex2.approx.ftz.f32 %r, %ra", {f(-200)}, f(0)},
      {"ex2.approx.ftz.f32 %r, %ra", {f(-infinity)}, f(0)},
      {"ex2.approx.f32 %r, %ra", {f(3)}, f(8)},
      {"lg2.approx.f32 %r, %ra", {f(0)}, f(-infinity)},
      {"lg2.approx.f32 %r, %ra", {f(-1)}, nan32},
      {"rcp.approx.ftz.f32 %r, %ra", {f(0)}, f(infinity)},
      {"rcp.approx.ftz.f32 %r, %ra", {f(0x1p-130F)}, f(infinity)},
      {"rsqrt.approx.ftz.f32 %r, %ra", {f(0)}, f(infinity)},
  });
}

TEST_CASE("arithmetic of f16 and bf16", "[ptx]") {
  // f16: 1 is 0x3c00, its next number 0x3c01; bf16: 1 is 0x3f80, its next number 0x3f81.
  check({
      {"add.f16 %h, %ha, %hb", {0x3c00, 0x4000}, 0x4200},
      {"add.rn.f16 %h, %ha, %hb", {0x3c00, 0x1000}, 0x3c00}, // half a step: to even
      {"add.rn.f16 %h, %ha, %hb", {0x3c01, 0x1000}, 0x3c02}, // and again
      {"add.sat.f16 %h, %ha, %hb", {0x3c00, 0x3c00}, 0x3c00},
      {"sub.f16 %h, %ha, %hb", {0x3c00, 0x4000}, 0xbc00},
      {"mul.f16 %h, %ha, %hb", {0x7bff, 0x7bff}, 0x7c00}, // infinity
      {"mul.ftz.f16 %h, %ha, %hb", {0x0200, 0x4000}, 0},  // a subnormal input
      {"mul.f16 %h, %ha, %hb", {0x0200, 0x4000}, 0x0400},
      {"fma.rn.f16 %h, %ha, %hb, %hc", {0x3c01, 0x3c01, 0xbc02}, 0x0010}, // 2^-20
      {"fma.rn.relu.f16 %h, %ha, %hb, %hc", {0x3c00, 0xbc00, 0}, 0},
      {"fma.rn.sat.f16 %h, %ha, %hb, %hc", {0x4000, 0x4000, 0}, 0x3c00},
      {"add.f16x2 %r, %ra, %rb", {0x3c004000, 0x40003c00}, 0x42004200},
      {"mul.f16x2 %r, %ra, %rb", {0x3c004000, 0x40004000}, 0x40004400},
      {"fma.rn.f16x2 %r, %ra, %rb, %rc", {0x3c004000, 0x40004000, 0x3c003c00}, 0x42004500},
      {"neg.f16 %h, %ha", {0x3c00}, 0xbc00},
      {"abs.f16x2 %r, %ra", {0xbc00c000}, 0x3c004000},
      {"min.f16 %h, %ha, %hb", {0x3c00, 0xc000}, 0xc000},
      {"max.NaN.f16 %h, %ha, %hb", {0x3c00, 0x7e00}, 0x7fff},
      {"max.f16x2 %r, %ra, %rb", {0x3c00c000, 0x40003c00}, 0x40003c00},
      {"ex2.approx.f16 %h, %ha", {0x4000}, 0x4400},
      {"tanh.approx.f16 %h, %ha", {0}, 0},
      {"add.bf16 %h, %ha, %hb", {0x3f80, 0x4000}, 0x4040},
      {"add.rn.bf16 %h, %ha, %hb", {0x3f80, 0x3b80}, 0x3f80}, // 2^-8, half a step: to even
      {"add.rn.bf16 %h, %ha, %hb", {0x3f81, 0x3b80}, 0x3f82},
      {"sub.bf16 %h, %ha, %hb", {0x3f80, 0x4000}, 0xbf80},
      {"mul.bf16 %h, %ha, %hb", {0x4000, 0x4040}, 0x40c0},
      {"fma.rn.bf16 %h, %ha, %hb, %hc", {0x3f81, 0x3f81, 0xbf82}, 0x3880}, // 2^-14
      {"fma.rn.bf16x2 %r, %ra, %rb, %rc", {0x3f804000, 0x40004000, 0x3f803f80}, 0x404040a0},
      {"fma.rn.relu.bf16x2 %r, %ra, %rb, %rc", {0x3f804000, 0xc0004000, 0}, 0x00004080},
      {"add.bf16x2 %r, %ra, %rb", {0x3f804000, 0x40003f80}, 0x40404040},
      {"neg.bf16x2 %r, %ra", {0x3f80c000}, 0xbf804000},
      {"abs.bf16 %h, %ha", {0xbf80}, 0x3f80},
      {"min.bf16x2 %r, %ra, %rb", {0x3f80c000, 0x40003f80}, 0x3f80c000},
      {"max.bf16 %h, %ha, %hb", {0x3f80, 0x4000}, 0x4000},
      {"ex2.approx.ftz.bf16 %h, %ha", {0x4000}, 0x4080},
      {"tanh.approx.bf16x2 %r, %ra", {0}, 0},
  });
}
