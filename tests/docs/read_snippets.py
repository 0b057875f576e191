#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the compiler accepts every program in docs/snippets that starts ranks, with the headers alone.

All of them share a translation unit, each in its own namespace, so that the headers are parsed once. No code is
generated.
"""
import argparse
import pathlib
import re
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--flags", type=pathlib.Path, required=True, help="one compiler flag per line")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="directory for the translation unit")
    options = parser.parse_args()
    # The compiler's own directories keep their place, or <cstdlib> breaks.
    own = re.compile(r"-isystem/usr/include(/[^/]*-linux-gnu[^/]*)?/?")
    flags = [line for line in options.flags.read_text().splitlines() if line and not own.fullmatch(line)]
    with_mpi = any(flag.startswith("-DSHARDWRIGHT_WITH_MPI") for flag in flags)
    includes, programs = set(), []
    for path in sorted((pathlib.Path(__file__).parents[2] / "docs/snippets").glob("*.cpp")):
        text = path.read_text()
        if not re.search(r"Kokkos::ScopeGuard|sw::run\(", text) or ("<mpi.h>" in text and not with_mpi):
            continue
        includes.update(re.findall(r"^#include <.*>$", text, re.MULTILINE))
        programs.append(f'namespace snippet_{path.stem} {{\n#include "{path}"\n}}\n')
    unit = options.work / "snippets_without_launch.cpp"
    unit.write_text("\n".join(sorted(includes)) + "\n" + "".join(programs))
    run = subprocess.run([options.compiler, "-std=c++20", "-fsyntax-only", "-Wno-return-type", *flags, unit])
    print(f"{len(programs)} programs")
    return run.returncode if programs else 1


if __name__ == "__main__":
    sys.exit(main())
