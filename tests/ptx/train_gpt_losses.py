#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the tiny model with interpreted kernels and compares every loss with the host's: `train_gpt_losses.py PROGRAM`."""
import json
import pathlib
import subprocess
import sys
import tempfile

COMMON = ["--transport", "threads", "--model", "tiny", "--batch", "4", "--steps", "3", "--validation-batches", "1"]
# A name, the options, and the largest difference of a loss, which is about 5.5.
RUNS = [
    ("fp32", ["--precision", "fp32", "--mesh", "dp=1"], 1e-4),
    ("fp32, dp=2", ["--precision", "fp32", "--mesh", "dp=2"], 1e-4),
    ("fp32, tp=2", ["--precision", "fp32", "--mesh", "tp=2", "--sequence-parallel"], 1e-4),
    ("bf16", ["--precision", "bf16", "--mesh", "dp=1"], 0.005),
    ("bf16, CUDA graph", ["--precision", "bf16", "--mesh", "dp=1", "--cuda-graph"], 0.005),
    ("bf16, dp=2, ZeRO-3", ["--precision", "bf16", "--mesh", "dp=2", "--zero", "3"], 0.005),
]


def losses(program, options):
    """The loss of each step."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        done = subprocess.run([program, *COMMON, *options, "--metrics", str(metrics)], capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            sys.exit(f"{' '.join(options)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def main():
    program = sys.argv[1]
    host = losses(program, ["--target", "host", "--precision", "fp32", "--mesh", "dp=1"])
    if len(host) < 3:
        sys.exit(f"the host must print three losses, but printed {host}")
    wrong = 0
    for name, options, allowed in RUNS:
        device = losses(program, ["--target", "cuda", *options])
        same = len(device) == len(host)
        difference = max(abs(a - b) for a, b in zip(device, host)) if same else float("inf")
        wrong += difference > allowed
        print(f"{name}: losses {device}, largest difference {difference:.3g}, allowed {allowed:g}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
