// SPDX-License-Identifier: Apache-2.0
// Loads, stores, atomic operations and asynchronous copies.
#include <algorithm>
#include <numeric>

#include "ptx/one_instruction.hpp"

using namespace ptx_test;

namespace {

/// Runs a kernel whose parameter is the address of `words`, and returns what it left there.
std::vector<std::uint32_t> run_on(std::vector<std::uint32_t> words, std::string_view body,
                                  unsigned threads = 32, std::string_view outside = "",
                                  const ptx::Options& options = {}) {
  std::string text =
      module_text(".param .u64 p", ".reg .pred %p, %q; .reg .b16 %h<10>; .reg .b32 %r<20>; "
                                   ".reg .b64 %d<20>; ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x;\n" +
                                       std::string(body));
  text.insert(text.find(".visible"), outside);
  const ptx::Module module = ptx::parse(text);
  ptx::Memory memory;
  memory.add_variables(module);
  memory.add(words.data(), words.size() * 4, "words");
  const void* parameters[] = {words.data()};
  ptx::run(*module.find("k"), {{1}, {threads}, 1024, parameters}, memory, options);
  return words;
}

} // namespace

TEST_CASE("loads and stores of each width", "[ptx]") {
  const std::vector<std::uint32_t> in{0x84838281, 0x88878685, 0x11111111, 0x22222222, 0, 0, 0, 0};
  const auto last = [&](std::string_view body) { return run_on(in, body, 1)[4]; };
  CHECK(last("ld.global.u8 %r1, [%d0+1]; st.global.u32 [%d0+16], %r1;") == 0x82);
  CHECK(last("ld.global.s8 %r1, [%d0+1]; st.global.u32 [%d0+16], %r1;") == 0xffffff82);
  CHECK(last("ld.global.u8 %h1, [%d0+1]; cvt.u32.u16 %r1, %h1; st.global.u32 [%d0+16], %r1;") == 0x82);
  CHECK(last("ld.global.s8 %h1, [%d0+1]; cvt.u32.u16 %r1, %h1; st.global.u32 [%d0+16], %r1;") == 0xff82);
  CHECK(last("ld.global.u16 %r1, [%d0+2]; st.global.u32 [%d0+16], %r1;") == 0x8483);
  CHECK(last("ld.global.s16 %r1, [%d0+2]; st.global.u32 [%d0+16], %r1;") == 0xffff8483);
  CHECK(last("ld.global.nc.u32 %r1, [%d0+4]; st.global.u32 [%d0+16], %r1;") == 0x88878685);
  CHECK(last("ld.global.ca.L2::128B.b32 %r1, [%d0+8]; st.global.wt.b32 [%d0+16], %r1;") == 0x11111111);
  CHECK(
      last(
          "ld.global.s32 %d1, [%d0+4]; shr.u64 %d1, %d1, 32; cvt.u32.u64 %r1, %d1; st.global.u32 [%d0+16], %r1;") ==
      0xffffffff);
  CHECK(last("ld.global.u64 %d1, [%d0+8]; shr.u64 %d1, %d1, 32; st.global.u32 [%d0+16], %d1;") == 0x22222222);
  CHECK(last("mov.u32 %r1, 0x1234; st.global.u8 [%d0+16], %r1;") == 0x34);
  CHECK(last("mov.u16 %h1, 0x1234; st.global.u16 [%d0+18], %h1;") == 0x12340000);
  CHECK(last("ld.global.v2.u32 {%r1, %r2}, [%d0+8]; st.global.u32 [%d0+16], %r2;") == 0x22222222);
  CHECK(
      last("ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%d0]; st.global.v4.u8 [%d0+16], {%h4, %h3, %h2, %h1};") ==
      0x81828384);
  CHECK(last("ld.u32 %r1, [%d0+8]; st.u32 [%d0+16], %r1;") == 0x11111111);
  CHECK(last("ld.volatile.global.u32 %r1, [%d0+8]; st.volatile.global.u32 [%d0+16], %r1;") == 0x11111111);
  CHECK(last("ld.relaxed.gpu.global.u32 %r1, [%d0+8]; st.relaxed.sys.global.u32 [%d0+16], %r1;") ==
        0x11111111);
  CHECK(last("ld.acquire.gpu.global.u32 %r1, [%d0+8]; st.release.gpu.global.u32 [%d0+16], %r1;") ==
        0x11111111);
  CHECK(
      last(
          "prefetch.global.L2 [%d0]; prefetchu.L1 [%d0]; discard.global.L2 [%d0], 128; "
          "applypriority.global.L2::evict_normal [%d0], 128; ldu.global.u32 %r1, [%d0+8]; st.global.u32 [%d0+16], %r1;") ==
      0x11111111);
  CHECK(
      run_on(in,
             "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0]; st.global.v4.b32 [%d0+16], {%r4, %r3, %r2, %r1};",
             1) == std::vector<std::uint32_t>{0x84838281, 0x88878685, 0x11111111, 0x22222222, 0x22222222,
                                              0x11111111, 0x88878685, 0x84838281});
  CHECK(run_on(in, "ld.global.v2.f64 {%d1, %d2}, [%d0]; st.global.v2.u64 [%d0+16], {%d2, %d1};", 1)[4] ==
        0x11111111);
  CHECK(run_on(in, ".reg .b128 %x; ld.global.b128 %x, [%d0]; st.global.b128 [%d0+16], %x;", 1)[7] ==
        0x22222222);
}

