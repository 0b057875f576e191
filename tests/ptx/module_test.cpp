// SPDX-License-Identifier: Apache-2.0
// What parse() makes of a text, and what the interpreter says about texts that it does not know.
#include <string>

#include "ptx/fault.hpp"
#include "ptx/one_instruction.hpp"

namespace {

using namespace ptx_test;

ptx::Fault fault_of(const std::string& text) {
  try {
    const ptx::Module module = ptx::parse(text);
    module.find("k");
  } catch (const ptx::Fault& fault) {
    return fault;
  }
  FAIL("no fault");
  throw std::logic_error("unreachable");
}

} // namespace

TEST_CASE("a module lists its kernels and variables", "[ptx]") {
  const std::string text =
      "// a comment with { and ;\n.version 9.0\n.target sm_90, debug\n.address_size 64\n"
      ".extern .func (.param .b32 result) vprintf(.param .b64 a, .param .b64 b);\n"
      ".global .align 8 .b8 bytes[12] = {1, 2, 0xff};\n"
      ".visible .const .align 8 .f64 numbers[2] = {0d3FF0000000000000, 2.0};\n"
      ".global .u32 table[2][2] = {{1, 2}, {3, 4}};\n.global .u32 single = 9;\n"
      ".visible .entry first(.param .u32 a)\n.maxntid 96, 2, 1\n.minnctapersm 2\n{ /* { */ ret; }\n"
      ".weak .entry second()\n{\n\tret;\n}\n\t.file\t1 \"source.cu\"\n"
      ".section .debug_str { .b8 1,2 }\n";
  ptx::Module module = ptx::parse(text, "name");
  CHECK(module.name() == "name");
  CHECK(module.entries() == std::vector<std::string_view>{"first", "second"});
  REQUIRE(module.variables().size() == 4);
  const ptx::Variable& bytes = *module.variable("bytes");
  CHECK(bytes.bytes == 12);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.address) % 8 == 0);
  CHECK(static_cast<unsigned>(bytes.address[2]) == 255);
  CHECK(static_cast<unsigned>(bytes.address[3]) == 0);
  const ptx::Variable& numbers = *module.variable("numbers");
  CHECK(numbers.constant);
  double values[2];
  std::memcpy(values, numbers.address, sizeof values);
  CHECK(values[1] == 2.0);
  CHECK(static_cast<unsigned>(module.variable("table")->address[8]) == 3);
  CHECK(module.variable("nothing") == nullptr);
  CHECK(module.find("nothing") == nullptr);
  const ptx::Kernel& kernel = *module.find("first");
  CHECK(kernel.maximum_threads == 192);
  CHECK(kernel.parameter_bytes == 4);
  CHECK(module.find("first") == &kernel);
  const ptx::Module moved = std::move(module);
  CHECK(moved.find("first") == &kernel);
}

TEST_CASE("a kernel runs on ordinary arrays", "[ptx]") {
  const std::string text =
      ".visible .entry scale(.param .u64 p, .param .f32 factor)\n{\n.reg .b32 %block, %width, %thread;\n"
      ".reg .f32 %value, %factor; .reg .b64 %at, %p;\n.loc 1 3 1\nmov.u32 %block, %ctaid.x; mov.u32 %width, %ntid.x;\n"
      "mov.u32 %thread, %tid.x; mad.lo.s32 %thread, %block, %width, %thread;\nmul.wide.u32 %at, %thread, 4;\n"
      "ld.param.u64 %p, [p]; add.s64 %at, %at, %p;\nld.param.f32 %factor, [factor];\n\n"
      "ld.global.f32 %value, [%at];\nmul.f32 %value, %value, %factor;\nst.global.f32 [%at], %value;\nret;\n}\n"
      ".file 1 \"scale.cu\"\n";
  std::vector<float> values(1024, 3);
  struct {
    float* values;
    float factor;
  } parameters{values.data(), 2};
  //! [example]
  const ptx::Module module = ptx::parse(text);       // a string of PTX
  const ptx::Kernel& kernel = *module.find("scale"); // decodes it, once
  ptx::Memory memory;
  memory.add(values.data(), values.size() * 4, "values"); // what kernels may touch
  ptx::run(kernel, {.grid = {4}, .block = {256}, .parameters = &parameters}, memory);
  //! [example]
  CHECK(values == std::vector<float>(1024, 6));
  ptx::Memory shorter;
  shorter.add(values.data(), 4000, "values");
  try {
    ptx::run(kernel, {{4}, {256}, 0, &parameters}, shorter);
    FAIL("no fault");
  } catch (const ptx::Fault& fault) {
    CHECK(fault.kind == ptx::FaultKind::bounds);
    const std::string said = fault.what();
    CHECK(said.starts_with("ptx: bounds: the load of 4 bytes at 0x"));
    CHECK(said.ends_with(" by lane 8 lies in no block: it is 0 bytes behind values, which has 4000 bytes.\n"
                         "  instruction: ld.global.f32 %value, [%at]\n  PTX line: 12\n  source: scale.cu:3\n"
                         "  kernel: scale\n  block (3, 0, 0), warp 7, lane 8"));
  }
}

