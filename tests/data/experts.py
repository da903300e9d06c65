"""Writes a mixture of three experts as ONNX, without a library: DIR/select.onnx selects the rows of each expert (NonZero,
GatherND, ScatterND, as PyTorch's exporter writes torch.where and index_add), DIR/all.onnx computes all rows for every expert
and weighs them by 0, DIR/softmax.onnx puts a Softmax over the selected rows into select.onnx.

usage: experts.py DIR"""
import random
import struct
import sys

FLOAT, INT64 = 1, 7


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """An integer, or bytes (text, a message) with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name, value):
    if isinstance(value, list):
        return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)
    return field(1, name) + (field(3, value) + field(20, 2) if isinstance(value, int) else field(4, value) + field(20, 3))


def node(kind, inputs, outputs, name="", **attributes):
    text = b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, kind)
    return text + b"".join(field(5, attribute(k, v)) for k, v in attributes.items())


def tensor(name, kind, shape, values):
    raw = struct.pack("<%d%s" % (len(values), "f" if kind == FLOAT else "q"), *values)
    return b"".join(field(1, d) for d in shape) + field(2, kind) + field(8, name) + field(9, raw)


def value(name, width):
    shape = field(1, field(2, "N")) + field(1, field(1, width))
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, shape)))


def drawn(name, *shape):
    return tensor(name, FLOAT, shape, [random.gauss(0, 0.5) for _ in range(shape[0] * shape[1])])


def expert(e, rows):
    return [node("MatMul", [rows, "up%s" % e], ["a%s" % e]), node("Tanh", ["a%s" % e], ["b%s" % e]),
            node("MatMul", ["b%s" % e, "down%s" % e], ["u%s" % e])]


def selected(e, mixed):
    """Adds the weighted rows of expert e to y<e>."""
    nodes = [node("NonZero", ["mask" + e], ["nz" + e], "where" + e), node("Transpose", ["nz" + e], ["at" + e], perm=[1, 0]),
             node("Slice", ["at" + e, "0", "1", "1"], ["row" + e]), node("GatherND", ["h", "row" + e], ["rows" + e])]
    nodes += expert(e, "rows" + e)
    if mixed:
        nodes += [node("Softmax", ["u" + e], ["mixed"], axis=0)]
    return nodes + [node("GatherND", ["best", "at" + e], ["w" + e]), node("Unsqueeze", ["w" + e, "1"], ["c" + e]),
                    node("Mul", ["mixed" if mixed else "u" + e, "c" + e], ["v" + e]),
                    node("ScatterND", ["y" + e, "row" + e, "v" + e], ["y%d" % (int(e) + 1)], reduction="add")]


def weighed(e):
    return expert(e, "h") + [node("Where", ["mask" + e, "best", "nought"], ["w" + e]),
                             node("ReduceSum", ["w" + e, "1"], ["c" + e], keepdims=1), node("Mul", ["u" + e, "c" + e], ["v" + e]),
                             node("Add", ["y" + e, "v" + e], ["y%d" % (int(e) + 1)])]


def write(path, select, mixed=False):
    random.seed(3)
    weights = [drawn("in", 6, 8), drawn("router", 8, 3), drawn("out", 8, 4)]
    weights += [drawn("up%d" % e, 8, 5) for e in range(3)] + [drawn("down%d" % e, 5, 8) for e in range(3)]
    weights += [tensor(str(n), INT64, [1], [n]) for n in range(3)] + [tensor("nought", FLOAT, [], [0])]
    nodes = [node("MatMul", ["x", "in"], ["i"]), node("Tanh", ["i"], ["h"]), node("MatMul", ["h", "router"], ["logits"]),
             node("Softmax", ["logits"], ["p"], axis=-1), node("TopK", ["p", "2"], ["best", "which"], axis=-1),
             node("Mul", ["h", "nought"], ["y0"])]
    for e in "012":
        nodes += [node("Equal", ["which", e], ["mask" + e])] + (selected(e, mixed and e == "0") if select else weighed(e))
    nodes += [node("Add", ["h", "y3"], ["z"]), node("MatMul", ["z", "out"], ["scores"])]
    graph = b"".join(field(1, n) for n in nodes) + field(2, "experts") + b"".join(field(5, w) for w in weights)
    graph += field(11, value("x", 6)) + field(12, value("scores", 4))
    open(path, "wb").write(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 16)))


write(sys.argv[1] + "/select.onnx", True)
write(sys.argv[1] + "/all.onnx", False)
write(sys.argv[1] + "/softmax.onnx", True, True)
