#!/usr/bin/python3
"""The peer of tests/bench/step: PyTorch on the same models, batches and optimizers. Runs with 1.13 and 2.x.

    step_peer.py MODEL --steps N [OPTION...]   prints: seconds per step (median), start-up seconds, peak bytes
    step_peer.py MODEL --export FILE.onnx      writes the network, in training mode, for dlb (gpt6: --length N positions)
        --form legacy                          by TorchScript, opset 17, nothing folded, any batch
        --form default                         torch.onnx.export(net, x, FILE) without options (PyTorch 2.9 on)
        --form dynamic                         the same with dynamic_shapes for the batch
    step_peer.py MODEL --profile [OPTION...]   prints: the slowest operators by torch.profiler
    step_peer.py MODEL --facts                 prints: kind (cnn or other), batch, optimizer, parameters
    step_peer.py gemm                          prints: GFLOP/s of a float32 product; the version

    --threads N  --dtype f32|tf32|bf16 (autocast)  --layout plain|last (channels_last)  --rule plain|foreach|fused
    --batch N    instead of the model's own; f32: products and convolutions are of f32 on a GPU too
    --compile    torch.compile the network first (needs a C++ compiler)
    --recompute block|sqrt
                 torch.utils.checkpoint on each block of the network, or on sqrt(n) groups of its n blocks
    --device D   cpu (default) or cuda, whose steps are timed until the device is done, and whose bytes are the
                 allocator's
    --since T    start of this process, in seconds since the epoch: start-up is the time from T to the end of the
                 first step, minus a warm step

Samples stay in memory, so the peer's times do not include reading them."""
import argparse
import inspect
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

NEW = hasattr(F, "scaled_dot_product_attention")


# ---- images ----

def conv_norm(i, o, kernel, stride=1):
    return [nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o)]


class Residual(nn.Module):
    """out = relu(main(x) + short(x)); a bottleneck's last convolution is four times as wide."""
    def __init__(self, i, wide, stride, bottleneck):
        super().__init__()
        o = 4 * wide if bottleneck else wide
        if bottleneck:
            main = [*conv_norm(i, wide, 1), nn.ReLU(inplace=True), *conv_norm(wide, wide, 3, stride), nn.ReLU(inplace=True),
                    *conv_norm(wide, o, 1)]
        else:
            main = [*conv_norm(i, wide, 3, stride), nn.ReLU(inplace=True), *conv_norm(wide, o, 3)]
        self.main = nn.Sequential(*main)
        self.short = nn.Sequential(*conv_norm(i, o, 1, stride)) if stride != 1 or i != o else None

    def forward(self, x):
        return F.relu(self.main(x) + (self.short(x) if self.short else x), inplace=True)


def resnet(stem, widths, blocks, bottleneck, classes):
    layers, width = list(stem), stem[0].out_channels
    for stage, (wide, n) in enumerate(zip(widths, blocks)):
        for block in range(n):
            layers.append(Residual(width, wide, 2 if stage and not block else 1, bottleneck))
            width = 4 * wide if bottleneck else wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def resnet20():
    return resnet([*conv_norm(3, 16, 3), nn.ReLU(inplace=True)], (16, 32, 64), (3, 3, 3), False, 10)


def imagenet(blocks, bottleneck):
    stem = [*conv_norm(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return resnet(stem, (64, 128, 256, 512), blocks, bottleneck, 1000)


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


# ---- text ----

class Block(nn.Module):
    def __init__(self, width, heads, length, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.triu(torch.ones(length, length, dtype=torch.bool), 1).view(1, 1, length, length))

    def attend(self, q, k, v):
        if NEW and not torch.onnx.is_in_onnx_export():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        w = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))
        return F.softmax(w.masked_fill(self.mask, float("-inf")), dim=-1) @ v

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (t.view(n, length, self.heads, width // self.heads).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(width, 2))
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class GPT(nn.Module):
    """tied: the head is the embedding, as in GPT-2."""
    def __init__(self, layers, width, heads, length, vocabulary, gelu, tied):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, length, gelu) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        for weight in (self.tokens.weight, self.places.weight, self.head.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places.weight)))


def gpt6(length=256):
    return GPT(6, 384, 6, length, 65, "none", False)


