#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the event files of a directory with TensorBoard itself and compares them with a run's JSON lines.

read_tensorboard.py DIRECTORY LINES: every number of every line must be there, under its tag and step, and nothing else.
Ends with status 77 where TensorBoard is not installed.
"""
import json
import math
import struct
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError:
    print("TensorBoard is not installed")
    sys.exit(77)


def numbers(record, prefix=""):
    for name, value in record.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and prefix + name != "step":
            yield prefix + name, value


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def main():
    directory, lines = sys.argv[1:]
    accumulator = event_accumulator.EventAccumulator(directory, size_guidance={event_accumulator.SCALARS: 0})
    accumulator.Reload()
    read = {(tag, event.step): event.value for tag in accumulator.Tags()["scalars"] for event in accumulator.Scalars(tag)}
    wanted = {}
    for line in open(lines):
        record = json.loads(line)
        wanted.update({(tag, record["step"]): single(value) for tag, value in numbers(record)})
    odd = [key for key in wanted.keys() | read.keys()
           if not math.isclose(read.get(key, math.nan), wanted.get(key, math.nan), rel_tol=1e-6)]
    if odd or not wanted:
        sys.exit(f"{len(odd)} of {len(wanted)} scalars differ: {sorted(odd)[:5]}")
    print(f"TensorBoard reads all {len(wanted)} scalars")


if __name__ == "__main__":
    main()
