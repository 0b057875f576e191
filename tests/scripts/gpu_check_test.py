#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check makes of programs that pass, fail, skip, hang or miss a target, with programs that only pretend."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import sys
import tempfile
import time
import types

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "gpu_check"
script = types.ModuleType("gpu_check")
script.__file__ = str(SCRIPT)
sys.modules["gpu_check"] = script  # where its dataclass looks up names
exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), script.__dict__)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def check_in(build, seconds=60):
    check = script.Check(argparse.Namespace(tree=build, report=None, jobs=1, seconds=seconds, build_seconds=9, python=sys.executable))
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
    # Like Ninja, whose jobs have groups of their own.
    (build / "builds").write_text("import signal, subprocess, sys\n"
                                  "job = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
                                  "open('job', 'w').write(str(job.pid))\n"
                                  "signal.signal(signal.SIGTERM, lambda *_: (job.kill(), job.wait(), sys.exit(1)))\n"
                                  "signal.pause()\n")
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
    expect("a build that takes too long", check.run("builds", [sys.executable, build / "builds"], 3)[0], None)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((build / "job").read_text()), 9)
        sys.exit("a build that was ended left a job behind")
    expect("ended in time", time.monotonic() - begin < 20, True)
    cut = check_in(build, seconds=6)
    expect("ended by the time of the call", results(cut, lambda: cut.verdict("hangs", [build / "hangs"], 60))["hangs"][::3],
           ("skipped", "not done when the time was used up"))
    expect("to be repeated", cut.known("hangs"), False)
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
*--preset*) echo '-- shardwright: cuDNN with its frontend 1.32, here'
echo '-- shardwright: the example train_gpt needs CLI11 and nlohmann-json, and is left out';;
*--target*) while [ "$1" != --target ]; do shift; done
mkdir -p "$TREE/tests"
for target; do case $target in cuda_training_float);; cuda_*) : > "$TREE/tests/$target";; esac; done
echo 'tests/cuda/training_float.cpp(7): error: no such thing'
echo "ptxas info    : Compiling entry function 'sound' for 'sm_90'"
echo '    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'
echo 'ptxas info    : Used 64 registers, used 1 barriers'
echo 'ninja: build stopped'; exit 1;;
esac""")
    os.environ["TREE"] = str(build)
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    os.environ["KOKKOS_CUDA_ROOT"] = str(kokkos)
    check = check_in(build)
    rows = results(check, lambda: expect("a build with an error", check.compile(), False))
    expect("a program that compiles", rows["build cuda_kernels"][0], "passed")
    expect("one that does not", (rows["build cuda_training_float"][0], rows["build cuda_training_float"][3]),
           ("failed", "tests/cuda/training_float.cpp(7): error: no such thing"))
    expect("the one with cuDNN", rows["build benchmark_gpu_cudnn"][0], "failed")
    expect("kernels that keep to their registers", rows["ptxas"][:2], ("passed", "1 kernels"))
    expect("one whose libraries are not here", rows["build train_gpt"][0], "skipped")
    program(tools / "cmake", "echo '-- shardwright: cuBLAS not found, products are slow'")
    check = check_in(build)
    expect("without cuBLASLt", results(check, lambda: expect("no build", check.compile(), False))["cuBLASLt"][0], "failed")
    del os.environ["KOKKOS_CUDA_ROOT"]
    os.environ.pop("KOKKOS_SOURCE", None)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            check.compile()
            sys.exit("without a Kokkos nothing can be built, but it went on")
        except SystemExit as end:
            expect("without a Kokkos", end.code, 77)
    expect("what is missing has a name", "KOKKOS_CUDA_ROOT" in said.getvalue(), True)


def registers():
    said = """ptxas info    : Compiling entry function 'greedyLaunchBoundsILj256ELj2EE' for 'sm_90'
ptxas info    : Function properties for greedyLaunchBoundsILj256ELj2EE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 129 registers, used 1 barriers, 232449 bytes smem
ptxas info    : Compiling entry function 'spills' for 'sm_90'
    8 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 64 registers
ptxas info    : Compiling entry function 'the_RotaryTable' for 'sm_90'
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""
    found = script.complaints(script.resources(said))
    expect("kernels that use too much", [sentence.split(":")[0] for sentence in found],
           ["greedyLaunchBoundsILj256ELj2EE"] * 2 + ["spills"])
    larger = said.replace("40 bytes stack", "48 bytes stack")
    expect("one that outgrew what it may", len(script.complaints(script.resources(larger))), 4)


