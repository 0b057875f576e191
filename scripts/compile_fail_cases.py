# SPDX-License-Identifier: Apache-2.0
"""The cases of tests/compile_fail, each a misuse that must not compile and its correction.

A file holds one case, or several that show one rule. A case has one or more lines `// expect: <part of the
sentence>`, and tests SHARDWRIGHT_EXPECT_FAIL. In a file with several, each case is a namespace that begins with them:

    namespace integer_mean {
    // expect: mean: the elements must be floating-point
    ...
    } // namespace integer_mean

What stands before the first of these namespaces belongs to all of them. A file whose cases include a runner header
carries the line `// needs: kokkos`.
"""
import dataclasses
import pathlib
import re

BEGIN = re.compile(r"^namespace (\w+) \{\n(?=// expect:)", re.MULTILINE)


@dataclasses.dataclass
class Case:
    path: pathlib.Path
    name: str
    first: int  # its lines, from 1; those of the namespace in a file with several
    last: int
    prologue: str  # what comes before the cases
    text: str  # without the namespace
    kind: str  # "descriptions" or "runners"

    @property
    def expected(self):
        return [line.strip() for line in re.findall(r"^// expect:(.*)$", self.text, re.MULTILINE)]


def cases_of(path):
    path = pathlib.Path(path)
    text = path.read_text()
    kind = "runners" if re.search(r"^// needs: kokkos\s*$", text, re.MULTILINE) else "descriptions"
    begins = list(BEGIN.finditer(text))
    if not begins:
        return [Case(path, path.stem, 1, text.count("\n"), "", text, kind)]
    cases = []
    for begin in begins:
        end = re.compile(rf"^\}} // namespace {begin[1]}$", re.MULTILINE).search(text, begin.end())
        if not end:
            raise SystemExit(f"{path}: a case must end with '}} // namespace {begin[1]}'")
        cases.append(Case(path, begin[1], text.count("\n", 0, begin.start()) + 1, text.count("\n", 0, end.start()) + 1,
                          text[: begins[0].start()], text[begin.end() : end.start()], kind))
    return cases


def names_in(directory):
    return {case.name for path in pathlib.Path(directory).glob("*.cpp") for case in cases_of(path)}
