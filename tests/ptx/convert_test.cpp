// SPDX-License-Identifier: Apache-2.0
// Comparison, selection, movement and conversion. The expected values are worked out by hand.
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ptx/one_instruction.hpp"

using namespace ptx_test;

namespace {

constexpr Word nan32 = 0x7fc00000;

} // namespace

TEST_CASE("comparisons set predicates", "[ptx]") {
  check({
      {"setp.eq.s32 %p, %ra, %rb", {5, 5}, 1},
      {"setp.ne.s32 %p, %ra, %rb", {5, 5}, 0},
      {"setp.lt.s32 %p, %ra, %rb", {0xffffffff, 1}, 1},
      {"setp.lt.u32 %p, %ra, %rb", {0xffffffff, 1}, 0},
      {"setp.le.u64 %p, %da, %db", {7, 7}, 1},
      {"setp.gt.s64 %p, %da, %db", {~Word{0}, 1}, 0},
      {"setp.ge.u16 %p, %ha, %hb", {0xffff, 1}, 1},
      {"setp.gt.s16 %p, %ha, %hb", {0xffff, 1}, 0},
      {"setp.lo.u32 %p, %ra, %rb", {1, 2}, 1},
      {"setp.ls.u32 %p, %ra, %rb", {2, 2}, 1},
      {"setp.hi.u32 %p, %ra, %rb", {2, 2}, 0},
      {"setp.hs.u32 %p, %ra, %rb", {2, 2}, 1},
      {"setp.eq.b64 %p, %da, %db", {3, 4}, 0},
      {"setp.eq.f32 %p, %ra, %rb", {f(0), f(-0.0F)}, 1},
      {"setp.lt.f32 %p, %ra, %rb", {f(1), f(2)}, 1},
      {"setp.lt.f32 %p, %ra, %rb", {nan32, f(2)}, 0},
      {"setp.ltu.f32 %p, %ra, %rb", {nan32, f(2)}, 1},
      {"setp.ne.f32 %p, %ra, %rb", {nan32, f(2)}, 0},
      {"setp.neu.f32 %p, %ra, %rb", {nan32, f(2)}, 1},
      {"setp.equ.f32 %p, %ra, %rb", {nan32, f(2)}, 1},
      {"setp.leu.f64 %p, %da, %db", {d(3), d(2)}, 0},
      {"setp.gtu.f64 %p, %da, %db", {d(3), d(2)}, 1},
      {"setp.geu.f32 %p, %ra, %rb", {f(2), f(2)}, 1},
      {"setp.gt.f64 %p, %da, %db", {d(3), d(2)}, 1},
      {"setp.ge.f32 %p, %ra, %rb", {f(1), f(2)}, 0},
      {"setp.le.f32 %p, %ra, %rb", {f(1), f(2)}, 1},
      {"setp.num.f32 %p, %ra, %rb", {f(1), nan32}, 0},
      {"setp.nan.f64 %p, %da, %db", {d(1), d(NAN)}, 1},
      {"setp.eq.ftz.f32 %p, %ra, %rb", {f(0x1p-130F), f(0)}, 1},
      {"setp.eq.f32 %p, %ra, %rb", {f(0x1p-130F), f(0)}, 0},
      {"setp.lt.f16 %p, %ha, %hb", {0x3c00, 0x4000}, 1},
      {"setp.gt.bf16 %p, %ha, %hb", {0x3f80, 0x4000}, 0},
      {"setp.lt.and.s32 %p, %ra, %rb, %pb", {1, 3}, 1},
      {"setp.lt.and.s32 %p, %ra, %rb, %pb", {1, 2}, 0},
      {"setp.lt.or.s32 %p, %ra, %rb, %pb", {5, 3}, 1},
      {"setp.lt.xor.s32 %p, %ra, %rb, %pb", {1, 3}, 0},
      {"setp.lt.and.s32 %p, %ra, %rb, !%pb", {1, 2}, 1},
      {"setp.lt.s32 %q|%p, %ra, %rb; mov.pred %p, %p", {1, 2}, 0},
      {"setp.lt.s32 %p|%q, %ra, %rb; mov.pred %p, %q", {1, 2}, 0},
      {"set.lt.u32.s32 %r, %ra, %rb", {1, 2}, 0xffffffff},
      {"set.lt.f32.s32 %r, %ra, %rb", {1, 2}, f(1)},
      {"set.eq.s32.f32 %r, %ra, %rb", {f(1), f(2)}, 0},
      {"set.gt.and.u32.f32 %r, %ra, %rb, %pa", {f(1) | 1, f(0.5F)}, 0xffffffff},
  });
}

