// SPDX-License-Identifier: Apache-2.0
// Logic, shifts and bit fields. The expected values are worked out by hand.
#include "ptx/one_instruction.hpp"

using namespace ptx_test;

TEST_CASE("logic of words and predicates", "[ptx]") {
  check({
      {"and.b32 %r, %ra, %rb", {0xff00ff00, 0x0ff00ff0}, 0x0f000f00},
      {"and.b64 %d, %da, %db", {0xff00000000000001, 0xf000000000000003}, 0xf000000000000001},
      {"and.b16 %h, %ha, %hb", {0xff00, 0x0ff0}, 0x0f00},
      {"or.b32 %r, %ra, %rb", {0xff00ff00, 0x0ff00ff0}, 0xfff0fff0},
      {"or.b64 %d, %da, %db", {1, 0x8000000000000000}, 0x8000000000000001},
      {"or.b16 %h, %ha, %hb", {0xf000, 1}, 0xf001},
      {"xor.b32 %r, %ra, %rb", {0xff00ff00, 0x0ff00ff0}, 0xf0f0f0f0},
      {"xor.b64 %d, %da, %db", {3, 0x8000000000000001}, 0x8000000000000002},
      {"not.b32 %r, %ra", {0xff00ff00}, 0x00ff00ff},
      {"not.b64 %d, %da", {1}, 0xfffffffffffffffe},
      {"not.b16 %h, %ha", {1}, 0xfffe},
      {"cnot.b32 %r, %ra", {0}, 1},
      {"cnot.b32 %r, %ra", {7}, 0},
      {"and.pred %p, %pa, %pb", {1, 1}, 1},
      {"and.pred %p, %pa, %pb", {1, 0}, 0},
      {"and.pred %p, %pa, !%pb", {1, 0}, 1},
      {"or.pred %p, %pa, %pb", {0, 1}, 1},
      {"or.pred %p, %pa, %pb", {0, 0}, 0},
      {"xor.pred %p, %pa, %pb", {1, 1}, 0},
      {"not.pred %p, %pa", {1}, 0},
      {"mov.pred %p, 1", {}, 1},
      {"lop3.b32 %r, %ra, %rb, %rc, 0x80", {0xff, 0x0f, 0x3c}, 0x0c},                         // a & b & c
      {"lop3.b32 %r, %ra, %rb, %rc, 0xe8", {0x0f, 0x33, 0x55}, 0x17},                         // majority
      {"lop3.b32 %r, %ra, %rb, %rc, 0xca", {0xff00ff00, 0x12345678, 0x9abcdef0}, 0x12bc56f0}, // a ? b : c
      {"lop3.and.b32 %r|%p, %ra, %rb, %rc, 0x80, %pb; mov.pred %p, %p", {1, 1, 1}, 1},
      {"lop3.or.b32 %r|%p, %ra, %rb, %rc, 0x80, %pb; mov.pred %p, %p", {2, 0, 1}, 0},
  });
}

TEST_CASE("shifts stop at the width", "[ptx]") {
  check({
      {"shl.b32 %r, %ra, %rb", {0x80000001, 1}, 2},
      {"shl.b32 %r, %ra, %rb", {1, 32}, 0},
      {"shl.b64 %d, %da, %rb", {1, 63}, 0x8000000000000000},
      {"shl.b64 %d, %da, 64", {1}, 0},
      {"shl.b16 %h, %ha, %rb", {0x8001, 1}, 2},
      {"shr.u32 %r, %ra, %rb", {0x80000000, 31}, 1},
      {"shr.u32 %r, %ra, %rb", {0x80000000, 40}, 0},
      {"shr.b32 %r, %ra, %rb", {0x80000000, 4}, 0x08000000},
      {"shr.s32 %r, %ra, %rb", {0x80000000, 4}, 0xf8000000},
      {"shr.s32 %r, %ra, %rb", {0x80000000, 40}, 0xffffffff},
      {"shr.s64 %d, %da, %rb", {0x8000000000000000, 60}, 0xfffffffffffffff8},
      {"shr.u64 %d, %da, %rb", {0x8000000000000000, 60}, 8},
      {"shr.u16 %h, %ha, %rb", {0x8000, 8}, 0x80},
      {"shr.s16 %h, %ha, %rb", {0x8000, 8}, 0xff80},
      {"shf.l.wrap.b32 %r, %ra, %rb, %rc", {0x80000000, 0x00000001, 1}, 3},
      {"shf.l.wrap.b32 %r, %ra, %rb, %rc", {0x80000000, 0x00000001, 33}, 3},
      {"shf.l.clamp.b32 %r, %ra, %rb, %rc", {0x80000000, 0x00000001, 33}, 0x80000000},
      {"shf.r.wrap.b32 %r, %ra, %rb, %rc", {0x80000000, 0x00000001, 1}, 0xc0000000},
      {"shf.r.clamp.b32 %r, %ra, %rb, %rc", {0x80000000, 0x00000001, 40}, 1},
  });
}