def predictions():
    rates = [{"part": "rates", "name": "copy within the device, bytes read and written", "value": 4300.0, "unit": "GB/s",
              "least": None},
             {"part": "rates", "name": "matrix products in bfloat16", "value": 790.0, "unit": "TFLOP/s", "least": None}]
    predicted = script.predictions(rates)
    # 24.3 TFLOP and 9.9 GB, as docs/explanation/gpu_step.md counts them.
    expect("products", round(1e3 * predicted["matrix products"], 1), 30.8)
    expect("loss", round(1e3 * predicted["loss"], 1), 2.3)
    expect("without rates", script.predictions(rates[:1]), {})
    step = {"part": "step", "name": "loss", "value": 7.0, "unit": "ms", "least": None}
    expect("beside what was measured", script.rows_of_figures({"figures": rates + [step]})[-1].cells()[1:4],
           ["measured", "7 ms", "2.3 ms at the card's rates"])
    kernel = {"part": "step by kernels", "name": "swiglu", "value": 1.25, "unit": "ms", "least": None, "predicted": 0.75}
    expect("a kernel beside its roofline", script.rows_of_figures({"figures": [kernel]})[0].cells()[:4],
           ["benchmark: step by kernels: swiglu", "measured", "1.25 ms", "0.75 ms at the card's rates"])
    whole = {"part": "training", "name": "a step", "value": 80.0, "unit": "ms", "least": None}
    expect("a step beside all kinds", script.rows_of_figures({"figures": rates + [whole]})[-1].cells()[3],
           f"{1e3 * sum(predicted.values()):.4g} ms at the card's rates")


def kinds_of_kernels():
    """The kernels that move most of a step's memory are told apart by their names."""
    root = SCRIPT.parent.parent
    text = (root / "benchmarks" / "gpu" / "kernel_times.cpp").read_text()
    kinds = [(kind, re.findall(r'"([^"]+)"', words)) for kind, words in re.findall(r'{"([^"]+)",\s*{([^}]*)}}', text)]
    headers = "".join(path.read_text() for path in (root / "include" / "shardwright").rglob("*.hpp"))
    for kind, kernels in {
            "attention": "AttentionForwardTiles AttentionBackwardQueryTiles AttentionBackwardKeyTiles",
            "loss": "RowStatistics RebaseSums LogitGradient TokenLoss SumLosses",
            "norms": "NormForward NormBackwardOfBlocks PartialColumnSums SumPartials",
            "rotary and SwiGLU": "RotaryTokens SwigluForward SwigluBackward",
            "optimizer": "AdamWUpdate OpenAdamWStep SquaresOfEither SummarizeTotals CollectTotals JudgeStep",
            "embedding": "EmbeddingForward EmbeddingBackwardOfBlocks",
            "copies and fills": "CopyRows CopyShortRows FillElements ZeroElements",
            "elementwise": "ConvertElements ScaleElements"}.items():
        for kernel in kernels.split():
            if f"struct {kernel}" in headers or f"class {kernel}" in headers:
                found = next((name for name, words in kinds if any(word in kernel.lower() for word in words)), "others")
                expect(f"the kind of {kernel}", found, kind)
            elif kernel in ("AttentionForwardTiles", "LogitGradient", "NormForward", "AdamWUpdate"):
                sys.exit(f"no header has the kernel {kernel} any more: name the one that took its place here")


def folder_run(build):
    """What matters first comes first, and the next call goes on."""
    order = build / "order"
    real_gpus, script.gpus = script.gpus, lambda: []
    for stem in ("kernels", "narrow_kernels", "collectives", "ranks", "operations", "training_float"):
        program(build / "tests" / f"cuda_{stem}", f"echo {stem} $1 >> {order}")
    program(build / "examples" / "train_gpt", f"echo losses >> {order}; echo 'no device'; exit 1")
    program(build / "benchmarks" / "gpu", f"echo bench >> {order}; echo 'x: error while loading shared libraries: "
            "libcuda.so.1: cannot open'; exit 127")
    (build / "manifest.json").write_text(json.dumps({"needed": {"cuda_kernels": ["libc.so.6", "libcublasLt.so.987"],
                                                                "cuda_cudnn_attention": ["libcudnn.so.987"],
                                                                "benchmark_gpu_cudnn": ["libcudnn.so.987"]}}))
    check = check_in(build)
    real, begun = check.run, []

    def run(name, *more):
        begun.append(name)
        done = real(name, *more)
        if name == "test: collectives":
            check.end = time.monotonic()
        return done

    check.run = run
    rows = results(check, check.first_half_hour)
    groups = [f"{stem} {group}" for stem in ("kernels", "narrow_kernels") for group in script.GROUPS]
    expect("what comes first", order.read_text().splitlines()[:len(groups) + 1], groups + ["bench"])
    expect("memcheck before collectives", begun[len(groups):], ["benchmark: training", "compute-sanitizer memcheck: kernels",
                                                                "compute-sanitizer memcheck: narrow_kernels",
                                                                "test: collectives"])
    expect("what has no time", (rows["test: ranks"][0], rows["test: operations"][0]), ("skipped", "skipped"))
    expect("a library that is nowhere", rows["library libcublasLt.so.987"][0], "failed")
    expect("a library that only its own programs need", rows["library libcudnn.so.987"][0], "skipped")
    expect("the report so far", len(json.loads((build / "report.json").read_text())["rows"]), len(rows))
    order.write_text("")
    check = check_in(build)
    rows = results(check, check.first_half_hour)
    expect("where it goes on", order.read_text().split()[:4], ["bench", "ranks", "operations", "training_float"])
    expect("nothing twice", "kernels" in order.read_text(), False)
    expect("what was done before", rows["test: kernels: norms"][0], "passed")
    expect("without a driver", rows["benchmark: training"][::3],
           ("skipped", "there is no NVIDIA driver here: libcuda.so.1 was not found"))
    pair = "losses against the host: fp32, dp=2,tp=2, two GPUs"
    expect("what needs a second GPU", rows[pair][::3], ("skipped", "there are fewer than two GPUs"))
    one = "losses against the host: fp32, 1 rank"
    expect("what a driver without a GPU refuses", rows[one][0], "failed")
    script.gpus = lambda: ["card, 580, 1 MiB"] * 2
    program(build / "examples" / "train_gpt", "exit 0")
    check = check_in(build)
    rows = results(check, check.first_half_hour)
    expect("the same on a better machine", (rows[one][0], rows[pair][0]), ("passed", "passed"))
    script.gpus = real_gpus


