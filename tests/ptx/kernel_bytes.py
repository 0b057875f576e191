#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the bytes that kernels state for dry runs with those that interpreted kernels moved: `kernel_bytes.py FILE...`,
where the files are those that programs wrote to PTX_TRAFFIC.

Moved are the bytes that a launch read before it wrote them, and those that it wrote, each once, without workspaces. For
each label of a program they must be what its kernels stated, unless DIFFERENT has a reason and the bounds of the
difference. A kernel that states nothing, and is not in SILENT, is a fault, and so is a line of the tables that nothing needs.
"""
import json
import pathlib
import re
import sys

# Why a label moves other bytes than it states, and the bounds of moved / stated.
PADDING = "tokens of padding, or of another rank's part of a table, are not read"
DIFFERENT = {
    "combine": ("the test multiplies a tensor by itself", 0.9, 1),
    "sw::attention": ("starts of documents; nothing of queries that see no key, nor of keys that no query sees", 0.95, 1),
    "sw::d_attention": ("tables of the rotation that tiles undo, and the same", 0.95, 1.05),
    "sw::d_embedding": (PADDING, 0.5, 1),
    "sw::d_gates": ("of logits only the chosen ones", 0.5, 1),
    "sw::d_logits": (PADDING, 0.8, 1),
    "sw::embedding": ("rows of the table that several tokens share are loaded once", 0.5, 1),
    "sw::gates": ("of logits only the chosen ones", 0.5, 1),
    "sw::gather_rows": ("a token that has several experts is loaded once", 0.5, 1),
    "sw::matmul": ("cuBLAS computes products, without a kernel of ours", 0, 0.2),
    "sw::route": ("scores, in a workspace of the pool", 1, 3),
    "sw::row_stats": ("a note of an unknown id", 1, 1.001),
    "sw::sum_order": ("the test sums 946,198 numbers that are no workspace", 7279, 7280),
    "sw::sum_slots": (PADDING, 0.5, 1),
    "sw::token_loss": (PADDING, 0.8, 1),
}
# Labels that state nothing where they are launched: their callers do, or they move a few numbers for a token.
SILENT = {"choose", "count", "d_gates", "gate", "gates", "gather", "open", "runs", "scatter", "sum", "take"}  # of the test
SILENT |= {"sw::adamw", "sw::lion", "sw::sgd"}  # the optimizer
SILENT |= {"sw::addresses", "sw::bin_choices", "sw::count_exp", "sw::group_gates", "sw::number_rows", "sw::pack_gates",
           "sw::place_pairs", "sw::store", "sw::take_gates"}
# Labels of which another states the bytes.
PARTS = {"sw::d_attn_key": "sw::d_attention", "sw::d_attn_q": "sw::d_attention"}
# Kernels that no label launches; and one that reads rows again which are too wide for a block of warps.
FOREIGN = re.compile("run_peer_kernel|cub|ViewValueFunctor|NormSumsOfPieces")


def moved_by_label(launches):
    moved, kernels = {}, {}
    for launch in launches:
        if not FOREIGN.search(launch["kernel"]):
            label = PARTS.get(launch["label"], launch["label"])
            moved[label] = moved.get(label, 0) + launch["read"] + launch["wrote"]
            kernels.setdefault(label, []).append(launch)
    return moved, kernels


def right(label, stated, moved, needed):
    """Whether the bytes are as they must be; notes the lines of the tables that this needs."""
    if stated == moved:
        return True
    needed.add(label)
    if stated == 0:
        return label in SILENT
    _, low, high = DIFFERENT.get(label, ("", 1, 1))
    return low <= moved / stated <= high


def main():
    wrong, needed = 0, set()
    for path in map(pathlib.Path, sys.argv[1:]):
        report = json.loads(path.read_text())
        moved, kernels = moved_by_label(report["launches"])
        labels = {label: stated for label, stated in report["stated"].items() if label not in PARTS}
        equal = [label for label, stated in labels.items() if stated == moved.get(label, 0) and stated]
        for label, stated in sorted(labels.items()):
            if right(label, stated, moved.get(label, 0), needed):
                continue
            wrong += 1
            print(f"{path.name}: {label}: stated {stated}, moved {moved.get(label, 0)}")
            for launch in kernels.get(label, []):
                print("    {launches} launches read {read} and wrote {wrote}: {kernel}".format(**launch)[:250])
        for label in sorted(set(moved) - set(labels)):
            print(f"{path.name}: kernels of {label or 'no label'} ran that no call announced")
            wrong += 1
        print(f"{path.name}: {len(equal)} of {sum(1 for stated in labels.values() if stated)} labels moved exactly the bytes "
              "that they state")
        wrong += not equal
    for label in sorted((set(DIFFERENT) | SILENT) - needed):
        print(f"{label}: the tables name it, but no program needs that: its bytes are exact, or no program has it")
        wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
