// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs a few instructions on given values, for tests.

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <stdexcept>

#include "executor.hpp"
#include "support/catch.hpp"

namespace ptx_test {

using Word = std::uint64_t;

inline Word f(float value) { return std::bit_cast<std::uint32_t>(value); }
inline Word d(double value) { return std::bit_cast<Word>(value); }

/// @brief The text of a module with one kernel, `k`, of these parameters and this body.
inline std::string module_text(std::string_view parameters, std::string_view body) {
  return ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(" + std::string(parameters) +
         ")\n{\n" + std::string(body) + "\nret;\n}\n";
}

/// @brief Runs `text` in every thread of a block and returns what each has left in a register.
///
/// Registers are named after their width: %p (a predicate), %h, %r, %d, of 1, 16, 32 and 64 bits, for
/// results, and %ha to %hd, %ra to %rd, %da to %dd for the low bits of the inputs. Input i of a thread is
/// values[i][thread].
/// @param result is the register to return.
inline std::vector<Word> run_threads(std::string_view text, const std::vector<std::vector<Word>>& values,
                                     std::string_view result, unsigned threads,
                                     const ptx::Options& options = {}) {
  std::string body = ".reg .pred %p, %q, %pa, %pb;\n.reg .b16 %h, %h1, %h2, %h3, %h4, %ha, %hb, %hc, %hd;\n"
                     ".reg .b32 %r, %r1, %r2, %r3, %r4, %ra, %rb, %rc, %rd, %thread, %w;\n"
                     ".reg .b64 %d, %d1, %d2, %da, %db, %dc, %dd, %in, %out, %at;\n"
                     "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %thread, %tid.x;\n"
                     "mul.wide.u32 %at, %thread, 8; add.s64 %out, %out, %at; add.s64 %in, %in, %at;\n"
                     "mov.b16 %h, 0; mov.b32 %r, 0; mov.b64 %d, 0; setp.ne.u32 %p, 0, 0;\n";
  std::vector<Word> input;
  const char* names = "abcd";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string name(1, names[i]);
    body += "ld.global.u64 %d" + name + ", [%in+" + std::to_string(8 * i * threads) + "]; cvt.u32.u64 %r" +
            name + ", %d" + name + "; cvt.u16.u64 %h" + name + ", %d" + name + ";\n";
    if (i < 2)
      body += "and.b32 %w, %r" + name + ", 1; setp.ne.u32 %p" + name + ", %w, 0;\n";
    input.insert(input.end(), values[i].begin(), values[i].end());
  }
  body += std::string(text) + ";\n";
  if (result == "%p")
    body += "selp.u32 %w, 1, 0, %p; cvt.u64.u32 %d, %w;\n";
  else if (result.starts_with("%h"))
    body += "cvt.u64.u16 %d, " + std::string(result) + ";\n";
  else if (result.starts_with("%r"))
    body += "cvt.u64.u32 %d, " + std::string(result) + ";\n";
  else if (result != "%d")
    body += "mov.b64 %d, " + std::string(result) + ";\n";
  const ptx::Module module =
      ptx::parse(module_text(".param .u64 in, .param .u64 out", body + "st.global.u64 [%out], %d;"));
  input.resize(input.size() + 1);
  std::vector<Word> output(threads);
  ptx::Memory memory;
  memory.add(input.data(), input.size() * 8, "input");
  memory.add(output.data(), output.size() * 8, "output");
  const void* parameters[] = {input.data(), output.data()};
  ptx::run(*module.find("k"), {{1}, {threads}, 0, parameters}, memory, options);
  return output;
}

/// @brief The result of instructions on single values: the register that the last instruction names first.
///
/// They run in one thread, and in the first of 32 whose other threads have other values; both must agree.
inline Word value_of(std::string_view text, std::initializer_list<Word> inputs = {},
                     std::string_view result = "") {
  std::string_view last = text.substr(text.rfind(';') == std::string_view::npos ? 0 : text.rfind(';') + 1);
  if (result.empty()) {
    result = last.substr(last.find('%'));
    result = result.substr(0, result.find_first_of(",| "));
  }
  std::vector<std::vector<Word>> one, many;
  for (const Word input : inputs) {
    one.push_back({input});
    many.emplace_back();
    for (Word lane = 0; lane < 32; ++lane)
      many.back().push_back(input + lane * 0x0101);
  }
  const Word alone = run_threads(text, one, result, 1)[0];
  const Word together = run_threads(text, many, result, 32)[0];
  if (alone != together)
    throw std::logic_error("one thread and 32 disagree: " + std::string(text));
  return alone;
}

/// @brief A row of a test's table: instructions, values of a, b, c and d, and the result.
struct Case {
  std::string_view text;
  std::vector<Word> inputs;
  Word expected;
};

/// @brief Checks every row of a table.
inline void check(std::initializer_list<Case> cases) {
  for (const Case& one : cases) {
    INFO(one.text);
    std::vector<Word> inputs = one.inputs;
    inputs.resize(4);
    CHECK(value_of(one.text, {inputs[0], inputs[1], inputs[2], inputs[3]}) == one.expected);
  }
}

} // namespace ptx_test
