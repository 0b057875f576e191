#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of train_gpt in PyTorch, one step for every line "step" on standard input.

A benchmark starts it once, reads the line that begins with "ready", and then alternates its own steps with this one's:
for each line "step" or "steps N" that it writes, one or N training steps run here and their seconds come back as a line.
"products" times the matrix products of the layers' linear layers alone, on memory of their own.
"profile N" traces N steps and answers with a line "SECONDS NAME" for every kernel, seconds per step, and a line "end".
"quit", or the end of the input, ends the process. A line "error: ..." says why there is no peer.

The model is a decoder after Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases. The step is
forward, backward, clipping by the global norm and AdamW, in the way PyTorch's own documentation recommends for speed:
fused projections, F.scaled_dot_product_attention, fused AdamW, gradients set to None.

--precision bf16 is what train_gpt means by it: parameters, activations and their gradients in bfloat16, and float masters
with float gradients for the optimizer. autocast is PyTorch's own way: parameters in float, products in bfloat16.
"""

import argparse
import math
import os
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--d-model", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=1408)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--microbatch", type=int, default=0, help="sequences of one pass (default: the batch)")
    parser.add_argument("--tied", action="store_true", help="one table for embedding and output head")
    parser.add_argument("--precision", choices=["fp32", "fp64", "bf16", "autocast"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    parser.add_argument("--separate", action="store_true", help="do not fuse the q, k, v and the gate, up projections")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warmup-steps", type=int, default=2, help="steps before the line 'ready'")
    parser.add_argument("--steps", type=int, default=0, help="time this many steps and end, without reading input")
    options = parser.parse_args()
    options.microbatch = options.microbatch or options.batch
    for divisor, number, text in [
        (options.heads, options.d_model, "--d-model must divide by --heads"),
        (options.kv_heads, options.heads, "--heads must divide by --kv-heads"),
        (options.microbatch, options.batch, "--batch must divide by --microbatch"),
    ]:
        if divisor < 1 or number % divisor != 0:
            parser.error(f"{text}: {number} and {divisor}")
    return options


OPTIONS = arguments()
# Thread pools read these once, when the library is loaded.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(OPTIONS.threads)

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except Exception as error:  # a damaged installation may raise other errors than ImportError
    print(f"error: PyTorch cannot be imported ({error})", flush=True)
    sys.exit(3)
if OPTIONS.device == "cuda" and not torch.cuda.is_available():
    print(f"error: this PyTorch ({torch.__version__}) finds no CUDA device", flush=True)
    sys.exit(3)


class Attention(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.heads, self.kv_heads = options.heads, options.kv_heads
        self.head_size = options.d_model // options.heads
        sizes = [self.heads * self.head_size, self.kv_heads * self.head_size, self.kv_heads * self.head_size]
        self.sizes = sizes
        widths = sizes if options.separate else [sum(sizes)]
        self.inputs = nn.ModuleList(nn.Linear(options.d_model, width, bias=False) for width in widths)
        self.output = nn.Linear(options.d_model, options.d_model, bias=False)

    def forward(self, x, cosine, sine):
        rows, length, width = x.shape
        parts = [linear(x) for linear in self.inputs]
        q, k, v = parts if len(parts) == 3 else parts[0].split(self.sizes, dim=-1)
        q = rotate(q.view(rows, length, self.heads, self.head_size).transpose(1, 2), cosine, sine)
        k = rotate(k.view(rows, length, self.kv_heads, self.head_size).transpose(1, 2), cosine, sine)
        v = v.view(rows, length, self.kv_heads, self.head_size).transpose(1, 2)
        if self.kv_heads != self.heads:
            # The fused CPU kernel takes equal numbers of heads; enable_gqa would fall back to the unfused one.
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(out.transpose(1, 2).reshape(rows, length, width))


def rotate(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class FeedForward(nn.Module):
    def __init__(self, options):
        super().__init__()
        widths = [options.hidden] * 2 if options.separate else [2 * options.hidden]
        self.inputs = nn.ModuleList(nn.Linear(options.d_model, width, bias=False) for width in widths)
        self.output = nn.Linear(options.hidden, options.d_model, bias=False)

    def forward(self, x):
        parts = [linear(x) for linear in self.inputs]
        gate, up = parts if len(parts) == 2 else parts[0].chunk(2, dim=-1)
        return self.output(F.silu(gate) * up)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Layer(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.attention_norm, self.attention = Norm(options.d_model), Attention(options)
        self.feed_forward_norm, self.feed_forward = Norm(options.d_model), FeedForward(options)

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.d_model)
        self.layers = nn.ModuleList(Layer(options) for _ in range(options.layers))
        self.norm = Norm(options.d_model)
        self.head = nn.Linear(options.d_model, options.vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith("output.weight")
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * options.layers) if deep else 1))
        if options.tied:
            self.head.weight = self.embedding.weight
        size = options.d_model // options.heads
        rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.outer(torch.arange(options.sequence, dtype=torch.float64), rates)
        self.register_buffer("cosine", angles.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sine", angles.sin().to(torch.get_default_dtype()), persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), reduction="sum")


class Trainer:
    def __init__(self, options):
        self.options = options
        torch.manual_seed(options.seed)
        torch.set_num_threads(options.threads)
        torch.set_default_dtype(torch.float64 if options.precision == "fp64" else torch.float32)
        self.model = Model(options).to(options.device)
        self.masters = None
        parameters = list(self.model.parameters())
        if options.precision == "bf16":
            self.masters = parameters = [p.detach().clone().requires_grad_() for p in parameters]
            self.model.bfloat16()
        matrices = [p for p in parameters if p.dim() >= 2]
        vectors = [p for p in parameters if p.dim() < 2]
        groups = [
            {"params": matrices, "weight_decay": options.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        settings = {"lr": options.lr, "betas": (0.9, 0.95), "eps": 1e-8}
        try:
            self.optimizer, self.fused = torch.optim.AdamW(groups, fused=True, **settings), True
        except (RuntimeError, TypeError):
            self.optimizer, self.fused = torch.optim.AdamW(groups, foreach=True, **settings), False
        self.forward = torch.compile(self.model) if options.compile else self.model
        self.layer_products = []
        self.generator = torch.Generator().manual_seed(options.seed)

    def draw(self):
        shape = (self.options.batch, self.options.sequence + 1)
        return torch.randint(self.options.vocabulary, shape, generator=self.generator).to(self.options.device)

    def enqueue(self, tokens):
        """One training step; returns the loss, which a GPU may still be computing."""
        options = self.options
        for first in range(0, options.batch, options.microbatch):
            part = tokens[first : first + options.microbatch]
            with torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "autocast"):
                loss = self.forward(part[:, :-1], part[:, 1:]) / (options.batch * options.sequence)
            loss.backward()
        parameters = list(self.model.parameters())
        if self.masters:
            for master, parameter in zip(self.masters, parameters):
                master.grad = torch.empty_like(master)
            torch._foreach_copy_([m.grad for m in self.masters], [p.grad for p in parameters])
        if options.clip > 0:
            torch.nn.utils.clip_grad_norm_(self.masters or parameters, options.clip)
        self.optimizer.step()
        if self.masters:
            with torch.no_grad():
                torch._foreach_copy_(parameters, self.masters)
        self.optimizer.zero_grad(set_to_none=True)
        self.model.zero_grad(set_to_none=True)
        return loss.detach()

    def steps(self, count):
        """Training steps on random tokens; returns their seconds, without those of drawing the tokens."""
        tokens = self.draw()
        self.wait()
        begin = time.perf_counter()
        for _ in range(count):
            loss = self.enqueue(tokens)
        self.loss = float(loss)
        self.wait()
        return time.perf_counter() - begin

    def step(self):
        return self.steps(1)

    def products(self):
        """Seconds of the matrix products of the layers' linear layers: forward, input gradient and weight gradient of each."""
        if not self.layer_products:
            tokens, device = self.options.batch * self.options.sequence, self.options.device
            dtype = torch.bfloat16 if self.options.precision in ("bf16", "autocast") else torch.get_default_dtype()
            for module in self.model.layers.modules():
                if isinstance(module, nn.Linear):
                    sizes = (tokens, module.in_features), (module.out_features, module.in_features), (tokens, module.out_features)
                    x, w, y = (torch.full(size, 0.25, dtype=dtype, device=device) for size in sizes)
                    self.layer_products.append((x, w, y, torch.empty_like(x), torch.empty_like(w)))
        self.wait()
        begin = time.perf_counter()
        for x, w, y, _, _ in self.layer_products:
            torch.mm(x, w.t(), out=y)
        for x, w, y, x_gradient, w_gradient in reversed(self.layer_products):
            torch.mm(y, w, out=x_gradient)
            torch.mm(y.t(), x, out=w_gradient)
        self.wait()
        return time.perf_counter() - begin

    def wait(self):
        if self.options.device == "cuda":
            torch.cuda.synchronize()

    def profile(self, count):
        """Seconds of every kernel of one step, by name; on the CPU those of every operation."""
        activity = torch.profiler.ProfilerActivity
        on_gpu = self.options.device == "cuda"
        with torch.profiler.profile(activities=[activity.CPU, activity.CUDA] if on_gpu else [activity.CPU]) as trace:
            self.steps(count)
        seconds = {}
        for event in trace.events():
            if getattr(event, "is_user_annotation", False):
                continue  # a range around kernels that are listed themselves
            if on_gpu == (event.device_type == torch.autograd.DeviceType.CUDA):
                spent = event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
                seconds[event.name] = seconds.get(event.name, 0.0) + 1e-6 * spent / count
        return seconds


