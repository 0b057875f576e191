// SPDX-License-Identifier: Apache-2.0
// Each kind of mistake, planted in a few instructions: what is reported, about which lanes, in both orders of
// the warps and with both arrivals of asynchronous copies.
#include <array>
#include <optional>
#include <string>

#include "ptx/fault.hpp"
#include "ptx/one_instruction.hpp"

namespace {

using namespace ptx_test;
using ptx::FaultKind;

const std::string declarations =
    ".reg .pred %p, %q; .reg .b16 %h<5>; .reg .b32 %r<20>; .reg .b64 %d<20>; .shared .align 16 .b8 s[1024]; "
    "ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.s64 %d1, %d0, %d1; mov.u32 %r1, s; "
    "shl.b32 %r2, %r0, 2; add.s32 %r2, %r1, %r2;\n";

struct Setting {
  unsigned blocks = 1, threads = 64;
  ptx::Options options{};
  ptx::Contents contents = ptx::Contents::written;
  bool freed = false;
  std::string outside{};
};

/// The fault of a kernel on a block of 1024 bytes; nothing if there is none.
std::optional<ptx::Fault> run_once(const std::string& body, const Setting& setting) {
  std::string text = module_text(".param .u64 p", declarations + body);
  text.insert(text.find(".visible"), setting.outside);
  const ptx::Module module = ptx::parse(text);
  alignas(16) std::array<std::uint32_t, 256> words{};
  ptx::Memory memory;
  memory.add_variables(module);
  memory.add(words.data(), sizeof words, "the words", setting.contents);
  if (setting.freed)
    memory.remove(words.data());
  const void* parameters[] = {words.data()};
  try {
    ptx::run(*module.find("k"), {{setting.blocks}, {setting.threads}, 0, parameters}, memory,
             setting.options);
  } catch (const ptx::Fault& fault) {
    return fault;
  }
  return std::nullopt;
}

/// The fault that every order and arrival reports.
ptx::Fault fault_of(const std::string& body, FaultKind kind, Setting setting = {}) {
  std::optional<ptx::Fault> first;
  for (const ptx::Order order : {ptx::Order::forward, ptx::Order::backward, ptx::Order::random}) {
    for (const ptx::Arrival arrival : {ptx::Arrival::at_issue, ptx::Arrival::at_wait}) {
      setting.options.order = order;
      setting.options.arrival = arrival;
      const std::optional<ptx::Fault> fault = run_once(body, setting);
      INFO(body);
      REQUIRE(fault.has_value());
      INFO(fault->what());
      CHECK(fault->kind == kind);
      CHECK(fault->where.kernel == "k");
      if (!first)
        first = fault;
    }
  }
  return *first;
}

void check_sound(const std::string& body, Setting setting = {}) {
  for (const ptx::Order order : {ptx::Order::forward, ptx::Order::backward, ptx::Order::random}) {
    for (const ptx::Arrival arrival : {ptx::Arrival::at_issue, ptx::Arrival::at_wait}) {
      setting.options.order = order;
      setting.options.arrival = arrival;
      const std::optional<ptx::Fault> fault = run_once(body, setting);
      INFO(body << (fault ? fault->what() : ""));
      CHECK(!fault.has_value());
    }
  }
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("accesses out of bounds", "[ptx]") {
  const ptx::Fault behind = fault_of("ld.global.u32 %r3, [%d1+1020];", FaultKind::bounds, {.threads = 2});
  CHECK(contains(behind.sentence,
                 "by lane 1 lies in no block: it is 0 bytes behind the words, which has 1024 bytes"));
  CHECK(behind.where.lanes == 2);
  CHECK(behind.where.instruction == "ld.global.u32 %r3, [%d1+1020]");
  CHECK(contains(fault_of("st.global.v4.u32 [%d0+-16], {%r0, %r0, %r0, %r0};", FaultKind::bounds).sentence,
                 "16 bytes before the words"));
  CHECK(contains(fault_of("ld.u32 %r3, [8];", FaultKind::bounds).sentence, "at 0x8"));
  CHECK(contains(fault_of("atom.global.add.u32 %r3, [%d0+1024], 1;", FaultKind::bounds).sentence,
                 "the atomic access of 4 bytes"));
  CHECK(contains(fault_of("st.shared.u32 [%r1+1024], %r0;", FaultKind::bounds).sentence,
                 "reaches bytes 1024 to 1028 of the shared memory of the block, which has 1024"));
  CHECK(fault_of("st.shared.u32 [%r1+-4], %r0;", FaultKind::bounds).where.line != 0);
  CHECK(contains(
      fault_of(".local .b8 l[16]; mov.u64 %d3, l; ld.local.u32 %r3, [%d3+16];", FaultKind::bounds).sentence,
      "local memory"));
  CHECK(contains(fault_of(".local .b8 l[16]; mov.u64 %d3, l; cvta.local.u64 %d3, %d3; ld.u32 %r3, [%d3+16];",
                          FaultKind::bounds)
                     .sentence,
                 "local memory of the thread"));
  CHECK(contains(fault_of("mov.u64 %d3, p; ld.param.u32 %r3, [%d3+8];", FaultKind::bounds).sentence,
                 "parameters"));
  fault_of("cp.async.cg.shared.global [%r1], [%d0+1024], 16;", FaultKind::bounds);
  fault_of("mov.u32 %r3, 8; cp.async.cg.shared.global [%r1], [%d0+1020], 16, %r3;", FaultKind::alignment);
  fault_of("cp.async.cg.shared.global [%r1+1024], [%d0], 16;", FaultKind::bounds);
  fault_of("mov.u32 %r3, 20; cp.async.cg.shared.global [%r1], [%d0], 16, %r3;", FaultKind::bounds);
  fault_of("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r1+1024];", FaultKind::bounds);
  // A copy that reads nothing may have any address.
  check_sound("mov.u32 %r3, 0; mov.u64 %d3, 0; shl.b32 %r4, %r0, 4; add.s32 %r4, %r1, %r4; "
              "cp.async.cg.shared.global [%r4], [%d3], 16, %r3; cp.async.wait_all;");
  const ptx::Fault table =
      fault_of("T: .branchtargets L0, L1; mov.u32 %r3, 2; brx.idx %r3, T; L0: L1:", FaultKind::bounds);
  CHECK(contains(table.sentence, "the index 2 of a branch is beyond its table of 2 labels"));
}

TEST_CASE("freed memory, constants, and addresses that are not aligned", "[ptx]") {
  const ptx::Fault freed = fault_of("ld.global.u32 %r3, [%d1+8];", FaultKind::freed, {.freed = true});
  CHECK(contains(freed.sentence, "touches freed memory: byte 8 of the words, which was freed"));
  CHECK(contains(
      fault_of("st.global.u32 [c], %r0;", FaultKind::read_only, {.outside = ".const .u32 c = 5;\n"}).sentence,
      "variable c"));
  fault_of("mov.u64 %d3, p; cvta.param.u64 %d3, %d3; st.u32 [%d3], %r0;", FaultKind::read_only);
  const ptx::Fault odd = fault_of("ld.global.u32 %r3, [%d1+2];", FaultKind::alignment);
  CHECK(contains(odd.sentence, "is no multiple of the 4 bytes of this load"));
  CHECK(contains(fault_of("ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%d0+8];", FaultKind::alignment).sentence,
                 "of the 16 bytes"));
  fault_of("st.shared.v2.u32 [%r1+4], {%r0, %r0};", FaultKind::alignment);
  fault_of("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r1+8];", FaultKind::alignment);
  fault_of("cp.async.cg.shared.global [%r1+4], [%d0], 16;", FaultKind::alignment);
}

TEST_CASE("bytes that nothing has written", "[ptx]") {
  Setting setting{.threads = 32};
  setting.options.uninitialized = true;
  setting.contents = ptx::Contents::unwritten;
  CHECK(contains(fault_of("ld.global.u32 %r3, [%d1];", FaultKind::uninitialized, setting).sentence,
                 "loads bytes of the words"));
  CHECK(contains(fault_of("ld.shared.u32 %r3, [%r2];", FaultKind::uninitialized, setting).sentence,
                 "loads bytes of shared memory"));
  fault_of("mov.u16 %h1, 5; st.global.u16 [%d1], %h1; ld.global.u32 %r3, [%d1];", FaultKind::uninitialized,
           setting);
  fault_of("red.global.add.u32 [%d0], 1;", FaultKind::uninitialized, setting);
  check_sound(
      "st.global.u32 [%d1], 3; ld.global.u32 %r3, [%d1]; st.shared.u32 [%r2], %r3; ld.shared.u32 %r3, [%r2];",
      setting);
  setting.options.uninitialized = false;
  check_sound("ld.global.u32 %r3, [%d1]; ld.shared.u32 %r3, [%r2];", setting);
}

TEST_CASE("races in shared memory", "[ptx]") {
  const std::string neighbour = "xor.b32 %r4, %r2, 128;"; // the same place of the other warp
  const ptx::Fault missing =
      fault_of("st.shared.u32 [%r2], %r0;" + neighbour + "ld.shared.u32 %r3, [%r4];", FaultKind::race);
  CHECK(contains(missing.sentence, "shared memory"));
  CHECK(contains(missing.sentence, "in a race with a "));
  CHECK(contains(missing.sentence, "by warp "));
  check_sound("st.shared.u32 [%r2], %r0; bar.sync 0;" + neighbour + "ld.shared.u32 %r3, [%r4];");
  // The barrier after the reads is missing: the next writes meet them.
  fault_of("st.shared.u32 [%r2], %r0; bar.sync 0;" + neighbour +
               "ld.shared.u32 %r3, [%r4]; st.shared.u32 [%r2], %r3;",
           FaultKind::race);
  check_sound("st.shared.u32 [%r2], %r0; bar.sync 0;" + neighbour +
              "ld.shared.u32 %r3, [%r4]; bar.sync 0; st.shared.u32 [%r2], %r3;");
  // Two warps write one place; atomic operations may, but not beside an ordinary access.
  fault_of("st.shared.u32 [%r1], %r0;", FaultKind::race);
  check_sound("red.shared.add.u32 [%r1], %r0;");
  fault_of("red.shared.add.u32 [%r1], %r0; ld.shared.u32 %r3, [%r1];", FaultKind::race);
  check_sound("red.shared.add.u32 [%r1], %r0; bar.sync 0; ld.shared.u32 %r3, [%r1];");
  // Different bytes of one word are different places.
  check_sound("add.s32 %r4, %r1, %r0; st.shared.u8 [%r4], %r0; bar.sync 0; ld.shared.u32 %r3, [%r1];");
  // A barrier of the other two warps orders nothing for these.
  fault_of(
      "setp.lt.u32 %p, %r0, 64; st.shared.u32 [%r2], %r0; @%p bra A; bar.sync 1, 64; A: xor.b32 %r4, %r2, 128; "
      "ld.shared.u32 %r3, [%r4];",
      FaultKind::race, {.threads = 128});
  // Matrices are read by rows.
  fault_of(
      "shl.b32 %r4, %r0, 4; add.s32 %r4, %r1, %r4; st.shared.v4.u32 [%r4], {%r0, %r0, %r0, %r0}; xor.b32 %r4, %r4, 512; "
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r5, %r6, %r7}, [%r4];",
      FaultKind::race);
}

TEST_CASE("races between the lanes of a warp", "[ptx]") {
  const std::string neighbour = "xor.b32 %r4, %r2, 4;";
  const Setting warp{.threads = 32};
  const ptx::Fault missing =
      fault_of("st.shared.u32 [%r2], %r0;" + neighbour + "ld.shared.u32 %r3, [%r4];", FaultKind::race, warp);
  CHECK(contains(missing.sentence, "by warp 0, lane 1: `st.shared.u32 [%r2], %r0`"));
  check_sound("st.shared.u32 [%r2], %r0; bar.warp.sync -1;" + neighbour + "ld.shared.u32 %r3, [%r4];", warp);
  // A shuffle makes lanes meet, but orders no memory.
  fault_of("st.shared.u32 [%r2], %r0; shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1;" + neighbour +
               "ld.shared.u32 %r3, [%r4];",
           FaultKind::race, warp);
  // Lanes of one store that disagree; those that agree are usual.
  fault_of("st.shared.u32 [%r1], %r0;", FaultKind::race, warp);
  check_sound("st.shared.u32 [%r1], 5;", warp);
}

TEST_CASE("races in global memory, between warps and between blocks", "[ptx]") {
  fault_of("st.global.u32 [%d0], %r0;", FaultKind::race);
  const ptx::Fault blocks = fault_of("mov.u32 %r3, %ctaid.x; st.global.u32 [%d0], %r3;", FaultKind::race,
                                     {.blocks = 2, .threads = 1});
  CHECK(contains(blocks.sentence, "global memory"));
  CHECK(contains(blocks.sentence, "by block "));
  fault_of(
      "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p, %r3, 0; @%p st.global.u32 [%d0], 4; @!%p ld.global.u32 %r4, [%d0];",
      FaultKind::race, {.blocks = 2, .threads = 1});
  check_sound("mov.u32 %r3, %ctaid.x; red.global.add.u32 [%d0], %r3;", {.blocks = 3});
  check_sound(
      "mov.u32 %r3, %ctaid.x; mul.wide.u32 %d2, %r3, 256; add.s64 %d2, %d2, %d1; st.global.u32 [%d2], %r3;",
      {.blocks = 3});
  // The last block to arrive reads what the others have left. A fence before the counter and one behind it
  // order that.
  const auto last = [](const std::string& before, const std::string& after) {
    return "mov.u32 %r3, %ctaid.x; mul.wide.u32 %d2, %r3, 4; add.s64 %d2, %d0, %d2; st.global.u32 [%d2+8], %r3; " +
           before + "atom.global.add.u32 %r4, [%d0], 1; setp.ne.u32 %p, %r4, 3; @%p bra END; " + after +
           "ld.global.v2.u32 {%r5, %r6}, [%d0+8]; END:";
  };
  const Setting four{.blocks = 4, .threads = 1};
  check_sound(last("membar.gl; ", "membar.gl; "), four);
  fault_of(last("", "membar.gl; "), FaultKind::race, four);
  fault_of(last("membar.gl; ", ""), FaultKind::race, four);
  Setting unchecked{.blocks = 2, .threads = 1};
  unchecked.options.races = false;
  check_sound("mov.u32 %r3, %ctaid.x; st.global.u32 [%d0], %r3;", unchecked);
}

TEST_CASE("atomic and other strong accesses hide no weak ones", "[ptx]") {
  const Setting warp{.threads = 32}, blocks{.blocks = 2, .threads = 1}, three{.blocks = 3, .threads = 1};
  const std::string first = "setp.eq.u32 %p, %r0, 0; ";
  const std::string block = "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p, %r3, 0; ";
  // One lane clears the sum, and nothing makes the others wait for that.
  const std::string clear = first + "@%p st.shared.u32 [%r1], 0; ", add = "red.shared.add.u32 [%r1], 1;";
  CHECK(contains(fault_of(clear + add, FaultKind::race, warp).sentence,
                 "a write by warp 0, lane 0: `@%p st.shared.u32 [%r1], 0`"));
  fault_of(clear + "and.b32 %r4, %r0, 31; setp.eq.u32 %q, %r4, 0; @%q " + add,
           FaultKind::race); // a lane a warp
  check_sound(clear + "bar.sync 0; " + add);
  check_sound(clear + "bar.warp.sync -1; " + add, warp);
  fault_of(block + "@%p st.global.u32 [%d0], 4; red.global.add.u32 [%d0], 1;", FaultKind::race, blocks);
  fault_of(block + "@%p st.relaxed.cta.global.u32 [%d0], 4; red.global.add.u32 [%d0], 1;", FaultKind::race,
           blocks);
  // A lane's weak read before its own strong accesses.
  fault_of(block + "@%p ld.global.u32 %r4, [%d0]; red.global.add.u32 [%d0], 1;", FaultKind::race, blocks);
  fault_of(block + "@%p ld.global.u32 %r4, [%d0]; @%p ld.volatile.global.u32 %r4, [%d0]; @!%p "
                   "red.global.add.u32 [%d0], 1;",
           FaultKind::race, blocks);
  // Of several readers in no order, any one may be the weak one.
  const auto readers = [&](const std::string& one, const std::string& other, const std::string& write) {
    return block + "setp.eq.u32 %q, %r3, 1; @%p " + one + " %r4, [%d0]; @%p bra END; @%q " + other +
           " %r4, [%d0]; @%q bra END; " + write + " [%d0], 1; END:";
  };
  const std::string weak = "ld.global.u32", strong = "ld.volatile.global.u32", store = "st.global.u32",
                    atomic = "red.global.add.u32";
  fault_of(readers(strong, weak, atomic), FaultKind::race, three);
  fault_of(readers(weak, strong, atomic), FaultKind::race, three);
  fault_of(readers(strong, strong, store), FaultKind::race, three);
  check_sound(readers(strong, strong, atomic), three);
  // The only block that writes may read by weak loads, for others read by strong ones.
  check_sound(block + "@%p ld.volatile.global.u32 %r4, [%d0]; @%p bra END; ld.global.u32 %r4, [%d0]; "
                      "ld.global.u32 %r5, [%d0]; st.volatile.global.u32 [%d0], %r4; END:",
              blocks);
  fault_of(block + "@%p ld.volatile.global.u32 %r4, [%d0]; @%p bra END; ld.global.u32 %r4, [%d0]; "
                   "st.global.u32 [%d0], %r4; END:",
           FaultKind::race, blocks);
}

TEST_CASE("registers that nothing has written hold no values of an earlier block", "[ptx]") {
  const ptx::Module module = ptx::parse(module_text(
      ".param .u64 p", declarations +
                           "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p, %r3, 0; @%p mov.u32 %r5, 7; "
                           "mul.wide.u32 %d2, %r3, 4; add.s64 %d2, %d0, %d2; st.global.u32 [%d2], %r5;"));
  std::array<std::uint32_t, 2> words{};
  ptx::Memory memory;
  memory.add(words.data(), sizeof words, "the words");
  const void* parameters[] = {words.data()};
  ptx::run(*module.find("k"), {{2}, {1}, 0, parameters}, memory);
  CHECK(words == std::array<std::uint32_t, 2>{7, 0xffffffff});
}

TEST_CASE("copies that have not been waited for", "[ptx]") {
  const std::string two =
      "shl.b32 %r4, %r0, 4; add.s32 %r4, %r1, %r4; mul.wide.u32 %d2, %r0, 16; add.s64 %d2, %d0, %d2; "
      "cp.async.cg.shared.global [%r4], [%d2], 16; cp.async.commit_group; "
      "cp.async.cg.shared.global [%r4+512], [%d2], 16; cp.async.commit_group; ";
  const Setting warp{.threads = 32};
  const std::string read = "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4+512];";
  const ptx::Fault wrong = fault_of(two + "cp.async.wait_group 1; " + read, FaultKind::race, warp);
  CHECK(contains(wrong.sentence, "an asynchronous copy that has not been waited for"));
  CHECK(contains(wrong.sentence, "`cp.async.cg.shared.global [%r4+512], [%d2], 16`"));
  check_sound(two + "cp.async.wait_group 0; " + read, warp);
  check_sound(
      two + "cp.async.wait_group 1; ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4]; cp.async.wait_all; " + read,
      warp);
  // Another warp needs the barrier behind the wait.
  fault_of(two + "cp.async.wait_all; xor.b32 %r4, %r4, 256; " + "ld.shared.u32 %r5, [%r4];", FaultKind::race,
           {.threads = 32});
  check_sound(two + "cp.async.wait_all; bar.sync 0; xor.b32 %r4, %r4, 256; ld.shared.u32 %r5, [%r4];", warp);
}

TEST_CASE("masks that name the wrong lanes", "[ptx]") {
  const Setting warp{.threads = 32};
  const std::string half = "setp.lt.u32 %p, %r0, 16; @!%p bra END; ";
  const ptx::Fault shuffle =
      fault_of(half + "shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; END: bar.sync 0;", FaultKind::mask, warp);
  CHECK(contains(shuffle.sentence, "names lanes that never arrive here, lanes 16-31"));
  CHECK(shuffle.where.lanes == 0xffff);
  fault_of(half + "bar.warp.sync -1; END: bar.sync 0;", FaultKind::mask, warp);
  fault_of(half + "vote.sync.any.pred %q, %p, -1; END: bar.sync 0;", FaultKind::mask, warp);
  fault_of(half + "match.any.sync.b32 %r3, %r0, 0xffffff; END: bar.sync 0;", FaultKind::mask, warp);
  fault_of(half + "redux.sync.add.u32 %r3, %r0, -1; END: bar.sync 0;", FaultKind::mask, warp);
  check_sound(half + "shfl.sync.bfly.b32 %r3, %r0, 1, 31, 0xffff; END:", warp);
  const ptx::Fault outside = fault_of("shfl.sync.bfly.b32 %r3, %r0, 1, 31, 0xffff;", FaultKind::mask, warp);
  CHECK(contains(outside.sentence, "with a mask that does not name it: the mask is 0xffff"));
  CHECK(outside.where.lanes == 0xffff0000);
  const ptx::Fault absent =
      fault_of(half + "shfl.sync.down.b32 %r3, %r0, 8, 31, 0xffff; END:", FaultKind::mask, warp);
  CHECK(contains(absent.sentence, "lane 8 reads from lane 16, which does not take part"));
}

TEST_CASE("instructions of a whole warp without all its lanes", "[ptx]") {
  const std::string product =
      "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d2, %d3}, {%d4}, {%d5}, {%d6, %d7};";
  fault_of("setp.lt.u32 %p, %r0, 16; @%p bra END; " + product + "END: bar.sync 0;", FaultKind::convergence,
           {.threads = 32});
  fault_of(product, FaultKind::convergence, {.threads = 20});
  fault_of("setp.lt.u32 %p, %r0, 16; @%p " + product, FaultKind::convergence, {.threads = 32});
  fault_of(
      "setp.lt.u32 %p, %r0, 16; @%p bra END; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r1]; END: bar.sync 0;",
      FaultKind::convergence, {.threads = 32});
  check_sound("setp.lt.u32 %p, %r0, 16; @%p bra A; mov.u32 %r3, 1; A: " + product, {.threads = 32});
}

TEST_CASE("barriers that not all threads reach", "[ptx]") {
  const ptx::Fault part = fault_of(
      "setp.lt.u32 %p, %r0, 16; @%p bra A; bar.sync 0; bra END; A: bar.sync 0; END:", FaultKind::barrier,
      {.threads = 32});
  CHECK(contains(part.sentence, "only some lanes of the warp reach this barrier"));
  CHECK(contains(
      fault_of("setp.lt.u32 %p, %r0, 16; @%p bar.sync 0;", FaultKind::barrier, {.threads = 32}).sentence,
      "the predicate leaves some out"));
  const ptx::Fault stuck = fault_of(
      "setp.lt.u32 %p, %r0, 32; @%p bra A; bar.sync 1; bra END; A: bar.sync 0; END:", FaultKind::barrier);
  CHECK(contains(stuck.sentence, "a barrier waits for threads that never come"));
  CHECK(contains(stuck.sentence, "barrier 0: 32 threads of 64"));
  fault_of("bar.sync 0, 96;", FaultKind::barrier);
  fault_of("bar.sync 16;", FaultKind::barrier);
  fault_of("bar.sync 0, 40;", FaultKind::barrier);
  fault_of("setp.lt.u32 %p, %r0, 32; @%p bra A; bar.sync 0, 64; bra END; A: bar.sync 0; END:",
           FaultKind::barrier);
}

TEST_CASE("endless loops, traps, assertions and allocation", "[ptx]") {
  Setting setting{.threads = 32};
  setting.options.limit = 10'000;
  const ptx::Fault endless = fault_of("L: bra L;", FaultKind::endless, setting);
  CHECK(contains(endless.sentence, "the launch has executed 10000 warp instructions and has not ended"));
  CHECK(endless.where.instruction == "bra L");
  fault_of("L: ld.volatile.global.u32 %r3, [%d0]; setp.eq.u32 %p, %r3, 0; @%p bra L;", FaultKind::endless,
           setting);
  CHECK(fault_of("setp.eq.u32 %p, %r0, 3; @%p trap;", FaultKind::trap).where.lanes == 8);
  fault_of("brkpt;", FaultKind::trap);
  const std::string extern_functions =
      ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
      ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
      ".global .b8 what[8] = {105, 32, 60, 32, 110, 0};\n.global .b8 file[5] = {97, 46, 99, 117, 0};\n.global .b8 in[2] = {102, 0};\n";
  const std::string call =
      "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; mov.u64 %d3, what; "
      "st.param.b64 [a], %d3; mov.u64 %d3, file; st.param.b64 [b], %d3; st.param.b32 [c], 17; mov.u64 %d3, in; "
      "st.param.b64 [d], %d3; st.param.b64 [e], 1; call.uni __assertfail, (a, b, c, d, e); }";
  CHECK(fault_of(call, FaultKind::assertion, {.outside = extern_functions}).sentence ==
        "the assertion `i < n` of a.cu:17, in f, does not hold.");
  fault_of("{ .param .b64 n; .param .b64 r; st.param.b64 [n], 8; call.uni (r), malloc, (n); }",
           FaultKind::unsupported, {.outside = extern_functions});
}

TEST_CASE("device code prints", "[ptx]") {
  Setting setting{.threads = 2};
  std::string printed;
  setting.options.print = [&](std::string_view text) { printed += text; };
  setting.outside =
      ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
      // The format is "%d %.2f %lu%%\n".
      ".global .b8 format[20] = {37, 100, 32, 37, 46, 50, 102, 32, 37, 108, 117, 37, 37, 10, 0};\n";
  CHECK(
      !run_once(
           ".local .align 8 .b8 l[24]; st.local.u32 [l], %r0; mov.b64 %d3, 0d3FF8000000000000; st.local.b64 [l+8], %d3; "
           "mov.u64 %d4, 5000000000; st.local.u64 [l+16], %d4; mov.u64 %d5, l; cvta.local.u64 %d5, %d5; mov.u64 %d6, format; "
           "{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d6; st.param.b64 [a], %d5; "
           "call.uni (r), vprintf, (f, a); }",
           setting)
           .has_value());
  CHECK(printed == "0 1.50 5000000000%\n1 1.50 5000000000%\n");
}

TEST_CASE("memory knows its blocks", "[ptx]") {
  std::array<std::uint64_t, 8> words{};
  ptx::Memory memory;
  memory.add(words.data(), 32, "first", ptx::Contents::unwritten);
  CHECK_THROWS_AS(memory.add(words.data() + 3, 16, "second"), std::invalid_argument);
  CHECK_THROWS_AS(memory.remove(words.data() + 1), std::invalid_argument);
  memory.add(words.data() + 4, 32, "second");
  CHECK(!memory.is_written(words.data(), 8));
  memory.mark_written(words.data(), 8);
  CHECK(memory.is_written(words.data(), 8));
  CHECK(!memory.is_written(words.data(), 16));
  CHECK(memory.is_written(words.data() + 4, 32));
  // A copy takes along what is known.
  memory.mark_copied(words.data() + 1, words.data(), 16);
  CHECK(memory.is_written(words.data(), 16));
  CHECK(!memory.is_written(words.data() + 2, 8));
  memory.mark_copied(words.data() + 2, words.data() + 4, 8); // from a block that is written
  CHECK(memory.is_written(words.data(), 24));
  std::array<std::uint64_t, 2> host{};
  memory.mark_copied(words.data() + 3, host.data(), 8); // from the host
  CHECK(memory.is_written(words.data(), 32));
  memory.mark_copied(host.data(), words.data(), 8);
  const auto address = reinterpret_cast<std::uintptr_t>(words.data());
  CHECK(memory.find(address, 32)->label == "first");
  CHECK(memory.find(address, 33) == nullptr);
  CHECK(memory.find(address + 24, 16) == nullptr); // across two blocks
  CHECK(memory.find(address + 32, 32)->label == "second");
  memory.remove(words.data());
  CHECK(memory.was_freed(address + 8));
  CHECK(memory.describe(address + 8, 4) == "byte 8 of first, which was freed");
  memory.add(words.data(), 16, "third");
  CHECK(!memory.was_freed(address + 8));
  CHECK(memory.describe(address + 12, 8) ==
        "it begins at byte 12 of third, which has 16 bytes, and ends 4 behind it");
}
