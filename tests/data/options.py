"""The rows of tests/options: every option of every tool, with an input where it has something to do, and often one where it
has not. A command is bash's; {} stands for the option. It runs in a folder of its own; $D has the documents and models below,
$MODELS those of share/models, $ROOT the source."""
import os
import struct
import zlib

from onnx_file import attribute_int, attribute_ints, model, node, num, sub, tensor, value, whole

TOOLS = ["dlb-profile", "dlb-costmodel", "dlb-place", "dlb-run", "dlb-rebalance", "dlb-view", "dlb-convert"]


class Row:
    def __init__(self, tool, kind, args, command, see="", words="", without="", status=(0,)):
        self.tool, self.kind, self.args, self.command = tool, kind, args, command
        self.see, self.words, self.without, self.status = see, words, without, status
        self.option = args.split()[0].lstrip("-").split("=")[0]
        self.option = {"a": "algorithm", "m": "micro-batches"}.get(self.option, self.option)


ROWS = []


def shows(tool, args, command, see, **more):
    """The option changes what `see` names (tests/options, Run.see)."""
    ROWS.append(Row(tool, "shows", args, command, see=see, **more))


def unused(tool, args, command, words="", **more):
    """The option has nothing to do there, and one line says so."""
    ROWS.append(Row(tool, "unused", args, command, words=words, **more))


def refuses(tool, args, command, words="", **more):
    ROWS.append(Row(tool, "refuses", args, command, words=words, **more))


# Where the help lists no plain names: what there is to choose from. [] where commas part something else.
CHOICES = {
    ("dlb-profile", "loss"): ["cross-entropy", "next-token", "bce", "mse", "l1", "huber", "smooth-l1", "kl", "sum", "none"],
    ("dlb-profile", "batchnorm"): ["train", "frozen"],
    ("dlb-profile", "device"): [], ("dlb-profile", "weights"): [], ("dlb-profile", "quiet"): [],
    ("dlb-costmodel", "split"): ["auto", "output", "input", "batch", "head", "vocabulary"],
    ("dlb-costmodel", "quiet"): [], ("dlb-place", "quiet"): [], ("dlb-run", "quiet"): [], ("dlb-view", "quiet"): [],
    ("dlb-rebalance", "quiet"): [], ("dlb-convert", "quiet"): [],
    ("dlb-place", "chunks"): [], ("dlb-place", "seed"): [], ("dlb-place", "optimizer"): [], ("dlb-place", "clip-norm"): [],
    ("dlb-place", "in-place"): ["on", "off"], ("dlb-place", "recompute"): ["none", "auto"], ("dlb-place", "offload"): ["none", "auto"], ("dlb-place", "state-dtype"): ["f32", "bf16", "8bit"], ("dlb-place", "exclude"): [], ("dlb-place", "pin"): [],
    ("dlb-place", "affinity"): [], ("dlb-place", "from"): [], ("dlb-place", "sync-every"): [],
    ("dlb-place", "replicas"): ["auto"], ("dlb-place", "batch"): ["auto"], ("dlb-place", "param-server"): ["none"], ("dlb-place", "gossip"): [],
    ("dlb-place", "split"): ["even", "power"],
    ("dlb-run", "param-server"): ["none"], ("dlb-run", "gossip"): [], ("dlb-run", "sync-every"): [],
    ("dlb-run", "data"): ["idx", "npy", "images", "tokens", "text", "digits", "random"],
    ("dlb-run", "transform"): ["scale", "normalise", "resize", "random-crop", "flip"],
    ("dlb-run", "delay-discount"): ["on", "off"], ("dlb-run", "until"): [], ("dlb-run", "group"): [],
    ("dlb-run", "rounds"): ["auto"],
    ("dlb-view", "why"): [], ("dlb-rebalance", "rule"): ["log", "patent"],
    ("dlb-place", "reduce"): ["gradients:mean", "gradients:sum", "moments:mean", "moments:sum"],
    ("dlb-run", "reduce"): ["gradients:mean", "gradients:sum", "moments:mean", "moments:sum"],
    ("dlb-place", "zero"): ["0", "1", "2", "3", "auto"],
    ("dlb-place", "feed"): ["local", "host"], ("dlb-run", "feed"): ["local", "host"],
    ("dlb-place", "max-state"): ["merged", "local"], ("dlb-run", "max-state"): ["merged", "local"],
}
# Whose choices are what --list prints, lines that match.
BY_LIST = {("dlb-place", "algorithm"): ".", ("dlb-profile", "no-rewrite"): r"^(?!\S+ +back end:)",
           ("dlb-convert", "from"): r"^\S+ +from", ("dlb-convert", "to"): r"^\S+ +(from, )?to "}

# ---- models, each with one thing that a rewrite finds ----


def number(name, v):
    return tensor(name, [], struct.pack("<f", v))


def floats(name, dims):
    n = 1
    for d in dims:
        n *= d
    return tensor(name, dims, struct.pack("<%df" % n, *((i * 7 % 13 - 6) / 8 for i in range(n))))


def halves(name):
    """(3, 4), the second half of a row as the first."""
    return tensor(name, [3, 4], struct.pack("<12f", *((i * 7 % 13 - 6) / 8 for row in range(3) for i in 2 * [2 * row, 2 * row + 1])))


def ints(name, *v):
    return tensor(name, [len(v)], struct.pack("<%dq" % len(v), *v), dtype=7)


def axes(*v):
    return attribute_ints("axes", v)


def perm(*v):
    return attribute_ints("perm", v)


def small(parts, dims, out, extra=b""):
    """A model of x (batch, dims...): u is Sigmoid(x w0), `parts` make z of it, Tanh the output."""
    return model(node("MatMul", ["x", "w0"], ["u0"], "first") + node("Sigmoid", ["u0"], ["u"], "s0") + parts + node("Tanh", ["z"], ["y"], "last") +
                 floats("w0", [dims[-1], dims[-1]]) + extra +
                 value(11, "x", ["batch"] + dims) + value(12, "y", ["batch"] + out))


