#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_release on copies of the files that it reads: a version that is another, or shorter, must be found, a new
one must reach every place, and what a release lacks must be said."""
import pathlib
import re
import runpy
import subprocess
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
        for file in {"CHANGELOG.md", CONFIG, *(file for file, _ in PLACES)}:
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
            others = ("9_9",) if "X_Y" in form else (at[1].rpartition(".")[0], at[1] + ".0", "9" + at[1], "none")
            for other in others:
                with self.subTest(file=file, other=other):
                    found = self.complaints(file, text.replace(at[0], at[0].replace(at[1], other)))
                    self.assertEqual({line.partition(": ")[0] for line in found}, {file})

    def test_config(self):
        text = (ROOT / CONFIG).read_text()
        self.assertIn("must define SHARDWRIGHT_VERSION", self.complaints(CONFIG, text.replace("_MAJOR", "_FIRST"))[0])

    def test_release(self):
        RELEASE["set_version"](self.root, "7.8.9")
        self.assertEqual(list(RELEASE["complaints"](self.root)), [])
        self.assertIn("ABI v7_8_host", (self.root / CONFIG).read_text())

        def lacks(version="7.8.9"):
            return [line.partition(": ")[0] for line in RELEASE["missing"](self.root, version)]

        changes, citation = self.root / "CHANGELOG.md", self.root / "CITATION.cff"
        changes.write_text("# Changelog\n\n## [Unreleased]\n\n## [7.8.9] - 2030-01-02\n\n### Added\n")
        citation.write_text(re.sub("^date-released: .*\n", "", citation.read_text(), flags=re.MULTILINE) + "date-released: 2030-01-02\n")
        self.assertEqual(lacks(), [])
        self.assertEqual(lacks("7.8.10"), [CONFIG, "CHANGELOG.md"])
        for found, other, lacking in (("2030-01-02", "soon", [changes.name]), ("2030-01-02", "2030-01-03", [citation.name]),
                                      ("## [7", "No version has been released.\n\n## [7", [changes.name, changes.name])):
            before = changes.read_text()
            changes.write_text(before.replace(found, other))
            self.assertEqual(lacks(), lacking)
            changes.write_text(before)

    def test_git(self):
        def lacks():
            return [line.split(" (")[0] for line in RELEASE["missing_in_git"](self.root, "7.8.9")]

        def git(*words):
            subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)

        no_clone = "git: the folder must be a clone with a commit, not an unpacked archive"
        no_tag = "git: the annotated tag v7.8.9 must stand at this commit"
        self.assertEqual(lacks(), [no_clone])
        git("init")
        self.assertEqual(lacks(), [no_clone])
        git("add", ".")
        git("commit", "--message", "first")
        self.assertEqual(lacks(), [no_tag])
        git("tag", "v7.8.9")
        self.assertEqual(lacks(), [no_tag])
        git("tag", "--delete", "v7.8.9")
        git("tag", "--annotate", "--message", "7.8.9", "v7.8.9")
        self.assertEqual(lacks(), [])
        (self.root / "more").touch()
        self.assertEqual(lacks(), ["git: every change must be committed"])
        git("add", ".")
        git("commit", "--message", "second")
        self.assertEqual(lacks(), [no_tag])


if __name__ == "__main__":
    unittest.main()
