#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in this library's kernels, one at a time, and checks that the interpreter reports each: `planted_faults.py
FOLDER [NAME...]`, where the folder holds ptx_narrow_kernels, ptx_kernels and ptx_experts: programs of tests/cuda, linked
with the interpreter.

The PTX lies in the program as text. A fault changes one instruction of one kernel in a copy of the program, at equal
length: what is longer takes the place of the `.loc` line before it. The copy must end with a fault of the kind that is
expected, and name the kernel, the instruction, the lanes and the source line. A missing event is planted without a change
of the program: one of the waits of its streams is left out. Names on the command line choose faults.
"""
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FAULT = 86  # the program's status


@dataclasses.dataclass
class Planted:
    name: str
    kernel: str  # a pattern of its mangled name
    instruction: str  # a pattern of the instruction; `which` of those in the kernel, from 0 or, below it, from the end
    which: int
    replacement: str  # as of re.sub; nothing removes it
    kinds: str  # of the fault that must come
    group: str  # of kernels, to run only these
    run: str = "forward-wait"  # order of the warps, arrival of asynchronous copies
    program: str = "ptx_narrow_kernels"


FORWARD = "AttentionForwardTiles.*Li64E"
BACKWARD = "AttentionBackwardQueryTiles.*Li64E"
KEYS = "AttentionBackwardKeyTiles.*Li64E"
BARRIER = r"bar\.sync\s+0;"
FAULTS = [
    Planted("the first barrier of a step is missing", FORWARD, BARRIER, 0, "", "race", "attention"),
    Planted("the last barrier of a step is missing", FORWARD, BARRIER, -1, "", "race", "attention", "forward-issue"),
    Planted("the first barrier of the gradient of queries is missing", BACKWARD, BARRIER, 0, "", "race", "attention"),
    Planted("the last barrier of the gradient of queries is missing", BACKWARD, BARRIER, -1, "", "race", "attention",
            "forward-issue"),
    Planted("the first barrier of the gradient of keys is missing", KEYS, BARRIER, 0, "", "race", "attention"),
    Planted("a wait leaves one group too many", FORWARD, r"(cp\.async\.wait_group) 1;", 0, r"\1 2;", "race", "attention"),
    Planted("a wait of the gradient leaves one group too many", BACKWARD, r"(cp\.async\.wait_group) 1;", 0, r"\1 2;", "race",
            "attention"),
    Planted("a group of copies is not ended", FORWARD, r"cp\.async\.commit_group;", -1, "", "race", "attention"),
    Planted("lanes do not meet before they read each other's sums", FORWARD, r"bar\.warp\.sync\s+[^;]+;", 0, "", "race",
            "attention"),
    Planted("a shuffle names lanes that do not come", "NormForward.*Lb1ELb0E", r"(mov\.[ub]32\s+%r\d+), -1;", 0, r"\1, 15;",
            "mask", "norms"),
    Planted("an address of rows is not that of a row of matrix fragments", FORWARD,
            r"(ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16[^;]*\[%r\d+)\]", 0, r"\1+2]", "alignment", "attention"),
    Planted("a vector is loaded off its alignment", "NormForward.*Lb1ELb0E", r"(ld\.global\.v4\.[bu]32[^;]*\+)512\]", 0,
            r"\g<1>520]", "alignment", "norms"),
    Planted("each element is stored one too far", "11RotaryTable", r"(st\.global\.f32\s+\[%rd\d+)\]", 0, r"\1+4]", "bounds",
            "attention"),
    Planted("the barrier between two sums over a block is missing", "9SumLosses", BARRIER, 1, "", "race", "losses"),
    Planted("the barrier inside a sum over a block is missing", "9SumLosses", BARRIER, 0, "", "race", "losses"),
    Planted("the barrier between the parts of a norm's gradient is missing", "NormBackwardOfBlocks.*Lb1ELb1ELb1EEELj8E", BARRIER,
            0, "", "race", "norms"),
    Planted("rows of a table are added to at once", "EmbeddingBackwardOfBlocks", BARRIER, 0, "", "race", "losses"),
    Planted("counts are stored, not added", "DeviceHistogramSweepKernel.*Li256E",
            r"atom\.shared\.add\.u32\s+%r\d+, (\[[^\]]*\]), ([^;]*);", 0, r"st.shared.u32 \1, \2;", "race", "experts",
            program="ptx_kernels"),
    Planted("an address in another block of memory", "9SumLosses", r"(st\.global\.f64\s+\[%rd\d+)(\+8)?\]", -1, r"\1+64]",
            "bounds", "losses"),
]


def kernels(text):
    """Where each kernel's body begins and ends: blocks within it end with a brace, too."""
    found = list(re.finditer(rb"\.entry (\S+)\(", text))
    for this, following in zip(found, [*found[1:], None]):
        yield this[1].decode(), this.end(), following.start() if following else text.find(b"\0", this.end())


def plant(program, fault):
    """The program with the fault in every kernel of the pattern; and those kernels."""
    text = bytearray(program)
    changed = []
    for name, begin, end in kernels(program):
        if not re.search(fault.kernel, name):
            continue
        body = program[begin:end].decode("latin-1")
        found = list(re.finditer(fault.instruction, body))
        if not found:
            continue
        place = found[fault.which]
        new = place.expand(fault.replacement)
        start = place.start()
        if len(new) > len(place[0]):  # the line before it makes room
            start = max(body.rfind("\n.loc", 0, start), body.rfind("\n\t.loc", 0, start))
            if start < 0 or len(new) > place.end() - start:
                sys.exit(f"{fault.name}: there is no room in {name}")
            start += 1
            new = body[body.rfind("\n", 0, place.start()) + 1:place.start()] + new
        new = new.rjust(place.end() - start)
        text[begin + start:begin + place.end()] = new.encode("latin-1")
        changed.append(name)
    return bytes(text), changed


# Some waits of ptx_experts repeat another, and which one has which number is the threads' choice: so many of these must be
# reported.
LOST_WAITS, LEAST_REPORTED = range(9, 41), 4


def lost_wait_verdict(program, number):
    """Why the report of a lost wait is not enough, and the report."""
    environment = os.environ | {"PTX_LOST_WAIT": str(number)}
    done = subprocess.run([str(program)], capture_output=True, text=True, env=environment, timeout=600)
    if done.returncode != FAULT or "ptx: stream order:" not in done.stderr:
        return f"the program ended with {done.returncode} and no report", done.stderr
    places = [done.stderr.count(part) for part in ("instruction: ", "source: ", "kernel: ", " on stream ")]
    return "" if places == [2, 2, 2, 2] else "the report lacks one of the two kernels", done.stderr


def lost_waits_unreported(program, wanted):
    """How many more lost waits should have been reported."""
    missing = LEAST_REPORTED
    for number in LOST_WAITS:
        name = f"wait {number} for an event is missing"
        if missing and (not wanted or name in wanted):
            why, report = lost_wait_verdict(program, number)
            missing -= 0 if why else 1
            print(f"{'not needed' if why else 'found'}: {name}: {why or report.splitlines()[0]}")
    return 0 if wanted else missing


def report_of(folder, program, fault):
    """What the changed program says, and its status."""
    path = pathlib.Path(folder) / "program"
    path.write_bytes(program)
    path.chmod(0o755)
    order, arrival = fault.run.split("-")
    environment = os.environ | {"PTX_ORDER": order, "PTX_ARRIVAL": arrival}
    done = subprocess.run([str(path), fault.group], capture_output=True, text=True, env=environment, timeout=600)
    return done.returncode, done.stderr


def verdict(fault, kernels_changed, status, report):
    """Why the report is not enough; nothing if it is."""
    if status != FAULT:
        return f"the program ended with {status} and no report"
    if not any(f"ptx: {kind}:" in report for kind in fault.kinds.split()):
        return "the fault is of another kind"
    if not any(f"kernel: {name}" in report for name in kernels_changed):
        return "the fault is in another kernel"
    missing = [part for part in ("instruction: ", "source: ", "lane") if part not in report]
    return f"the report lacks {', '.join(missing)}" if missing else ""


def main():
    programs = {fault.program: (pathlib.Path(sys.argv[1]) / fault.program).read_bytes() for fault in FAULTS}
    wanted = set(sys.argv[2:])
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS:
            if wanted and fault.name not in wanted:
                continue
            changed, names = plant(programs[fault.program], fault)
            if not names:
                failures += 1
                print(f"NOT PLANTED: {fault.name}: no kernel has the instruction")
                continue
            status, report = report_of(folder, changed, fault)
            why = verdict(fault, names, status, report)
            failures += 1 if why else 0
            first = (report.strip().splitlines() or [""])[0]
            print(f"{'NOT FOUND: ' if why else 'found: '}{fault.name}: {why or first}")
            if why:
                print(report)
            sys.stdout.flush()
    failures += lost_waits_unreported(pathlib.Path(sys.argv[1]) / "ptx_experts", wanted)
    print(f"{len(FAULTS) + LEAST_REPORTED} faults, {failures} not reported")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
