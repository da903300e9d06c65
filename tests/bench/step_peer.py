#!/usr/bin/python3
"""The peer of tests/bench/step: seconds per training step of PyTorch on one CPU thread.

    step_peer.py MODEL STEPS [--channels-last]    prints the median seconds per step, forward, backward, update
    step_peer.py MODEL --export FILE.onnx         writes the same network, as it trains, for dlb

MODEL is mlp (batch 128, Adam), lenet5 (64, SGD) or resnet20 (32, SGD). Samples stay in memory from step to
step, so the peer is spared reading them."""
import os
import sys
import time

import torch
import torch.nn as nn


class Basic(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o))
        self.short = None
        if stride != 1 or i != o:
            self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return torch.relu(self.main(x) + (self.short(x) if self.short else x))


def resnet20():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    width = 16
    for stage, wide in enumerate((16, 32, 64)):
        for block in range(3):
            layers.append(Basic(width, wide, 2 if stage and not block else 1))
            width = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


MODELS = {"mlp": (mlp, 128, (1, 28, 28), "adam"), "lenet5": (lenet5, 64, (1, 28, 28), "sgd"),
          "resnet20": (resnet20, 32, (3, 32, 32), "sgd")}


def export(net, x, path):
    torch.onnx.export(net, x, path, opset_version=17, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["x"], output_names=["scores"], dynamic_axes={"x": {0: "N"}, "scores": {0: "N"}})


def main():
    make, batch, shape, optimizer = MODELS[sys.argv[1]]
    # Without OpenBLAS the peer would be crippled, and the comparison worth nothing.
    blas = os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3")
    assert "openblas" in blas, blas
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = make().train()
    x, y = torch.randn(batch, *shape), torch.randint(10, (batch,))
    if "--export" in sys.argv:
        return export(net, x, sys.argv[sys.argv.index("--export") + 1])
    steps = int(sys.argv[2])
    if "--channels-last" in sys.argv:
        net = net.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    rule = torch.optim.Adam(net.parameters()) if optimizer == "adam" else torch.optim.SGD(net.parameters(), 0.01)
    loss, times = nn.CrossEntropyLoss(), []
    for _ in range(steps + 3):
        start = time.perf_counter()
        rule.zero_grad(set_to_none=True)
        loss(net(x), y).backward()
        rule.step()
        times.append(time.perf_counter() - start)
    times = sorted(times[3:])
    print(times[len(times) // 2])


main()
