#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the compiler lines of docs/how_to/install.md for Debian's Kokkos, without and with BLAS, on the example
quickstart, and the program. Without optimisation, since they take half of the time then.

Ends with 77, skipped, where that Kokkos is not installed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    lines = re.findall(r"^g\+\+ .*/usr/include/trilinos.*$", (ROOT / "docs/how_to/install.md").read_text(), re.MULTILINE)
    if len(lines) != 2:
        sys.exit(f"docs/how_to/install.md must have two lines g++ with /usr/include/trilinos, but it has {len(lines)}")
    if not pathlib.Path("/usr/include/trilinos/Kokkos_Core.hpp").is_file() or shutil.which("g++") is None:
        print("skipped: there is no g++, or no Kokkos in /usr/include/trilinos")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "shardwright").symlink_to(ROOT)
        shutil.copy(ROOT / "examples" / "quickstart.cpp", work / "program.cpp")
        bare = {"PATH": os.environ["PATH"], "HOME": folder}
        for line in lines:
            unoptimised = line.replace(" -O2 ", " ")
            said = subprocess.run(unoptimised, shell=True, cwd=work, env=bare, capture_output=True, text=True)
            print(said.stderr)
            if said.returncode != 0 or said.stderr:
                sys.exit(f"the line must compile the example and print nothing: {line}")
            subprocess.run(["./program"], cwd=work, env=bare, check=True)


if __name__ == "__main__":
    main()
