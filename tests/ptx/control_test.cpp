// SPDX-License-Identifier: Apache-2.0
// Branches, calls, barriers, fences, and how lanes, warps and blocks wait for one another.
#include <string>
#include <thread>

#include "ptx/one_instruction.hpp"

namespace {

using namespace ptx_test;

std::vector<Word> numbers(unsigned count) {
  std::vector<Word> out;
  for (unsigned i = 0; i < count; ++i)
    out.push_back(i);
  return out;
}

struct Run {
  std::vector<std::uint32_t> words;
  ptx::Statistics statistics;
};

/// Runs kernel `k`, whose parameter is the address of the words, in every order, and checks that all agree.
std::vector<std::uint32_t> in_every_order(const std::vector<std::uint32_t>& words, const std::string& text,
                                          ptx::Dim3 grid, ptx::Dim3 block) {
  std::vector<std::uint32_t> first;
  for (const ptx::Order order : {ptx::Order::forward, ptx::Order::backward, ptx::Order::random}) {
    for (std::uint64_t seed = 0; seed < (order == ptx::Order::random ? 5 : 1); ++seed) {
      std::vector<std::uint32_t> out = words;
      const ptx::Module module = ptx::parse(text);
      ptx::Memory memory;
      memory.add_variables(module);
      memory.add(out.data(), out.size() * 4, "words");
      const void* parameters[] = {out.data()};
      ptx::Options options;
      options.order = order;
      options.seed = seed;
      options.limit = 10'000'000;
      ptx::run(*module.find("k"), {grid, block, 0, parameters}, memory, options);
      if (first.empty())
        first = out;
      CHECK(out == first);
    }
  }
  return first;
}

const std::string declarations =
    ".reg .pred %p, %q; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .f64 %fd<9>; "
    "ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.s64 %d1, %d0, %d1;\n";

std::string kernel(const std::string& body, const std::string& outside = "") {
  std::string text = module_text(".param .u64 p", declarations + body);
  return text.insert(text.find(".visible"), outside);
}

} // namespace

TEST_CASE("lanes part at a branch and meet again", "[ptx]") {
  // A loop of as many turns as the lane's number; afterwards all are together.
  const auto sums =
      run_threads("mov.u32 %r, 0; mov.u32 %r1, 0; TOP: setp.ge.u32 %p, %r1, %ra; @%p bra DONE; "
                  "add.s32 %r1, %r1, 1; add.s32 %r, %r, %r1; bra.uni TOP; DONE: activemask.b32 %r2; "
                  "setp.ne.u32 %p, %r2, -1; @%p mov.u32 %r, 999",
                  {numbers(32)}, "%r", 32);
  for (Word lane = 0; lane < 32; ++lane)
    CHECK(sums[lane] == lane * (lane + 1) / 2);
  const auto nested = run_threads(
      "mov.u32 %r, 0; setp.lt.u32 %p, %ra, 8; @!%p bra B; setp.lt.u32 %p, %ra, 4; @%p bra A; "
      "mov.u32 %r, 1; bra END; A: mov.u32 %r, 2; bra END; B: mov.u32 %r, 3; END: add.s32 %r, %r, 10",
      {numbers(32)}, "%r", 32);
  for (Word lane = 0; lane < 32; ++lane)
    CHECK(nested[lane] == (lane < 4 ? 12U : lane < 8 ? 11U : 13U));
}

TEST_CASE("branches by table, early exits and predicates", "[ptx]") {
  const auto table = run_threads(
      "mov.u32 %r, 0; and.b32 %r1, %ra, 3; T: .branchtargets L0, L1, L2, L0; brx.idx %r1, T; "
      "L0: mov.u32 %r, 100; bra E; L1: mov.u32 %r, 101; bra E; L2: mov.u32 %r, 102; E: add.s32 %r, %r, %r1",
      {numbers(32)}, "%r", 32);
  const Word expected[] = {100, 102, 104, 103};
  for (Word lane = 0; lane < 32; ++lane)
    CHECK(table[lane] == expected[lane % 4]);
  const auto exits = in_every_order(std::vector<std::uint32_t>(64),
                                    kernel("st.global.u32 [%d1], 1; setp.gt.u32 %p, %r0, 40; "
                                           "@%p exit; bar.sync 0; st.global.u32 [%d1], 2;"),
                                    {1}, {64});
  for (unsigned i = 0; i < 64; ++i)
    CHECK(exits[i] == (i > 40 ? 1U : 2U));
  CHECK(value_of(
            "mov.u32 %r, 5; setp.eq.u32 %p, %ra, 0; @%p mov.u32 %r, 6; @!%p mov.u32 %r, 7; add.s32 %r, %r, 0",
            {0}) == 6);
  CHECK(
      value_of(
          "nanosleep.u32 10; griddepcontrol.wait; griddepcontrol.launch_dependents; pmevent 1; mov.u32 %r, 3") ==
      3);
}