namespace {

/// Every comparison of a type, on all pairs of some values, against that of C++.
template <class T> void check_comparisons(const std::string& type, std::initializer_list<T> values) {
  using Compare = bool (*)(T, T);
  struct Row {
    std::string word;
    Compare holds;
  };
  std::vector<Row> rows = {
      {"eq", [](T a, T b) { return a == b; }}, {"ne", [](T a, T b) { return a < b || a > b; }},
      {"lt", [](T a, T b) { return a < b; }},  {"le", [](T a, T b) { return a <= b; }},
      {"gt", [](T a, T b) { return a > b; }},  {"ge", [](T a, T b) { return a >= b; }},
  };
  if constexpr (std::is_floating_point_v<T>) {
    rows.push_back({"equ", [](T a, T b) { return !(a < b || a > b); }});
    rows.push_back({"neu", [](T a, T b) { return a != b; }});
    rows.push_back({"ltu", [](T a, T b) { return std::isnan(a) || std::isnan(b) || a < b; }});
    rows.push_back({"leu", [](T a, T b) { return std::isnan(a) || std::isnan(b) || a <= b; }});
    rows.push_back({"gtu", [](T a, T b) { return std::isnan(a) || std::isnan(b) || a > b; }});
    rows.push_back({"geu", [](T a, T b) { return std::isnan(a) || std::isnan(b) || a >= b; }});
    rows.push_back({"num", [](T a, T b) { return !std::isnan(a) && !std::isnan(b); }});
    rows.push_back({"nan", [](T a, T b) { return std::isnan(a) || std::isnan(b); }});
  }
  std::vector<Word> left, right;
  std::vector<std::pair<T, T>> pairs;
  for (const T a : values)
    for (const T b : values) {
      Word bits = 0;
      std::memcpy(&bits, &a, sizeof a);
      left.push_back(bits);
      bits = 0;
      std::memcpy(&bits, &b, sizeof b);
      right.push_back(bits);
      pairs.emplace_back(a, b);
    }
  const std::string name = sizeof(T) == 8 ? "%d" : sizeof(T) == 4 ? "%r" : "%h";
  for (const Row& row : rows) {
    INFO(row.word << " " << type);
    const auto set = run_threads("setp." + row.word + "." + type + " %p, " + name + "a, " + name + "b",
                                 {left, right}, "%p", static_cast<unsigned>(pairs.size()));
    for (std::size_t i = 0; i < pairs.size(); ++i)
      CHECK((set[i] != 0) == row.holds(pairs[i].first, pairs[i].second));
  }
}

} // namespace

TEST_CASE("every comparison of every type", "[ptx]") {
  check_comparisons<std::uint16_t>("u16", {0, 1, 0x7fff, 0x8000, 0xffff});
  check_comparisons<std::int16_t>("s16", {0, 1, 0x7fff, -0x8000, -1});
  check_comparisons<std::uint32_t>("u32", {0, 1, 0x7fffffff, 0x80000000, 0xffffffff});
  check_comparisons<std::int32_t>("s32", {0, 1, 0x7fffffff, std::numeric_limits<std::int32_t>::min(), -1});
  check_comparisons<std::uint64_t>("u64", {0, 1, 0xffffffff, 0x8000000000000000, ~Word{0}});
  check_comparisons<std::int64_t>("s64", {0, 1, 0xffffffff, std::numeric_limits<std::int64_t>::min(), -1});
  check_comparisons<float>("f32", {0, -0.0F, 1, -2, std::numeric_limits<float>::infinity(), NAN});
  check_comparisons<double>("f64", {0, -0.0, 1, -2, std::numeric_limits<double>::infinity(), NAN});
  check({{"setp.eq.b32 %p, %ra, %rb", {7, 7}, 1}, {"setp.ne.b16 %p, %ha, %hb", {7, 8}, 1}});
}

