#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_rooms on made-up headers: it must find what is out of order, and nothing else."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_rooms"
LISTED = re.search(r'"(\w+)",', SCRIPT.read_text())[1]


def function(lines, head="template <class T> int f(T x)"):
    return [f"{head} {{"] + ["  x += 1;"] * (lines - 2) + ["}"]


class CheckRooms(unittest.TestCase):
    def complaints(self, headers):
        with tempfile.TemporaryDirectory() as root:
            for name, lines in headers.items():
                path = pathlib.Path(root, "include/shardwright", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(lines) + "\n")
            run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            lines = [line for line in run.stdout.splitlines() if "recurs no more" not in line]
            return [line.split(": ", 1)[1] for line in lines if ": every room" not in line]

    def test_length_of_functions(self):
        self.assertEqual(self.complaints({"core/a.hpp": function(60)}), [])
        self.assertIn("this one has 61", self.complaints({"core/a.hpp": function(61)})[0])
        reason = ["// One function: a table."]
        self.assertEqual(self.complaints({"core/a.hpp": reason + function(61)}), [])
        member = ["struct S {"] + ["  " + line for line in function(61, "[[nodiscard]] int f(int x) const")] + ["};"]
        self.assertIn("this one has 61", self.complaints({"core/a.hpp": member})[0])
        wrapped = ["int f(int x,", "      int y)" + " {"] + ["  x += y;"] * 58 + ["}"]
        self.assertIn("this one has 61", self.complaints({"core/a.hpp": wrapped})[0])
        self.assertEqual(self.complaints({"core/a.hpp": ["struct S {"] + ["  int x = f();"] * 90 + ["};"]}), [])

    def test_length_of_headers(self):
        self.assertEqual(self.complaints({"core/a.hpp": ["int x;"] * 400}), [])
        self.assertIn("this one has 401", self.complaints({"core/a.hpp": ["int x;"] * 401})[0])

    def test_headers_of_a_folder(self):
        self.assertEqual(self.complaints({f"core/a{i}.hpp": [] for i in range(30)}), [])
        self.assertIn("this one holds 31", self.complaints({f"core/a{i}.hpp": [] for i in range(31)})[0])

    def test_names_that_recur(self):
        found = self.complaints({"comm/made_up.hpp": [], "mesh/made_up.hpp": []})
        self.assertEqual(found, ["made_up.hpp lies in comm, mesh: rename one, or list it in scripts/check_rooms"])
        self.assertEqual(self.complaints({f"comm/{LISTED}.hpp": [], f"mesh/{LISTED}.hpp": []}), [])
        self.assertEqual(self.complaints({"tensor/made_up.hpp": [], "tensor/kernels/made_up.hpp": []}), [])


if __name__ == "__main__":
    unittest.main()