TEST_CASE("a scope hides names of the scope around it", "[ptx]") {
  CHECK(
      value_of(
          "mov.u32 %r1, 1; { .reg .b32 %r1; mov.u32 %r1, 50; add.s32 %r2, %r1, 0; } add.s32 %r, %r1, %r2") ==
      51);
  CHECK(value_of(
            "mov.u32 %r, 0; { bra L; mov.u32 %r, 9; L: } { bra L; mov.u32 %r, 9; L: } add.s32 %r, %r, 4") ==
        4);
}

TEST_CASE("functions have their own registers, frames and results", "[ptx]") {
  const std::string functions =
      ".func (.param .b32 result) square(.param .b32 x);\n"
      ".func (.param .b32 result) sum_of_squares(.param .b32 x, .param .align 8 .b8 pair[8])\n{\n"
      ".reg .b32 %r<9>; ld.param.u32 %r1, [x]; ld.param.v2.u32 {%r5, %r6}, [pair]; mov.u32 %r2, 0;\n"
      "LOOP: { .param .b32 a; .param .b32 b; st.param.b32 [a+0], %r1; call.uni (b), square, (a); ld.param.b32 %r3, [b+0]; }\n"
      "add.s32 %r2, %r2, %r3; sub.s32 %r1, %r1, 1; .reg .pred %p; setp.gt.s32 %p, %r1, 0; @%p bra LOOP;\n"
      "sub.s32 %r5, %r5, %r6; add.s32 %r2, %r2, %r5; st.param.b32 [result+0], %r2; ret;\n}\n"
      ".func (.param .b32 result) square(.param .b32 x)\n{\n.local .align 4 .b8 frame[8]; .reg .b32 %r<4>; .reg .b64 %d<2>;\n"
      "ld.param.u32 %r1, [x]; mov.u64 %d1, frame; st.local.u32 [%d1+4], %r1; ld.local.u32 %r2, [frame+4];\n"
      "mul.lo.s32 %r3, %r1, %r2; st.param.b32 [result+0], %r3; ret;\n}\n";
  const std::string call =
      "add.s32 %r1, %r0, 1; { .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 c; st.param.b32 [a], %r1; "
      "st.param.v2.b32 [b], {%r1, %r0}; call (c), sum_of_squares, (a, b); ld.param.b32 %r2, [c]; } ";
  const auto whole = in_every_order(std::vector<std::uint32_t>(32),
                                    kernel(call + "st.global.u32 [%d1], %r2;", functions), {1}, {32});
  // Half of the lanes call from one place, half from another.
  const auto halves = in_every_order(
      std::vector<std::uint32_t>(32),
      kernel(
          "and.b32 %r9, %r0, 1; setp.eq.u32 %p, %r9, 0; @%p bra EVEN; " + call + "bra STORE; EVEN: " + call +
              "STORE: activemask.b32 %r8; setp.ne.s32 %q, %r8, -1; @%q mov.u32 %r2, 0; st.global.u32 [%d1], %r2;",
          functions),
      {1}, {32});
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t n = lane + 1;
    CHECK(whole[lane] == n * (n + 1) * (2 * n + 1) / 6 + 1);
    CHECK(halves[lane] == whole[lane]);
  }
}

