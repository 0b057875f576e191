#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_release on copies of the files that it reads: a version that is another, or shorter, must be found."""
import pathlib
import re
import runpy
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RELEASE = runpy.run_path(str(ROOT / "scripts" / "check_release"))
CONFIG, PLACES = RELEASE["CONFIG"], RELEASE["PLACES"]


class CheckRelease(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for file in {CONFIG, *(file for file, _ in PLACES)}:
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / file).write_text((ROOT / file).read_text())

    def complaints(self, file, changed):
        """The violations while a file has another text."""
        (self.root / file).write_text(changed)
        found = list(RELEASE["complaints"](self.root))
        (self.root / file).write_text((ROOT / file).read_text())
        return found

    def test_places(self):
        self.assertEqual(list(RELEASE["complaints"](self.root)), [])
        for file, form in PLACES:
            text = (ROOT / file).read_text()
            at = RELEASE["pattern_of"](form).search(text)
            for other in (at[1].rpartition(".")[0], at[1] + ".0", "9" + at[1], "none"):
                with self.subTest(file=file, other=other):
                    found = self.complaints(file, text.replace(at[0], at[0].replace(at[1], other)))
                    self.assertEqual({line.partition(": ")[0] for line in found}, {file})

    def test_config(self):
        text = (ROOT / CONFIG).read_text()
        self.assertIn("must define SHARDWRIGHT_VERSION", self.complaints(CONFIG, text.replace("_MAJOR", "_FIRST"))[0])
        self.assertIn("the namespace v9_", self.complaints(CONFIG, re.sub("ABI v[0-9]+", "ABI v9", text))[0])


if __name__ == "__main__":
    unittest.main()