TEST_CASE("counts, fields and permutations of bits", "[ptx]") {
  check({
      {"popc.b32 %r, %ra", {0xf0f00001}, 9},
      {"popc.b64 %r, %da", {0xf000000000000001}, 5},
      {"clz.b32 %r, %ra", {0x00010000}, 15},
      {"clz.b32 %r, %ra", {0}, 32},
      {"clz.b64 %r, %da", {1}, 63},
      {"brev.b32 %r, %ra", {0x80000003}, 0xc0000001},
      {"brev.b64 %d, %da", {1}, 0x8000000000000000},
      {"bfind.u32 %r, %ra", {0x00012345}, 16},
      {"bfind.u32 %r, %ra", {0}, 0xffffffff},
      {"bfind.s32 %r, %ra", {0xfffffffe}, 0},
      {"bfind.s32 %r, %ra", {0xffffffff}, 0xffffffff},
      {"bfind.shiftamt.u32 %r, %ra", {0x00012345}, 15},
      {"bfind.u64 %r, %da", {0x100000000}, 32},
      {"bfe.u32 %r, %ra, %rb, %rc", {0x12345678, 8, 12}, 0x456},
      {"bfe.s32 %r, %ra, %rb, %rc", {0x00000800, 8, 4}, 0xfffffff8},
      {"bfe.s32 %r, %ra, %rb, %rc", {0x80000000, 28, 8}, 0xfffffff8}, // beyond the end: the sign
      {"bfe.u32 %r, %ra, %rb, %rc", {0x80000000, 28, 8}, 8},
      {"bfe.s32 %r, %ra, %rb, %rc", {0xffffffff, 3, 0}, 0},
      {"bfe.s32 %r, %ra, %rb, %rc", {0x80000000, 40, 4}, 0xffffffff},
      {"bfe.u64 %d, %da, %rb, %rc", {0x123456789abcdef0, 32, 16}, 0x5678},
      {"bfe.s64 %d, %da, %rb, %rc", {0x0000800000000000, 44, 4}, 0xfffffffffffffff8},
      {"bfi.b32 %r, %ra, %rb, %rc, %rd", {0xff, 0x12345678, 8, 4}, 0x12345f78},
      {"bfi.b32 %r, %ra, %rb, %rc, %rd", {0xff, 0x12345678, 32, 4}, 0x12345678},
      {"bfi.b32 %r, %ra, %rb, %rc, %rd", {0xff, 0x12345678, 28, 32}, 0xf2345678},
      {"bfi.b64 %d, %da, %db, %rc, %rd", {5, 0, 60, 4}, 0x5000000000000000},
      {"bmsk.clamp.b32 %r, %ra, %rb", {4, 8}, 0xff0},
      {"bmsk.clamp.b32 %r, %ra, %rb", {40, 8}, 0},
      {"bmsk.wrap.b32 %r, %ra, %rb", {36, 40}, 0xff0},
      {"szext.clamp.s32 %r, %ra, %rb", {0x8, 4}, 0xfffffff8},
      {"szext.clamp.u32 %r, %ra, %rb", {0xfff8, 4}, 8},
      {"szext.wrap.u32 %r, %ra, %rb", {0xfff8, 36}, 8},
      {"fns.b32 %r, %ra, %rb, %rc", {0xaaaaaaaa, 3, 1}, 3},
      {"fns.b32 %r, %ra, %rb, %rc", {0xaaaaaaaa, 3, 0xffffffff}, 3},
      {"fns.b32 %r, %ra, %rb, %rc", {0xaaaaaaaa, 3, 0}, 3},
      {"fns.b32 %r, %ra, %rb, %rc", {0xaaaaaaaa, 3, 2}, 5},
      {"prmt.b32 %r, %ra, %rb, %rc", {0x33221100, 0x77665544, 0x7531}, 0x77553311},
      {"prmt.b32 %r, %ra, %rb, %rc", {0x33228000, 0x77665544, 0x8091}, 0x0000ff80},
      {"prmt.b32.f4e %r, %ra, %rb, %rc", {0x33221100, 0x77665544, 1}, 0x44332211},
      {"prmt.b32.b4e %r, %ra, %rb, %rc", {0x33221100, 0x77665544, 1}, 0x66770011},
      {"prmt.b32.rc8 %r, %ra, %rb, %rc", {0x33221100, 0, 2}, 0x22222222},
      {"prmt.b32.ecl %r, %ra, %rb, %rc", {0x33221100, 0, 1}, 0x33221111},
      {"prmt.b32.ecr %r, %ra, %rb, %rc", {0x33221100, 0, 2}, 0x22221100},
      {"prmt.b32.rc16 %r, %ra, %rb, %rc", {0x33221100, 0, 1}, 0x33223322},
  });
}