TEST_CASE("barriers order the warps of a block", "[ptx]") {
  // Each of 128 threads hands its number to its neighbour in the next warp, around and around.
  const std::string pass =
      kernel(".shared .align 4 .b8 s[512]; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.s32 %r3, %r1, %r2; "
             "add.s32 %r4, %r0, 32; and.b32 %r4, %r4, 127; shl.b32 %r4, %r4, 2; add.s32 %r5, %r1, %r4; "
             "mov.u32 %r6, %r0; mov.u32 %r7, 0; LOOP: st.shared.u32 [%r3], %r6; bar.sync 0; "
             "ld.shared.u32 %r6, [%r5]; barrier.sync.aligned 0; add.s32 %r7, %r7, 1; setp.lt.u32 %p, %r7, 3; "
             "@%p bra LOOP; st.global.u32 [%d1], %r6;");
  const auto passed = in_every_order(std::vector<std::uint32_t>(128), pass, {1}, {128});
  for (std::uint32_t i = 0; i < 128; ++i)
    CHECK(passed[i] == (i + 96) % 128);
  // Two warps meet at barrier 1, two at barrier 2; then a producer arrives where a consumer waits.
  const std::string named = kernel(
      ".shared .align 4 .b8 s[512]; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.s32 %r3, %r1, %r2; xor.b32 %r4, %r0, 32; "
      "shl.b32 %r4, %r4, 2; add.s32 %r5, %r1, %r4; st.shared.u32 [%r3], %r0; shr.u32 %r8, %r0, 6; add.s32 %r8, %r8, 1; "
      "bar.sync %r8, 64; ld.shared.u32 %r6, [%r5]; st.global.u32 [%d1], %r6;");
  const auto met = in_every_order(std::vector<std::uint32_t>(128), named, {1}, {128});
  for (std::uint32_t i = 0; i < 128; ++i)
    CHECK(met[i] == (i ^ 32));
  const std::string producer = kernel(
      ".shared .align 4 .b8 s[128]; mov.u32 %r1, s; and.b32 %r2, %r0, 31; shl.b32 %r2, %r2, 2; add.s32 %r3, %r1, %r2; "
      "setp.lt.u32 %p, %r0, 32; @%p bra FIRST; bar.sync 3, 64; ld.shared.u32 %r6, [%r3]; st.global.u32 [%d1], %r6; bra END; "
      "FIRST: st.shared.u32 [%r3], %r0; bar.arrive 3, 64; END:");
  CHECK(in_every_order(std::vector<std::uint32_t>(64), producer, {1}, {64})[40] == 8);
}

TEST_CASE("barriers reduce predicates of all threads", "[ptx]") {
  const auto reduce = [&](const std::string& instruction, const std::string& to_word) {
    return in_every_order(
        std::vector<std::uint32_t>(96),
        kernel("setp.lt.u32 %p, %r0, 50; " + instruction + to_word + "st.global.u32 [%d1], %r1;"), {1},
        {96})[95];
  };
  CHECK(reduce("bar.red.popc.u32 %r1, 0, %p; ", "") == 50);
  CHECK(reduce("bar.red.popc.u32 %r1, 1, 96, !%p; ", "") == 46);
  CHECK(reduce("bar.red.and.pred %q, 0, %p; ", "selp.u32 %r1, 1, 0, %q; ") == 0);
  CHECK(reduce("bar.red.or.pred %q, 0, %p; ", "selp.u32 %r1, 1, 0, %q; ") == 1);
  CHECK(reduce("barrier.red.popc.aligned.u32 %r1, 0, %p; ", "") == 50);
}

TEST_CASE("lanes of a warp may wait for one another", "[ptx]") {
  // Lane 31 sets the flag for which the others spin, although their loop comes first in the program.
  const std::string spin =
      kernel("setp.eq.u32 %p, %r0, 31; @%p bra LAST; SPIN: ld.volatile.global.u32 %r1, [%d0]; "
             "setp.eq.u32 %q, %r1, 0; @%q bra SPIN; bra END; LAST: st.volatile.global.u32 [%d0], 7; "
             "END: bar.warp.sync -1; mov.u32 %r2, 5; @%p red.global.add.u32 [%d0], %r2;");
  CHECK(in_every_order({0}, spin, {1}, {32})[0] == 12);
  // Each half waits at a bar.warp.sync of its own.
  const std::string two =
      kernel("setp.lt.u32 %p, %r0, 16; @%p bra A; bar.warp.sync -1; bra END; A: bar.warp.sync -1; END: "
             "st.global.u32 [%d1], 3;");
  CHECK(in_every_order(std::vector<std::uint32_t>(32), two, {1}, {32})[31] == 3);
  // Warps, too: the first waits for the last without a barrier.
  const std::string warps =
      kernel("setp.lt.u32 %p, %r0, 96; @!%p bra LAST; SPIN: ld.acquire.gpu.global.u32 %r1, [%d0]; "
             "setp.eq.u32 %q, %r1, 0; @%q bra SPIN; bra END; LAST: st.release.gpu.global.u32 [%d0], 7; END:");
  CHECK(in_every_order({0}, warps, {1}, {128})[0] == 7);
}

