#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""commit_kills.py DIRECTORY PROGRAM WORD...: a job is killed at each of the seven steps of a save. Afterwards the newest
checkpoint must be whole on every rank: the older one, and behind the sixth step the new one. Before, a save for which the disk
of one rank is full must end in a sentence on every rank, and leave the older checkpoint."""
import pathlib
import re
import shutil
import subprocess
import sys

RANKS = range(3)


def main():
    root, *command = sys.argv[1:]
    root = pathlib.Path(root)
    shutil.rmtree(root, ignore_errors=True)

    def job(word, step, sentences, ends=True):
        done = subprocess.run([*command, root, str(word)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              stdin=subprocess.DEVNULL, timeout=120)
        wanted = [rf"rank {rank}: step {step} is whole" for rank in RANKS] + sentences
        for sentence in wanted:
            if not re.search(sentence, done.stdout):
                sys.exit(f"'{word}' must say '{sentence}', but said\n{done.stdout}")
        if (done.returncode == 0) != ends or ("is saved" in done.stdout) != (ends and word != "check"):
            sys.exit(f"'{word}' must {'end well' if ends else 'be killed'}, but ended with {done.returncode}:\n{done.stdout}")

    job(0, 0, ["rank 1: step 1 is saved"])
    full = "rank 1: .*part-1.safetensors must be writable, but No space left on device"
    job("full", 1, [f"rank {rank}: {full}" for rank in RANKS])
    step = 2
    for place in range(1, 8):
        job(place, step, [], ends=False)
        step += place == 7
        unfinished = list(root.glob("*.tmp-*"))
        survived = place in (3, 4) and len(command) > 1  # by the process of rank 0, which may clean up before it ends
        if bool(unfinished) != (place > 2) and not survived:
            sys.exit(f"a kill at step {place} must come in its middle, but left {unfinished}")
        print(f"killed at step {place} of a save: step {step} is the newest")
    job("check", step, [])
    job(0, step, [f"rank 0: step {step + 1} is saved"])
    if left := [path.name for path in root.iterdir() if path.name not in ("lock", f"step-{step + 1}")]:
        sys.exit(f"the last save must clear up, but left {left}")


if __name__ == "__main__":
    main()
