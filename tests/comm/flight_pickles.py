# SPDX-License-Identifier: Apache-2.0
"""flight_pickles.py DIR RANKS: the dumps of a job whose last rank stopped, as PyTorch's fr_trace takes them."""
import importlib.util
import pathlib
import pickle
import re
import subprocess
import sys

directory, ranks = pathlib.Path(sys.argv[1]), int(sys.argv[2])
dumps = [pickle.loads((directory / f"trace_rank_{rank}").read_bytes()) for rank in range(ranks)]
for rank, dump in enumerate(dumps):
    assert dump["version"] == "2.10", dump
    assert dump["pg_config"]["world"]["ranks"] == str(list(range(ranks))), dump
    for entry in dump["entries"]:
        assert entry["process_group"] == ("world", "world") and entry["is_p2p"] is False, entry
        assert entry["frames"][0]["filename"].endswith("_program.cpp") and entry["frames"][0]["line"] > 0, entry
*others, last = (dump["entries"][-1] for dump in dumps)
waiting = [entry for entry in others if entry["state"] == "started"]
assert waiting and all(last["collective_seq_id"] < entry["collective_seq_id"] for entry in waiting), dumps
if importlib.util.find_spec("torch"):
    trace = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(directory)], capture_output=True, text=True)
    text = trace.stdout + trace.stderr
    missing = re.search(rf"missing ranks: {{[^}}]*\b{ranks - 1}\b", text)
    assert trace.returncode == 0 and missing and "_program.cpp:" in text, text
    print("fr_trace agrees")
