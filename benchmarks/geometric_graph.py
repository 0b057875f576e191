#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a matrix in Matrix Market's format: the Laplacian of a random geometric graph, plus a hundredth on the
diagonal, so that it is positive definite. `geometric_graph.py FILE [points]`; about 12 neighbours a point."""
import math
import random
import sys

points = int(sys.argv[2]) if len(sys.argv) > 2 else 100000
random.seed(1)
radius = math.sqrt(12 / (math.pi * points))
cells = int(1 / radius)
place = sorted(((random.random(), random.random()) for _ in range(points)),
               key=lambda p: (int(p[0] * cells), int(p[1] * cells)))
members = {}
for i, (x, y) in enumerate(place):
    members.setdefault((int(x * cells), int(y * cells)), []).append(i)
degree = [0.01] * points
lines = []
for i, (x, y) in enumerate(place):
    a, b = int(x * cells), int(y * cells)
    for u in (a - 1, a, a + 1):
        for v in (b - 1, b, b + 1):
            for j in members.get((u, v), ()):
                if j < i and (x - place[j][0]) ** 2 + (y - place[j][1]) ** 2 < radius * radius:
                    lines.append(f"{i + 1} {j + 1} -1")
                    degree[i] += 1
                    degree[j] += 1
lines += [f"{i + 1} {i + 1} {value:.2f}" for i, value in enumerate(degree)]
with open(sys.argv[1], "w") as file:
    file.write(f"%%MatrixMarket matrix coordinate real symmetric\n{points} {points} {len(lines)}\n")
    file.write("\n".join(lines) + "\n")