def wrong_kernels(build, tools):
    """A kernel that is wrong is looked at closer, and nothing is measured."""
    real_gpus, script.gpus = script.gpus, lambda: ["card, 580, 1 MiB"]
    program(build / "tests" / "cuda_kernels", """case "$1" in
norms) for i in $(seq 300); do echo "line $i, one by one: $CUDA_LAUNCH_BLOCKING"; done; exit 1;;
esac""")
    program(build / "tests" / "cuda_narrow_kernels", "exit 0")
    program(build / "benchmarks" / "gpu", "exit 0")
    program(tools / "compute-sanitizer", """case "$3" in
--error-exitcode) echo '========= ERROR SUMMARY: 0 errors';;
*) echo '========= COMPUTE-SANITIZER'; echo '========= Invalid __global__ write of size 4 bytes'; exit 1;;
esac""")
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    (build / "manifest.json").write_text(json.dumps({"needed": {}}))
    check = check_in(build)
    rows = results(check, check.first_half_hour)
    expect("the group that is wrong", (rows["test: kernels: norms"][0], rows["test: kernels: copies"][0]), ("failed", "passed"))
    expect("launch by launch", rows["test: kernels: norms, launches one by one"][3], "line 300, one by one: 1")
    expect("under memcheck", rows["test: kernels: norms, memcheck"][3], "========= Invalid __global__ write of size 4 bytes")
    expect("what waits for the fix", rows["benchmark: training"][::3],
           ("skipped", "it waits until the kernels agree with the host"))
    expect("to be repeated", check.known("benchmark: training"), False)
    shown = (build / "failures.txt").read_text()
    expect("the first and last lines", [shown.count(f"line {i},") for i in (1, 100, 101, 200, 201, 300)], [2, 2, 0, 0, 2, 2])
    script.gpus = real_gpus


def profiles(build, tools):
    """Nsight Compute is asked about the slowest kernels of a step that was measured."""
    program(build / "benchmarks" / "gpu", "exit 0")
    program(tools / "ncu", """echo "Duration us 12.5"; echo "$@" >> asked""")
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    check = check_in(build)
    expect("no step, no profile", results(check, check.profile), {})
    figures = [{"part": "slowest kernels", "name": f"kernel_{ms}", "value": ms, "unit": "ms", "least": None}
               for ms in (1.0, 4.0, 3.0, 2.0)]
    (build / "training.json").write_text(json.dumps({"figures": figures}))
    rows = results(check, check.profile)
    expect("the slowest first", [row[1] for row in rows.values()], ["4 ms of a step", "3 ms of a step", "2 ms of a step"])
    expect("by its name", "--kernel-name kernel_4.0 " in (build / "asked").read_text(), True)


def folder_of_some(build, folder):
    """A folder that lacks a program has failed."""
    (build / "tests").mkdir(parents=True)
    shutil.copy(shutil.which("true"), build / "tests" / "cuda_kernels")
    check = check_in(build)
    check.targets = ["cuda_kernels", "cuda_ranks"]
    expect("a part of the programs", results(check, lambda: check.carry(folder))["folder"][::3],
           ("failed", f"{folder} lacks cuda_ranks"))
    check.targets = ["cuda_kernels"]
    expect("all programs", results(check, lambda: check.carry(folder))["folder"][0], "passed")


def groups_of_kernels():
    """The groups are those of the programs."""
    text = (SCRIPT.parent.parent / "tests" / "cuda" / "every_kernel.hpp").read_text()
    expect("groups of kernels", script.GROUPS, re.findall(r'"(\w+)", &EveryKernel::', text))


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
        registers()
        predictions()
        kinds_of_kernels()
        groups_of_kernels()
        wrong_kernels(folder / "wrong", folder / "wrong_tools")
        profiles(folder / "profiles", folder / "profile_tools")
        folder_run(folder / "run")
        folder_of_some(folder / "some", folder / "carried")
        building(folder / "building", folder / "more_tools", folder / "kokkos")
    print("gpu_check: what it makes of programs is right")


if __name__ == "__main__":
    main()
