#!/usr/bin/env python3
"""Writes a GPT of any size as an ONNX graph without values (FILE.data, where its weights would be, is a hole): token and position embeddings, blocks of
layer norm, causal self-attention, layer norm and a hidden layer of four times the width with Gelu, a last layer norm, and the
product with the token embedding (tied). As GPT-2 (Radford et al., 2019). To plan for it; dlb-run --init trains it from fresh
weights:

    tests/bench/gpt_graph.py --layers 24 --width 2048 --heads 16 --vocabulary 50257 --sequence 1024 gpt-1.3b.onnx
    dlb-profile --analytic --batch 8 --loss next-token gpt-1.3b.onnx | ...

usage: gpt_graph.py [--layers N] [--width N] [--heads N] [--vocabulary N] [--sequence N] FILE"""
import argparse
import math
import os
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
from onnx_file import attribute_int, attribute_ints, model, node, num, sub, tensor, value  # noqa: E402

FLOAT, INT64 = 1, 7


def integers(name, values):
    return tensor(name, [len(values)], struct.pack("<%dq" % len(values), *values), INT64)


class Graph:
    def __init__(self, data):
        self.nodes, self.tensors, self.n = [], [], 0
        self.data, self.bytes = data, 0         # the name and length of the file beside the graph, a hole

    def op(self, kind, inputs, name, attributes=b""):
        self.n += 1
        out = "%s_%d" % (name, self.n)
        self.nodes.append(node(kind, inputs, [out], name, attributes))
        return out

    def weight(self, name, *dims):
        length = 4 * math.prod(dims)
        entries = (("location", self.data), ("offset", str(self.bytes)), ("length", str(length)))
        self.tensors.append(tensor(name, dims, None, extra=b"".join(sub(13, sub(1, k) + sub(2, v)) for k, v in entries) + num(14, 1)))
        self.bytes += length
        return name

    def dense(self, x, name, n_in, n_out):
        y = self.op("MatMul", [x, self.weight(name + ".weight", n_in, n_out)], name + "/MatMul")
        return self.op("Add", [y, self.weight(name + ".bias", n_out)], name + "/Add")

    def norm(self, x, name, width):
        return self.op("LayerNormalization", [x, self.weight(name + ".weight", width), self.weight(name + ".bias", width)],
                       name, attribute_int("axis", -1))

    def attention(self, x, name, width, heads):
        def part(which):
            y = self.dense(x, "%s.%s" % (name, which), width, width)
            y = self.op("Reshape", [y, "split_heads"], "%s/%s/Reshape" % (name, which))
            order = [0, 2, 3, 1] if which == "key" else [0, 2, 1, 3]
            return self.op("Transpose", [y], "%s/%s/Transpose" % (name, which), attribute_ints("perm", order))
        scores = self.op("MatMul", [part("query"), part("key")], name + "/scores")
        scores = self.op("Mul", [scores, "scale"], name + "/scale")
        scores = self.op("Add", [scores, "mask"], name + "/mask")
        y = self.op("MatMul", [self.op("Softmax", [scores], name + "/Softmax", attribute_int("axis", -1)), part("value")],
                    name + "/values")
        y = self.op("Transpose", [y], name + "/Transpose", attribute_ints("perm", [0, 2, 1, 3]))
        return self.dense(self.op("Reshape", [y, "join_heads"], name + "/Reshape"), name + ".out", width, width)


def gpt(data, layers, width, heads, vocabulary, sequence):
    """the file, and the bytes of its weights"""
    g = Graph(data)
    g.tensors += [integers("split_heads", [0, sequence, heads, width // heads]), integers("join_heads", [0, sequence, width]),
                  tensor("scale", [], struct.pack("<f", (width // heads) ** -0.5)),
                  tensor("mask", [sequence, sequence],
                         b"".join(bytes(4 * (i + 1)) + struct.pack("<f", -1e9) * (sequence - i - 1) for i in range(sequence)))]
    x = g.op("Gather", [g.weight("wte.weight", vocabulary, width), "tokens"], "wte/Gather")
    x = g.op("Add", [x, g.weight("wpe.weight", sequence, width)], "wpe/Add")
    for i in range(layers):
        name = "h.%d" % i
        x = g.op("Add", [x, g.attention(g.norm(x, name + ".ln_1", width), name + ".attn", width, heads)], name + "/Add_1")
        y = g.dense(g.norm(x, name + ".ln_2", width), name + ".mlp.up", width, 4 * width)
        y = g.op("Gelu", [y], name + "/Gelu")
        x = g.op("Add", [x, g.dense(y, name + ".mlp.down", 4 * width, width)], name + "/Add_2")
    x = g.norm(x, "ln_f", width)
    head = g.op("Transpose", ["wte.weight"], "head/Transpose", attribute_ints("perm", [1, 0]))
    g.nodes.append(node("MatMul", [x, head], ["logits"], "head/MatMul"))
    file = model(b"".join(g.nodes + g.tensors) + value(11, "tokens", ["batch", sequence], INT64) +
                 value(12, "logits", ["batch", sequence, vocabulary]), opset=20)
    return file, g.bytes


def main():
    parser = argparse.ArgumentParser(description="write a GPT without values as ONNX")
    for name, default in (("layers", 12), ("width", 768), ("heads", 12), ("vocabulary", 50257), ("sequence", 1024)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("file")
    a = parser.parse_args()
    if min(a.layers, a.width, a.heads, a.vocabulary, a.sequence) < 1 or a.width % a.heads:
        parser.error("sizes are at least 1, and heads divide the width")
    file, n_bytes = gpt(os.path.basename(a.file) + ".data", a.layers, a.width, a.heads, a.vocabulary, a.sequence)
    with open(a.file, "wb") as f:
        f.write(file)
    with open(a.file + ".data", "wb") as f:
        f.truncate(n_bytes)                     # takes no room on the disk


if __name__ == "__main__":
    main()
