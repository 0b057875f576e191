#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_docstrings on made-up headers: it must find what docstrings lack, and nothing else."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_docstrings"
PRELUDE = """
namespace shardwright::inline SHARDWRIGHT_ABI {
namespace detail {
[[noreturn]] void reject_root(int root);
inline void require_root(int root) { if (root < 0) throw InvalidArgument("root"); }
/// Notes a value; its name promises nothing.
inline void note(int) { throw InvalidArgument("note"); }
} // namespace detail
/// @brief Nothing.
void nothing();
"""


class CheckDocstrings(unittest.TestCase):
    def complaints(self, text, header="tensor/a.hpp"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, header)
            path.parent.mkdir(parents=True)
            path.write_text(PRELUDE + text + "}\n")
            run = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
            lines = run.stdout.splitlines()[:-1]
            self.assertEqual(run.returncode, 1 if lines else 0, run.stderr)
            return [line.split("docstring of ")[1] for line in lines]

    def test_errors(self):
        body = "inline int f(int root) { detail::require_root(root); return root; }\n"
        self.assertEqual(self.complaints("/// @brief F.\n" + body),
                         ["f must say @throws and when, because of require_root"])
        self.assertEqual(self.complaints("/// @brief F.\n/// @throws InvalidArgument for a negative root.\n" + body), [])
        self.assertEqual(self.complaints("/// @brief F.\ninline int f(int x) { detail::note(x); return x; }\n"), [])
        self.assertEqual(self.complaints("namespace detail {\n" + body + "}\n/// @brief G.\nint g(int x);\n"), [])
        thrown = '{ if (x < 0) throw InvalidArgument("x"); return x; }\n'
        self.assertEqual(self.complaints("/// @brief F.\nint f(int x);\ninline int f(int x) " + thrown),
                         ["f must say @throws and when, because of throw"])
        self.assertEqual(self.complaints("/// @brief F. @throws Error below 0.\nint f(int x);\n"
                                         "inline int f(int x) " + thrown), [])

    def test_members(self):
        text = "/// @brief S.{}\nclass S {{\npublic:\n  S(int x) : x_{{x}} {{ detail::require_root(x); }}\nprivate:\n" \
               "  int f() {{ detail::require_root(x_); return x_; }}\n  int x_;\n}};\n"
        self.assertEqual(self.complaints(text.format("")), ["S::S must say @throws and when, because of require_root"])
        self.assertEqual(self.complaints(text.format(" @throws Error for a wrong number.")), [])
        outside = "/// @brief S.\nstruct S {\n  /// @brief F.{}\n  int f();\n};\n" \
                  'SHARDWRIGHT_INLINE int S::f() { throw Error("f"); }\n'
        self.assertEqual(self.complaints(outside.replace("{}", "")), ["S::f must say @throws and when, because of throw"])
        self.assertEqual(self.complaints(outside.replace("{}", " @throws Error.")), [])

    def test_collectives(self):
        text = "/// @brief F.{}\ninline void f(World& world) {{ world.barrier(); }}\n"
        self.assertEqual(self.complaints(text.format("")), ["f must say that it is collective, because of barrier"])
        self.assertEqual(self.complaints(text.format(" Collective.")), ["f must say what it costs, being collective"])
        self.assertEqual(self.complaints(text.format(" Collective; waits for all ranks.")), [])
        self.assertEqual(self.complaints("/// @brief F. Collective only if the layouts differ.\nvoid f(int x);\n"), [])
        self.assertEqual(self.complaints(text.format(""), "comm/a.hpp"), [])

    def test_shapes_and_units(self):
        text = "namespace kernels {{\n/// @brief y = x.{}\nvoid f(const float* x, float* y);\n}}\n"
        self.assertEqual(self.complaints(text.format("")), ["kernels::f must say the shapes of its arguments"])
        self.assertEqual(self.complaints(text.format("\n/// @param x, y [tokens]")), [])
        text = "/// @brief Idle time{}.\n[[nodiscard]] double idle(int rank);\n"
        self.assertEqual(self.complaints(text.format("")), ["idle must say the unit of its result"])
        self.assertEqual(self.complaints(text.format(" in seconds")), [])
        text = "/// @brief S.\nstruct S {{\n  double bandwidth = 1; ///< Of a link{}.\n}};\n"
        self.assertEqual(self.complaints(text.format("")), ["S::bandwidth must say its unit"])
        self.assertEqual(self.complaints(text.format(", in bytes per second")), [])


if __name__ == "__main__":
    unittest.main()