class Bert(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, places):
        super().__init__()
        self.tok, self.pos, self.seg = nn.Embedding(vocabulary, width), nn.Embedding(places, width), nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.pool, self.classes = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, ids, seg):
        x = self.tok(ids) + self.pos.weight[:ids.shape[1]] + self.seg(seg)
        return self.classes(torch.tanh(self.pool(self.encoder(self.drop(self.norm(x)))[:, 0])))


class LSTM(nn.Module):
    def __init__(self, vocabulary, width, hidden):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(vocabulary, width), nn.LSTM(width, hidden, 2, batch_first=True)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


# ---- models of libraries, with their own names and random weights ----

class Scores(nn.Module):
    """A causal language model of transformers that returns only its scores."""
    def __init__(self, model):
        super().__init__()
        self.m = model

    def forward(self, input_ids):
        return self.m(input_ids=input_ids, use_cache=False).logits


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return Scores(LlamaForCausalLM(LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=128)))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return Scores(GPT2LMHeadModel(GPT2Config(
        vocab_size=1000, n_embd=256, n_layer=4, n_head=8, n_positions=128, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=0, eos_token_id=0)))


def vit():
    from torchvision.models import VisionTransformer
    return VisionTransformer(image_size=128, patch_size=16, num_layers=4, num_heads=8, hidden_dim=256, mlp_dim=1024,
                             num_classes=100)


def convnext():
    from torchvision.models import convnext_tiny
    return convnext_tiny(num_classes=100, stochastic_depth_prob=0.0)


def images(shape, classes):
    return lambda n: ([torch.randn(n, *shape)], torch.randint(classes, (n,)))


def text(length, vocabulary):
    return lambda n: ([torch.randint(vocabulary, (n, length))], torch.randint(vocabulary, (n, length)))


def pairs(length, vocabulary):
    return lambda n: ([torch.randint(vocabulary, (n, length)), torch.randint(2, (n, length))], torch.randint(2, (n,)))


# name: kind, network, optimizer, batch, samples
MODELS = {
    "mlp": ("other", mlp, "adam", 128, images((1, 28, 28), 10)),
    "lenet5": ("cnn", lenet5, "sgd", 64, images((1, 28, 28), 10)),
    "resnet20": ("cnn", resnet20, "sgd", 32, images((3, 32, 32), 10)),
    "resnet18": ("cnn", lambda: imagenet((2, 2, 2, 2), False), "sgd", 8, images((3, 224, 224), 1000)),
    "resnet50": ("cnn", lambda: imagenet((3, 4, 6, 3), True), "sgd", 8, images((3, 224, 224), 1000)),
    "gpt_2l": ("other", lambda: GPT(2, 128, 4, 64, 65, "tanh", True), "adam", 8, text(64, 65)),
    "gpt6": ("other", gpt6, "adam", 8, text(256, 65)),
    "gpt124m": ("other", lambda: GPT(12, 768, 12, 1024, 50257, "tanh", True), "adam", 8, text(1024, 50257)),
    "bert_4l": ("other", lambda: Bert(4, 128, 4, 1000, 64), "adam", 16, pairs(32, 1000)),
    "lstm_lm": ("other", lambda: LSTM(65, 64, 128), "adam", 16, text(32, 65)),
    "llama": ("other", llama, "adam", 8, text(128, 1000)),
    "gpt2": ("other", gpt2, "adam", 8, text(128, 1000)),
    "vit": ("other", vit, "adam", 8, images((3, 128, 128), 100)),
    "convnext": ("cnn", convnext, "adam", 4, images((3, 128, 128), 100)),
}


def export(net, x, path, form):
    names = ["x", "segment"][:len(x)]
    if form == "default":
        return torch.onnx.export(net, tuple(x), path)
    if form == "dynamic":
        return torch.onnx.export(net, tuple(x), path, dynamic_shapes=[{0: torch.export.Dim("N")} for _ in x])
    by_script = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    torch.onnx.export(net, tuple(x), path, opset_version=17, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, input_names=names, output_names=["scores"],
                      dynamic_axes={name: {0: "N"} for name in (*names, "scores")}, **by_script)


def optimizer(kind, rule, parameters):
    how = {} if rule == "plain" else {rule: True}
    return torch.optim.Adam(parameters, 1e-3, **how) if kind == "adam" else torch.optim.SGD(parameters, 0.01, **how)


