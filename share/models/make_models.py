#!/usr/bin/python3
"""Makes the ONNX models in this folder: make_models.py [FOLDER]

They are exported in training mode (BatchNormalization updates its statistics) with a dynamic batch, seed 1,
by the torch of Debian 12 (python3-torch, python3-onnx). The files are shipped; this is how they were made.
"""
import os
import sys

import onnx
import torch
from torch import nn


def lenet5():
    """LeCun et al., Proc. IEEE 86(11), 1998, with ReLU and max pooling, for 1x28x28."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


class Block(nn.Module):
    """Basic residual block, He et al., CVPR 2016; a 1x1 convolution where the shape changes."""

    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.down = None
        if stride != 1 or n_in != n_out:
            self.down = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (self.down(x) if self.down else x))


class ResNet8(nn.Module):
    """Three stages of one block each (16, 32, 64 channels) for 1x28x28; the stem halves the image."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.stage1, self.stage2, self.stage3 = Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        return self.fc(torch.flatten(self.pool(self.stage3(self.stage2(self.stage1(x)))), 1))


def digits_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def digits_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10))


def export(folder, name, make, shape):
    torch.manual_seed(1)
    path = os.path.join(folder, name + ".onnx")
    torch.onnx.export(
        make().train(), torch.zeros(2, *shape), path, opset_version=17, do_constant_folding=False,
        training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["y"],
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    model = onnx.load(path)
    for node in model.graph.node:
        node.ClearField("doc_string")
    onnx.checker.check_model(model)
    onnx.save(model, path)
    n = sum(torch.Size(t.dims).numel() for t in model.graph.initializer)
    print(f"{name}: {len(model.graph.node)} vertices, {n} numbers, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    export(out, "lenet5", lenet5, (1, 28, 28))
    export(out, "resnet8", ResNet8, (1, 28, 28))
    export(out, "digits_mlp", digits_mlp, (1, 8, 8))
    export(out, "digits_cnn", digits_cnn, (1, 8, 8))
