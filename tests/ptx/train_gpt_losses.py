#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the tiny model with interpreted kernels and compares every loss with the host's in fp32:
`train_gpt_losses.py PROGRAM OPTION...`, where the options choose precision, mesh, ZeRO and graph.

What train_gpt refuses must be refused with its sentence; a graph over several ranks must be reported as not captured.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

COMMON = ["--transport", "threads", "--model", "tiny", "--batch", "4", "--steps", "3", "--validation-batches", "1"]
ALLOWED = {"fp32": 2e-6, "bf16": 0.002}  # of a loss, which is about 5.5
REFUSED = ("--target cuda is for --precision fp32 with --zero 0, or bf16 with --zero 0 or 3, and for --context all-to-all in "
           "this program (leave the others out)")
CAPTURED = "captured as a graph, which later steps replay"
SEVERAL_RANKS = "not captured: collectives between ranks need the host"


TEXTS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def train(program, data, options):
    """Exit status, what was printed, and the loss of each step."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        done = subprocess.run([program, *COMMON, "--data", data, *options, "--metrics", str(metrics)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.is_file() else []
    return done.returncode, done.stdout, [line["loss"] for line in lines if "loss" in line]


def wrong(program, data, options):
    """A sentence if the run on the device is not as it must be."""
    status, output, device = train(program, data, ["--target", "cuda", *options])
    precision = options[options.index("--precision") + 1]
    if precision == "fp32" and "--zero" in options:
        return None if status != 0 and REFUSED in output else f"status {status}, not refused with its sentence:\n{output}"
    if status != 0:
        return f"status {status}\n{output}"
    if "--cuda-graph" in options:
        said = CAPTURED if "dp=1" in options else SEVERAL_RANKS
        if said not in output:
            return f"nothing says \"{said}\":\n{output}"
    _, text, host = train(program, data, ["--target", "host", "--precision", "fp32", "--mesh", "dp=1"])
    if not len(device) == len(host) == 3:
        return f"there must be three losses, but they are {device}, and on the host {host}\n{text}"
    difference = max(abs(a - b) for a, b in zip(device, host))
    print(f"losses {device}, largest difference {difference:.3g}, allowed {ALLOWED[precision]:g}")
    return None if difference <= ALLOWED[precision] else "the losses are not those of the host"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as copied:  # whoever edits a page must not come between the two runs
        data = shutil.copytree(TEXTS, pathlib.Path(copied) / "docs")
        sys.exit(wrong(sys.argv[1], str(data), sys.argv[2:]))