def rewritten():
    guard = tensor("mask", [4, 4], struct.pack("<16f", *(-float("inf") if i % 4 > i // 4 else 0 for i in range(16))))
    heads = [2, 192, 4]
    return {
        "constant-folding": small(node("Cast", ["c"], ["e"], attributes=attribute_int("to", 1)) + node("Mul", ["u", "e"], ["z"]), [4, 6], [4, 6], tensor("c", [4, 6], struct.pack("<24q", *range(24)), dtype=7)),
        "dead-vertices": small(node("Exp", ["u"], ["unread"]) + node("Sigmoid", ["u"], ["z"]), [4, 6], [4, 6]),
        "no-ops": small(node("Transpose", ["u"], ["z"], attributes=perm(0, 1, 2)), [4, 6], [4, 6]),
        "layer-norm": small(node("ReduceMean", ["u"], ["m"], attributes=axes(-1)) + node("Sub", ["u", "m"], ["d"]) +
                            node("Pow", ["d", "two"], ["s"]) + node("ReduceMean", ["s"], ["v"], "rm2", attributes=axes(-1)) +
                            node("Add", ["v", "eps"], ["a"]) + node("Sqrt", ["a"], ["r"]) + node("Div", ["d", "r"], ["n"]) +
                            node("Mul", ["n", "g"], ["sc"], "m2") + node("Add", ["sc", "b"], ["z"], "a2"), [4, 6], [4, 6],
                            number("two", 2) + number("eps", 1e-5) + floats("g", [6]) + floats("b", [6])),
        "rms-norm": small(node("Pow", ["u", "two"], ["s"]) + node("ReduceMean", ["s"], ["v"], attributes=axes(-1)) +
                          node("Add", ["v", "eps"], ["a"]) + node("Sqrt", ["a"], ["r"]) + node("Reciprocal", ["r"], ["i"]) +
                          node("Mul", ["u", "i"], ["n"], "m2") + node("Mul", ["g", "n"], ["z"], "m3"), [4, 6], [4, 6],
                          number("two", 2) + number("eps", 1e-5) + floats("g", [6])),
        "group-norm": small(node("Reshape", ["u", "in"], ["q"]) + node("InstanceNormalization", ["q", "ones", "zeros"], ["n"]) +
                            node("Reshape", ["n", "back"], ["p"], "r2") + node("Mul", ["p", "g"], ["sc"], "m2") +
                            node("Add", ["sc", "b"], ["z"]), [4, 6], [4, 6],
                            ints("in", 0, 2, -1) + ints("back", 0, 4, 6) + tensor("ones", [2], struct.pack("<2f", 1, 1)) +
                            tensor("zeros", [2], struct.pack("<2f", 0, 0)) + floats("g", [4, 1]) + floats("b", [4, 1])),
        "gelu": small(node("Div", ["u", "root"], ["d"]) + node("Erf", ["d"], ["e"]) + node("Add", ["e", "one"], ["a"]) +
                      node("Mul", ["u", "a"], ["m"], "m2") + node("Mul", ["m", "half"], ["z"], "m3"), [4, 6], [4, 6],
                      number("root", 2 ** .5) + number("one", 1) + number("half", .5)),
        "swish": small(node("Sigmoid", ["u"], ["s"]) + node("Mul", ["u", "s"], ["z"], "m2"), [4, 6], [4, 6]),
        "swiglu": small(node("Sigmoid", ["u"], ["s"]) + node("Mul", ["u", "s"], ["sw"], "m2") + node("Add", ["u", "b"], ["v"]) +
                        node("Mul", ["sw", "v"], ["z"], "m3"), [4, 6], [4, 6], floats("b", [6])),
        "softmax-guard": small(node("Tanh", ["u"], ["t"], "t0") + node("Transpose", ["t"], ["k"], attributes=perm(0, 2, 1)) +
                               node("MatMul", ["u", "k"], ["s"]) + node("Add", ["s", "mask"], ["sm"]) +
                               node("Softmax", ["sm"], ["p"], attributes=attribute_int("axis", -1)) + node("IsNaN", ["p"], ["nan"]) +
                               node("Where", ["nan", "zero", "p"], ["q"]) + node("MatMul", ["q", "x"], ["z"], "mm2"), [4, 6], [4, 6],
                               guard + number("zero", 0)),
        "cross-entropy": model(node("Gemm", ["x", "w", "b"], ["u"]) + node("LogSoftmax", ["u"], ["l"], attributes=attribute_int("axis", 1)) +
                               node("NegativeLogLikelihoodLoss", ["l", "t"], ["y"]) + floats("w", [4, 3]) + floats("b", [3]) +
                               value(11, "x", ["batch", 4]) + value(11, "t", ["batch"], 7) + value(12, "y", [])),
        "linear": small(node("MatMul", ["u", "m"], ["v"]) + node("Add", ["v", "b"], ["z"]), [6], [5], floats("m", [6, 5]) + floats("b", [5])),
        "transposes": small(node("Transpose", ["u"], ["t"], "t1", attributes=perm(0, 2, 1)) +
                            node("Transpose", ["t"], ["z"], "t2", attributes=perm(0, 2, 1)), [4, 6], [4, 6]),
        "unbind": small(node("Reshape", ["u", "to"], ["r"]) + node("Transpose", ["r"], ["t"], attributes=perm(2, 0, 1, 3)) +
                        node("Gather", ["t", "i0"], ["p"], "g0", attributes=attribute_int("axis", 0)) +
                        node("Gather", ["t", "i1"], ["q"], "g1", attributes=attribute_int("axis", 0)) +
                        node("Exp", ["q"], ["e"]) + node("Sigmoid", ["p"], ["s"]) + node("Mul", ["s", "e"], ["z"], "m2"), [4, 6], [4, 3],
                        ints("to", 0, 4, 2, 3) + whole("i0", 0) + whole("i1", 1)),
        "products": small(node("Tanh", ["u"], ["t"], "t0") + node("Transpose", ["t"], ["k"], attributes=perm(0, 2, 1)) +
                          node("MatMul", ["u", "k"], ["z"]), [4, 6], [4, 4]),
        "attention": small(node("Tanh", ["u"], ["t"], "t0") + node("Sigmoid", ["u"], ["v"]) +
                           node("Transpose", ["t"], ["k"], attributes=perm(0, 1, 3, 2)) + node("MatMul", ["u", "k"], ["s"]) +
                           node("Mul", ["s", "half"], ["h"], "m2") + node("Softmax", ["h"], ["p"], attributes=attribute_int("axis", -1)) +
                           node("MatMul", ["p", "v"], ["o"], "mm2") + node("Transpose", ["o"], ["z"], "t9", attributes=perm(0, 2, 1, 3)), heads, [192, 2, 4], number("half", .5)),
        "rotary": small(node("Slice", ["u", "from0", "to2", "last"], ["left"], "s1") + node("Slice", ["u", "from2", "to4", "last"], ["right"], "s2") +
                        node("Neg", ["right"], ["minus"]) + node("Concat", ["minus", "left"], ["turned"], attributes=attribute_int("axis", -1)) +
                        node("Mul", ["u", "cos"], ["a"], "m2") + node("Mul", ["turned", "sin"], ["b"], "m3") + node("Add", ["a", "b"], ["z"]),
                        [2, 3, 4], [2, 3, 4], ints("from0", 0) + ints("to2", 2) + ints("from2", 2) + ints("to4", 4) + ints("last", -1) +
                        halves("cos") + halves("sin")),
        "selected-rows": small(node("MatMul", ["u", "m"], ["v"]) + node("Gather", ["v", "i1"], ["z"], attributes=attribute_int("axis", 1)), [4, 6], [6],
                               floats("m", [6, 6]) + whole("i1", 1)),
        "norm-relu": "resnet8", "conv-relu": "digits_cnn", "add-relu": "resnet8",
        "winograd": model(node("Conv", ["x", "w"], ["u"], attributes=attribute_ints("pads", [1, 1, 1, 1])) + node("Relu", ["u"], ["r"]) +
                          node("Conv", ["r", "v"], ["y"], "c2", attributes=attribute_ints("pads", [1, 1, 1, 1])) +
                          floats("w", [64, 64, 3, 3]) + floats("v", [64, 64, 3, 3]) +
                          value(11, "x", ["batch", 64, 16, 16]) + value(12, "y", ["batch", 64, 16, 16])),
    }


def save(path, data):
    with open(path, "wb") as f:
        f.write(data)


def make_files(folder):
    make_data(folder)
    for name, m in rewritten().items():
        if not isinstance(m, str):
            save(f"{folder}/{name}.onnx", m)
    # Of a vector to a vector, for the losses that want one; with a dimension that has a name; with a table of embeddings; tied.
    save(f"{folder}/vector.onnx", model(node("Gemm", ["x", "w", "b"], ["y"]) + floats("w", [4, 3]) + floats("b", [3]) +
                                        value(11, "x", ["batch", 4]) + value(12, "y", ["batch", 3])))
    save(f"{folder}/named.onnx", model(node("MatMul", ["x", "w"], ["y"]) + floats("w", [4, 3]) +
                                       value(11, "x", ["batch", "length", 4]) + value(12, "y", ["batch", "length", 3])))
    save(f"{folder}/words.onnx", model(node("Gather", ["table", "x"], ["e"]) + node("MatMul", ["e", "w"], ["y"]) + floats("table", [11, 4]) +
                                       floats("w", [4, 11]) + value(11, "x", ["batch", 5], 7) + value(12, "y", ["batch", 5, 11])))
    head = [(i * 7 % 23 - 11) / 8 for i in range(44)]
    save(f"{folder}/tied.onnx", model(node("Gather", ["table", "x"], ["e"]) + node("MatMul", ["e", "onnx::MatMul_9"], ["y"]) +
                                      tensor("table", [11, 4], struct.pack("<44f", *head)) +
                                      tensor("onnx::MatMul_9", [4, 11], struct.pack("<44f", *(head[4 * j + i] for i in range(4) for j in range(11)))) +
                                      value(11, "x", ["batch", 5], 7) + value(12, "y", ["batch", 5, 11])))
    save(f"{folder}/graph.txt", b"node1 -- Input -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=8.0, parameter_size=0.0\n"
         b"node2 -- Linear(4, 4) -- forward_compute_time=3.0, backward_compute_time=5.0, activation_size=16.0, parameter_size=64.0\n"
         b"node3 -- ReLU() -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=16.0, parameter_size=0.0\n"
         b"\tnode1 -- node2\n\tnode2 -- node3\n")
    save(f"{folder}/net.json", b"""{"maxSizePerFPGA": 100, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
      {"id": 10, "name": "a", "supportedOnFpga": 1, "cpuLatency": 10, "fpgaLatency": 1, "isBackwardNode": 0, "size": 40},
      {"id": 20, "name": "b", "supportedOnFpga": 1, "cpuLatency": 20, "fpgaLatency": 2, "isBackwardNode": 0, "size": 40}],
      "edges": [{"sourceId": 10, "destId": 20, "cost": 0.25, "size": 8}]}""")

    def varint(v):
        out = b""
        while v > 127:
            out, v = out + bytes([v & 127 | 128]), v >> 7
        return out + bytes([v])
    messages = [sub(1, "0.0.4"), num(1, 5) + sub(2, "aten::mm") + num(3, 4) + num(7, 90), num(1, 6) + sub(2, "aten::relu") + num(3, 4) + sub(5, varint(5)) + num(7, 40)]
    save(f"{folder}/trace.et", b"".join(varint(len(m)) + m for m in messages))


def npy(path, descr, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    save(path, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def png(path, n, grey):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    save(path, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", n, n, 8, 0, 0, 0, 0)) +
         chunk(b"IDAT", zlib.compress(b"".join(b"\0" + grey[i * n:i * n + n] for i in range(n)))) + chunk(b"IEND", b""))


def make_data(folder):
    """64 images of 8 x 8 in the forms that dlb-run reads, tokens below 11, a text of 11 letters."""
    n, pixels = 64, bytes(i * i % 251 for i in range(64 * 64))
    labels = [i * 3 % 10 for i in range(n)]
    npy(f"{folder}/x.npy", "<f4", (n, 1, 8, 8), struct.pack("<%df" % len(pixels), *(p / 255 for p in pixels)))
    npy(f"{folder}/y.npy", "<i8", (n,), struct.pack("<%dq" % n, *labels))
    save(f"{folder}/x.idx", struct.pack(">IIII", 0x803, n, 8, 8) + pixels)
    save(f"{folder}/y.idx", struct.pack(">II", 0x801, n) + bytes(labels))
    for i, label in enumerate(labels):
        os.makedirs(f"{folder}/images/{label}", exist_ok=True)
        png(f"{folder}/images/{label}/{i}.png", 8, pixels[64 * i:64 * i + 64])
    save(f"{folder}/tokens.bin", struct.pack("<200H", *(i * i % 11 for i in range(200))))
    save(f"{folder}/text", bytes(b"abcdefghijk"[i * i % 11] for i in range(60)) + b"abcdefghijk" * 20)


# ---- documents, in the order in which they are made ----

DOCS = {
    "here.json": "dlb-profile -q --cluster | jq '.cluster.kinds[0] |= del(.peak_flops, .bandwidth_Bps)'",	# speeds are another's matter
    "there.json": "dlb-profile -q --cluster --topology $ROOT/tests/data/topology-2x2-cxl.xml",
    "mlp.json": "dlb-profile -q --analytic -b 16 $MODELS/digits_mlp.onnx",
    "cnn.json": "dlb-profile -q --analytic -b 16 $MODELS/digits_cnn.onnx",
    "bn.json": "dlb-profile -q --analytic -b 8 $MODELS/resnet8.onnx",
    "cost.json": "dlb-costmodel -c 'cpu:2 host cpu:1*0.5' cnn.json",
    "cost2.json": "dlb-costmodel -c cpu:2 cnn.json",
    "disk.json": "jq '.cluster.memories = [{name: \"disk\", class: \"file\", folder: \"/tmp\", group: .cluster.groups[0].name, bytes: 1e9, "
    "bandwidth_Bps: 1e9}] | del(.cost)' cost2.json | dlb-costmodel",
    "small.json": "python3 -B $ROOT/tests/bench/gpt_graph.py --layers 3 --width 64 --heads 4 --vocabulary 64 --sequence 16 gpt.onnx; "
    "dlb-profile -q --analytic --batch 4 --loss next-token gpt.onnx | dlb-costmodel -c cpu:1 | jq '.cluster.memories = [{name: \"disk\", "
    "class: \"file\", folder: \"/tmp\", group: .cluster.groups[0].name, bytes: 1e9, bandwidth_Bps: 1e9}] | .cluster.nodes[0].memory_bytes = 2.6e6 "
    "| del(.cost)' | dlb-costmodel",
    "cost4.json": "dlb-costmodel -c 'cpu:2 host cpu:2' mlp.json",
    "costbn.json": "dlb-costmodel -c cpu:2 bn.json",
    "kinds.json": "dlb-costmodel -c 'cpu:1 host cpu/2:1' mlp.json",
    "cnn-kinds.json": "dlb-costmodel -c 'cpu:1 host cpu/2:1' cnn.json",
    "idle.json": "dlb-costmodel -q -c 'cpu:3 link=shm:1e-3,1e6' mlp.json | dlb-place -q -a even",
    "two.json": "dlb-place -q -a even -m 4 cost2.json",
    "one.json": "dlb-costmodel -c cpu:1 mlp.json | dlb-place -q",
    "onecnn.json": "dlb-costmodel -c cpu:1 cnn.json | dlb-place -q",
    "onebn.json": "dlb-costmodel -c cpu:1 bn.json | dlb-place -q",
    "rep.json": "dlb-costmodel -c cpu:2 mlp.json | dlb-place -q -a single --replicas 2 --allreduce ring",
    "slow.json": "jq '.cluster.links |= map(.bandwidth_Bps = 1e6 | .overlap = true) | del(.cost, .plan)' rep.json | dlb-costmodel | "
    "dlb-place -q -a single --replicas 2 --allreduce ring",
    "rep4.json": "dlb-place -q -a single --replicas 4 --allreduce ring cost4.json",
    "repbn.json": "dlb-place -q -a single --replicas 2 costbn.json",
    "async.json": "dlb-place -q -a even -m 4 --schedule async --optimizer momentum cost2.json",
    "late.json": "dlb-costmodel -c cpu:4 cnn.json | dlb-place -q -a even -m 1 --schedule async --staleness stash --optimizer momentum",
    "max.json": "dlb-place -q -a single --replicas 2 --optimizer max-adabelief cost2.json",
    "report.json": "dlb-run -q --dry-run --steps 10 --slow 1:3 two.json",
    "round.json": "dlb-rebalance -q report.json | dlb-place -q | dlb-run -q --dry-run --steps 10",
    "words.json": "dlb-profile -q --analytic -b 4 words.onnx | dlb-costmodel -c cpu:1 | dlb-place -q",
    "net-doc.json": "dlb-convert --from dnn-partitioning net.json",
    "throughput.json": "dlb-place -q --objective throughput net-doc.json",
}
DIGITS = "--data digits --transform scale=1/16 --steps 6"
LOSSES = ".report.losses"


# ---- of all tools ----

def of_all():
    work = {
        "dlb-profile": ("dlb-profile {} --analytic --batchnorm frozen $MODELS/digits_mlp.onnx",) * 2,
        "dlb-costmodel": ("dlb-costmodel {} -c cpu:2 --split auto $D/mlp.json",) * 2,
        "dlb-place": ("dlb-place {} --chunks 3 $D/cost2.json",) * 2,
        "dlb-run": ("dlb-run {} --dry-run --torch-batchnorm $D/one.json", "dlb-run {} --dry-run $D/two.json"),
        "dlb-rebalance": ("dlb-rebalance {} --test --stable 4 $D/round.json || true", "dlb-rebalance {} $D/report.json"),
        "dlb-view": ("dlb-view {} -f svg --why 0 $D/two.json", "dlb-view {} $D/two.json"),
        "dlb-convert": ("dlb-convert {} --to dnn-partitioning $D/rep.json", "dlb-convert {} --from dnn-partitioning $D/net.json"),
    }
    for tool, (warns, works) in work.items():
        shows(tool, "--quiet", warns, "err")
        shows(tool, "--verbose", works, "err")
        shows(tool, "--help", works, "out")
        shows(tool, "--version", works, "out")
        read = "dlb-profile -q --analytic {} $D/mlp.json" if tool == "dlb-profile" else works
        shows(tool, "--max-document 10", read, "status", status=(0, 2))


# ---- dlb-profile ----

def profile():
    tool, cnn = "dlb-profile", "dlb-profile -q --analytic {} $MODELS/digits_cnn.onnx"
    for option in ("--tf32", "--fast-math"):
        shows(tool, option, "DLB_PLUGIN_DIR=$BUILD/cuda-host dlb-profile -q -d cuda {} $MODELS/digits_mlp.onnx", ".profile.kinds[].name")
        unused(tool, option, "dlb-profile --analytic {} $MODELS/digits_mlp.onnx", "measures on no device")
        refuses(tool, option, "dlb-profile -q {} $MODELS/digits_mlp.onnx", "no -d names one")
    graph, types = ".graph|del(.rewrites)", "[.graph.ops[].type]"
    shows(tool, "--batch 8", cnn, ".graph.batch")
    for loss in ("cross-entropy", "mse", "l1", "huber", "smooth-l1", "kl", "sum", "none"):
        base = "--loss mse" if loss == "cross-entropy" else ""
        shows(tool, f"--loss {loss}", "dlb-profile -q --analytic {} $D/vector.onnx", ".graph.ops", without=base)
    shows(tool, "--loss bce", "dlb-profile -q --analytic {} $D/vector.onnx", ".graph.ops")
    shows(tool, "--loss next-token", "dlb-profile -q --analytic {} $D/words.onnx", ".graph.ops")
    refuses(tool, "--loss mse", "dlb-profile -q --analytic --inference {} $MODELS/digits_cnn.onnx", "for training")
    shows(tool, "--inference", cnn, types)
    shows(tool, "--batchnorm frozen", "dlb-profile -q --analytic {} $MODELS/resnet8.onnx", ".graph.ops")
    shows(tool, "--batchnorm train", "dlb-profile -q --analytic {} $MODELS/resnet8.onnx", ".graph.ops", without="--batchnorm frozen")
    unused(tool, "--batchnorm frozen", "dlb-profile --analytic {} $MODELS/digits_cnn.onnx", "no BatchNormalization")
    shows(tool, "--dropout */Relu*=0.3", cnn, types)
    shows(tool, "--device cpu/2", "dlb-profile -q {} -b 2 $D/vector.onnx", "[.profile.kinds[].name]")
    unused(tool, "--device cpu/2", "dlb-profile --analytic {} $MODELS/digits_cnn.onnx", "--analytic")
    shows(tool, "--analytic", "dlb-profile -q {} -b 2 $D/vector.onnx", "[.profile.kinds[].name]")
    for dtype, base in (("f32", "--dtype f64"), ("bf16", ""), ("f64", "")):
        shows(tool, f"--dtype {dtype}", cnn, "[.graph.tensors[].dtype]", without=base)
    shows(tool, "--weights $D/w.safetensors", "dlb-run -q --data random --steps 1 --save $D/w.safetensors $D/one.json >/dev/null && "
          "dlb-profile -q --analytic {} $MODELS/digits_mlp.onnx", ".graph.weights // .run.weights // .graph")
    shows(tool, "--dim length=7", "dlb-profile -q --analytic {} $D/named.onnx", "[.graph.tensors[].shape]", without="--dim length=3")
    shows(tool, "--padding-row table=0", "dlb-profile -q --analytic {} $D/words.onnx", graph)
    unused(tool, "--padding-row table=0", "dlb-profile --analytic --inference {} $D/words.onnx", "trains nothing")
    for option in ("--parameters w", "--freeze b", "--train-only w"):
        shows(tool, option, "dlb-profile -q --analytic {} $D/vector.onnx", types)
        unused(tool, option, "dlb-profile --analytic --inference {} $D/vector.onnx", "trains nothing")
    for option in ("--lora 2", "--lora 2:w"):
        shows(tool, option, "dlb-profile -q --analytic {} $MODELS/digits_mlp.onnx" if ":" not in option else
              "dlb-profile -q --analytic {} $D/vector.onnx", types)
    unused(tool, "--lora 2", "dlb-profile --analytic --inference {} $MODELS/digits_mlp.onnx", "trains nothing")
    refuses(tool, "--lora 2", "dlb-profile --analytic {} --freeze w $D/vector.onnx", "freezes all")
    shows(tool, "--lora-alpha 3", "dlb-profile -q --analytic --lora 2 {} $MODELS/digits_mlp.onnx", "[.graph.adapters[].scale]")
    unused(tool, "--lora-alpha 3", "dlb-profile --analytic {} $MODELS/digits_mlp.onnx", "no adapters")
    shows(tool, "--untie", "dlb-profile -q --analytic {} $D/tied.onnx", types)
    unused(tool, "--untie", "dlb-profile --analytic {} $D/vector.onnx", "no weight has the values of another")
    for name, m in rewritten().items():
        path = f"$MODELS/{m}.onnx" if isinstance(m, str) else f"$D/{name}.onnx"
        frozen = {"group-norm": "--freeze ones --freeze zeros ", "rotary": "--freeze cos --freeze sin "}.get(name, "")
        shows(tool, f"--no-rewrite {name}", f"dlb-profile -q --analytic {frozen}{{}} {path}", "[.graph.ops[]|[.type,.attributes]]")
        unused(tool, f"--no-rewrite {name}", "dlb-profile --analytic {} $D/vector.onnx", "nothing in the model")
    shows(tool, "--no-rewrite all", cnn, "[.graph.ops[]|[.type,.attributes]]")
    unused(tool, "--no-rewrite all", "dlb-profile --analytic {} $D/vector.onnx", "nothing in the model")
    shows(tool, "--list", "dlb-profile {} $MODELS/digits_cnn.onnx --analytic -q", "out")
    shows(tool, "--cluster", "dlb-profile -q {} $D/mlp.json", "keys", status=(0, 2), without="--analytic")
    refuses(tool, "--batch 8", "dlb-profile -q --cluster {}", "--cluster")
    shows(tool, "--topology $ROOT/tests/data/machine.xml", "dlb-profile -q --cluster {}", ".cluster.nodes|map(del(.memory_bytes))",
          without="--topology $ROOT/tests/data/topology-2x2-cxl.xml")
    shows(tool, "--check", "dlb-profile -q {} $D/there.json", "status", status=(0, 1), without="--cluster")
    refuses(tool, "--batch 8", "dlb-profile -q --check {} $D/here.json", "--check")
    shows(tool, "--memory disk=/tmp", "dlb-profile -q --cluster {}", ".cluster.memories|map(.name)")
    refuses(tool, "--memory disk=/tmp", "dlb-profile -q --analytic {} $MODELS/digits_cnn.onnx", "--cluster")
    shows(tool, "--hosts <(echo localhost slots=2)", "dlb-profile -q --cluster {}", ".cluster.hosts")
    refuses(tool, "--hosts hosts", "dlb-profile -q --analytic {} $MODELS/digits_cnn.onnx", "--cluster")
    refuses(tool, "--topology $ROOT/tests/data/machine.xml", "dlb-profile -q --analytic {} $MODELS/digits_cnn.onnx", "--cluster")


# ---- dlb-costmodel ----

def costmodel():
    tool = "dlb-costmodel"
    shows(tool, "--cluster cpu:3", "dlb-costmodel -q {} $D/mlp.json", ".cluster.nodes|length", without="--cluster cpu:2")
    unused_auto = "dlb-costmodel -c cpu:2 {} $D/mlp.json"
    for axis in ("output", "input", "batch"):
        shows(tool, f"--split /1/Gemm=2:{axis}", "dlb-costmodel -q -c cpu:2 {} $D/mlp.json", ".graph.split")
    shows(tool, "--split Gather=2:vocabulary", "dlb-costmodel -q -c cpu:1 {} $D/words.json", ".graph.split")
    refuses(tool, "--split /1/Gemm=2:head", "dlb-costmodel -q -c cpu:2 {} $D/mlp.json", "no axis 'head'")
    shows(tool, "--split auto", "dlb-costmodel -q -c cpu:2 {} <(dlb-profile -q --analytic -b 64 $D/winograd.onnx)", ".graph.ops|length")
    unused(tool, "--split auto", unused_auto, "no op's time")


# ---- dlb-place ----

def sharing(tool, run):
    """Options of replicas, for dlb-place and dlb-run alike. run(doc, before): a command on a document with replicas."""
    bytes_of, step = ".report.allreduce.bytes", ".report.predicted_step_s"
    instructions = ".report.allreduce.sums, .report.predicted_step_s, .plan.allreduce_by_size"
    for name in ("tree", "host", "hierarchical", "doubling", "mpi", "auto"):
        shows(tool, f"--allreduce {name}", run("rep4.json"), instructions)
    shows(tool, "--allreduce ring", run("rep4.json"), instructions, without="--allreduce tree")
    for how in ("bf16", "lowrank:1,start=0"):
        shows(tool, f"--compress {how}", run("rep.json"), f"{bytes_of}, {step}")
    for how in ("cholesky", "cholesky:per-hop"):
        shows(tool, f"--compress {how}", run("rep.json", "--optimizer kfac"), f"{bytes_of}, {step}")
    shows(tool, "--compress auto", run("slow.json"), f"{bytes_of}, {step}, .plan.compress_by_class")
    unused(tool, "--compress auto", run("rep.json"), "costs more than it saves")
    shows(tool, "--compress none", run("rep.json"), bytes_of, without="--compress bf16")
    unused(tool, "--compress cholesky:per-hop", run("rep.json"), "kfac")
    shows(tool, "--sync", run("rep.json"), f"{step}, .plan.sync")
    shows(tool, "--async-allreduce", run("<(jq .plan.sync=true $D/rep.json)"), f"{step}, .plan.sync")
    shows(tool, "--sync-batchnorm", run("repbn.json"), f"{step}, .report.batch_statistics")
    unused(tool, "--sync-batchnorm", run("rep.json"), "no batch normalization")
    shows(tool, "--gossip 0.25", run("rep.json"), bytes_of)
    shows(tool, "--param-server 0", run("rep4.json"), f"{bytes_of}, {step}")
    shows(tool, "--param-server none", run("rep4.json"), f"{bytes_of}, {step}", without="--param-server 0")
    unused(tool, "--allreduce tree", run("rep.json", "--param-server 0"), "server")
    shows(tool, "--sync-every 3", run("rep.json"), bytes_of)
    shows(tool, "--reduce moments", run("max.json"), f"{bytes_of}, {step}")
    shows(tool, "--reduce moments:mean", run("max.json"), f"{bytes_of}, {step}")
    shows(tool, "--reduce gradients", run("max.json"), bytes_of, without="--reduce moments")
    unused(tool, "--max-state local", run("max.json"), "--reduce moments")
    shows(tool, "--feed host", run("rep.json"), ".report.feed.bytes")
    shows(tool, "--feed local", run("rep.json"), ".report.feed.bytes", without="--feed host")
    for option in ("--allreduce tree", "--compress bf16", "--compress none", "--sync", "--async-allreduce", "--sync-batchnorm",
                   "--reduce gradients:sum", "--param-server none", "--shards none", "--feed local"):
        unused(tool, option, "dlb-place {} $D/cost2.json" if tool == "dlb-place" else "dlb-run --dry-run {} $D/two.json", "one replica")
    for option in ("--gossip 0.5", "--sync-every 3", "--param-server 0", "--shards even", "--exchange-data 0.5", "--feed host", "--reduce moments",
                   "--max-state local"):
        refuses(tool, option, "dlb-place {} $D/cost2.json" if tool == "dlb-place" else "dlb-run --dry-run {} $D/two.json", "replicas")
    # What only real steps show: a plan says it, a run does it.
    def real(doc, before=""):
        if tool == "dlb-run":
            return f"dlb-run -q {DIGITS} {before} {{}} $D/{doc}"
        return f"dlb-place -q -a single {before} {{}} $D/{doc} | dlb-run -q {DIGITS}"
    shows(tool, "--reduce gradients:sum", real("rep.json"), LOSSES)
    shows(tool, "--reduce gradients:mean", real("rep.json"), LOSSES, without="--reduce gradients:sum")
    shows(tool, "--reduce moments:sum", real("max.json", "--max-state local"), LOSSES, without="--reduce moments:mean")
    shows(tool, "--max-state local", real("max.json", "--reduce moments"), LOSSES)
    shows(tool, "--max-state merged", real("max.json", "--reduce moments"), LOSSES, without="--max-state local")
    for option in ("--shards even", "--shards sorted"):
        shows(tool, option, real("rep.json"), LOSSES)
    shows(tool, "--shards none", real("rep.json"), LOSSES, without="--shards even")
    shows(tool, "--exchange-data 0.5", real("rep.json", "--shards sorted").replace("--steps 6", "--epochs 2 --until-step 120"), LOSSES)


def place():
    tool, two, cost = "dlb-place", "dlb-place -q -a even -m 4 {} $D/cost2.json", "dlb-place -q {} $D/cost.json"
    placement = ".plan.placement, .plan.value_s"
    for name in ("single", "even", "largest-first", "proportional", "interleaved", "greedy", "heft", "peft", "etf", "random", "dp",
                 "refine", "anneal"):
        shows(tool, f"--algorithm {name}", cost, placement, without="-a single" if name == "random" else "-a random")
    shows(tool, "--algorithm by-kind", "dlb-place -q {} $D/kinds.json", placement, without="-a random")
    shows(tool, "--algorithm auto", cost, placement, without="-a single")
    shows(tool, "--objective throughput", "dlb-place -q {} $D/net-doc.json", ".plan.value_s", without="--objective latency")
    shows(tool, "--objective latency", "dlb-place -q {} $D/net-doc.json", ".plan.value_s")
    refuses(tool, "--objective step", "dlb-place -q {} $D/net-doc.json", "port model")
    refuses(tool, "--objective latency", cost, "port model")
    shows(tool, "--effort 3", "dlb-place -v -m 4 {} $D/cost.json 2>&1 >/dev/null | sed 's/, after.*//'", "out")
    unused(tool, "--effort 3", "dlb-place -a greedy {} $D/cost.json", "greedy")
    shows(tool, "--time 0.2", "dlb-place -q -m 4 {} $D/cost.json", ".plan.effort")
    unused(tool, "--time 0.2", "dlb-place -a greedy {} $D/cost.json", "greedy")
    shows(tool, "--batch 12", "dlb-place -q {} $D/cost2.json", ".plan.batch, .plan.value_s")
    shows(tool, "--front", "dlb-place -q {} $D/cost2.json", ".plan.front")
    shows(tool, "--batch auto", "dlb-place -q {} $D/cost2.json", ".plan.batches_tried")
    refuses(tool, "--batch none", "dlb-place {} $D/cost2.json", "wants a number")
    refuses(tool, "--batch auto", "dlb-place {} $D/net-doc.json", "compares simulated steps")
    shows(tool, "--micro-batches 4", "dlb-place -q -a even {} $D/cost2.json", ".plan.value_s")
    for name in ("gpipe", "interleaved", "zero-bubble", "none", "async"):
        shows(tool, f"--schedule {name}", two, "[.plan.nodes[].order], .plan.value_s")
    shows(tool, "--schedule 1f1b", two, "[.plan.nodes[].order]", without="--schedule gpipe")
    shows(tool, "--schedule auto", two, ".plan.schedules_tried")
    unused(tool, "--schedule gpipe", "dlb-place -a even {} $D/cost2.json", "one micro-batch")
    shows(tool, "--chunks 3", "dlb-place -q -a interleaved -m 4 {} $D/cost2.json", ".plan.placement")
    unused(tool, "--chunks 3", "dlb-place -a even -m 4 {} $D/cost2.json", "1f1b")
    for rule in ("stash", "predict", "none"):
        shows(tool, f"--staleness {rule}", "dlb-place -q -a even -m 4 --schedule async --optimizer momentum {} $D/cost2.json",
              ".plan.nodes[].peak_bytes, .plan.staleness")
    shows(tool, "--staleness 2bw", "dlb-place -q -a even -m 4 --schedule async --optimizer momentum {} $D/cost2.json",
          ".plan.staleness", without="--staleness stash")
    refuses(tool, "--staleness stash", two, "async")
    shows(tool, "--in-place off", "dlb-place -q -a even -m 4 {} $D/cost2.json", ".plan.nodes[].peak_bytes, .plan.value_s")
    shows(tool, "--in-place on", "dlb-place -q -a even -m 4 {} $D/cost2.json", ".plan.nodes[].peak_bytes, .plan.value_s", without="--in-place off")
    again = "dlb-costmodel -q -c cpu:1@90K $D/cnn.json | dlb-place -q {}"
    shows(tool, "--recompute '*/Conv'", "dlb-place -q -a even -m 4 {} $D/cost2.json", ".plan.nodes[].peak_bytes, .plan.value_s")
    shows(tool, "--recompute auto", again, ".plan.recompute.ops", without="-m 8")
    shows(tool, "--recompute none", "dlb-place -q --recompute '*/Conv' $D/cost2.json | dlb-place -q {}", ".plan.recompute")
    unused(tool, "--recompute auto", "dlb-place {} $D/cost2.json", "fits without")
    refuses(tool, "--recompute loss", "dlb-place --schedule async -m 2 {} $D/cost2.json", "asynchronous")
    off = "dlb-place -q --optimizer adam {} $D/disk.json"
    shows(tool, "--offload '*=disk'", off, ".plan.nodes[].peak_bytes, .plan.value_s")
    shows(tool, "--offload none", "dlb-place -q --optimizer adam --offload '*=disk' $D/disk.json | dlb-place -q {}", ".plan.offload")
    shows(tool, "--offload auto", "dlb-place -q --optimizer adam {} $D/small.json", ".plan.offload", without="--batch 1")
    shows(tool, "--offload 'activations:*=disk'", off, ".plan.nodes[].peak_bytes, .plan.value_s")
    shows(tool, "--offload 'weights:*=disk'", "dlb-place -q --optimizer adam --batch 1 {} $D/small.json",
          ".plan.nodes[].peak_bytes, .plan.value_s")
    unused(tool, "--offload auto", "dlb-place --optimizer adam {} $D/disk.json", "fits without")
    unused(tool, "--offload '*=disk'", "dlb-place {} $D/disk.json", "keeps no state")
    refuses(tool, "--offload '*=dusk'", "dlb-place --optimizer adam {} $D/disk.json", "no node has a memory")
    refuses(tool, "--offload '*=disk'", "dlb-place --optimizer adam --schedule async -m 2 {} $D/disk.json", "asynchronous")
    kept = "dlb-place -q --optimizer adam {} $D/cost2.json"
    shows(tool, "--state-dtype bf16", kept, ".plan.nodes[].peak_bytes, .plan.state_dtype")
    shows(tool, "--state-dtype 8bit", kept, ".plan.nodes[].peak_bytes, .plan.state_dtype", without="--state-dtype bf16")
    shows(tool, "--state-dtype f32", "dlb-place -q --optimizer adam --state-dtype 8bit $D/cost2.json | dlb-place -q {}", ".plan.state_dtype")
    refuses(tool, "--state-dtype bf16", "dlb-place {} $D/cost2.json", "sgd keeps no state that could be smaller")
    refuses(tool, "--state-dtype 8bit", "dlb-place --optimizer kfac {} $D/cost2.json", "matrices, which stay f32")
    refuses(tool, "--state-dtype 8bit", "dlb-place --optimizer adagrad {} $D/cost2.json", "low bits")
    refuses(tool, "--state-dtype 8bit", "dlb-place --optimizer adam --schedule async -m 2 {} $D/cost2.json", "asynchronous")
    refuses(tool, "--state-dtype 4bit", "dlb-place --optimizer adam {} $D/cost2.json", "wants f32, bf16 or 8bit")
    shows(tool, "--seed 5", "dlb-place -q -a random {} $D/cost2.json", ".plan.placement")
    unused(tool, "--seed 5", "dlb-place -a greedy {} $D/cost2.json", "greedy")
    shows(tool, "--optimizer adam", two, ".plan.nodes[].peak_bytes")
    divided = "dlb-place -q --replicas 2 --allreduce ring --optimizer adam {} $D/cost2.json"
    shows(tool, "--zero 1", divided, ".plan.nodes[].peak_bytes, .plan.value_s")
    shows(tool, "--zero 2", divided, ".plan.value_s", without="--zero 1")
    shows(tool, "--zero 3", divided, ".plan.nodes[].peak_bytes, .plan.value_s", without="--zero 2")
    shows(tool, "--zero 0", divided.replace("{}", "--zero 1 {}") + " | dlb-place -q -a single", ".plan.nodes[].peak_bytes",
          without="--zero 2")
    shows(tool, "--zero auto", "jq 'del(.cluster, .cost)' $D/small.json | dlb-costmodel -q -c cpu:2@2550K | "
          "dlb-place -q -a single --optimizer adam --replicas 2 {}", "status", status=(0, 1))
    unused(tool, "--zero auto", "dlb-place --replicas 2 --optimizer adam {} $D/cost2.json", "fits without")
    unused(tool, "--zero 1", "dlb-place --replicas 2 --optimizer sgd {} $D/cost2.json", "no state")
    unused(tool, "--zero 3", "dlb-profile -q --analytic --batch 8 $ROOT/tests/data/truth/encoder/legacy.onnx | "
           "dlb-costmodel -q -c cpu:2 | dlb-place --replicas 2 {}", "3 is 2 here")
    unused(tool, "--zero 0", "dlb-place {} $D/cost2.json", "one replica")
    refuses(tool, "--zero 1", "dlb-place {} $D/cost2.json", "replicas")
    refuses(tool, "--zero 1", "dlb-place --replicas 2 --gossip 0.5 {} $D/cost2.json", "average")
    refuses(tool, "--zero 1", "dlb-place --replicas 2 --reduce moments --optimizer max-adabelief {} $D/cost2.json", "moments")
    refuses(tool, "--zero 1", "dlb-place --replicas 2 -m 2 --schedule async {} $D/cost2.json", "asynchronous")
    refuses(tool, "--zero 1", "dlb-place --replicas 2 --optimizer kfac {} $D/cost2.json", "K-FAC")
    shows(tool, "--clip-norm 1", two, ".plan.value_s")
    shows(tool, "--clip-norm 0", "dlb-place -q -a even -m 4 --clip-norm 1 $D/cost2.json | dlb-place -q {}", ".plan.value_s")
    shows(tool, "--pin 0=1", "dlb-place -q -a single {} $D/cost2.json", ".plan.placement[\"0\"], .plan.pins")
    shows(tool, "--exclude 1", "dlb-place -q -a even {} $D/cost2.json", ".plan.placement")
    shows(tool, "--priority upward-rank", "dlb-place -q -a greedy -m 2 {} $D/cost.json", ".plan.priority, .plan.placement")
    shows(tool, "--priority graph", "dlb-place -q -a greedy -m 2 {} $D/cost.json", ".plan.priority", without="--priority upward-rank")
    shows(tool, "--priority given", "jq '.graph.ops[3][\"x-priority\"]=9' $D/cost.json | dlb-place -q -a greedy {}", ".plan.priority")
    unused(tool, "--priority upward-rank", "dlb-place -a even {} $D/cost.json", "even")
    shows(tool, "--affinity a.json", "echo '{\"classes\": {\"dense\": [\"cpu/2\"], \"activation\": [\"cpu\"]}}' >a.json && "
          "dlb-place -q -a by-kind {} $D/kinds.json", ".plan.placement, .plan.affinity")
    unused(tool, "--affinity default", "dlb-place -a even {} $D/cost.json", "even")
    home = "echo '{\"classes\": {\"activation\": [\"cpu/2\"], \"conv\": [\"cpu\"]}}' >h.json && dlb-place -a by-kind --affinity h.json {} $D/%s"
    shows(tool, "--rewrites all", home % "cnn-kinds.json", ".plan.rewrites")
    shows(tool, "--rewrites keep-affinity", home % "cnn-kinds.json", ".plan.rewrites", without="--rewrites all")
    unused(tool, "--rewrites all", "dlb-place {} $D/cost.json", "no table")
    unused(tool, "--rewrites keep-affinity", home % "kinds.json", "no op is fused")
    shows(tool, "--from $D/two.json", "dlb-place -q -a single {} $D/cost2.json", ".plan.migration_s, .plan.moved_ops")
    shows(tool, "--max-moves 2", "dlb-place -q -a random --from $D/two.json {} $D/cost2.json", ".plan.moved_ops")
    refuses(tool, "--max-moves 2", two, "--from")
    shows(tool, "--serve 1", "dlb-place -v -a single --from $D/two.json {} $D/cost2.json 2>&1 >/dev/null | sed 's/, after.*//'", "out")
    refuses(tool, "--serve 1", two, "--from")
    shows(tool, "--replicas 2", "dlb-place -q -a single {} $D/cost2.json", ".plan.replicas")
    shows(tool, "--replicas auto", "dlb-place -q {} $D/cost4.json", ".plan.replicas", without="--replicas 4")
    shows(tool, "--split power", "dlb-place -q -a single --replicas 3 {} $D/cost.json", ".plan.power", without="--split even")
    shows(tool, "--split even", "dlb-place -q -a single --replicas 3 {} $D/cost.json", ".plan.power", without="--split power")
    unused(tool, "--split power", "dlb-place {} $D/cost.json", "one replica")
    shows(tool, "--no-timeline", two, ".plan|has(\"timeline\")")
    unused(tool, "--no-timeline", "dlb-place --objective throughput {} $D/net-doc.json", "no time-line")
    shows(tool, "--list", two, "out")
    sharing(tool, lambda doc, before="": f"dlb-place -a single {before} {{}} $D/{doc} | dlb-run -q --dry-run" if "<(" not in doc
            else f"dlb-place -a single {before} {{}} {doc} | dlb-run -q --dry-run")


# ---- dlb-run ----

def run():
    tool = "dlb-run"
    one = f"dlb-run -q {DIGITS} {{}} $D/one.json"

    def losses(args, before="", doc="one.json", **more):
        shows(tool, args, f"dlb-run -q {DIGITS} {before} {{}} $D/{doc}", LOSSES, **more)

    shows(tool, "--steps 3", one, LOSSES)
    shows(tool, "--epochs 2", "dlb-run -q --data npy:$D/x.npy,$D/y.npy {} $D/one.json", ".report.steps")
    shows(tool, "--until-step 2", one, ".report.steps")
    shows(tool, "--until 'loss<100'", one, ".report.stopped")
    shows(tool, "--patience 1", f"dlb-run -q {DIGITS} --steps 40 --lr 0 --order sequential {{}} $D/one.json", ".report.stopped")
    for option in ("--epochs 2", "--until-step 2", "--until 'loss<100'", "--patience 1", "--readers 2", "--checkpoint ck", "--save w.safetensors",
                   "--loss-log log", "--timeout 3", "--allow-nonfinite"):
        unused(tool, option, "dlb-run --dry-run {} $D/two.json", "--dry-run")
    for spec in ("digits", "digits:train", "digits:test", "npy:$D/x.npy,$D/y.npy", "idx:$D/x.idx,$D/y.idx", "images:$D/images"):
        shows(tool, f"--data {spec}", "dlb-run -q --steps 2 {} $D/one.json", LOSSES, without="--data random")
    shows(tool, "--data random", "dlb-run -q --steps 2 {} $D/one.json", LOSSES, without="--data digits")
    shows(tool, "--data tokens:$D/tokens.bin", "dlb-run -q --steps 2 {} $D/words.json", LOSSES, without="--data random")
    shows(tool, "--data text:$D/text", "dlb-run -q --steps 2 {} $D/words.json", LOSSES, without="--data random")
    shows(tool, "--test-data digits:test", one, ".report.accuracy")
    for step in ("scale=1/16", "normalise=3/2", "resize=9,crop=8", "random-crop=8", "flip"):
        pad = "pad=1," if step.startswith("random") else ""
        shows(tool, f"--transform {pad}{step}", "dlb-run -q --data digits --steps 2 {} $D/one.json", LOSSES)
    shows(tool, "--readers 256", "ulimit -v 2000000; dlb-run -q --data images:$D/images --steps 2 {} $D/one.json", "status", status=(0, 2),
          without="--readers 1")		# which have no room for their stacks
    unused(tool, "--readers 2", f"dlb-run {DIGITS} {{}} $D/one.json", "no images")
    for option in ("--name trial", "--note remark"):
        shows(tool, option, one, f".run.{option.split()[0].strip('-')}")
    losses("--order sequential")
    losses("--order shuffled", without="--order sequential")
    unused(tool, "--order sequential", "dlb-run --data random --steps 2 {} $D/one.json", "random data")
    for name in ("momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "adabelief", "max-adabelief", "kfac"):
        losses(f"--optimizer {name}")
    losses("--optimizer sgd", without="--optimizer adam")
    losses("--lr 0.3")
    losses("--weight-decay 0.5")
    losses("--momentum 0.5", "--optimizer momentum")
    losses("--alpha 0.5", "--optimizer rmsprop")
    for option in ("--beta1 0.5", "--beta2 0.5", "--eps 0.5"):
        losses(option, "--optimizer adam")
        refuses(tool, option, one, "sgd has no")
    for option in ("--damping 0.5", "--factor-decay 0.5", "--inverse-every 2", "--kl-clip 1e-9"):
        losses(option, "--optimizer kfac")
        refuses(tool, option, one, "sgd has no")
    for option in ("--momentum 0.5", "--alpha 0.5"):
        refuses(tool, option, one, "sgd has no")
    for name in ("corrected", "uncorrected", "amsgrad"):
        losses(f"--variant {name}", "--optimizer max-adabelief", without="--variant denom_corrected")
    losses("--variant denom_corrected", "--optimizer max-adabelief", without="--variant amsgrad")
    refuses(tool, "--variant amsgrad", one)
    losses("--group *:lr=0")
    losses("--clip-norm 0.01")
    losses("--clip-norm 0", doc="one.json", without="--clip-norm 0.01")
    losses("--warmup 5")
    losses("--lr-schedule cosine:5")
    losses("--lr-schedule step:2:0.1")
    losses("--lr-schedule constant", without="--lr-schedule cosine:5")
    for rule in ("stash", "predict", "none"):
        shows(tool, f"--staleness {rule}", "dlb-run -q --dry-run {} $D/async.json", ".report.nodes[].peak_bytes, .report.weight_delay")
    shows(tool, "--staleness 2bw", "dlb-run -q --dry-run {} $D/async.json", ".report.nodes[].peak_bytes, .report.weight_delay", without="--staleness stash")
    refuses(tool, "--staleness stash", "dlb-run -q --dry-run {} $D/two.json", "async")
    losses("--delay-discount on", doc="late.json")
    losses("--delay-discount off", doc="late.json", without="--delay-discount on")
    unused(tool, "--delay-discount on", f"dlb-run {DIGITS} {{}} $D/async.json", "late")
    unused(tool, "--delay-discount on", f"dlb-run {DIGITS} --staleness stash {{}} $D/async.json", "one update late")
    unused(tool, "--delay-discount on", f"dlb-run {DIGITS} {{}} $D/one.json", "late")
    losses("--seed 7")
    unused(tool, "--seed 7", f"dlb-run {DIGITS} --order sequential {{}} $D/one.json", "sequential")
    losses("--init 7")
    shows(tool, "--checkpoint ck", one, "file ck")
    shows(tool, "--checkpoint-every 1", f"dlb-run -q {DIGITS} --checkpoint ck {{}} $D/one.json; ls -d ck/step-* | tail -1; cat /proc/self/io | wc -l", "file ck")
    unused(tool, "--checkpoint-every 2", f"dlb-run {DIGITS} {{}} $D/one.json", "--checkpoint DIR")
    shows(tool, "--save w.safetensors", one, "file w.safetensors")
    shows(tool, "--save w.onnx", one, "file w.onnx")
    unused(tool, "--merge", f"dlb-run {DIGITS} {{}} --save w.safetensors $D/one.json", "no adapters")
    adapters = ("dlb-profile -q --analytic --lora 2 $MODELS/digits_mlp.onnx | dlb-costmodel -q -c cpu:1 | dlb-place -q | "
                f"dlb-run --steps 1 {DIGITS} {{}}")
    shows(tool, "--merge", f"{adapters} --save w.safetensors", "file w.safetensors")
    unused(tool, "--merge", adapters, "nothing is saved")
    refuses(tool, "--save w.onnx", adapters, "--merge")
    shows(tool, "--loss-log log", one, "file log")
    shows(tool, "--step-log log", one, "file log")
    shows(tool, "--metrics run.prom", one, "file run.prom")
    begun = "until [ -s {} ] || ! kill -0 $p; do sleep .05; done; "
    endless = ("dlb-run -q --steps 1000000000 --data random --timeout 4 --step-log log {} $D/two.json 2>err >out & p=$!; " + begun.format("log"))
    shows(tool, "--heartbeat 1", endless + "for l in $(pgrep -P $p); do pkill -STOP -P $l -n; done; wait $p; grep -c 'is silent' err >said; true", "file said",
          without="--heartbeat 0")
    lost = ("dlb-run -q --steps 120 --data random --slow 0:40 --slow 1:40 --checkpoint ck --checkpoint-every 50 {} $D/two.json 2>err >out & p=$!; "
            + begun.format("ck/step-50") + "for l in $(pgrep -P $p); do pkill -KILL -P $l -n; done; wait $p; echo $? >said; true")
    shows(tool, "--on-failure replan", lost, "file said")
    shows(tool, "--on-failure stop", lost, "file said", without="--on-failure replan")
    refuses(tool, "--on-failure replan", f"dlb-run {DIGITS} {{}} $D/two.json", "--checkpoint DIR")
    unused(tool, "--on-failure replan", f"dlb-run {DIGITS} --checkpoint ck --checkpoint-every 9 {{}} $D/one.json", "one node")
    kept = lost.replace("dlb-run -q", "dlb-run -q --on-failure replan").replace("; true", "; jq -c .plan.exclude out >kept; true")
    shows(tool, "--rejoin 0.1", kept, "file kept", without="--rejoin 0")
    unused(tool, "--rejoin 9", f"dlb-run {DIGITS} {{}} $D/two.json", "--on-failure replan")
    shows(tool, "--buddy-every 1", kept.replace("jq -c .plan.exclude", "jq -c .report.buddy.every"), "file kept", without="--buddy-every 2")
    shows(tool, "--buddy-every 2", "dlb-run -q --dry-run {} $D/two.json", ".report.buddy")
    unused(tool, "--buddy-every 9", f"dlb-run {DIGITS} {{}} $D/two.json", "--on-failure replan")
    unused(tool, "--buddy-every 9", f"dlb-run --dry-run {{}} $D/one.json", "one node")
    refuses(tool, "--buddy-every 1", "dlb-run -q --dry-run {} $D/async.json", "async")
    shows(tool, "--on-event touch\\ told", endless + "for l in $(pgrep -P $p); do pkill -KILL -P $l -n; done; wait $p; true", "file told")
    unused(tool, "--on-event true", f"dlb-run {DIGITS} {{}} $D/one.json", "one node")
    unused(tool, "--heartbeat 1", f"dlb-run {DIGITS} {{}} $D/one.json", "one node")
    unused(tool, "--metrics run.prom", "dlb-run --dry-run {} $D/two.json", "--dry-run")
    unused(tool, "--step-log log", "dlb-run --print-program {} $D/one.json", "--print-program")
    shows(tool, "--eval-every 1", f"dlb-run -q {DIGITS} --test-data digits:test {{}} $D/one.json", ".report.evaluations")
    refuses(tool, "--eval-every 1", f"dlb-run {DIGITS} {{}} $D/one.json", "--test-data")
    shows(tool, "--save-best best.safetensors", f"dlb-run -q {DIGITS} --test-data digits:test --eval-every 1 {{}} $D/one.json", "file best.safetensors")
    refuses(tool, "--save-best best.safetensors", f"dlb-run {DIGITS} --test-data digits:test {{}} $D/one.json", "--eval-every")
    unused(tool, "--eval-every 1", "dlb-run --dry-run {} $D/two.json", "--dry-run")
    shows(tool, "--slow 1:4", "dlb-run -q --dry-run {} $D/two.json", ".report.nodes[1].busy_s")
    shows(tool, "--drain 1", f"dlb-run -q {DIGITS} {{}} $D/two.json", ".plan.exclude")
    shows(tool, "--release idle", "dlb-run -q --dry-run {} $D/idle.json", ".plan.exclude")
    refuses(tool, "--release idle", "jq 'del(.plan.value_s)' $D/two.json | dlb-run -q --dry-run {}", "no predicted step")
    unused(tool, "--release idle", "dlb-run --dry-run {} $D/one.json", "one node")
    refuses(tool, "--drain 0", f"dlb-run {DIGITS} {{}} $D/one.json", "no node is left")
    losses("--freeze-at *.weight@3")
    unused(tool, "--freeze-at *.weight@3", "dlb-run --dry-run {} $D/two.json", "--dry-run")
    refuses(tool, "--freeze-at *.weight@9", f"dlb-run {DIGITS} {{}} $D/two.json", "the run ends at step 6")
    refuses(tool, "--slow 1:2@5", "dlb-run --dry-run {} $D/two.json", "without @STEP")
    refuses(tool, "--slow 1:0.5@5", f"dlb-run {DIGITS} {{}} $D/two.json", "faster than it is")
    shows(tool, "--rounds 1", f"dlb-run -q {DIGITS} --steps 7 --round-steps 5 {{}} $D/two.json", ".balance.round")
    shows(tool, "--rounds auto", f"dlb-run -q {DIGITS} --steps 12 --round-steps 5 {{}} $D/two.json", ".balance.round",
          without="--rounds 1")
    unused(tool, "--rounds 2", f"dlb-run {DIGITS} {{}} $D/one.json", "one node")
    unused(tool, "--rounds 2", "dlb-run --dry-run {} $D/two.json", "--dry-run")
    change = """echo '{"events": [{"event": "straggler", "round": 2, "node": 1, "factor": 4}]}' >change.json; """
    shows(tool, "--scenario change.json", change + "dlb-run -q --dry-run --rounds 3 {} $D/two.json", ".balance.round")
    refuses(tool, "--scenario change.json", change + f"dlb-run -q {DIGITS} --rounds 3 {{}} $D/two.json", "--dry-run")
    refuses(tool, "--scenario change.json", change + "dlb-run -q --dry-run {} $D/two.json", "--rounds N")
    unused(tool, "--scenario change.json", change + "dlb-run --print-program {} $D/two.json", "--print-program")
    unused(tool, "--steps 5", change + "dlb-run --dry-run --rounds 2 --scenario change.json {} $D/two.json", "--round-steps")
    shows(tool, "--round-steps 5", f"dlb-run -q {DIGITS} --steps 12 --rounds auto {{}} $D/two.json", ".balance.round")
    unused(tool, "--round-steps 5", f"dlb-run {DIGITS} {{}} $D/two.json", "--rounds")
    shows(tool, "--timeout 0.05", f"dlb-run -q {DIGITS} --slow 0:700 {{}} $D/two.json", "status", status=(0, 2))
    unused(tool, "--timeout 3", f"dlb-run {DIGITS} {{}} $D/one.json", "one node")
    shows(tool, "--torch-batchnorm", "dlb-run -q --data random --steps 1 --save w.safetensors {} $D/onebn.json", "file w.safetensors")
    unused(tool, "--torch-batchnorm", f"dlb-run {DIGITS} {{}} $D/one.json", "no batch normalization")
    shows(tool, "--allow-nonfinite", f"dlb-run -q {DIGITS} --lr 1e30 {{}} $D/one.json", "status", status=(0, 2))
    gpu = "dlb-profile -q --analytic $MODELS/digits_mlp.onnx | dlb-costmodel -q -c cuda:1 | dlb-place -q {} | "
    shows(tool, "--no-gpu-graph", "export DLB_PLUGIN_DIR=$BUILD/cuda-host; " + gpu.format("") + f"dlb-run -q {DIGITS} {{}}",
          ".report.nodes[].graphs")
    unused(tool, "--no-gpu-graph", f"dlb-run {DIGITS} {{}} $D/one.json", "all nodes are CPUs")
    unused(tool, "--no-gpu-graph", gpu.format("-m 2 --schedule async") + f"DLB_PLUGIN_DIR=$BUILD/cuda-host dlb-run {DIGITS} {{}}",
           "asynchronous")
    unused(tool, "--no-gpu-graph", "dlb-run --dry-run {} $D/two.json", "--dry-run")
    shows(tool, "--dry-run", one, ".report.dry_run")
    shows(tool, "--print-program", "dlb-run -q --dry-run {} $D/two.json", "out")
    for option in ("--data digits", "--lr 0.3", "--seed 4", "--save x.safetensors", "--steps 4", "--slow 1:3", "--dry-run"):
        unused(tool, option, "dlb-run --print-program {} $D/two.json", "--print-program")
    sharing(tool, lambda doc, before="": f"dlb-run --dry-run {before} {{}} $D/{doc}" if "<(" not in doc else f"dlb-run --dry-run {before} {{}} {doc}")


# ---- dlb-rebalance, dlb-view, dlb-convert ----

def others():
    rounds = "dlb-rebalance -q {} $D/round.json"
    shows("dlb-rebalance", "--rule patent", rounds, ".balance.weights")
    shows("dlb-rebalance", "--rule log", rounds, ".balance.rule", without="--rule patent")
    shows("dlb-rebalance", "--stable 1", "dlb-run -q --dry-run $D/two.json | dlb-rebalance -q {}", ".balance.converged, .balance.reason", without="--stable 9")
    shows("dlb-rebalance", "--max-rounds 1", rounds, ".balance.reason")
    shows("dlb-rebalance", "--test", rounds, "out", status=(0, 1))
    for option in ("--rule patent", "--stable 4", "--max-rounds 4"):
        unused("dlb-rebalance", option, "dlb-rebalance --test {} $D/round.json; [ $? = 1 ]", "--test")
    for name in ("svg", "trace", "memory", "dot", "html"):
        shows("dlb-view", f"--format {name}", "dlb-view -q {} $D/report.json", "out")
    shows("dlb-view", "--format table", "dlb-view -q {} $D/report.json", "out", without="-f dot")
    shows("dlb-view", "--format front", "dlb-view -q {} $ROOT/tests/data/view/front.json", "out")
    unused("dlb-view", "--format svg", "dlb-view {} --why 0 $D/two.json", "--why")
    shows("dlb-view", "--why 3", "dlb-view {} $D/two.json", "out")
    shows("dlb-view", "--diff $D/two.json", "dlb-view {} $D/report.json", "out")
    unused("dlb-view", "--format svg", "dlb-view {} --diff $D/two.json $D/report.json", "--diff")
    refuses("dlb-view", "--why 3", "dlb-view {} --diff $D/two.json $D/report.json", "give one")
    shows("dlb-view", "--transfers", "dlb-view -f svg {} $D/report.json", "out")
    unused("dlb-view", "--transfers", "dlb-view -f svg {} $D/one.json", "no time-line with messages")
    refuses("dlb-view", "--transfers", "dlb-view -f dot {} $D/two.json", "-f svg")
    tool = "dlb-convert"
    sources = {"dnn-partitioning": "net.json", "pipedream": "graph.txt", "chakra": "trace.et", "hwloc": "../../$ROOT/tests/data/machine.xml"}
    for name, path in sources.items():
        other = "chakra" if name == "dnn-partitioning" else "dnn-partitioning"
        path = path if not path.startswith("../") else "$ROOT/tests/data/machine.xml"
        path = path if path.startswith("$") else "$D/" + path
        shows(tool, f"--from {name}", f"dlb-convert -q {{}} {path}", "out", without=f"--from {other}", status=(0, 2))
    for name in ("dnn-partitioning", "chakra", "torch-pipelining", "megatron", "rankfile", "hostfile", "sbatch", "smpi", "simgrid"):
        shows(tool, f"--to {name}", "dlb-convert -q {} $D/two.json", "out", status=(0, 1), without="--to hostfile" if name != "hostfile" else "--to rankfile")
    machine = "dlb-convert -q --from pipedream {} $D/graph.txt"
    shows(tool, "--accelerators 3", machine, ".cluster.nodes|length")
    shows(tool, "--hosts 2", machine, ".cluster.nodes|length")
    shows(tool, "--memory 1000", machine, ".cluster")
    shows(tool, "--bandwidth 1000", machine, ".cluster, .cost")
    shows(tool, "--rank 1", "dlb-convert -q --to chakra {} $D/two.json", "out")
    shows(tool, "--threads 2", "dlb-convert -q --from hwloc {} $ROOT/tests/data/machine.xml", ".cluster.nodes|length")
    shows(tool, "--replan", "dlb-convert -q --to sbatch {} $D/two.json", "out")
    refuses(tool, "--replan", "dlb-convert -q --to hostfile {} $D/two.json", "no meaning")
    for option in ("--accelerators 3", "--hosts 2", "--memory 1000", "--bandwidth 1000", "--rank 1", "--threads 2"):
        refuses(tool, option, "dlb-convert -q --from dnn-partitioning {} $D/net.json", "no meaning")
    shows(tool, "--list", "dlb-convert -q {} --to hostfile $D/two.json", "out")


of_all()
profile()
costmodel()
place()
run()
others()
