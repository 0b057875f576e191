#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times finetune beside peft with transformers and torch: `finetune_peft.py FINETUNE MODEL [--turns 3] [--steps 3]`.

MODEL is a directory in Hugging Face's format. Both train the same adapters, made by peft, of all linear layers on the
same rows of one conversation, in float on one thread, in turns, each in a process of its own: forward, backward,
clipping and AdamW. Prints the medians of the steps after the first of each turn, the peak memory of the processes, and
the greatest relative difference of the losses, which must be 1e-5 or less.

Needs `pip install torch transformers peft`.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

RATE, RANK = 2e-4, 16
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def conversation(tokenizer, tokens):
    """One that is as long as a row: more turns than fit, of which the end is cut."""
    messages = []
    while True:
        number = len(messages)
        messages += [{"role": "user", "content": f"What is {number} plus {3 * number}?"},
                     {"role": "assistant", "content": f"The sum of {number} and {3 * number} is {4 * number}."}]
        ids = tokenizer.apply_chat_template(messages, return_dict=False)
        if len(ids) > tokens + 1:
            return messages


def row(tokenizer, messages, tokens):
    """Inputs and targets of the row; -100 where nothing is learned."""
    ids = tokenizer.apply_chat_template(messages, return_dict=False)
    learned = [False] * len(ids)
    for end in range(2, len(messages) + 1, 2):
        begin = len(tokenizer.apply_chat_template(messages[: end - 1], add_generation_prompt=True, return_dict=False))
        whole = len(tokenizer.apply_chat_template(messages[:end], return_dict=False))
        last = ids.index(tokenizer.eos_token_id, begin)
        learned[begin : min(whole, last + 1)] = [True] * (min(whole, last + 1) - begin)
    return ids[: tokens + 1], [id if on else -100 for id, on in zip(ids, learned)][: tokens + 1]


def peer(options):
    """One turn of peft: seconds and losses of its steps, and the memory of the process."""
    import peft
    import torch
    import transformers

    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    base = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, options.adapter, is_trainable=True).train()
    ids, labels = row(tokenizer, conversation(tokenizer, options.sequence), options.sequence)
    ids, labels = torch.tensor([ids[:-1]] * options.batch), torch.tensor([labels[1:]] * options.batch)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0, fused=True)
    steps = []
    for _ in range(options.steps + 1):
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        value = loss.item()
        steps.append({"seconds": time.perf_counter() - begin, "loss": value})
    print(json.dumps({"steps": steps, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def make_adapter(options, directory):
    import peft
    import torch
    import transformers

    torch.manual_seed(1)
    base = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model = peft.get_peft_model(base, peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=TARGETS,
                                                      task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:  # zeros at first, which would hide A
                parameter.copy_(0.01 * torch.randn_like(parameter))
    model.save_pretrained(directory, save_embedding_layers=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    line = json.dumps({"messages": conversation(tokenizer, options.sequence)})
    (directory / "chats.jsonl").write_text(20 * (line + "\n"))


def ours(options, directory):
    """One turn of finetune."""
    metrics = directory / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    words = [options.finetune, "--init", options.model, "--adapter", directory, "--data", directory / "chats.jsonl", "--no-pack",
             "--sequence", options.sequence, "--batch", options.batch, "--steps", options.steps + 1, "--lr", RATE, "--min-lr", RATE,
             "--warmup", 0, "--weight-decay", 0, "--validate-every", 0, "--sample-every", 0, "--validation-batches", 1, "--metrics", metrics]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    records = list(map(json.loads, metrics.read_text().splitlines()))
    summary = next(record["summary"] for record in records if "summary" in record)
    return {"steps": [record for record in records if "loss" in record], "memory": summary["process_peak_bytes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("finetune")
    parser.add_argument("model")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="of a turn, after a first one that does not count")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--adapter", help=argparse.SUPPRESS)  # a turn of peft
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                      TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
    if options.adapter:
        return peer(options)
    with tempfile.TemporaryDirectory() as top:
        directory = pathlib.Path(top)
        make_adapter(options, directory)
        turns = {"finetune": [], "peft": []}
        for _ in range(options.turns):
            turns["finetune"].append(ours(options, directory))
            out = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--adapter", top], capture_output=True, text=True)
            if out.returncode != 0:
                sys.exit(out.stderr)
            turns["peft"].append(json.loads(out.stdout.splitlines()[-1]))
            for name, all_turns in turns.items():
                print(name, [round(step["seconds"], 3) for step in all_turns[-1]["steps"]], flush=True)
    rate = {}
    for name, all_turns in turns.items():
        seconds = statistics.median(step["seconds"] for turn in all_turns for step in turn["steps"][1:])
        rate[name] = options.batch * options.sequence / seconds
        memory = statistics.median(turn["memory"] for turn in all_turns)
        print(f"{name}: {rate[name]:.1f} tokens/s, {memory / 2**20:.0f} MiB")
    losses = {name: [step["loss"] for step in all_turns[0]["steps"]] for name, all_turns in turns.items()}
    difference = max(abs(a / b - 1) for a, b in zip(losses["finetune"], losses["peft"], strict=True))
    print(f"finetune reaches {rate['finetune'] / rate['peft']:.2f} x the tokens/s of peft; losses from "
          f"{losses['peft'][0]:.5f} to {losses['peft'][-1]:.5f} differ by {difference:.1e}")
    if difference > 1e-5:
        sys.exit("the losses must be equal to 1e-5")


main()
