#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill_saves.py KILLS CHECKPOINT DIRECTORY PROGRAM WORD...: a run that saves after every step is killed again and again, at a
random moment of a save, and goes on. Every checkpoint that has its name must be whole, none may be lost, and the run must end
where one ends that is never killed. Of a launcher, one rank is killed."""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from stop_signal import last_process


def main():
    kills, checkpoint, root, *command = sys.argv[1:]
    root = pathlib.Path(root)
    shutil.rmtree(root, ignore_errors=True)
    whole, killed = root / "whole", root / "killed"
    subprocess.run([*command, "--checkpoint", whole], check=True, stdout=subprocess.DEVNULL)
    last = max(int(path.name[5:]) for path in whole.glob("step-*"))
    words = [*command, "--checkpoint", killed, "--save-every", "1", "--keep", "2"]
    rng = random.Random(1)
    newest = 0
    for number in range(int(kills)):
        resume = ["--resume"] if newest else []
        run = subprocess.Popen([*words, *resume], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        saves = rng.randint(0, 2)
        for line in run.stdout:
            saves -= 1 if re.match("step [0-9]+ +saved: ", line) or re.match("step +[0-9]+/", line) else 0
            if saves < 0:
                time.sleep(rng.random() * 0.03)
                try:
                    os.kill(last_process(run.pid), signal.SIGKILL)
                except (ProcessLookupError, FileNotFoundError):
                    pass  # it has ended
                break
        run.stdout.read()
        run.wait()
        steps = sorted(int(path.name[5:]) for path in killed.glob("step-*") if path.name[5:].isdigit())
        if (steps[-1] if steps else 0) < newest:
            sys.exit(f"kill {number}: step {newest} was saved, but {steps} is left")
        newest = steps[-1] if steps else 0
        if steps:
            subprocess.run([checkpoint, "verify", killed], check=True, stdout=subprocess.DEVNULL)
        print(f"kill {number}: {steps} are whole")
        if newest == last:
            break
    resume = ["--resume"] if newest else []
    subprocess.run([*words, *resume], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([checkpoint, "diff", whole / f"step-{last}", killed / f"step-{last}"], check=True)


if __name__ == "__main__":
    main()