def main():
    trainer = Trainer(OPTIONS)
    for _ in range(OPTIONS.warmup_steps):
        trainer.step()
    parameters = sum(p.numel() for p in trainer.model.parameters())
    print(
        f"ready torch {torch.__version__} threads {torch.get_num_threads()} parameters {parameters} "
        f"fused_adamw {int(trainer.fused)} compiled {int(OPTIONS.compile)} precision {OPTIONS.precision}",
        flush=True,
    )
    if OPTIONS.steps > 0:
        seconds = sorted(trainer.step() for _ in range(OPTIONS.steps))
        median = seconds[len(seconds) // 2]
        print(f"median {median:.6f} s, {OPTIONS.batch * OPTIONS.sequence / median:.0f} tokens/s, loss {trainer.loss:.4f}")
        return 0
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        if command == "quit":
            break
        if command in ("step", "steps"):
            print(f"{trainer.steps(int(count or 1)):.9f}", flush=True)
        elif command == "products":
            print(f"{trainer.products():.9f}", flush=True)
        elif command == "profile":
            for name, seconds in trainer.profile(int(count or 1)).items():
                print(f"{seconds:.9f} {' '.join(name.split())}")
            print("end", flush=True)
        elif command:
            print(f"error: unknown command '{command}' (write step, steps N, products, profile N or quit)", flush=True)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
