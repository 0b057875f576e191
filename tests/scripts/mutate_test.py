#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two made-up build trees of scripts/mutate, whose compilers are scripts: what it says of their tests."""
import json
import pathlib
import runpy
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MUTATE = runpy.run_path(str(ROOT / "scripts" / "mutate"))
HEADER = ROOT / "include/shardwright/core/hash.hpp"
TEST = ROOT / "tests/core/hash_test.cpp"
# Objects hold the name of their tree; the program of a link fails unless all are of one tree.
COMPILE = "import pathlib, sys; pathlib.Path(sys.argv[-1]).write_text('{tree}')"
LINK = """import pathlib, sys
at = sys.argv.index('-o')
trees = {pathlib.Path(name).read_text() for name in sys.argv[1:] if name.endswith('.o')}
program = pathlib.Path(sys.argv[at + 1])
program.write_text('#!/bin/sh\\nexit ' + str(len(trees) - 1) + '\\n')
program.chmod(0o755)"""


class Mutate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        (self.work / "again.cpp").write_text("#include <shardwright/core/hash.hpp>\n")

    def build(self, tree, compiler=COMPILE):
        folder = self.work / tree
        folder.mkdir()
        entries = [{"file": str(file), "directory": str(folder),
                    "command": f'{sys.executable} -c "{compiler.format(tree=tree)}" -o {file.stem}.o'}
                   for file in (TEST, self.work / "again.cpp")]
        (folder / "compile_commands.json").write_text(json.dumps(entries))
        out = MUTATE["Build"](folder)
        out.links["tests/core_test"] = [sys.executable, "-c", LINK, "again.o", "-o", "core_test"]
        return out

    def test_objects_of_two_trees(self):
        for tree in ("dev", "clang"):
            self.assertIsNone(self.build(tree).test(TEST, HEADER, self.work, 60))

    def test_what_notices(self):
        self.assertEqual(self.build("fails", "raise SystemExit(1)").test(TEST, HEADER, self.work, 60), "the compiler")
        limits = MUTATE["Build"].test.__globals__
        limits["COMPILE_LIMIT"] = 0.2
        self.assertIsNone(self.build("slow", "import time; time.sleep(20)").test(TEST, HEADER, self.work, 60))


if __name__ == "__main__":
    unittest.main()
