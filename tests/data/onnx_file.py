"""ONNX files for tests, message by message: field numbers are those of onnx.proto. Each function gives the bytes of one field
of the message around it; model() gives the file."""
import struct


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def num(field, n):
    return varint(field << 3) + varint(n)


def sub(field, data):
    if isinstance(data, str):
        data = data.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def node(op, inputs, outputs, name="", attributes=b"", domain=""):
    return sub(1, b"".join(sub(1, i) for i in inputs) + b"".join(sub(2, o) for o in outputs) + sub(3, name or op) +
               sub(4, op) + attributes + (sub(7, domain) if domain else b""))


def value(field, name, dims, dtype=1):
    shape = b"".join(sub(1, num(1, d) if isinstance(d, int) else sub(2, d)) for d in dims)
    return sub(field, sub(1, name) + sub(2, sub(1, num(1, dtype) + sub(2, shape))))


def tensor(name, dims, raw, dtype=1, extra=b""):
    return sub(5, b"".join(num(1, d) for d in dims) + num(2, dtype) + sub(8, name) + (sub(9, raw) if raw is not None else b"") + extra)


def model(graph, opset=17, ir=8):
    return num(1, ir) + sub(7, sub(2, "g") + graph) + sub(8, num(2, opset))


def attribute_int(name, n):
    return sub(5, sub(1, name) + num(3, n) + num(20, 2))


def attribute_ints(name, values):
    return sub(5, sub(1, name) + b"".join(num(8, v) for v in values) + num(20, 7))


def whole(name, n, dtype=7):
    return tensor(name, [], struct.pack("<q", n) if dtype == 7 else bytes([n]), dtype=dtype)


def graph_attribute(name, graph):
    return sub(5, sub(1, name) + sub(6, graph) + num(20, 5))
