#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_operations on made-up headers: it must find what is missing, and nothing else."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_operations"

HEADER = """
namespace shardwright::inline SHARDWRIGHT_ABI {
namespace detail {
template <Operand X>
auto hidden(X&& x);
} // namespace detail
namespace operation {
struct Twice {
  template <Operand X>
  auto forward(X&& x) const { return x; }
};
} // namespace operation
/// template <Operand X> auto commented(X&& x);
template <AnyShardedTensor X>
auto tensors_only(const X& x);
template <Operand X>
concept Anything = true;
template <int dimension, Operand X>
[[nodiscard]] auto twice(X&& x) {
  return x;
}
template <detail::TapeOperand X, class C>
[[nodiscard]] auto thrice(X&& x, C& c);
template <LayoutType I, class Target>
[[nodiscard]] auto lookup(Tape<Target>& tape, const I& ids);
template <Operand X>
[[nodiscard]] auto operator+(X&& x, X&& y);
template <Operand X>
auto apply(X&& x);
template <Operand X>
auto detach(X&& x);
template <Operand X>
auto linear_scores(X&& x);
inline constexpr Elementwise<operation::Half> half{};
inline constexpr Binary<operation::Between> between{};
"""


class CheckOperations(unittest.TestCase):
    def run_script(self, entries):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            # As many as in the real list, because the script makes sure that it finds any.
            many = "".join(f"template <Operand X>\nauto op{i}(X&& x);\n" for i in range(20))
            (root / "made_up.hpp").write_text(HEADER + many)
            (root / "list.hpp").write_text("\n".join(f'name = "{each}";' for each in entries + [f"op{i}" for i in range(20)]))
            return subprocess.run([sys.executable, SCRIPT, "--include", root, "--list", root / "list.hpp"],
                                  capture_output=True, text=True)

    def test_a_full_list_is_sound(self):
        result = self.run_script(["twice", "thrice, operator+", "lookup", "half, between"])
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_what_is_missing_is_named(self):
        result = self.run_script(["twice", "operator+", "half"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("the operation between must be", result.stdout)
        self.assertIn("made_up.hpp: the operation thrice must be in tests/train/operation_list.hpp", result.stdout)
        self.assertIn("the operation lookup must be", result.stdout)
        self.assertIn("3 complaints", result.stdout)

    def test_what_is_gone_is_named(self):
        result = self.run_script(["twice", "thrice", "operator+", "lookup", "half", "between", "hidden", "forward", "commented",
                                  "tensors_only"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("there is no public operation hidden (remove its entry)", result.stdout)
        self.assertIn("4 complaints", result.stdout)


if __name__ == "__main__":
    unittest.main()
