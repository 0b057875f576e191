#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds of operations on tensors of 4 x 4 floats: plain loops, layouts in C++ types, PyTorch's tensors, and its
DTensor, whose layouts are values. `price_of_types.py PROGRAM`, where PROGRAM is that of price_of_types.cpp.

One process is one rank, on a mesh of 1 x 1 ranks (gloo). All sides take turns in one run; figures are medians over the
rounds, each on one thread.
"""
import argparse
import collections
import os
import statistics
import subprocess
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate, distribute_tensor


def nanoseconds(call, times):
    for _ in range(50):
        call()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times * 1e9


def pytorch_calls():
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    rows, columns = [Shard(0), Replicate()], [Replicate(), Shard(1)]
    x, y, w = (torch.rand(4, 4) for _ in range(3))
    dx, dy = (distribute_tensor(t, mesh, rows) for t in (x, y))
    dw = distribute_tensor(w, mesh, columns)
    return {
        ("sum", "torch"): lambda: x + y,
        ("sum", "DTensor"): lambda: dx + dy,
        ("axpy", "torch"): lambda: y.add_(x, alpha=1e-6),
        ("axpy", "DTensor"): lambda: dy.add_(dx, alpha=1e-6),
        ("product", "torch"): lambda: x @ w,
        ("product", "DTensor"): lambda: dx @ dw,
        ("redistribute", "DTensor"): lambda: dx.redistribute(mesh, rows),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for name, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "29577", "RANK": "0", "WORLD_SIZE": "1"}.items():
        os.environ.setdefault(name, value)
    dist.init_process_group("gloo")
    calls = pytorch_calls()
    found = collections.defaultdict(list)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE"):
        environment.pop(name) # a launcher's variables, which the program would ask about
    with subprocess.Popen([options.program, "--ranks", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=environment) as program:
        for _ in range(options.rounds):
            print("round", file=program.stdin, flush=True)
            for line in iter(program.stdout.readline, "end\n"):
                if not line:
                    raise SystemExit("price_of_types: the program ended in mid-run")
                operation, side, time_of_one = line.split()
                found[operation, side].append(float(time_of_one))
            for key, call in calls.items():
                found[key].append(nanoseconds(call, 2000))
        program.stdin.close()
    dist.destroy_process_group()
    print(f"PyTorch {torch.__version__}; nanoseconds, medians of {options.rounds} rounds")
    for operation in dict.fromkeys(key[0] for key in found):
        sides = [side for side in ("plain", "typed", "torch", "DTensor") if (operation, side) in found]
        print(f"{operation}: " + ", ".join(f"{side} {statistics.median(found[operation, side]):,.0f}" for side in sides))


if __name__ == "__main__":
    main()
