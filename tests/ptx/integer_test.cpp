// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic. The expected values are worked out by hand.
#include "ptx/one_instruction.hpp"

namespace {

using namespace ptx_test;

constexpr Word minus(Word value, unsigned bits = 32) {
  return (0 - value) & (bits == 64 ? ~Word{0} : (Word{1} << bits) - 1);
}

} // namespace

TEST_CASE("integer sums, differences and products", "[ptx]") {
  check({
      {"add.s32 %r, %ra, %rb", {0x7fffffff, 2}, 0x80000001},
      {"add.u32 %r, %ra, 5", {0xfffffffe}, 3},
      {"add.s64 %d, %da, %db", {0xffffffff, 1}, 0x100000000},
      {"add.u64 %d, %da, -1", {5}, 4},
      {"add.s16 %h, %ha, %hb", {0x7fff, 1}, 0x8000},
      {"add.u16 %h, %ha, %hb", {0xffff, 2}, 1},
      {"add.sat.s32 %r, %ra, %rb", {0x7fffffff, 2}, 0x7fffffff},
      {"add.sat.s32 %r, %ra, %rb", {minus(0x80000000), minus(2)}, 0x80000000},
      {"sub.s32 %r, %ra, %rb", {3, 5}, minus(2)},
      {"sub.s64 %d, %da, %db", {3, 5}, minus(2, 64)},
      {"sub.s16 %h, %ha, %hb", {3, 5}, minus(2, 16)},
      {"sub.sat.s32 %r, %ra, %rb", {0x80000000, 1}, 0x80000000},
      {"mul.lo.s32 %r, %ra, %rb", {minus(3), 7}, minus(21)},
      {"mul.lo.u32 %r, %ra, %rb", {0x10001, 0x10001}, 0x20001},
      {"mul.lo.s64 %d, %da, %db", {0x100000001, 0x100000001}, 0x200000001},
      {"mul.lo.s16 %h, %ha, %hb", {0x0101, 0x0101}, 0x0201},
      {"mul.hi.u32 %r, %ra, %rb", {0x80000000, 6}, 3},
      {"mul.hi.s32 %r, %ra, %rb", {0x80000000, 6}, minus(3)},
      {"mul.hi.u64 %d, %da, %db", {0x8000000000000000, 6}, 3},
      {"mul.hi.s64 %d, %da, %db", {0x8000000000000000, 6}, minus(3, 64)},
      {"mul.hi.u16 %h, %ha, %hb", {0x8000, 6}, 3},
      {"mul.wide.s32 %d, %ra, %rb", {minus(2), 3}, minus(6, 64)},
      {"mul.wide.u32 %d, %ra, %rb", {0xffffffff, 0xffffffff}, 0xfffffffe00000001},
      {"mul.wide.u16 %r, %ha, %hb", {0xffff, 0xffff}, 0xfffe0001},
      {"mul.wide.s16 %r, %ha, %hb", {0xffff, 5}, minus(5)},
      {"mad.lo.s32 %r, %ra, %rb, %rc", {3, minus(4), 5}, minus(7)},
      {"mad.lo.s64 %d, %da, %db, %dc", {3, 4, 5}, 17},
      {"mad.lo.u16 %h, %ha, %hb, %hc", {0x100, 0x100, 7}, 7},
      {"mad.hi.u32 %r, %ra, %rb, %rc", {0x80000000, 6, 10}, 13},
      {"mad.hi.s32 %r, %ra, %rb, %rc", {0x80000000, 6, 10}, 7},
      {"mad.hi.sat.s32 %r, %ra, %rb, %rc", {0x7fffffff, 0x7fffffff, 0x7fffffff}, 0x7fffffff},
      {"mad.wide.u32 %d, %ra, %rb, %dc", {0xffffffff, 2, 3}, 0x200000001},
      {"mad.wide.s32 %d, %ra, %rb, %dc", {minus(1), 2, 3}, 1},
      {"mad.wide.u16 %r, %ha, %hb, %rc", {0xffff, 2, 3}, 0x20001},
      {"mul24.lo.s32 %r, %ra, %rb", {0xff000002, minus(3)}, minus(6)},
      {"mul24.hi.u32 %r, %ra, %rb", {0x800000, 0x20000}, 0x1000000},
      {"mad24.lo.u32 %r, %ra, %rb, %rc", {0xff000002, 3, 4}, 10},
      {"mad24.hi.u32 %r, %ra, %rb, %rc", {0x800000, 0x20000, 4}, 0x1000004},
  });
}