TEST_CASE("instructions know their text, line and source, and count their executions", "[ptx]") {
  const std::string text =
      ".version 9.0\n.visible .entry k()\n{\n.reg .b32 %r<3>;\n.reg .pred %p;\n.loc 2 17 3\n"
      "mov.u32\t%r1, %tid.x;\n.loc 2 18 5, function_name $L, inlined_at 2 40 1\nsetp.gt.u32 %p, %r1, 31;\n"
      "@%p bra   $END;\nadd.s32 %r2, %r1, 1; // a comment\n$END:\nret;\n}\n\t.file\t2 \"/some/where.hpp\"\n";
  const ptx::Module module = ptx::parse(text);
  const ptx::Kernel& kernel = *module.find("k");
  REQUIRE(kernel.instructions() == 5);
  CHECK(kernel.site(0).text == "mov.u32 %r1, %tid.x");
  CHECK(kernel.site(0).line == 7);
  CHECK(kernel.site(0).source == "/some/where.hpp:17");
  CHECK(kernel.site(1).source == "/some/where.hpp:18");
  CHECK(kernel.site(2).text == "@%p bra $END");
  CHECK(kernel.site(3).opcode == ptx::Opcode::add);
  CHECK(kernel.site(4).line == 13);
  ptx::Memory memory;
  const ptx::Statistics statistics = ptx::run(kernel, {{3}, {64}, 0, nullptr}, memory);
  CHECK(statistics.blocks == 3);
  CHECK(kernel.executed(0) == 6);
  CHECK(kernel.executed(2) == 6);
  CHECK(kernel.executed(3) == 3); // the second warp jumps over it
  CHECK(statistics.warp_instructions == 6 * 4 + 3);
  CHECK(statistics.lane_instructions == 32 * 27 - 3 * 32); // no lane of the first warp jumps
  kernel.clear_counts();
  CHECK(kernel.executed(0) == 0);
}

TEST_CASE("instructions know after which others they run", "[ptx]") {
  const std::string text =
      ".func f()\n{\n.reg .b32 %a;\nmov.u32 %a, 1;\nret;\n}\n"                                    // 0, 1
      ".visible .entry k()\n{\n.reg .b32 %r<3>;\n.reg .pred %p;\nmov.u32 %r1, %tid.x;\n"          // 2
      "setp.gt.u32 %p, %r1, 31;\n$TOP:\n@%p bra $END;\ncall.uni f, ();\nbra.uni $TOP;\n"          // 3 to 6
      "ts: .branchtargets $END, $TOP;\nbrx.idx %r1, ts;\nadd.s32 %r2, %r1, 1;\n$END:\nret;\n}\n"; // 7 to 9
  const ptx::Module module = ptx::parse(text);
  using Places = std::vector<std::size_t>;
  CHECK(module.find("k")->predecessors() ==
        std::vector<Places>{{5}, {0}, {}, {2}, {3, 6, 7}, {4}, {5}, {}, {}, {4, 7, 8}});
}