TEST_CASE("every type and vector goes through every space", "[ptx]") {
  struct Kind {
    std::string type, registers;
    unsigned bytes;
  };
  const Kind kinds[] = {{"u8", "%h", 1},  {"s8", "%h", 1},  {"b8", "%h", 1},  {"u16", "%h", 2},
                        {"s16", "%h", 2}, {"b16", "%h", 2}, {"u32", "%r", 4}, {"s32", "%r", 4},
                        {"b32", "%r", 4}, {"f32", "%r", 4}, {"u64", "%d", 8}, {"s64", "%d", 8},
                        {"b64", "%d", 8}, {"f64", "%d", 8}};
  const std::vector<std::uint32_t> in{0x84838281, 0x88878685, 0x11111111, 0xa2222222, 0, 0, 0, 0, 0, 0, 0, 0};
  for (const Kind& kind : kinds) {
    for (const unsigned count : {1U, 2U, 4U}) {
      if (kind.bytes * count > 16)
        continue;
      std::string list;
      for (unsigned i = 1; i <= count; ++i)
        list += (i > 1 ? ", " : "") + kind.registers + std::to_string(i);
      if (count > 1)
        list = "{" + list + "}";
      const std::string type = (count > 1 ? "v" + std::to_string(count) + "." : "") + kind.type + " ";
      for (const std::string space : {"shared", "local", "global", "generic", "param"}) {
        INFO(space << " " << type);
        const std::string dot = space == "generic" ? "." : "." + space + ".";
        const std::string place = space == "global" || space == "generic" ? "[%d0+32]" : "[x]";
        const std::string declaration =
            space == "global" || space == "generic" ? "" : "." + space + " .align 16 .b8 x[16]; ";
        const auto out = run_on(in,
                                "{ " + declaration + "ld.global." + type + list + ", [%d0]; st" + dot + type +
                                    place + ", " + list + "; ld" + dot + type + list + ", " + place +
                                    "; st.global." + type + "[%d0+16], " + list + "; }",
                                1);
        CHECK(std::memcmp(out.data(), out.data() + 4, std::min(kind.bytes * count, 8U)) == 0);
      }
    }
  }
}

