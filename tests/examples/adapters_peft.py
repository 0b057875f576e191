#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters between generate, train_gpt and Python's peft: `adapters_peft.py <generate> <train_gpt>`.

Random models of each family get random adapters there. With them, generate's scores of a prompt must be those of peft to
1e-5 on several meshes. From the same adapters, the losses of five AdamW steps of train_gpt and of torch must be equal to
1e-5, and peft must load the adapters that train_gpt exports, and give the scores that generate gives with them.

Ends with 77, skipped, where Python has no peft, transformers or torch.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false",
                  CUDA_VISIBLE_DEVICES="")
try:
    import peft
    import tokenizers
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"adapters_peft: skipped, {missing}")
    sys.exit(77)

torch.set_num_threads(1)
GENERATE, TRAIN = sys.argv[1:3]
SIZES = dict(vocab_size=331, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8,
             num_key_value_heads=4, max_position_embeddings=256, initializer_range=0.15, bos_token_id=None,
             eos_token_id=None, pad_token_id=None)
ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]
# The family, its settings, the layers that get an adapter, and whether train_gpt trains them.
MODELS = [
    ("Llama", {}, ATTENTION + MLP + ["embed_tokens", "lm_head"], True),
    ("Llama", {}, ATTENTION + MLP, True),
    ("Qwen2", dict(tie_word_embeddings=True), ATTENTION + MLP, True),
    ("Qwen3", dict(head_dim=16), ["q_proj", "v_proj"], True),
    ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None), ATTENTION, True),
    ("DeepseekV3", dict(num_key_value_heads=8, moe_intermediate_size=48, n_shared_experts=1, n_routed_experts=4,
                        kv_lora_rank=24, q_lora_rank=40, qk_rope_head_dim=8, v_head_dim=12, qk_nope_head_dim=16,
                        n_group=2, topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1),
     ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"], False),
]
MODELS.append((*MODELS[-1][:2], ["q_a_proj", "q_b_proj", "kv_b_proj", "o_proj"], True))
PROMPT = [int(3 + 7 * i * i % 193) for i in range(37)]
QUESTION, ANSWER = "the colour of the sea?", "the colour of the sky"
RATE, STEPS = 1e-3, 5


def make(kind, more, targets, rslora):
    torch.manual_seed(len(kind))
    model = getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**{**SIZES, **more}))
    adapted = peft.get_peft_model(model.eval(), peft.LoraConfig(r=6, lora_alpha=12, target_modules=targets,
                                                                use_rslora=rslora, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".lora_B." in name or ".lora_embedding_A." in name:  # zeros at first
                parameter.copy_(0.1 * torch.randn_like(parameter))
    return adapted.eval()


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=300)
    if done.returncode != 0 and "was left out" in done.stderr:
        return False
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr}")
    return True


def compare_scores(name, base, adapter, model, meshes):
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT])).logits[0]
        with model.disable_adapter():
            plain = model(torch.tensor([PROMPT])).logits[0]
    size = max(1.0, wanted.abs().max().item())
    for mesh in meshes:
        dump = base / "dump.safetensors"
        run(GENERATE, "--model", base, "--adapter", adapter, "--mesh", mesh, "--prompt-ids", ",".join(map(str, PROMPT)),
            "--tokens", "0", "--dump", dump)
        difference = (load_file(dump)["scores"] - wanted).abs().max().item() / size
        moved = (wanted - plain).abs().max().item() / size
        print(f"{name} {mesh}: adapters move scores by {moved:.2f}, which differ by {difference:.1e}")
        assert difference <= 1e-5 and moved > 0.05, "scores must be equal to 1e-5"


def add_tokenizer(directory):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=SIZES["vocab_size"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([QUESTION, ANSWER], trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    return tokenizer


def torch_losses(model, tokenizer):
    """Of steps on the tokens of the answer."""
    before, after = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n", f"{ANSWER}<|im_end|>"
    read = tokenizer.encode(before + after + "\n")
    ids = torch.tensor([read.ids])
    learned = [begin < len(before + after) and end > len(before) for begin, end in read.offsets]
    targets = torch.where(torch.tensor(learned), ids[0], -100)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], targets[1:])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    return losses


def compare_training(name, base, adapter, model):
    tokenizer = add_tokenizer(base)
    chats = base / "chats.jsonl"
    line = json.dumps({"prompt": QUESTION, "completion": ANSWER}) + "\n"
    chats.write_text(20 * line)
    wanted = torch_losses(model, tokenizer)
    for mesh in ("tp=1", "dp=2", "tp=2", "pp=3"):
        out, metrics = base / ("tuned-" + mesh), base / (mesh + ".jsonl")
        done = run(TRAIN, "--init", base, "--adapter", adapter, "--data", chats, "--chat-template", "chatml",
                   "--sequence", 96, "--batch", 4, "--steps", STEPS, "--lr", RATE, "--min-lr", RATE, "--warmup", 0,
                   "--weight-decay", 0, "--metrics", metrics, "--mesh", mesh, "--export", out)
        if not done:
            print(f"{name}: this train_gpt was built without this training")
            return
        losses = [step["loss"] for step in map(json.loads, metrics.read_text().splitlines()) if "loss" in step][:STEPS]
        difference = max(abs(a / b - 1) for a, b in zip(losses, wanted, strict=True))
        print(f"{name} {mesh}: losses from {wanted[0]:.4f} to {wanted[-1]:.4f} differ by {difference:.1e}")
        assert difference <= 1e-5 and wanted[-1] < 0.99 * wanted[0], "losses must be equal to 1e-5"
    back = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), out).eval()
    compare_scores(name + " after the steps", base, out, back, ["tp=2"])


with tempfile.TemporaryDirectory() as top:
    for number, (kind, more, targets, trains) in enumerate(MODELS):
        base, adapter = pathlib.Path(top) / f"base{number}", pathlib.Path(top) / f"adapter{number}"
        model = make(kind, more, targets, rslora=number % 2 == 1)
        model.save_pretrained(adapter, save_embedding_layers=False)
        plain = getattr(transformers, kind + "ForCausalLM")(model.base_model.model.config)
        weights = {name.replace(".base_layer.", "."): value
                   for name, value in model.base_model.model.state_dict().items() if ".lora_" not in name}
        plain.load_state_dict(weights)
        plain.save_pretrained(base)
        compare_scores(kind, base, adapter, model, ["tp=1", "tp=2", "pp=3,tp=4"])
        if trains:
            compare_training(kind, base, adapter, model)
