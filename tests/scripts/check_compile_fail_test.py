#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_compile_fail on made-up cases that share a unit: each must fail for its own reason."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_compile_fail"
COMPILERS = []

HEADER = """#pragma once
template <int n>
struct Even {
  static_assert(n % 2 == 0, "Even: the number must be even (add one)");
};
template <int n>
struct Small {
  static_assert(n < 10, "Small: the number must be below ten (divide it)");
};
template <class T>
void twice(T x) {
  static_assert(sizeof(x) > 1, "twice: the value must be wide (widen it)");
}
"""


def case(expected, wrong, right, after=""):
    return (f"// expect: {expected}\n#include <numbers.hpp>\n#ifdef SHARDWRIGHT_EXPECT_FAIL\n{wrong}\n"
            f"#else\n{right}\n#endif\n{after}\n")


EVEN = "Even: the number must be even"
SMALL = "Small: the number must be below ten"
WIDE = "twice: the value must be wide"
GOOD = {
    "even": case(EVEN, "using Number = Even<3>;", "using Number = Even<4>;", "Number number;"),
    "small": case(SMALL, "using Number = Small<12>;", "using Number = Small<2>;", "Number number;"),
    # The compiler does not repeat an error that an earlier case has produced.
    "even_again": case(EVEN, "Even<3> number;", "Even<4> number;"),
    "wide": case(WIDE, "struct Byte { char c; };", "struct Byte { int c; };", "void f() { twice(Byte{}); }"),
    "even_too": case(EVEN, "Even<5> number;", "Even<6> number;"),
}


class CheckCompileFail(unittest.TestCase):
    def run_on(self, cases):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "numbers.hpp").write_text(HEADER)
            (root / "descriptions.txt").write_text("")
            for name, text in cases.items():
                (root / f"{name}.cpp").write_text(text)
            command = [sys.executable, str(SCRIPT), "--include", directory, "--flags", directory, "--work", directory]
            for compiler in COMPILERS:
                command += ["--compiler", compiler]
            result = subprocess.run(command + [str(root / f"{name}.cpp") for name in cases], capture_output=True,
                                    text=True)
            return result.returncode, result.stdout + result.stderr

    def rejected(self, name, text, sentence):
        status, said = self.run_on({**GOOD, name: text})
        self.assertEqual(status, 1, said)
        blamed = {match[1] for match in re.finditer(r"^\S+\.cpp:\d+: (\w+) \(", said, re.MULTILINE)}
        self.assertEqual(blamed, {name}, said)
        self.assertIn(sentence, said)

    def test_good_cases_pass(self):
        status, said = self.run_on(GOOD)
        self.assertEqual(status, 0, said)
        self.assertIn(f"{len(GOOD)} cases, 0 failures", said)

    def test_a_misuse_that_compiles(self):
        self.rejected("compiles", case(EVEN, "Even<8> number;", "Even<6> number;"), "the misuse must not compile")

    def test_a_misuse_that_fails_for_the_reason_of_another(self):
        self.rejected("other", case(EVEN, "Small<14> number;", "Small<4> number;"), "the output must contain")

    def test_a_misuse_whose_error_is_in_the_case_itself(self):
        self.rejected("typo", case(SMALL, "Smal<14> number;", "Small<4> number;"), "the output must contain")

    def test_a_control_that_does_not_compile(self):
        self.rejected("control", case(SMALL, "Small<14> number;", "Small<16> number;"), "the control must compile")

    def test_cases_of_one_file(self):
        def inside(name, text):
            expectation, _, rest = text.partition("\n#include <numbers.hpp>\n")
            return f"namespace {name} {{\n{expectation}\n{rest}}} // namespace {name}\n"

        prologue = "#include <numbers.hpp>\nusing Three = Even<3>;\nusing Four = Even<4>;\n\n"
        shared = case(EVEN, "Three number;", "Four number;")
        good = prologue + inside("first", shared) + inside("second", GOOD["small"]) + inside("third", GOOD["wide"])
        status, said = self.run_on({**GOOD, "several": good})
        self.assertEqual(status, 0, said)
        self.assertIn(f"{len(GOOD) + 3} cases, 0 failures", said)
        for wrong, sentence in [(case(EVEN, "Four number;", "Four number;"), "the misuse must not compile"),
                                (case(EVEN, "Small<14> number;", "Four number;"), "the output must contain"),
                                (case(EVEN, "Three number;", "Even<9> number;"), "the control must compile")]:
            status, said = self.run_on({"several": good + inside("fourth", wrong), **GOOD})
            self.assertEqual(status, 1, said)
            self.assertEqual({match[1] for match in re.finditer(r"^\S+\.cpp:\d+: (\w+) \(", said, re.MULTILINE)},
                             {"fourth"}, said)
            self.assertIn(sentence, said)

    def test_a_case_that_does_not_end(self):
        status, said = self.run_on({"open": f"namespace open {{\n// expect: {EVEN}\n"})
        self.assertNotEqual(status, 0)
        self.assertIn("a case must end with '} // namespace open'", said)

    def test_a_case_without_an_expectation(self):
        status, said = self.run_on({"silent": "int number = SHARDWRIGHT_EXPECT_FAIL;\n"})
        self.assertNotEqual(status, 0)
        self.assertIn("a case must have a line", said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", action="append", default=[])
    arguments, rest = parser.parse_known_args()
    COMPILERS = arguments.compiler or ["c++"]
    unittest.main(argv=[sys.argv[0], *rest])
