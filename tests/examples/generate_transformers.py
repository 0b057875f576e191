#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models between generate, train_gpt and Python's transformers: `generate_transformers.py <generate> <train_gpt>`.

Random models of each family are made there. Scores of a prompt must be equal to 1e-5, and 100 greedy tokens equal, on
several meshes; a model that generate exports must load there and give the same scores. One that train_gpt begins with
and exports must be the same without a step, and after some steps give the same scores there and in generate.

Ends with 77, skipped, where Python has no transformers or no torch.
"""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false",
                  CUDA_VISIBLE_DEVICES="")
try:
    import tokenizers
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"generate_transformers: skipped, {missing}")
    sys.exit(77)

torch.set_num_threads(1)
SIZES = dict(vocab_size=331, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8,
             num_key_value_heads=4, max_position_embeddings=256, initializer_range=0.15, bos_token_id=None,
             eos_token_id=None, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32, beta_slow=1, mscale=1.0,
            mscale_all_dim=0.7, original_max_position_embeddings=64)
FAMILIES = {
    "Llama": dict(rope_parameters=LLAMA3),
    "Llama with biases": dict(attention_bias=True, tie_word_embeddings=True),
    "Mistral": dict(sliding_window=24),
    "Qwen2": dict(tie_word_embeddings=True),
    "Qwen3": dict(head_dim=16),
    "Mixtral": dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "DeepseekV3": dict(num_key_value_heads=8, moe_intermediate_size=48, n_shared_experts=2, n_routed_experts=8,
                       routed_scaling_factor=2.5, kv_lora_rank=24, q_lora_rank=40, qk_rope_head_dim=8, v_head_dim=12,
                       qk_nope_head_dim=16, n_group=4, topk_group=2, num_experts_per_tok=3, first_k_dense_replace=1,
                       rope_parameters=YARN),
    "DeepseekV3 of other choices": dict(num_key_value_heads=8, moe_intermediate_size=48, n_routed_experts=8,
                                        kv_lora_rank=24, q_lora_rank=None, qk_rope_head_dim=8, v_head_dim=12,
                                        qk_nope_head_dim=16, n_group=1, topk_group=1, num_experts_per_tok=1,
                                        first_k_dense_replace=0, norm_topk_prob=False, rope_interleave=False,
                                        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
}
MESHES = ["tp=1", "tp=2", "pp=2", "pp=3,tp=4"]
EXPERT_MESHES = ["ep=2", "pp=2,ep=4,tp=2"]
PROMPT = [int(3 + 7 * i * i % 193) for i in range(37)]
NEW = 100


def make(name, more, dtype):
    kind = name.split()[0]
    torch.manual_seed(len(name))
    config = getattr(transformers, kind + "Config")(**{**SIZES, **more})
    model = getattr(transformers, kind + "ForCausalLM")(config).to(dtype).eval()
    with torch.no_grad():  # parameters that are zeros or ones at first
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.add_(0.1 * torch.randn_like(buffer))
    return model


def run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"generate {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done


def compare(program, directory, name, model):
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        wanted = model(ids).logits[0].float()
        tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
    tokens = tokens[0, len(PROMPT):].tolist()
    for mesh in MESHES + EXPERT_MESHES * hasattr(model.config, "num_local_experts"):
        dump = directory / "dump.safetensors"
        words = ["--model", str(directory), "--mesh", mesh, "--prompt-ids", ",".join(map(str, PROMPT)),
                 "--tokens", str(NEW), "--dump", str(dump)]
        again = directory / "again"
        if mesh == "pp=3,tp=4":
            words += ["--export", str(again)]
        run(program, *words)
        read = load_file(dump)
        difference = (read["scores"] - wanted).abs().max().item() / max(1.0, wanted.abs().max().item())
        same = sum(a == b for a, b in zip(read["tokens"].tolist(), tokens))
        print(f"{name} {mesh}: scores to {wanted.abs().max():.2f}, differ by {difference:.1e}; {same} of {NEW} tokens")
        assert difference <= 1e-5, "scores must be equal to 1e-5"
        assert same == NEW and len(tokens) == NEW, "greedy tokens must be equal"
    back = transformers.AutoModelForCausalLM.from_pretrained(again).to(model.dtype).eval()
    with torch.no_grad():
        assert torch.equal(back(ids).logits, model(ids).logits), "the exported model must give the same scores"


def add_tokenizer(directory):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=SIZES["vocab_size"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["the sea was the colour of the sky and the shore"] * 3, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    return tokenizer


def compare_text(program, directory, model):
    """From a text to a text, with the directory's own tokenizer."""
    tokenizer = add_tokenizer(directory)
    prompt = "The sea was \u00e9meraude, 12 o'clock"
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    with torch.no_grad():
        tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
    wanted = tokenizer.decode(tokens[0, ids.shape[1]:].tolist())
    said = subprocess.run([program, "--model", str(directory), "--prompt", prompt, "--tokens", "40", "--mesh", "tp=2"],
                          capture_output=True, timeout=300)
    if b"build with ICU" in said.stderr:
        print("no text without ICU")
        return
    assert said.returncode == 0, said.stderr
    assert said.stdout.decode(errors="replace") == wanted + "\n", (said.stdout, wanted)
    print(f"text: {len(wanted)} characters are equal")