TEST_CASE("selections and moves", "[ptx]") {
  check({
      {"selp.b32 %r, %ra, %rb, %pa", {1, 2}, 1},
      {"selp.u64 %d, 5, %db, %pa", {1, 2}, 5},
      {"mov.s32 %r, -7", {}, 0xfffffff9},
      {"selp.u32 %r, %ra, %rb, %pa", {4, 2}, 2},
      {"selp.s32 %r, 7, -1, %pb", {4, 2}, 0xffffffff},
      {"selp.b64 %d, %da, %db, %pa", {3, 2}, 3},
      {"selp.f32 %r, 0f3F800000, %rb, %pa", {1, 2}, f(1)},
      {"selp.f64 %d, 0d3FF0000000000000, %db, %pa", {1, 2}, d(1)},
      {"selp.b16 %h, %ha, %hb, %pa", {1, 2}, 1},
      {"selp.u16 %h, 1, 0, %pa", {2}, 0},
      {"slct.b32.s32 %r, %ra, %rb, %rc", {1, 2, 0xffffffff}, 2},
      {"slct.f32.f32 %r, %ra, %rb, %rc", {f(1), f(2), f(0)}, f(1)},
      {"slct.u64.s32 %d, %da, %db, %rc", {1, 2, 0}, 1},
      {"mov.u32 %r, %ra", {5}, 5},
      {"mov.b64 %d, %da", {0x123456789a}, 0x123456789a},
      {"mov.f32 %r, 0fC0000000", {}, f(-2)},
      {"mov.f64 %d, 0d4000000000000000", {}, d(2)},
      {"mov.f32 %r, 2.5", {}, f(2.5F)},
      {"mov.u16 %h, 0xffff", {}, 0xffff},
      {"mov.b32 %r, -1", {}, 0xffffffff},
      {"mov.u64 %d, -1", {}, ~Word{0}},
      {"mov.b64 %d, {%ra, %rb}", {1, 2}, 0x200000001},
      {"mov.b32 %r, {%ha, %hb}", {0x1111, 0x2222}, 0x22221111},
      {"mov.b64 %d, {%ha, %hb, %hc, %hd}", {1, 2, 3, 4}, 0x0004000300020001},
      {"mov.b64 {%r1, %r2}, %da; mov.b32 %r, %r2", {0x200000001}, 2},
      {"mov.b64 {%r1, _}, %da; mov.b32 %r, %r1", {0x200000001}, 1},
      {"mov.b32 {%h1, %h2}, %ra; mov.b16 %h, %h2", {0x22221111}, 0x2222},
      {"mov.b64 {%h1, %h2, %h3, %h4}, %da; mov.b16 %h, %h3", {0x0004000300020001}, 3},
      {"mov.u32 %r, WARP_SZ", {}, 32},
      {"mov.u32 %r, %ntid.y", {}, 1},
      {"mov.u32 %r, %ctaid.x", {}, 0},
      {"mov.u32 %r, %nctaid.z", {}, 1},
      {"mov.u32 %r, %laneid", {}, 0},
      {"mov.u32 %r, %lanemask_le", {}, 1},
      {"mov.u32 %r, %lanemask_lt", {}, 0},
      {"mov.u32 %r, %lanemask_gt", {}, 0xfffffffe},
      {"mov.u32 %r, %lanemask_ge", {}, 0xffffffff},
      {"mov.u32 %r, %lanemask_eq", {}, 1},
      {"mov.u32 %r, %nwarpid", {}, 1},
      {".reg .b128 %x; mov.b128 %x, {%da, %db}; mov.b128 {%d1, %d2}, %x; mov.b64 %d, %d2", {5, 6}, 6},
      {"mov.u64 %d1, %clock64; mov.u64 %d2, %clock64; setp.lt.u64 %p, %d1, %d2; mov.pred %p, %p", {}, 1},
  });
}