def gemm():
    a, b, times = torch.randn(512, 1024), torch.randn(1024, 1024), []
    for _ in range(13):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    print("%.1f %s" % (2e-9 * 512 * 1024 * 1024 / sorted(times[3:])[5], torch.__version__))


class Again(nn.Module):
    """Blocks whose activations are dropped and computed again."""
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        return checkpoint(self.blocks, x, use_reentrant=False)


def recompute(net, by):
    """Wraps the longest list of blocks: modules in a row that are of one class, or of the network's own."""
    rows = [m for m in net.modules() if isinstance(m, (nn.Sequential, nn.ModuleList))]
    is_block = lambda m: not isinstance(m, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.Linear, nn.GELU,
                                            nn.AdaptiveAvgPool2d, nn.Flatten, nn.Dropout))
    row = max(rows, key=lambda m: sum(map(is_block, m.children())))
    n = sum(map(is_block, row.children()))
    size = 1 if by == "block" else math.ceil(n / round(math.sqrt(n)))
    first = next(i for i, m in enumerate(row.children()) if is_block(m))
    blocks = list(row.children())[first:first + n]
    groups = [Again(blocks[i:i + size]) for i in range(0, n, size)]
    for name, m in zip(list(row._modules)[first:first + n], groups + [nn.Identity()] * (n - len(groups))):
        row._modules[name] = m
    return net


def peak_bytes():
    with open("/proc/self/status") as f:
        return 1024 * next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def check_blas():
    """Debian's PyTorch uses the library that the alternative libblas.so.3 names: other than OpenBLAS it is much slower."""
    if "BLAS_INFO=generic" in torch.__config__.show():
        blas = os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3")
        if "openblas" not in blas:
            sys.exit("libblas.so.3 is %s; install libopenblas0-pthread, or the comparison is worth nothing" % blas)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=[*MODELS, "gemm"])
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--export")
    p.add_argument("--form", choices=["legacy", "default", "dynamic"], default="legacy")
    p.add_argument("--length", type=int)
    p.add_argument("--profile", action="store_true")
    p.add_argument("--facts", action="store_true")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--dtype", choices=["f32", "tf32", "bf16"], default="f32")
    p.add_argument("--batch", type=int)
    p.add_argument("--layout", choices=["plain", "last"], default="plain")
    p.add_argument("--rule", choices=["plain", "foreach", "fused"], default="plain")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--recompute", choices=["block", "sqrt"])
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--since", type=float)
    a = p.parse_args()
    check_blas()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.dtype != "f32"
    if a.model == "gemm":
        return gemm()
    kind, make, rule, batch, draw = MODELS[a.model]
    batch = a.batch or batch
    net, (x, y) = make().train(), draw(batch)
    if a.facts:
        return print(kind, batch, rule, sum(w.numel() for w in net.parameters()))
    if a.export and a.length:
        net, (x, y) = gpt6(a.length).train(), text(a.length, 65)(batch)
    if a.export:
        return export(net, x, a.export, a.form)
    if a.layout == "last":
        net = net.to(memory_format=torch.channels_last)
        x = [t.contiguous(memory_format=torch.channels_last) for t in x]
    net, x, y = net.to(a.device), [t.to(a.device) for t in x], y.to(a.device)
    wait = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    update = optimizer(rule, a.rule, net.parameters())
    if a.recompute:
        net = recompute(net, a.recompute)
    if a.compile:
        net = torch.compile(net)

    def step():
        update.zero_grad(set_to_none=True)
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            scores = net(*x)
        F.cross_entropy(scores.float().flatten(0, -2), y.flatten()).backward()
        update.step()

    step()
    wait()
    first, times = time.time(), []
    if a.profile:
        step()
        with torch.profiler.profile() as seen:
            for _ in range(a.steps):
                step()
            wait()
        on = "cpu" if a.device == "cpu" else "device"
        return print(seen.key_averages().table(sort_by="self_%s_time_total" % on, row_limit=12, max_name_column_width=90))
    for _ in range(a.steps + 2):
        start = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - start)
    times = sorted(times[2:])
    middle = times[len(times) // 2]
    most = torch.cuda.max_memory_allocated() if a.device == "cuda" else peak_bytes()
    print("%.6g %.4g %d" % (middle, first - a.since - middle if a.since else 0, most))


main()
