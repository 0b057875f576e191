#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile time of the umbrella header against Kokkos_Core.hpp alone, and of a program with a model of three layers
against one that trains the same layers with tensors alone, alternating, as medians of the ratios.

The flags are those of a configured build folder, taken from its compile_commands.json.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile


PREFIX = """
namespace sw = shardwright;
using namespace sw::axis;
using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Row = sw::Layout<2, sw::Shard<0, tp>>;
using Hidden = sw::MatmulLayout<Rows, Column>;
"""
# Three layers, trained by hand: forward, gradients, a step of gradient descent.
TENSORS = """
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>
#include <Kokkos_Core.hpp>
#include <cstdio>
""" + PREFIX + """
int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  sw::launch({.ranks = 4}, [](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
    sw::ShardedTensor<Rows> x(mesh, {64, 32}), wanted(mesh, {64, 1});
    sw::ShardedTensor<Column> up(mesh, {32, 128});
    sw::ShardedTensor<Row> down(mesh, {128, 32});
    sw::ShardedTensor<sw::Layout<2>> out(mesh, {32, 1});
    sw::fill_normal(x, {.seed = 1, .tensor = 0});
    sw::fill_normal(wanted, {.seed = 1, .tensor = 1});
    sw::fill_normal(up, {.seed = 1, .tensor = 2}, 0.0, 0.2);
    sw::fill_normal(down, {.seed = 1, .tensor = 3}, 0.0, 0.1);
    sw::fill_normal(out, {.seed = 1, .tensor = 4}, 0.0, 0.2);
    for (int step = 0; step < 3; ++step) {
      const auto inner = sw::matmul(x, up);
      const auto hidden = sw::redistribute<Rows>(sw::matmul(inner, down));
      const auto error = sw::subtract(sw::matmul(hidden, out), wanted);
      const double loss = static_cast<double>(sw::item(sw::redistribute<sw::Layout<0>>(sw::sum(error * error))));
      const auto d_out = sw::redistribute<sw::Layout<2>>(sw::matmul_weight_gradient(hidden, error));
      const auto d_hidden = sw::matmul_input_gradient(error, out);
      const auto d_down = sw::redistribute<Row>(sw::matmul_weight_gradient(inner, d_hidden));
      const auto d_inner = sw::matmul_input_gradient(d_hidden, down);
      const auto d_up = sw::redistribute<Column>(sw::matmul_weight_gradient(x, d_inner));
      sw::axpy(-1e-4, d_out, out);
      sw::axpy(-1e-4, d_down, down);
      sw::axpy(-1e-4, d_up, up);
      if (world.rank() == 0)
        std::printf("%g\\n", loss);
    }
  });
}
"""
# The same three layers as a model that trains.
MODEL = """
#include <shardwright/launch.hpp>
#include <shardwright/models.hpp>
#include <Kokkos_Core.hpp>
#include <cstdio>
""" + PREFIX + """
struct Model {
  sw::Linear<Rows, Column> up;
  sw::Linear<Hidden, Row> down;
  sw::Linear<Rows, sw::Layout<2>> out;

  template <class Mesh>
  explicit Model(const Mesh& mesh)
      : up(mesh, {32, 128}, sw::Initial::normal(0.2)), down(mesh, {128, 32}, sw::Initial::normal(0.1)),
        out(mesh, {32, 1}, sw::Initial::normal(0.2)) {}
  auto operator()(sw::Var<Rows> x) {
    return out(down(up(std::move(x))).as<Rows>());
  }
  auto members() { return sw::members("up", up, "down", down, "out", out); }
};
int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  sw::launch({.ranks = 4}, [](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
    Model model(mesh);
    sw::initialize(model, 1);
    sw::GradAccumulator accumulator(model);
    sw::AdamW optimizer;
    sw::ShardedTensor<Rows> x(mesh, {64, 32}), wanted(mesh, {64, 1});
    sw::fill_normal(x, {.seed = 1, .tensor = 0});
    sw::fill_normal(wanted, {.seed = 1, .tensor = 1});
    for (int step = 0; step < 3; ++step) {
      sw::Tape<> tape;
      accumulator.add(sw::mse(model(tape.input(x)), wanted));
      tape.backward();
      const auto summary = accumulator.finish();
      optimizer.step(model, summary, 1e-3);
      accumulator.restart();
      if (world.rank() == 0)
        std::printf("%g\\n", summary.loss.value);
    }
  });
}
"""


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


def seconds(command, source, *what):
    """Processor time, which other programs on the machine disturb least."""
    begin = os.times()
    subprocess.run([*command, *what, str(source)], check=True)
    end = os.times()
    return end.children_user + end.children_system - begin.children_user - begin.children_system


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a configured build folder")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    command = flags_of(options.build)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        object_file = str(folder / "out.o")
        cases = {
            "kokkos": ("#include <Kokkos_Core.hpp>\nint main() {}\n", ["-fsyntax-only"]),
            "umbrella": ("#include <shardwright/shardwright.hpp>\nint main() {}\n", ["-fsyntax-only"]),
            "tensors": (TENSORS, ["-O1", "-c", "-o", object_file]),
            "model": (MODEL, ["-O1", "-c", "-o", object_file]),
        }
        sources = {}
        for name, (text, _) in cases.items():
            sources[name] = folder / f"{name}.cpp"
            sources[name].write_text(text)
        rows = {name: [] for name in cases}
        for left, right in (("kokkos", "umbrella"), ("tensors", "model")):
            for round in range(options.rounds + 1):
                for name in (left, right):
                    took = seconds(command, sources[name], *cases[name][1])
                    if round > 0:
                        rows[name].append(took)
    result = {f"{name}_seconds": statistics.median(row) for name, row in rows.items()}
    result["ratio"] = statistics.median(u / k for u, k in zip(rows["umbrella"], rows["kokkos"]))
    result["model_over_tensors"] = statistics.median(m / t for m, t in zip(rows["model"], rows["tensors"]))
    print(
        f"Kokkos_Core.hpp {result['kokkos_seconds']:.2f} s, umbrella header {result['umbrella_seconds']:.2f} s, "
        f"ratio {result['ratio']:.2f}"
    )
    print(
        f"tensors alone {result['tensors_seconds']:.2f} s, a model of three layers {result['model_seconds']:.2f} s, "
        f"ratio {result['model_over_tensors']:.2f}"
    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