TEST_CASE("conversions between integers", "[ptx]") {
  check({
      {"cvt.u64.u32 %d, %ra", {0xffffffff}, 0xffffffff},
      {"cvt.s64.s32 %d, %ra", {0xffffffff}, ~Word{0}},
      {"cvt.u32.u64 %r, %da", {0x1234567890}, 0x34567890},
      {"cvt.u16.u32 %h, %ra", {0x12345678}, 0x5678},
      {"cvt.u32.u16 %r, %ha", {0xffff}, 0xffff},
      {"cvt.s32.s16 %r, %ha", {0xffff}, 0xffffffff},
      {"cvt.s32.s8 %r, %ra", {0x1280}, 0xffffff80},
      {"cvt.u32.u8 %r, %ra", {0x1280}, 0x80},
      {"cvt.u8.u32 %h, %ra", {0x1280}, 0x80},
      {"cvt.s8.s32 %r, %ra", {0x1280}, 0xffffff80},
      {"cvt.u16.u8 %h, %ha", {0x1280}, 0x80},
      {"cvt.s64.s16 %d, %ha", {0x8000}, 0xffffffffffff8000},
      {"cvt.sat.u8.s32 %r, %ra", {300}, 255},
      {"cvt.sat.u8.s32 %r, %ra", {0xffffffff}, 0},
      {"cvt.sat.s16.s32 %h, %ra", {0x00012345}, 0x7fff},
      {"cvt.sat.s32.u32 %r, %ra", {0xffffffff}, 0x7fffffff},
      {"cvt.sat.u32.s64 %r, %da", {0x100000000}, 0xffffffff},
  });
}

TEST_CASE("conversions of numbers round as they say", "[ptx]") {
  check({
      {"cvt.rn.f32.s32 %r, %ra", {0x1000001}, f(0x1000000)},
      {"cvt.rp.f32.s32 %r, %ra", {0x1000001}, f(0x1000002)},
      {"cvt.rz.f32.u64 %r, %da", {0xffffffffffffffff}, 0x5f7fffff},
      {"cvt.rn.f32.u32 %r, %ra", {0xffffffff}, f(0x1p32F)},
      {"cvt.rn.f64.s32 %d, %ra", {0xffffffff}, d(-1)},
      {"cvt.rn.f64.u64 %d, %da", {0xffffffffffffffff}, d(0x1p64)},
      {"cvt.rm.f64.s64 %d, %da", {0x20000000000001}, d(0x20000000000000)},
      {"cvt.rn.f32.u64 %r, %da", {0x8000008000000001}, f(0x1.000002p63F)},
      {"cvt.rn.f64.s64 %d, %da", {~Word{0} << 60}, d(-0x1p60)},
      {"cvt.rn.f64.u32 %d, %ra", {0xffffffff}, d(4294967295.0)},
      {"cvt.rni.s32.f64 %r, %da", {d(-3.5)}, 0xfffffffc},
      {"cvt.rzi.f32.f32 %r, %ra", {f(-2.75F)}, f(-2)},
      {"cvt.rni.s32.f32 %r, %ra", {f(2.5F)}, 2},
      {"cvt.rni.s32.f32 %r, %ra", {f(3.5F)}, 4},
      {"cvt.rzi.s32.f32 %r, %ra", {f(-2.75F)}, 0xfffffffe},
      {"cvt.rmi.s32.f32 %r, %ra", {f(-2.25F)}, 0xfffffffd},
      {"cvt.rpi.s32.f32 %r, %ra", {f(2.25F)}, 3},
      {"cvt.rzi.s32.f32 %r, %ra", {f(1e20F)}, 0x7fffffff},
      {"cvt.rzi.s32.f32 %r, %ra", {f(-1e20F)}, 0x80000000},
      {"cvt.rzi.s32.f32 %r, %ra", {nan32}, 0},
      {"cvt.rzi.u32.f32 %r, %ra", {f(-3)}, 0},
      {"cvt.rzi.u32.f32 %r, %ra", {f(3e9F)}, 3000000000},
      {"cvt.rzi.u64.f64 %d, %da", {d(1e19)}, 10000000000000000000U},
      {"cvt.rzi.s64.f64 %d, %da", {d(1e19)}, 0x7fffffffffffffff},
      {"cvt.rzi.u16.f32 %h, %ra", {f(70000)}, 0xffff},
      {"cvt.f64.f32 %d, %ra", {f(1.5F)}, d(1.5)},
      {"cvt.rn.f32.f64 %r, %da", {d(1 + 0x1p-24)}, f(1)},
      {"cvt.rp.f32.f64 %r, %da", {d(1 + 0x1p-24)}, f(1 + 0x1p-23F)},
      {"cvt.rni.f32.f32 %r, %ra", {f(2.5F)}, f(2)},
      {"cvt.rzi.f64.f64 %d, %da", {d(-2.75)}, d(-2)},
      {"cvt.rmi.f32.f32 %r, %ra", {f(-2.25F)}, f(-3)},
      {"cvt.sat.f32.f32 %r, %ra", {f(3)}, f(1)},
      {"cvt.sat.f32.f32 %r, %ra", {nan32}, f(0)},
      {"cvt.ftz.f64.f32 %d, %ra", {f(-0x1p-130F)}, d(-0.0)},
  });
}

