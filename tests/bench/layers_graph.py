#!/usr/bin/env python3
"""Writes a document with the training graph of N layers in blocks of four with a skip connection each (forward, backward and update
of each: 3 N ops), for benchmarks of planning. usage: tests/bench/layers_graph.py N > DOCUMENT"""
import json, random, sys
n = int(sys.argv[1])
random.seed(1)
ops, tensors = [], []
def tensor(name, kind, size, batch, **more):
    shape = ["N", size] if batch else [size]
    tensors.append({"id": len(tensors), "name": name, "kind": kind, "dtype": "f32", "shape": shape, **more})
    return len(tensors) - 1
def op(name, phase, ins, outs, flop, **more):
    ops.append({"id": len(ops), "name": name, "type": "Layer" if phase != "update" else "Update", "domain": "bench",
                "phase": phase, "inputs": ins, "outputs": outs, "flop": flop, "bytes": flop / 8, **more})
    return len(ops) - 1
x, seed = tensor("x", "input", 256, True), tensor("seed", "seed", 1, False)
act, weight, skip = [x], [], []
for i in range(n):
    weight.append(tensor(f"w{i}", "weight", random.randint(1000, 100000), False))
    ins = [act[i], weight[i]] + ([act[i - 4]] if i >= 4 and i % 4 == 0 else [])
    skip.append(ins[2] if len(ins) > 2 else -1)
    act.append(tensor(f"a{i}" if i < n - 1 else "loss", "activation", random.randint(64, 1024) if i < n - 1 else 1, i < n - 1))
    op(f"f{i}", "forward", ins, [act[-1]], random.randint(10**6, 10**8))
grad, dw = {act[n]: seed}, {}
for i in reversed(range(n)):
    outs = []
    for t in [act[i], skip[i]]:
        if t > 0 and t not in grad:
            grad[t] = tensor(f"d{t}", "gradient", tensors[t]["shape"][1], True, of=t)
            outs.append(grad[t])
    dw[i] = tensor(f"dw{i}", "weight-gradient", tensors[weight[i]]["shape"][0], False, of=weight[i])
    op(f"b{i}", "backward", [grad[act[i + 1]], act[i], weight[i]], outs + [dw[i]], 2 * ops[i]["flop"], of=i)
for i in range(n):
    tensors[weight[i]]["home"] = op(f"u{i}", "update", [weight[i], dw[i]], [], 2 * tensors[weight[i]]["shape"][0], of=i, colocate=i)
json.dump({"dlb": "1.0", "graph": {"batch": 64, "dtype": "f32", "training": True, "opset": 17, "inputs": [x], "outputs": [],
           "loss": act[n], "label": None, "seed": seed, "ops": ops, "tensors": tensors}}, sys.stdout)