TEST_CASE("each space has its own addresses", "[ptx]") {
  const std::vector<std::uint32_t> in(32, 7);
  const auto square = [](std::uint32_t i) { return i * i; };
  const auto squares = [&](std::string_view body, std::string_view outside = "") {
    const std::vector<std::uint32_t> out = run_on(in,
                                                  "mul.lo.u32 %r1, %r0, %r0; mul.wide.u32 %d1, %r0, 4; "
                                                  "add.s64 %d2, %d0, %d1; cvt.u32.u64 %r3, %d1;" +
                                                      std::string(body) + "st.global.u32 [%d2], %r2;",
                                                  32, outside);
    for (std::uint32_t i = 0; i < 32; ++i)
      CHECK(out[i] == square(i));
  };
  // Shared memory by offset, by 32-bit address, and by generic address.
  squares(".shared .align 4 .b8 s[128]; mov.u64 %d3, s; add.s64 %d3, %d3, %d1; st.shared.u32 [%d3], %r1; "
          "ld.shared.u32 %r2, [%d3];");
  squares(".shared .align 4 .b8 t[64]; .shared .align 4 .b8 s[128]; mov.u32 %r4, s; add.s32 %r4, %r4, %r3; "
          "st.shared.u32 [%r4], %r1; ld.shared.u32 %r2, [%r4];");
  squares("mov.u64 %d3, s; cvta.shared.u64 %d4, %d3; add.s64 %d4, %d4, %d1; st.u32 [%d4], %r1; "
          "cvta.to.shared.u64 %d5, %d4; ld.shared.u32 %r2, [%d5];",
          ".shared .align 16 .b8 s[128];\n");
  squares("mov.u64 %d3, dynamic; add.s64 %d3, %d3, %d1; st.shared.u32 [%d3], %r1; ld.shared.u32 %r2, [%d3];",
          ".extern .shared .align 128 .b8 dynamic[];\n");
  // Local memory, where each thread has its own at the same address.
  squares(".local .align 8 .b8 l[16]; st.local.u32 [l+4], %r1; ld.local.u32 %r2, [l+4];");
  squares(".local .align 8 .b8 l[16]; mov.u64 %d3, l; cvta.local.u64 %d4, %d3; st.u32 [%d4+8], %r1; "
          "cvta.to.local.u64 %d5, %d4; ld.local.u32 %r2, [%d5+8];");
  // Variables of the module.
  squares("mov.u64 %d3, g; add.s64 %d3, %d3, %d1; st.global.u32 [%d3], %r1; ld.global.u32 %r2, [%d3];",
          ".global .align 4 .b8 g[128];\n");
  squares("mov.u64 %d3, c; add.s64 %d3, %d3, %d1; ld.const.u32 %r4, [%d3]; ld.const.u32 %r5, [c+4]; "
          "add.s32 %r4, %r4, %r5; add.s32 %r2, %r1, %r4;",
          ".const .align 4 .u32 c[32] = {0};\n");
  squares(
      "ld.global.u64 %d3, [pointer]; ld.global.f32 %r4, [%d3]; cvt.rzi.u32.f32 %r4, %r4; sub.s32 %r4, %r4, 5; "
      "add.s32 %r2, %r1, %r4;",
      ".global .align 4 .f32 value[2] = {0f40000000, 5.0};\n.global .align 8 .u64 pointer = value+4;\n");
  squares(
      "mov.u64 %d3, s; cvta.shared.u64 %d4, %d3; isspacep.shared %p, %d4; isspacep.global %q, %d0; "
      "and.pred %p, %p, %q; isspacep.shared %q, %d0; not.pred %q, %q; and.pred %p, %p, %q; selp.u32 %r2, %r1, 99, %p;",
      ".shared .align 16 .b8 s[128];\n");
}

TEST_CASE("parameters are packed and read as declared", "[ptx]") {
  const ptx::Module module = ptx::parse(module_text(
      ".param .u8 a, .param .u32 b, .param .align 16 .b8 c[20], .param .u64 out, .param .f64 d",
      ".reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b16 %h<9>; ld.param.u8 %r1, [a]; ld.param.u32 %r2, [b]; "
      "ld.param.v2.u32 {%r3, %r4}, [c+8]; ld.param.u64 %d1, [out]; mov.b64 %d2, c; ld.param.u8 %h1, [%d2+16]; "
      "cvt.u32.u16 %r5, %h1; ld.param.f64 %d3, [d]; cvt.rzi.u32.f64 %r6, %d3; "
      "cvta.param.u64 %d4, %d2; ld.u32 %r7, [%d4+4]; "
      "st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4}; st.global.v2.u32 [%d1+16], {%r5, %r6}; st.global.u32 [%d1+24], %r7;"));
  const ptx::Kernel& kernel = *module.find("k");
  REQUIRE(kernel.parameters.size() == 5);
  CHECK(kernel.parameters[1].offset == 4);
  CHECK(kernel.parameters[2].offset == 16);
  CHECK(kernel.parameters[3].offset == 40);
  CHECK(kernel.parameter_bytes == 56);
  struct {
    std::uint8_t a = 200;
    std::uint32_t b = 3;
    alignas(16) std::uint32_t c[5] = {1, 22, 4, 5, 6};
    std::uint32_t* out;
    double d = 7;
  } values;
  alignas(16) std::uint32_t out[8] = {};
  values.out = out;
  ptx::Memory memory;
  memory.add(out, sizeof out, "out");
  ptx::run(kernel, {{1}, {1}, 0, &values}, memory);
  CHECK(std::vector<std::uint32_t>(out, out + 7) == std::vector<std::uint32_t>{200, 3, 4, 5, 6, 7, 22});
}