def compare_fp8(program, train, directory):
    """The model with its matrices in blocks of FP8, as DeepSeek-V3 is published, and a layer behind the last one: in generate, and
    through train_gpt without a step."""
    rows, columns = 32, 48
    config = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / "model.safetensors")
    fp8 = {"model.layers.3.eh_proj.weight": torch.zeros(2, 2), "model.layers.3.self_attn.o_proj.weight": torch.zeros(1)}
    for name, weight in tensors.items():
        if not name.endswith("_proj.weight"):
            fp8[name] = weight
            continue
        scales = torch.zeros(-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
        fp8[name] = torch.zeros_like(weight, dtype=torch.float8_e4m3fn)
        fp8[name + "_scale_inv"] = scales
        for i, j in itertools.product(range(scales.shape[0]), range(scales.shape[1])):
            part = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = weight[part].abs().max() / 448
            fp8[name][part] = (weight[part] / scales[i, j]).to(torch.float8_e4m3fn)
            weight[part] = fp8[name][part].float() * scales[i, j]
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(directory).eval()
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT])).logits[0]
    save_file(fp8, directory / "model.safetensors", {"format": "pt"})
    config["quantization_config"] = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
                                         weight_block_size=[rows, columns])
    (directory / "config.json").write_text(json.dumps(config))
    words = ["--model", str(directory), "--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", "0"]
    refused = subprocess.run([program, *words], capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1 and "--widen-fp8" in refused.stderr, refused.stderr
    dump = directory / "dump.safetensors"
    said = run(program, *words, "--widen-fp8", "--mesh", "tp=2", "--dump", str(dump)).stderr
    assert "ignored: model.layers.3, 2 tensors" in said, said
    difference = (load_file(dump)["scores"] - wanted).abs().max().item() / max(1.0, wanted.abs().max().item())
    print(f"FP8: scores to {wanted.abs().max():.2f}, differ by {difference:.1e}")
    assert difference <= 1e-5, "scores must be equal to 1e-5"
    out = directory / "widened"
    words = ["--init", str(directory), "--data", str(directory / "text.txt"), "--sequence", "32", "--batch", "4", "--steps", "0",
             "--widen-fp8", "--mesh", "dp=2,ep=2", "--export", str(out)]
    trained = subprocess.run([train, *words], capture_output=True, text=True, timeout=300)
    if "was left out" in trained.stderr or "ICU" in trained.stderr:
        print("no such training in this build")
        return
    assert trained.returncode == 0 and "ignored: model.layers.3, 2 tensors" in trained.stdout, trained
    back = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    with torch.no_grad():
        assert torch.equal(back(torch.tensor([PROMPT])).logits[0], wanted), "widened weights must be those of the blocks"


def compare_training(generate, train, directory, model):
    """The model through train_gpt, without a step and after some."""
    add_tokenizer(directory)
    text = directory / "text.txt"
    text.write_text(" ".join(f"the sea was {i * i % 97} shades of the sky" for i in range(300)))
    ids = torch.tensor([PROMPT])
    words = ["--init", str(directory), "--data", str(text), "--sequence", "32", "--batch", "4", "--lr", "1e-3"]
    for steps in ("0", "4"):
        out = directory / ("steps" + steps)
        mesh = "pp=2,ep=2" if hasattr(model.config, "num_local_experts") else "pp=2,dp=2"
        trained = subprocess.run([train, *words, "--steps", steps, "--export", str(out), "--mesh", mesh],
                                 capture_output=True, text=True, timeout=300)
        if "was left out" in trained.stderr or "ICU" in trained.stderr:
            print("no such training in this build")
            return
        assert trained.returncode == 0, trained.stderr
        back = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
        assert transformers.AutoTokenizer.from_pretrained(out)("the sea").input_ids
        with torch.no_grad():
            wanted, before = back(ids).logits[0], model(ids).logits[0]
        assert torch.equal(wanted, before) == (steps == "0"), "weights change by steps alone"
        dump = directory / "dump.safetensors"
        run(generate, "--model", str(out), "--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", "5", "--dump", str(dump))
        difference = (load_file(dump)["scores"] - wanted).abs().max().item() / max(1.0, wanted.abs().max().item())
        print(f"{type(model).__name__} after {steps} steps: scores moved by {(wanted - before).abs().max():.2f}, differ by {difference:.1e}")
        assert difference <= 1e-5, "scores must be equal to 1e-5"


with tempfile.TemporaryDirectory() as top:
    for name, more in FAMILIES.items():
        directory = pathlib.Path(top) / name.replace(" ", "_")
        model = make(name, more, torch.float32)
        model.save_pretrained(directory, max_shard_size="200KB" if name == "Llama" else "1GB")
        compare(sys.argv[1], directory, name, model)
        if name == "Qwen2":
            compare_text(sys.argv[1], directory, model)
        if name in ("Llama", "Qwen2", "Qwen3", "Mixtral", "DeepseekV3"):
            compare_training(*sys.argv[1:3], directory, model)
        if name == "DeepseekV3":
            compare_fp8(*sys.argv[1:3], directory)
