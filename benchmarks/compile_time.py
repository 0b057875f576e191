#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile time of the umbrella header against Kokkos_Core.hpp alone, alternating, and of three programs with headers
only and with shardwright::compiled: medians of processor time.

The compiler and its flags are those of a configured build folder, taken from its compile_commands.json, without MPI,
whose transport would add to units with headers only. Programs are compiled with -O2 -march=native.
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


ROOT = pathlib.Path(__file__).resolve().parent.parent
MAIN = """
int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
"""
CLASSIFIER = """
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <cstdio>
namespace sw = shardwright;
using namespace sw::axis;
using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Row = sw::Layout<2, sw::Shard<0, tp>>;
using Classes = sw::Layout<1, sw::Shard<0, dp>>;
using Mesh = sw::DeviceMesh<dp, tp>;

class Classifier {
public:
  explicit Classifier(const Mesh& mesh)
      : in_(mesh, {64, 128}, sw::Initial::normal(0.1)), out_(mesh, {128, 10}, sw::Initial::normal(0.1)) {
    sw::initialize(*this, 1);
  }
  auto operator()(sw::Var<Rows> x) { return out_(sw::gelu_tanh(in_(std::move(x)))).template as<Rows>(); }
  auto members() { return sw::members("in", in_, "out", out_); }

private:
  sw::Linear<Rows, Column> in_;
  sw::Linear<sw::MatmulLayout<Rows, Column>, Row> out_;
};

int program(sw::HostCommunicator world) {
  const Mesh mesh{world, sw::extent<dp>(world.size() / 2), sw::extent<tp>(2)};
  Classifier model(mesh);
  sw::GradAccumulator accumulator(model);
  sw::AdamW optimizer;
  sw::Tape tape;
  sw::ShardedTensor<Rows> x(mesh, {64, 64});
  sw::ShardedTensor<Classes, std::int32_t> classes(mesh, {64});
  sw::fill_normal(x, {.seed = 1, .tensor = 0});
  sw::fill(classes, 3);
  for (int step = 0; step < 10; ++step) {
    tape.restart();
    const auto loss = sw::cross_entropy(model(tape.input(x)), classes);
    tape.backward();
    accumulator.add(loss);
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, 1e-3);
    accumulator.restart();
    if (world.rank() == 0)
      std::printf("%g\\n", summary.loss.value);
  }
  return 0;
}
""" + MAIN


def region(text, name):
    """The lines between the two marks of a region that pages quote."""
    mark = f"//! [{name}]\n"
    return text.split(mark)[1].rsplit("\n", 1)[0] + "\n"


def heat():
    """The example's steps, and a dot product in place of the comparison with one block."""
    text = (ROOT / "examples/heat.cpp").read_text()
    steps = region(text, "steps")
    return text[: text.index(steps)] + steps + """
  std::printf("%g\\n", sw::dot_value(u, u));
  return 0;
}
""" + MAIN


def transformer():
    """The model of the tutorial, trained as there, with a checkpoint in every step."""
    text = (ROOT / "docs/snippets/own_transformer.cpp").read_text()
    headers = "".join(line for line in text.splitlines(True) if line.startswith("#include") and "dry_run" not in line)
    return (
        headers
        + "#include <shardwright/io/checkpoint/save_training.hpp>\n#include <shardwright/run.hpp>\n"
        + "".join(region(text, name) for name in ("layouts", "block", "model", "batch"))
        + """
int program(const sw::HostCommunicator& world) {
  using Zero = sw::Zero3;
  using Target = sw::DefaultTarget;
  constexpr int microbatches = 4;
  const struct { int pipeline = 1, data = 2, tensor = 2; } extents;
  const Sizes sizes;
"""
        + region(text, "mesh").replace("ranks.template", "ranks.")
        + region(text, "training").replace("ranks.template", "ranks.")
        + """
  sw::checkpoint::Saver saver(world, "checkpoints");
  std::vector<std::string> refused;
  if (const auto newest = sw::checkpoint::open_newest(world, "checkpoints", refused))
    sw::checkpoint::load(world, *newest, training, "");
  std::vector<Model::Batch> batches;
  const auto read = [&](std::int64_t step) {
    batches.clear();
    for (std::int64_t i = 0; i < microbatches; ++i)
      batches.push_back(count_up<Model>(mesh, sizes, 4, 4 * (microbatches * step + i)));
    return std::span<const Model::Batch>(batches);
  };
  sw::checkpoint::Description about;
  about.mesh = "dp=2,tp=2";
  for (int step = 0; step < 20; ++step) {
    std::printf("%g\\n", training.step(read, 0.01)->loss);
    sw::checkpoint::start_save(saver, training, about, 2);
  }
  saver.finish();
  return 0;
}
"""
        + MAIN
    )


UNITS = {"transformer": transformer, "classifier": lambda: CLASSIFIER, "heat": heat}
COMPILED = ["-DSHARDWRIGHT_COMPILED", "-DSHARDWRIGHT_COMPILED_CHECKPOINTS"] # as shardwright::compiled defines


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
        elif not word.startswith(("-O", "-march", "-DSHARDWRIGHT_WITH_MPI")):
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
    parser.add_argument("--rounds", type=int, default=7, help="of the headers; a third of it for programs")
    parser.add_argument("--units", default=",".join(UNITS), help="programs, separated by commas")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    command = flags_of(options.build)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        optimized = ["-O2", "-march=native", "-c", "-o", str(folder / "out.o")]

        def medians(cases, rounds):
            """Median seconds of each case, in turns."""
            rows = {name: [] for name in cases}
            for _ in range(rounds):
                for name, (text, what) in cases.items():
                    source = folder / "unit.cpp"
                    source.write_text(text)
                    rows[name].append(seconds(command, source, *what))
            return {name: statistics.median(row) for name, row in rows.items()}

        syntax = ["-fsyntax-only"]
        umbrella = "#include <shardwright/shardwright.hpp>\nint main() {}\n"
        result = medians(
            {
                "kokkos": ("#include <Kokkos_Core.hpp>\nint main() {}\n", syntax),
                "umbrella": (umbrella, syntax),
                "umbrella_compiled": (umbrella, syntax + COMPILED),
            },
            options.rounds,
        )
        print(f"Kokkos_Core.hpp {result['kokkos']:.2f} s")
        print("| Unit | headers only | with `shardwright::compiled` |\n| --- | --- | --- |")
        ratios = [result[name] / result["kokkos"] for name in ("umbrella", "umbrella_compiled")]
        print(f"| umbrella header over Kokkos_Core.hpp | {ratios[0]:.2f} times | {ratios[1]:.2f} times |")
        for unit in filter(None, options.units.split(",")):
            cases = {unit: (UNITS[unit](), optimized), f"{unit}_compiled": (UNITS[unit](), optimized + COMPILED)}
            took = medians(cases, max(1, options.rounds // 3))
            result |= took
            print(f"| {unit} | {took[unit]:.1f} s | {took[unit + '_compiled']:.1f} s |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