TEST_CASE("atomic operations in global and shared memory", "[ptx]") {
  struct Row {
    std::string_view text;
    Word before, operand, after;
    unsigned bytes = 4;
  };
  const float x = 1.5F, y = 2.25F;
  const Row rows[] = {
      {"add.u32", 5, 7, 12},
      {"add.s32", 5, 0xffffffff, 4},
      {"min.u32", 5, 0xffffffff, 5},
      {"min.s32", 5, 0xffffffff, 0xffffffff},
      {"max.u32", 5, 0xffffffff, 0xffffffff},
      {"max.s32", 5, 0xffffffff, 5},
      {"and.b32", 6, 3, 2},
      {"or.b32", 6, 3, 7},
      {"xor.b32", 6, 3, 5},
      {"exch.b32", 6, 3, 3},
      {"inc.u32", 6, 7, 7},
      {"inc.u32", 7, 7, 0},
      {"dec.u32", 6, 7, 5},
      {"dec.u32", 0, 7, 7},
      {"dec.u32", 9, 7, 7},
      {"add.f32", f(x), f(y), f(x + y)},
      {"add.noftz.f16x2", 0x3c004000, 0x3c003c00, 0x40004200},
      {"add.noftz.bf16x2", 0x3f804000, 0x3f803f80, 0x40004040},
      {"add.u64", 5, 0x100000000, 0x100000005, 8},
      {"add.f64", d(1.5), d(2.25), d(3.75), 8},
      {"min.s64", 5, ~Word{0}, ~Word{0}, 8},
      {"max.u64", 5, ~Word{0}, ~Word{0}, 8},
      {"min.u64", 5, 6, 5, 8},
      {"max.s64", 5, 6, 6, 8},
      {"exch.b64", 5, 6, 6, 8},
      {"and.b64", 6, 3, 2, 8},
      {"or.b64", 6, 3, 7, 8},
      {"xor.b64", 6, 3, 5, 8},
      {"add.noftz.f16", 0x3c00, 0x4000, 0x4200, 2},
      {"add.noftz.bf16", 0x3f80, 0x4000, 0x4040, 2},
  };
  for (const Row& row : rows) {
    for (const bool shared : {false, true}) {
      for (const bool returns : {true, false}) {
        INFO(row.text << (shared ? " in shared" : " in global") << (returns ? ", atom" : ", red"));
        const std::string width = std::to_string(8 * row.bytes);
        const std::string reg = row.bytes == 8 ? "%d" : row.bytes == 4 ? "%r" : "%h";
        const std::string place = shared ? "[s]" : "[%d0]";
        const std::string operation =
            (returns ? "atom" : "red") + std::string(shared ? ".shared." : ".relaxed.gpu.global.");
        if (!returns && row.text.starts_with("exch"))
          continue;
        const std::vector<std::uint32_t> out = run_on(
            {static_cast<std::uint32_t>(row.before), static_cast<std::uint32_t>(row.before >> 32),
             static_cast<std::uint32_t>(row.operand), static_cast<std::uint32_t>(row.operand >> 32), 0, 0},
            ".shared .align 8 .b8 s[8]; ld.global.b" + width + " " + reg + "1, [%d0]; ld.global.b" + width +
                " " + reg + "2, [%d0+8]; st.shared.b" + width + " [s], " + reg + "1; mov.b" + width + " " +
                reg + "3, " + reg + "1; " + operation + std::string(row.text) + " " +
                (returns ? reg + "3, " : "") + place + ", " + reg + "2; " + "ld.shared.b" + width + " " +
                reg + "4, [s]; st.global.b" + width + " [%d0+16], " + reg + "3; " +
                (shared ? "st.global.b" + width + " [%d0], " + reg + "4;" : ""),
            1);
        const Word mask = row.bytes == 8 ? ~Word{0} : (Word{1} << (8 * row.bytes)) - 1;
        CHECK(((Word{out[1]} << 32 | out[0]) & mask) == row.after);
        CHECK(((Word{out[5]} << 32 | out[4]) & mask) == row.before); // the old value
      }
    }
  }
}

