#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check makes of programs that pass, fail, skip, hang or miss a target, with programs that only pretend."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import stat
import sys
import tempfile
import time
import types

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "gpu_check"
script = types.ModuleType("gpu_check")
script.__file__ = str(SCRIPT)
sys.modules["gpu_check"] = script  # where its dataclass looks for its own names
exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), script.__dict__)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def check_in(build, seconds=60):
    check = script.Check(argparse.Namespace(build=build, jobs=1, seconds=seconds, build_seconds=9, python=sys.executable))
    check.end = time.monotonic() + seconds
    return check


def results(check, *steps):
    """Runs steps quietly; step, result and reason of every row."""
    with contextlib.redirect_stdout(io.StringIO()):
        for step in steps:
            step()
    return {row.step: (row.result, row.figure, row.limit, row.reason) for row in check.rows}


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: found {found!r}, but it must be {wanted!r}")


def verdicts(build):
    program(build / "good", "echo fine")
    program(build / "bad", "echo first; echo 'it broke'; exit 3")
    program(build / "skips", "echo 'skipped: it needs more'; exit 77")
    program(build / "hangs", "sleep 60 & sleep 60")
    check = check_in(build)
    begin = time.monotonic()
    rows = results(check, lambda: check.verdict("good", [build / "good"], 5, lambda output: output.strip(), "any"),
                   lambda: check.verdict("bad", [build / "bad"], 5),
                   lambda: check.verdict("skips", [build / "skips"], 5),
                   lambda: check.verdict("hangs", [build / "hangs"], 1),
                   lambda: check.verdict("missing", [build / "nowhere"], 5))
    expect("a good program", rows["good"], ("passed", "fine", "any", ""))
    expect("a bad program", (rows["bad"][0], rows["bad"][3]), ("failed", "exit status 3: it broke"))
    expect("a program that skips", rows["skips"], ("skipped", "", "", "skipped: it needs more"))
    expect("a program that hangs", (rows["hangs"][0], rows["hangs"][3]), ("failed", "ended at its time limit"))
    expect("a program that is not there", rows["missing"][0], "failed")
    expect("ended in time", time.monotonic() - begin < 20, True)
    late = check_in(build, seconds=1)
    expect("no time left", results(late, lambda: late.verdict("good", [build / "good"], 5))["good"],
           ("skipped", "", "", "the 1 s were used up"))


def losses(build):
    program(build / "examples" / "train_gpt", """case "$*" in
*bf16*) echo 'verify: FAILED: losses differ by 1.00e-02 relative at most, 4e-03 is allowed'; exit 1;;
esac
echo 'verify: passed: losses differ by 2.00e-06 relative at most, 1e-04 is allowed'""")
    check = check_in(build)
    rows = results(check, check.losses)
    expect("every mesh has a row", len(rows), len(script.LOSSES))
    expect("agreement", rows["losses against the host: fp32, 1 rank"],
           ("passed", "2.00e-06 relative", "at most 1e-04", ""))
    expect("no agreement", rows["losses against the host: bf16, 1 rank"][:2], ("failed", "1.00e-02 relative"))


def sanitizer(build, tools):
    program(build / "tests" / "cuda_kernels", "exit 0")
    program(tools / "compute-sanitizer", """case "$2" in
memcheck) echo '========= ERROR SUMMARY: 2 errors'; exit 9;;
esac
echo '========= Device not supported'; exit 1""")
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    check = check_in(build)
    rows = results(check, check.sanitizer)
    expect("errors that memcheck finds", rows["compute-sanitizer memcheck: kernels"],
           ("failed", "2 errors", "no error", "exit status 9"))
    expect("a card that it does not know", rows["compute-sanitizer racecheck: kernels"][0], "skipped")


