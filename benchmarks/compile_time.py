#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile time of the umbrella header against Kokkos_Core.hpp alone, alternating, as the median of the ratios.

The flags are those of a configured build folder, taken from its compile_commands.json.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time


def flags_of(build):
    """The compiler and the flags of the first command, without its input and output."""
    command = json.loads((build / "compile_commands.json").read_text())[0]
    words = command.get("arguments") or shlex.split(command["command"])
    if words and words[0].endswith("ccache"):
        words = words[1:]
    keep = [words[0]]
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-o", "-c"):
            skip = True
        elif not word.startswith("-O"):
            keep.append(word)
    return keep


def seconds(command, source):
    begin = time.perf_counter()
    subprocess.run([*command, "-fsyntax-only", str(source)], check=True)
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a configured build folder")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    command = flags_of(options.build)
    rows = {"kokkos": [], "umbrella": []}
    with tempfile.TemporaryDirectory() as folder:
        sources = {}
        for name, header in (("kokkos", "Kokkos_Core.hpp"), ("umbrella", "shardwright/shardwright.hpp")):
            sources[name] = pathlib.Path(folder) / f"{name}.cpp"
            sources[name].write_text(f"#include <{header}>\nint main() {{}}\n")
            seconds(command, sources[name])
        for _ in range(options.rounds):
            for name, source in sources.items():
                rows[name].append(seconds(command, source))
    ratio = statistics.median(u / k for u, k in zip(rows["umbrella"], rows["kokkos"]))
    result = {
        "kokkos_seconds": statistics.median(rows["kokkos"]),
        "umbrella_seconds": statistics.median(rows["umbrella"]),
        "ratio": ratio,
    }
    print(f"Kokkos_Core.hpp {result['kokkos_seconds']:.2f} s, umbrella header {result['umbrella_seconds']:.2f} s, ratio {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