TEST_CASE("atomic operations of many threads add up", "[ptx]") {
  CHECK(run_on({0}, "red.global.add.u32 [%d0], 3;", 256)[0] == 768);
  CHECK(run_on({0}, "atom.add.u32 %r1, [%d0], %r0;", 256)[0] == 255 * 128);
  CHECK(run_on({0, 0}, "atom.global.inc.u32 %r1, [%d0], 9;", 256)[0] == 256 % 10);
  // Compare and swap: only the thread that sees 0 wins.
  const auto swapped = run_on({0, 0},
                              "add.s32 %r1, %r0, 1; atom.global.acq_rel.gpu.cas.b32 %r2, [%d0], 0, %r1; "
                              "setp.eq.s32 %p, %r2, 0; @%p red.global.add.u32 [%d0+4], 1;",
                              64);
  CHECK(swapped == std::vector<std::uint32_t>{1, 1});
  CHECK(run_on({5, 6, 0, 0},
               "mov.b64 %d1, 0x600000005; mov.b64 %d2, 9; atom.global.cas.b64 %d3, [%d0], %d1, %d2;",
               1)[0] == 9);
  CHECK(run_on({5}, "mov.b16 %h1, 5; mov.b16 %h2, 8; atom.global.cas.b16 %h3, [%d0], %h1, %h2;", 1)[0] == 8);
  alignas(16) const auto wide = run_on(
      {1, 0, 2, 0},
      ".reg .b128 %x, %y, %z; mov.b64 %d1, 1; mov.b64 %d2, 2; mov.b64 %d3, 7; mov.b128 %x, {%d1, %d2}; "
      "mov.b128 %y, {%d3, %d3}; atom.global.cas.b128 %z, [%d0], %x, %y; "
      "atom.global.exch.b128 %x, [%d0], %z;",
      1);
  CHECK(wide == std::vector<std::uint32_t>{1, 0, 2, 0});
}

TEST_CASE("asynchronous copies arrive at their wait at the latest", "[ptx]") {
  std::vector<std::uint32_t> in(64);
  for (std::uint32_t i = 0; i < 64; ++i)
    in[i] = i + 1;
  for (const ptx::Arrival arrival : {ptx::Arrival::at_issue, ptx::Arrival::at_wait}) {
    ptx::Options options;
    options.arrival = arrival;
    // Each of 4 threads copies 16 bytes, then 16 more in a second group; of the second, only 4 bytes are
    // read.
    const auto out = run_on(
        in,
        ".shared .align 16 .b8 s[128]; mul.wide.u32 %d1, %r0, 16; add.s64 %d2, %d0, %d1; "
        "mov.u64 %d3, s; add.s64 %d3, %d3, %d1; cvt.u32.u64 %r1, %d3; "
        "cp.async.cg.shared.global [%r1], [%d2], 16; cp.async.commit_group; "
        "mov.u32 %r2, 4; cp.async.cg.shared.global [%r1+64], [%d2+64], 16, %r2; "
        "cp.async.commit_group; cp.async.wait_group 1; "
        "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%d3]; cp.async.wait_all; "
        "ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%d3+64]; "
        "st.global.v4.u32 [%d2], {%r7, %r6, %r5, %r4}; st.global.v4.u32 [%d2+64], {%r8, %r9, %r10, %r11};",
        4, "", options);
    CHECK(out[0] == 4);
    CHECK(out[15] == 13);
    CHECK(out[16] == 17);
    CHECK(out[17] == 0);
    CHECK(out[28] == 29);
  }
  CHECK(run_on({1, 2},
               ".shared .align 16 .b8 s[16]; cp.async.ca.shared.global [s], [%d0+4], 4; cp.async.wait_all; "
               "ld.shared.u32 %r1, [s]; st.global.u32 [%d0], %r1;",
               1)[0] == 2);
}