TEST_CASE("what the interpreter does not know is named, with kernel and line", "[ptx]") {
  const ptx::Fault opcode = fault_of(module_text("", ".reg .b32 %r<3>;\nfrobnicate.u32 %r1, %r2;"));
  CHECK(opcode.kind == ptx::FaultKind::unsupported);
  CHECK(opcode.sentence == "the interpreter does not know the opcode frobnicate.");
  CHECK(opcode.where.kernel == "k");
  CHECK(opcode.where.line == 7);
  CHECK(opcode.where.instruction == "frobnicate.u32 %r1, %r2");
  const auto sentence = [](const std::string& body) {
    return fault_of(
               module_text("", ".reg .pred %p; .reg .b16 %h<3>; .reg .b32 %r<3>; .reg .b64 %d<3>;\n" + body))
        .sentence;
  };
  const std::string form = "the interpreter does not know this form of ";
  CHECK(sentence("add.s32.sideways %r1, %r2, %r2;") == form + "add: it does not know .sideways here.");
  CHECK(sentence("add.s32 %r1, %d2, %r2;") ==
        form + "add: the register %d2 has 64 bits, but the operand has 32.");
  CHECK(sentence("add.s32 %d1, %r2, %r2;") ==
        form + "add: the register %d1 has 64 bits, but the result has 32.");
  CHECK(sentence("add.s32 %r1, %r2;") == form + "add: operand 3 is missing.");
  CHECK(sentence("add.s32 %r1, %r2, %nothing;") == form + "add: nothing is named %nothing.");
  CHECK(sentence("mov.u32 7, %r2;") == form + "mov: a destination is not a register.");
  CHECK(sentence("add %r1, %r2, %r2;") == form + "add: it names no type.");
  CHECK(sentence("ld.global.v3.u32 %r1, [%d1];").starts_with(form + "ld"));
  CHECK(sentence("ld.global.u32 %r1, %d1;") == form + "ld: operand 2 must be an address.");
  CHECK(sentence("mma.sync.aligned.m16n8k99.row.col.f32.bf16.bf16.f32 %r1, %r1, %r1, %r1;") ==
        form + "mma: no such shape and types.");
  CHECK(sentence("cp.async.bulk.commit_group;").starts_with(form + "cp"));
  CHECK(sentence("bra NOWHERE;") == "there is no label NOWHERE.");
  CHECK(sentence(".strange 4;") == "the interpreter does not know the directive .strange.");
  CHECK(sentence("call.uni unknown, ();").starts_with(form + "call: the function unknown has no body here"));
  CHECK(fault_of("nonsense here;").kind == ptx::FaultKind::syntax);
  CHECK(fault_of(".global .align 4 nothing;").kind == ptx::FaultKind::syntax);
  // A function that calls itself would need a stack of frames.
  CHECK(fault_of(".func f()\n{\ncall.uni f, ();\nret;\n}\n" + module_text("", "call.uni f, ();"))
            .sentence.starts_with("a function that calls itself"));
}

TEST_CASE("only kernels that are asked for must be known", "[ptx]") {
  const ptx::Module module = ptx::parse(module_text("", "nop;") + ".visible .entry good()\n{\nret;\n}\n");
  CHECK(module.find("good") != nullptr);
  CHECK_THROWS_AS(module.find("k"), ptx::Fault);
}

TEST_CASE("a launch must fit its kernel", "[ptx]") {
  const ptx::Module module =
      ptx::parse(".visible .entry k(.param .u32 a)\n.maxntid 64, 1, 1\n{\n.shared .b8 s[1000]; ret;\n}\n");
  const ptx::Kernel& kernel = *module.find("k");
  ptx::Memory memory;
  const std::uint32_t value = 0;
  const auto sentence = [&](const ptx::Launch& launch) {
    try {
      ptx::run(kernel, launch, memory);
    } catch (const ptx::Fault& fault) {
      CHECK(fault.kind == ptx::FaultKind::launch);
      return fault.sentence;
    }
    return std::string();
  };
  CHECK(sentence({{1}, {64}, 0, &value}).empty());
  CHECK(sentence({{1}, {65}, 0, &value}) ==
        "the block has 65 threads, but the kernel is compiled for at most 64.");
  CHECK(sentence({{0}, {1}, 0, &value}).starts_with("a grid must have at least one block"));
  CHECK(sentence({{1}, {1}, 0, nullptr}) == "the kernel has parameters, but the launch gives none.");
  CHECK(sentence({{1}, {1}, 240000, &value}).starts_with("the block needs 241"));
}