TEST_CASE("conversions to and from 16 bits and fewer", "[ptx]") {
  check({
      {"cvt.f32.f16 %r, %ha", {0x3c01}, f(1 + 0x1p-10F)},
      {"cvt.f32.f16 %r, %ha", {0x8001}, f(-0x1p-24F)},
      {"cvt.f32.f16 %r, %ha", {0x7c00}, f(std::numeric_limits<float>::infinity())},
      {"cvt.f32.bf16 %r, %ha", {0xc040}, f(-3)},
      {"cvt.f64.f16 %d, %ha", {0x4200}, d(3)},
      {"cvt.rn.f16.f32 %h, %ra", {f(1 + 0x1p-11F)}, 0x3c00},
      {"cvt.rn.f16.f32 %h, %ra", {f(1 + 0x3p-11F)}, 0x3c02},
      {"cvt.rz.f16.f32 %h, %ra", {f(1 + 0x3p-11F)}, 0x3c01},
      {"cvt.rn.f16.f32 %h, %ra", {f(65520)}, 0x7c00},
      {"cvt.rn.f16.f32 %h, %ra", {f(65519)}, 0x7bff},
      {"cvt.rz.f16.f32 %h, %ra", {f(1e6F)}, 0x7bff},
      {"cvt.rn.f16.f32 %h, %ra", {f(0x3p-26F)}, 0x0001},
      {"cvt.rn.f16.f32 %h, %ra", {f(0x1p-25F)}, 0x0000},
      {"cvt.rn.f16.f32 %h, %ra", {f(-0x3p-25F)}, 0x8002},
      {"cvt.rn.f16.f32 %h, %ra", {nan32}, 0x7fff},
      {"cvt.rn.f16.f64 %h, %da", {d(3)}, 0x4200},
      {"cvt.rn.f16.s32 %h, %ra", {0xfffffffd}, 0xc200},
      {"cvt.rn.f16.u16 %h, %ha", {2049}, 0x6800},
      {"cvt.rzi.s32.f16 %r, %ha", {0xc300}, 0xfffffffd},
      {"cvt.rni.u16.f16 %h, %ha", {0x4100}, 2},
      {"cvt.rn.bf16.f32 %h, %ra", {f(1 + 0x1p-8F)}, 0x3f80},
      {"cvt.rn.bf16.f32 %h, %ra", {f(1 + 0x3p-8F)}, 0x3f82},
      {"cvt.rz.bf16.f32 %h, %ra", {f(1 + 0x3p-8F)}, 0x3f81},
      {"cvt.rn.bf16.f32 %h, %ra", {nan32}, 0x7fff},
      {"cvt.rn.relu.bf16.f32 %h, %ra", {f(-2)}, 0},
      {"cvt.rn.bf16.f16 %h, %ha", {0x4200}, 0x4040},
      {"cvt.rni.bf16.bf16 %h, %ha", {0x4020}, 0x4000},
      {"cvt.rn.f16x2.f32 %r, %ra, %rb", {f(1), f(2)}, 0x3c004000},
      {"cvt.rn.bf16x2.f32 %r, %ra, %rb", {f(1), f(2)}, 0x3f804000},
      {"cvt.rz.bf16x2.f32 %r, %ra, %rb", {f(1 + 0x3p-8F), f(2)}, 0x3f814000},
      {"cvt.rn.relu.bf16x2.f32 %r, %ra, %rb", {f(-1), f(2)}, 0x00004000},
      {"cvt.rna.tf32.f32 %r, %ra", {f(1 + 0x1p-11F)}, f(1 + 0x1p-10F)},
      {"cvt.rn.satfinite.e4m3x2.f32 %h, %ra, %rb", {f(1), f(1000)}, 0x387e},
      {"cvt.rn.satfinite.e5m2x2.f32 %h, %ra, %rb", {f(1.5F), f(-2)}, 0x3ec0},
      {"cvt.rn.f16x2.e4m3x2 %r, %ha", {0x387e}, 0x3c005f00},
      {"cvt.rn.f16x2.e5m2x2 %r, %ha", {0x3ec0}, 0x3e00c000},
  });
}