TEST_CASE("a launch counts the bytes of global memory that its lanes ask for", "[ptx]") {
  const std::string text =
      module_text(".param .u64 p", ".reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %q; .shared .b32 s[256];\n"
                                   "ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 16;\n"
                                   "add.u64 %d2, %d0, %d1; setp.lt.u32 %q, %r0, 20; mov.u32 %r4, s;\n"
                                   "ld.global.v2.u32 {%r1, %r2}, [%d2];\n"    // 8 bytes of 40 lanes
                                   "@%q st.u32 [%d2+8], %r1;\n"               // 4 bytes of 20 lanes
                                   "atom.global.add.u32 %r3, [%d0+640], 1;\n" // 4 bytes of 40 lanes, both
                                   "shl.b32 %r5, %r0, 2; add.u32 %r4, %r4, %r5; st.shared.u32 [%r4], %r1;\n"
                                   "@%q cp.async.ca.shared.global [%r4], [%d2+12], 4; cp.async.wait_all;");
  std::vector<std::uint32_t> words(161);
  const ptx::Module module = ptx::parse(text);
  ptx::Memory memory;
  memory.add(words.data(), words.size() * 4, "words");
  const void* parameters[] = {words.data()};
  ptx::Options options;
  options.races = false; // both blocks write the same words
  const ptx::Statistics done = ptx::run(*module.find("k"), {{2}, {40}, 0, parameters}, memory, options);
  CHECK(done.bytes_read == 2 * (40 * 8 + 40 * 4 + 20 * 4));
  CHECK(done.bytes_written == 2 * (20 * 4 + 40 * 4));
}

TEST_CASE("a launch tells which bytes it read before it wrote them, and which it wrote", "[ptx]") {
  // Words: 0 read, 1 written, 2 read and then written, 3 written and then read, 4 atomic, 5 read by halves, 6
  // written and only a byte of it read before, 7 untouched. A lane of another warp reads word 0 once more.
  const std::string text =
      module_text(".param .u64 p",
                  ".reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %q;\n"
                  "ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; setp.eq.u32 %q, %r0, 0;\n"
                  "ld.global.u32 %r1, [%d0]; @!%q ret;\n"
                  "st.global.u32 [%d0+4], %r1;\n"
                  "ld.global.u32 %r2, [%d0+8]; st.global.u32 [%d0+8], %r1;\n"
                  "st.global.u32 [%d0+12], %r1; ld.global.u32 %r2, [%d0+12];\n"
                  "atom.global.add.u32 %r3, [%d0+16], 1;\n"
                  "ld.global.u16 %r4, [%d0+20]; ld.global.u16 %r4, [%d0+22];\n"
                  "ld.global.u8 %r5, [%d0+25]; st.global.u32 [%d0+24], %r1; ld.global.u32 %r2, [%d0+24];");
  std::vector<std::uint32_t> words(8);
  const ptx::Module module = ptx::parse(text);
  ptx::Memory memory;
  memory.add(words.data(), words.size() * 4, "words");
  const void* parameters[] = {words.data()};
  std::vector<int> loaded(32), written(32);
  ptx::Options options;
  options.touched = [&](const ptx::Touched& range) {
    for (std::uintptr_t at = range.begin; at < range.end; ++at) {
      const std::size_t byte = at - reinterpret_cast<std::uintptr_t>(words.data());
      loaded.at(byte) += range.loaded;
      written.at(byte) += range.written;
    }
  };
  ptx::run(*module.find("k"), {{1}, {64}, 0, parameters}, memory, options);
  const auto words_of = [](std::vector<int> four_each) {
    std::vector<int> out;
    for (std::size_t i = 0; i < four_each.size(); i += 4)
      out.push_back(std::accumulate(four_each.begin() + static_cast<std::ptrdiff_t>(i),
                                    four_each.begin() + static_cast<std::ptrdiff_t>(i + 4), 0));
    return out;
  };
  CHECK(words_of(loaded) == std::vector{4, 0, 4, 0, 4, 4, 1, 0});
  CHECK(words_of(written) == std::vector{0, 4, 4, 4, 4, 0, 4, 0});
}
