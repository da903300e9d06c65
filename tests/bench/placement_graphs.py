#!/usr/bin/env python3
"""Writes placement problems in the published benchmark's format (dnn-partitioning) with the graphs of known networks
and times and sizes drawn from a seed, for networks without a file.

usage: tests/bench/placement_graphs.py inception|inception_v3|nasnet [--seed N] [--accelerators K] [--memory SHARE]

inception: Inception-v3 as torchvision builds it, layer by layer: 326 layers, four parallel branches per module, tens of
           thousands of ideals. inception_v3: the same layers with the sizes that their shapes give for a batch of 128
           images of 299 x 299, f32, and times near those that FLOP and bytes give (8 TFLOP/s, 400 GB/s); tensors travel
           at 2 GiB/s, so a cut early in the network costs more than computing. nasnet: NASNet-A large, over a thousand
           layers, each cell reading the two before it: millions of ideals. --memory: memory of each accelerator, as a
           share of the memory that all layers need (default 0.5).
"""
import argparse, json, random, sys


class Net:
    def __init__(self, seed):
        self.rng, self.nodes, self.edges, self.size = random.Random(seed), [], [], 1.0

    def op(self, name, *inputs, work=0.0):
        """work: times the work of a pointwise layer of this size."""
        t = self.size * self.rng.uniform(0.5, 1.5) * (0.02 + work)
        out = 0.1 * self.size * self.rng.uniform(0.8, 1.2)
        self.nodes.append({'id': len(self.nodes), 'supportedOnFpga': 1, 'cpuLatency': 10 * t, 'fpgaLatency': t,
                           'isBackwardNode': 0, 'size': 1e6 * (out * 10 + work * self.rng.uniform(0.5, 2)), 'name': name})
        self.nodes[-1]['out'] = out
        self.edges += [(u, len(self.nodes) - 1) for u in inputs]
        return len(self.nodes) - 1

    def conv(self, x, work=1.0):
        for name in ('conv', 'norm', 'relu'):
            x = self.op(name, x, work=work if name == 'conv' else 0)
        return x

    def convs(self, x, n, work=1.0):
        for _ in range(n):
            x = self.conv(x, work)
        return x

    def separable(self, x):
        for _ in range(2):
            for name in ('relu', 'depthwise', 'pointwise', 'norm'):
                x = self.op(name, x, work={'depthwise': 0.3, 'pointwise': 0.6}.get(name, 0))
        return x


def inception(n):
    x = n.convs(n.op('input'), 3)
    x = n.convs(n.op('pool', x), 2)
    x = n.op('pool', x)
    for _ in range(3):                                          # A
        x = n.op('cat', n.conv(x), n.convs(x, 2), n.convs(x, 3), n.conv(n.op('pool', x)))
    n.size = 0.8
    x = n.op('cat', n.conv(x), n.convs(x, 3), n.op('pool', x))  # B
    for _ in range(4):                                          # C
        x = n.op('cat', n.conv(x), n.convs(x, 3), n.convs(x, 5), n.conv(n.op('pool', x)))
    n.size = 0.6
    x = n.op('cat', n.convs(x, 2), n.convs(x, 4), n.op('pool', x))
    for _ in range(2):                                          # E: two branches part again
        a, b = n.conv(x), n.convs(x, 2)
        x = n.op('cat', n.conv(x), n.op('cat', n.conv(a), n.conv(a)), n.op('cat', n.conv(b), n.conv(b)), n.conv(n.op('pool', x)))
    for name in ('pool', 'dropout', 'flatten', 'dense'):
        x = n.op(name, x)


