#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the launches of a training step and the bytes that its kernels move, with interpreted kernels, and compares them
with the formulas of docs/explanation/gpu_step.md: `step_traffic.py PROGRAM`, where the program is train_gpt.

A step is the difference between runs of two steps and of one, and a layer that between models of two layers and of one.
Lanes may ask for a byte several times, so the bytes read are compared only where each is read once. Products of matrices
run in the library's stand-in and are not counted.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

D, HEADS, F, V, S, SEQUENCES = 128, 2, 256, 256, 64, 4  # width; heads of 64, which tiles need; hidden width; table; tokens
T = S * SEQUENCES
P = 4 * D * D + 3 * D * F + 3 * D + 2 * V * D  # parameters of one layer and two tables
MODEL = ["--target", "cuda", "--transport", "threads", "--precision", "bf16", "--mesh", "dp=1", "--batch", str(SEQUENCES),
         "--validation-batches", "1", "--d-model", str(D), "--heads", str(HEADS), "--kv-heads", str(HEADS), "--hidden", str(F),
         "--vocabulary", str(V), "--sequence", str(S)]

# Kernels of a layer: launches, bytes written, and bytes read if each is read once.
LAYER = {
    "NormForward": (2, 2 * (2 * 2 * T * D + 4 * T), None),
    "NormBackwardOfBlocks": (2, None, None),
    "SumPartialsOfBlocks": (2, 2 * 4 * D, None),
    "RotaryTokens": (1, 2 * T * 2 * D, None),
    "AttentionForwardTiles": (1, 2 * T * D + 4 * T * HEADS, None),
    "AttentionBackwardQueryTiles": (1, 2 * T * D + 4 * T * HEADS, None),
    "AttentionBackwardKeyTiles": (1, 2 * T * 2 * D, None),
    "SwigluForward": (1, 2 * T * F, 2 * T * 2 * F),
    "SwigluBackward": (1, 2 * T * 2 * F, 2 * T * 3 * F),
}
# Some kernels of a step with one layer.
STEP = {
    "LogitGradient": (1, 2 * T * (V + 1), None),
    "SquaresOfEither": (1, None, 4 * P),
    "AdamWUpdate": (1, 14 * P, None),
}


def counted(program, layers, steps):
    """Launches, bytes written and bytes read of each kernel of a run."""
    with tempfile.TemporaryDirectory() as folder:
        file, text = pathlib.Path(folder) / "traffic.json", pathlib.Path(folder) / "text"
        text.write_text("".join(f"line {i}\n" for i in range(1000)))
        words = [program, *MODEL, "--data", str(text), "--layers", str(layers), "--steps", str(steps)]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                              env=os.environ | {"PTX_TRAFFIC": str(file)})
        if done.returncode != 0:
            sys.exit(f"status {done.returncode}\n{done.stdout}")
        launches = json.loads(file.read_text())["launches"]
    kernels = {}
    for each in launches:  # of each label and kernel
        before = kernels.get(each["kernel"], (0, 0, 0))
        now = (each["launches"], each["lanes_wrote"], each["lanes_read"])
        kernels[each["kernel"]] = tuple(map(sum, zip(before, now)))
    return kernels


def minus(more, less):
    return {name: tuple(a - b for a, b in zip(counts, less.get(name, (0, 0, 0)))) for name, counts in more.items()}


def compare(title, kernels, expected, others):
    """Prints the kernels of a table, and returns how many are not as expected. Whether there may be others is `others`."""
    print(f"{title}: launches, bytes written, bytes read")
    wrong, seen = 0, set()
    for name, counts in sorted(kernels.items()):
        known = next((key for key in expected if key in name), None)
        if known is None:
            if not others:
                print(f"  {name}: {counts}, but there must be no such kernel")
                wrong += 1
            continue
        seen.add(known)
        as_expected = all(want in (None, have) for want, have in zip(expected[known], counts))
        print(f"  {known}: {counts}" + ("" if as_expected else f", but they must be {expected[known]}"))
        wrong += not as_expected
    for key in set(expected) - seen:
        print(f"  {key} was not launched")
        wrong += 1
    return wrong


def main():
    program = sys.argv[1]
    one, two = (minus(counted(program, layers, 2), counted(program, layers, 1)) for layers in (1, 2))
    layer = {name: counts for name, counts in minus(two, one).items() if counts[0]}
    wrong = compare("a layer", layer, LAYER, False) + compare("a step with one layer", one, STEP, True)
    print(f"a layer: {sum(counts[0] for counts in layer.values())} launches, "
          f"{sum(counts[1] + counts[2] for counts in layer.values())} bytes")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