TEST_CASE("integer division, absolute values and extremes", "[ptx]") {
  check({
      {"div.s32 %r, %ra, %rb", {minus(7), 2}, minus(3)},
      {"div.u32 %r, %ra, %rb", {0xfffffff9, 2}, 0x7ffffffc},
      {"div.s64 %d, %da, %db", {minus(7, 64), 2}, minus(3, 64)},
      {"div.u64 %d, %da, %db", {0x100000000, 3}, 0x55555555},
      {"div.s32 %r, %ra, %rb", {0x80000000, minus(1)}, 0x80000000},
      {"rem.s32 %r, %ra, %rb", {minus(7), 2}, minus(1)},
      {"rem.u32 %r, %ra, %rb", {7, 4}, 3},
      {"rem.u64 %d, %da, %db", {0x100000001, 16}, 1},
      {"rem.s64 %d, %da, %db", {minus(9, 64), 4}, minus(1, 64)},
      {"abs.s32 %r, %ra", {minus(5)}, 5},
      {"abs.s64 %d, %da", {minus(5, 64)}, 5},
      {"abs.s16 %h, %ha", {minus(5, 16)}, 5},
      {"neg.s32 %r, %ra", {5}, minus(5)},
      {"neg.s64 %d, %da", {5}, minus(5, 64)},
      {"neg.s16 %h, %ha", {5}, minus(5, 16)},
      {"min.s32 %r, %ra, %rb", {minus(1), 1}, minus(1)},
      {"min.u32 %r, %ra, %rb", {minus(1), 1}, 1},
      {"min.s64 %d, %da, %db", {minus(1, 64), 1}, minus(1, 64)},
      {"min.u64 %d, %da, %db", {minus(1, 64), 1}, 1},
      {"min.u16 %h, %ha, %hb", {0xffff, 3}, 3},
      {"max.s32 %r, %ra, %rb", {minus(1), 1}, 1},
      {"max.u32 %r, %ra, %rb", {minus(1), 1}, minus(1)},
      {"max.s64 %d, %da, %db", {minus(1, 64), 1}, 1},
      {"max.u64 %d, %da, %db", {minus(1, 64), 1}, minus(1, 64)},
      {"max.u16 %h, %ha, %hb", {0xffff, 3}, 0xffff},
      {"max.s16 %h, %ha, %hb", {0xffff, 3}, 3},
      {"sad.s32 %r, %ra, %rb, %rc", {minus(3), 4, 10}, 17},
      {"sad.u32 %r, %ra, %rb, %rc", {3, 4, 10}, 11},
      {"dp4a.u32.u32 %r, %ra, %rb, %rc", {0x01020304, 0x05060708, 100}, 5 + 12 + 21 + 32 + 100},
      {"dp4a.s32.s32 %r, %ra, %rb, %rc",
       {0xff020304, 0x05060708, 100},
       minus(5) + 12 + 21 + 32 + 100 - 0x100000000},
      {"dp4a.u32.s32 %r, %ra, %rb, %rc", {0x000000ff, 0x000000ff, 300}, 45},
      {"dp2a.lo.u32.u32 %r, %ra, %rb, %rc", {0x00020003, 0x05060708, 1}, 3 * 8 + 2 * 7 + 1},
      {"dp2a.hi.u32.u32 %r, %ra, %rb, %rc", {0x00020003, 0x05060708, 1}, 3 * 6 + 2 * 5 + 1},
      {"dp2a.lo.s32.s32 %r, %ra, %rb, %rc", {0xffff0003, 0x00000208, 1}, 3 * 8 - 2 + 1},
  });
}

TEST_CASE("sums with a carry", "[ptx]") {
  // Numbers of 128 bits in words of 32: the carry runs through.
  check({
      {"add.cc.u32 %r1, %ra, %rb; addc.u32 %r, 0, 0", {0xffffffff, 1}, 1},
      {"add.cc.u32 %r1, %ra, %rb; addc.u32 %r, 0, 0", {0xfffffffe, 1}, 0},
      {"add.cc.u32 %r1, %ra, %rb; addc.cc.u32 %r2, %ra, 0; addc.u32 %r, 5, 0", {0xffffffff, 1}, 6},
      {"sub.cc.u32 %r1, %ra, %rb; subc.u32 %r, 10, 3", {1, 2}, 6},
      {"sub.cc.u32 %r1, %ra, %rb; subc.cc.u32 %r2, 0, 0; subc.u32 %r, 10, 3", {1, 2}, 6},
      {"sub.cc.u32 %r1, %ra, %rb; subc.u32 %r, 10, 3", {2, 2}, 7},
      {"add.cc.u64 %d1, %da, %db; addc.u64 %d, 0, 0", {~Word{0}, 1}, 1},
      {"sub.cc.s64 %d1, %da, %db; subc.s64 %d, 0, 0", {0, 1}, ~Word{0}},
      {"mad.lo.cc.u32 %r1, %ra, %rb, %rc; addc.u32 %r, 0, 0", {0xffffffff, 1, 1}, 1},
      {"mad.lo.cc.u32 %r1, %ra, %rb, %rc; madc.hi.u32 %r, %ra, %rb, 0", {0xffffffff, 2, 2}, 2},
      {"mad.lo.cc.u32 %r1, %ra, 1, 1; madc.lo.cc.u32 %r, %rb, 3, 4", {0xffffffff, 2}, 11},
      {"mad.lo.cc.u32 %r1, %ra, 1, 1; madc.hi.cc.u32 %r2, %ra, %ra, %ra; addc.u32 %r, 0, 0", {0xffffffff}, 1},
  });
}
