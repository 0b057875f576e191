#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stop_signal.py SIGNAL PROGRAM WORD...: starts a run of many steps, sends it a signal after the first one, and checks that it
saves and ends with code 0. Of a launcher, one rank receives the signal."""
import os
import pathlib
import re
import signal
import subprocess
import sys


def last_process(parent):
    """The youngest descendant that has none of its own."""
    while children := pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        parent = int(children[-1])
    return parent


def main():
    name, *command = sys.argv[1:]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = ""
    for line in run.stdout:
        text += line
        if re.match(r"step +1\b.* loss ", line): # not "step 1  saved": a second signal ends a run at once
            os.kill(last_process(run.pid), getattr(signal, name))
    code = run.wait()
    print(text)
    if code != 0:
        sys.exit(f"{name} must end the run with code 0, but it is {code}")
    if not re.search("step [0-9]+ +saved: ", text) or "validation loss" in text:
        sys.exit(f"{name} must save the run and end it")


if __name__ == "__main__":
    main()
