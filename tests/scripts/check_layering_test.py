#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layering on made-up headers: definitions that shardwright::compiled lacks, and a layer turned over."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_layering"
HEAD = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n/// @file\n"


class CheckLayering(unittest.TestCase):
    def complaints(self, headers, source=""):
        with tempfile.TemporaryDirectory() as root:
            files = {f"include/shardwright/{name}": HEAD + text for name, text in headers.items()}
            for name, text in (files | {"src/a.cpp": source}).items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            self.assertEqual(run.returncode == 0, run.stdout.endswith("the layers hold\n"))
            return [] if run.returncode == 0 else run.stdout.splitlines()

    def test_definitions_that_no_source_compiles(self):
        marked = "SHARDWRIGHT_INLINE int f() { return 1; }\n"
        headers = {"core/a.hpp": "#include <shardwright/core/b.hpp>\n", "core/b.hpp": marked}
        found = self.complaints(headers)
        self.assertEqual(len(found), 1)
        self.assertIn("include/shardwright/core/b.hpp:1: no source of src/ includes this header", found[0])
        self.assertEqual(self.complaints(headers, "#include <shardwright/core/a.hpp>\n"), [])
        member = {"core/b.hpp": "[[nodiscard]] " + marked}
        self.assertEqual(len(self.complaints(member)), 1)
        named = {"core/b.hpp": "#define SHARDWRIGHT_INLINE inline\n/// As SHARDWRIGHT_INLINE says.\n"}
        self.assertEqual(self.complaints(named), [])

    def test_layers(self):
        headers = {"core/a.hpp": "#include <shardwright/comm/b.hpp>\n", "comm/b.hpp": ""}
        self.assertIn("comm/, which is a higher layer", self.complaints(headers)[0])
        self.assertEqual(self.complaints({"comm/a.hpp": "#include <shardwright/core/b.hpp>\n", "core/b.hpp": ""}), [])


if __name__ == "__main__":
    unittest.main()