def benchmarks(build):
    figures = {"notes": {"device": "pretended", "PyTorch, compiled": "no compiler"}, "figures": [
        {"part": "p", "name": "fast", "value": 81.0, "unit": "%", "least": 80},
        {"part": "p", "name": "slow", "value": 79.0, "unit": "%", "least": 80},
        {"part": "p", "name": "broken", "value": None, "unit": "%", "least": 80},
        {"part": "p", "name": "plain", "value": 3.0, "unit": "ms", "least": None}]}
    build.mkdir()
    (build / "figures.json").write_text(json.dumps(figures))
    half = {"notes": {}, "figures": [{"part": "c", "name": "early", "value": 1.0, "unit": "ms", "least": None}]}
    (build / "half.json").write_text(json.dumps(half))
    program(build / "benchmarks" / "gpu", f"""case "$1" in
collectives) cp "{build}/half.json" "$4"; exit 1;;
esac
while [ "$1" != --json ]; do shift; done; cp "{build}/figures.json" "$2" """)
    check = check_in(build)
    rows = results(check, check.benchmarks)
    expect("a target that is reached", rows["benchmark: p: fast"], ("reached", "81 %", "at least 80", ""))
    expect("one that is missed", rows["benchmark: p: slow"][0], "not reached")
    expect("a figure that is not a number", rows["benchmark: p: broken"][0], "not reached")
    expect("a figure without a target", rows["benchmark: p: plain"], ("measured", "3 ms", "", ""))
    expect("a benchmark that fails", rows["benchmark: collectives and transitions"][0], "failed")
    expect("what it had by then", rows["benchmark: c: early"][:2], ("measured", "1 ms"))
    expect("a rival that does not start", rows["benchmark: training: PyTorch, compiled"][3], "no compiler")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        expect("the exit status", check.finish(["a card"]), 1)
    expect("one line per row and a heading", len(script.table(check.rows).splitlines()), len(check.rows) + 1)
    expect("the table ends the output", said.getvalue().strip().endswith("report.md"), True)
    expect("the report", (build / "report.md").read_text().count("\n| "), len(check.rows) + 2)


def building(build, tools, kokkos):
    program(kokkos / "bin" / "nvcc_wrapper", "exit 1")
    program(tools / "nvcc", "exit 0")
    program(tools / "cmake", """case "$*" in
*--preset*) echo '-- shardwright: the example train_gpt needs CLI11 and nlohmann-json, and is left out';;
*cuda_training*) echo 'a.hpp(7): error: no such thing'; echo 'ninja: build stopped'; exit 1;;
esac""")
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    os.environ["KOKKOS_CUDA_ROOT"] = str(kokkos)
    check = check_in(build)
    rows = results(check, lambda: expect("a build with an error", check.compile(), False))
    expect("a program that compiles", rows["build cuda_kernels"][0], "passed")
    expect("one that does not", (rows["build cuda_training"][0], rows["build cuda_training"][3]),
           ("failed", "a.hpp(7): error: no such thing"))
    expect("one whose libraries are not here", rows["build train_gpt"][0], "skipped")
    del os.environ["KOKKOS_CUDA_ROOT"]
    os.environ.pop("KOKKOS_SOURCE", None)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            check.compile()
            sys.exit("without a Kokkos nothing can be built, but it went on")
        except SystemExit as end:
            expect("without a Kokkos", end.code, 77)
    expect("what is missing has a name", "KOKKOS_CUDA_ROOT" in said.getvalue(), True)


def without_gpu(build):
    check = check_in(build)
    rows = results(check, check.skipped_without_gpu)
    expect("nothing but skipped rows", {row[0] for row in rows.values()}, {"skipped"})
    with contextlib.redirect_stdout(io.StringIO()):
        expect("the exit status", check.finish(["no GPU"]), 0)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        verdicts(folder / "verdicts")
        losses(folder / "losses")
        sanitizer(folder / "sanitizer", folder / "tools")
        benchmarks(folder / "benchmarks")
        without_gpu(folder / "without")
        building(folder / "building", folder / "more_tools", folder / "kokkos")
    print("gpu_check: what it makes of programs is right")


if __name__ == "__main__":
    main()