class Shaped(Net):
    """Layers by their shapes: channels and width of each layer's output."""
    batch, shape = 128, {}

    def layer(self, name, inputs, channels, width, flop=0, weights=0):
        out = 4 * self.batch * channels * width ** 2
        ms = (flop * self.batch / 8e12 + 3 * out / 4e11) * 1e3 * self.rng.uniform(0.8, 1.25) + 0.05
        self.nodes.append({'id': len(self.nodes), 'supportedOnFpga': 1, 'cpuLatency': 10 * ms, 'fpgaLatency': ms,
                           'isBackwardNode': 0, 'size': out + 4 * weights, 'name': name, 'out': out * 1e3 / 2 ** 31})
        self.edges += [(u, len(self.nodes) - 1) for u in inputs]
        self.shape[len(self.nodes) - 1] = channels, width
        return len(self.nodes) - 1

    def conv(self, x, channels, taps, stride=1, pad=True):
        """taps: of one kernel, 9 for 3 x 3."""
        before, width = self.shape[x]
        width = width // stride if pad else (width - round(taps ** 0.5)) // stride + 1
        x = self.layer('conv', [x], channels, width, 2 * before * channels * taps * width ** 2, before * channels * taps)
        return self.layer('relu', [self.layer('norm', [x], channels, width)], channels, width)

    def convs(self, x, *channels_and_taps):
        for channels, taps in channels_and_taps:
            x = self.conv(x, channels, taps)
        return x

    def pool(self, x, stride=1):
        channels, width = self.shape[x]
        return self.layer('pool', [x], channels, width if stride == 1 else (width - 3) // 2 + 1)

    def cat(self, *xs):
        return self.layer('cat', xs, sum(self.shape[x][0] for x in xs), self.shape[xs[0]][1])


def inception_v3(n):
    x = n.layer('input', [], 3, 299)
    x = n.conv(n.conv(n.conv(x, 32, 9, 2, False), 32, 9, 1, False), 64, 9)
    x = n.pool(n.conv(n.conv(n.pool(x, 2), 80, 1), 192, 9, 1, False), 2)
    for last in (32, 64, 64):
        x = n.cat(n.conv(x, 64, 1), n.convs(x, (48, 1), (64, 25)), n.convs(x, (64, 1), (96, 9), (96, 9)),
                  n.conv(n.pool(x), last, 1))
    x = n.cat(n.conv(x, 384, 9, 2, False), n.conv(n.convs(x, (64, 1), (96, 9)), 96, 9, 2, False), n.pool(x, 2))
    for c in (128, 160, 160, 192):
        x = n.cat(n.conv(x, 192, 1), n.convs(x, (c, 1), (c, 7), (192, 7)),
                  n.convs(x, (c, 1), (c, 7), (c, 7), (c, 7), (192, 7)), n.conv(n.pool(x), 192, 1))
    x = n.cat(n.conv(n.conv(x, 192, 1), 320, 9, 2, False), n.conv(n.convs(x, (192, 1), (192, 7), (192, 7)), 192, 9, 2, False),
              n.pool(x, 2))
    for _ in range(2):
        a, b = n.conv(x, 384, 1), n.convs(x, (448, 1), (384, 9))
        x = n.cat(n.conv(x, 320, 1), n.cat(n.conv(a, 384, 3), n.conv(a, 384, 3)), n.cat(n.conv(b, 384, 3), n.conv(b, 384, 3)),
                  n.conv(n.pool(x), 192, 1))
    for name, channels in (('pool', 2048), ('dropout', 2048), ('dense', 1000)):
        x = n.layer(name, [x], channels, 1)


def cell(n, before, x, reduce):
    left, right = (n.op('norm', n.op('conv', n.op('relu', v), work=0.5)) for v in (before, x))
    sums = [n.op('add', n.separable(right), n.separable(left)),
            n.op('add', n.separable(left), n.op('pool', right) if reduce else n.separable(left)),
            n.op('add', n.op('pool', right), left),
            n.op('add', n.op('pool', left), n.op('pool', left)),
            n.op('add', n.separable(right), right)]
    return n.op('cat', left, *sums)


def nasnet(n):
    x = before = n.op('norm', n.op('conv', n.op('input'), work=1))
    for _ in range(2):
        before, x = x, cell(n, before, x, True)
    for size in (1.0, 0.8, 0.6):
        n.size = size
        for i in range(7 if size < 1 else 6):
            before, x = x, cell(n, before, x, size < 1 and i == 0)
    for name in ('relu', 'pool', 'dense'):
        x = n.op(name, x)


arg = argparse.ArgumentParser()
arg.add_argument('network', choices=['inception', 'inception_v3', 'nasnet'])
arg.add_argument('--seed', type=int, default=1)
arg.add_argument('--accelerators', type=int, default=6)
arg.add_argument('--memory', type=float, default=0.5)
a = arg.parse_args()
net = (Shaped if a.network == 'inception_v3' else Net)(a.seed)
globals()[a.network](net)
total = sum(v['size'] for v in net.nodes)
out = [v.pop('out') for v in net.nodes]
json.dump({'maxFPGAs': a.accelerators, 'maxCPUs': 1, 'maxSizePerFPGA': a.memory * total, 'nodes': net.nodes,
           'edges': [{'sourceId': u, 'destId': v, 'cost': out[u]} for u, v in net.edges]}, sys.stdout)