TEST_CASE("blocks may wait for one another", "[ptx]") {
  // A chain: block i waits for the word that block i - 1 writes, and the other way round.
  for (const bool ascending : {true, false}) {
    const std::string chain = kernel(
        std::string("mov.u32 %r1, %ctaid.x; ") + (ascending ? "" : "sub.s32 %r1, 39, %r1; ") +
        "mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d0, %d2; SPIN: ld.acquire.gpu.global.u32 %r2, [%d2]; setp.eq.u32 %p, %r2, 0; "
        "@%p bra SPIN; add.s32 %r2, %r2, 1; st.release.gpu.global.u32 [%d2+4], %r2;");
    std::vector<std::uint32_t> words(41);
    words[0] = 1;
    const auto out = in_every_order(words, chain, {40}, {1});
    CHECK(out[40] == 41);
  }
  // The last block to arrive adds up what all have left: the fence and the counter order it.
  const std::string last = kernel(
      "mov.u32 %r1, %ctaid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d0, %d2; add.s32 %r2, %r1, 1; st.global.u32 [%d2+8], %r2; "
      "membar.gl; atom.global.add.u32 %r3, [%d0], 1; setp.ne.u32 %p, %r3, 9; @%p bra END; fence.acq_rel.gpu; mov.u32 %r4, 0; "
      "mov.u32 %r5, 0; LOOP: ld.global.u32 %r6, [%d0+8]; add.s32 %r5, %r5, %r6; add.s64 %d0, %d0, 4; add.s32 %r4, %r4, 1; "
      "setp.lt.u32 %p, %r4, 10; @%p bra LOOP; st.global.u32 [%d1+4], %r5; END:");
  CHECK(in_every_order(std::vector<std::uint32_t>(12), last, {10}, {1})[1] == 55);
}

TEST_CASE("launches of several threads may wait for one another", "[ptx]") {
  // The first hands a word to the second, which hands it back, one larger.
  const ptx::Module module = ptx::parse(module_text(
      ".param .u64 p, .param .u32 second",
      ".reg .pred %p, %q; .reg .b32 %r<9>; .reg .b64 %d<9>; ld.param.u64 %d0, [p]; ld.param.u32 %r1, [second]; "
      "setp.ne.u32 %p, %r1, 0; @%p bra SECOND; st.global.u32 [%d0+8], 40; st.release.sys.global.u32 [%d0], 1; "
      "A: ld.acquire.sys.global.u32 %r2, [%d0+4]; setp.eq.u32 %q, %r2, 0; @%q bra A; ld.global.u32 %r3, [%d0+8]; "
      "add.s32 %r3, %r3, 1; st.global.u32 [%d0+12], %r3; bra END; "
      "SECOND: ld.acquire.sys.global.u32 %r2, [%d0]; setp.eq.u32 %q, %r2, 0; @%q bra SECOND; ld.global.u32 %r3, [%d0+8]; "
      "add.s32 %r3, %r3, 1; st.global.u32 [%d0+8], %r3; st.release.sys.global.u32 [%d0+4], 1; END:"));
  std::vector<std::uint32_t> words(4);
  ptx::Memory memory;
  memory.add(words.data(), 16, "words");
  struct Parameters {
    std::uint32_t* words;
    std::uint32_t second;
  };
  const auto run = [&](std::uint32_t second) {
    const Parameters parameters{words.data(), second};
    ptx::run(*module.find("k"), {{1}, {1}, 0, &parameters}, memory);
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  CHECK(words == std::vector<std::uint32_t>{1, 1, 41, 42});
}

TEST_CASE("a grid has the blocks and threads of its launch", "[ptx]") {
  const std::string count = kernel(
      "mov.u32 %r1, %tid.y; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0; mov.u32 %r4, %tid.z; mov.u32 %r5, %ntid.y; "
      "mul.lo.s32 %r5, %r5, %r2; mad.lo.s32 %r3, %r4, %r5, %r3; mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %nctaid.x; "
      "mad.lo.s32 %r6, %r7, %r8, %r6; mov.u32 %r7, %ctaid.z; mov.u32 %r9, %nctaid.y; mul.lo.s32 %r9, %r9, %r8; "
      "mad.lo.s32 %r6, %r7, %r9, %r6; mad.lo.s32 %r3, %r6, 30, %r3; mul.wide.u32 %d2, %r3, 4; add.s64 %d2, %d0, %d2; "
      "add.s32 %r3, %r3, 1; st.global.u32 [%d2], %r3;");
  const auto out = in_every_order(std::vector<std::uint32_t>(720), count, {2, 3, 4}, {5, 3, 2});
  for (std::uint32_t i = 0; i < 720; ++i)
    CHECK(out[i] == i + 1);
}
