"""Cases for tests/refusals: commands that must refuse, or may (hostile files that unit tests make).

A case is (name, command, whether it must refuse); commands run in a folder of their own, where doc.json is a placed document,
graph.json its graph alone, and model.onnx the model that it was made of."""
import json
import os
import struct
import subprocess

from onnx_file import attribute_int, attribute_ints, graph_attribute, model, node, num, sub, tensor, value, varint, whole

# Refusals that no file, document or option brings about: words of each, and why.
UNREACHABLE = {
    "gradient of input %d": "a mistake of dlb's own, which its unit tests look for",
    "the parts that it is made of do not fit": "likewise: what makes them checks them",
    "a model cannot be decoded": "the check of the wire format comes before, and says more",
    "lie in another file, which only a model on disk can have": "a model in memory, for other callers of dlb_onnx_parse",
    "cannot read data of": "a data file that gets shorter while it is read",
    "no memory for": "memory runs out",
    "than the 2 GB that": "a model of 2 GB",
    "cannot map": "the system's own refusal of memory for a file that is open",
    "input has no shape": "the reader refuses such an input before; for other callers of dlb_graph_fold",
    "a tensor has two producers": "readers of models and documents refuse it before",
    "unknown kind or phase": "likewise", "unknown kind, dtype or layout": "likewise", "negative work of op": "likewise", "negative size": "likewise",
    "has values, but its shape follows the batch": "likewise", "batch %lld is out of range": "likewise",
    "no tensor %d": "likewise", "too many elements": "a document with 2^31 values",
    "samples are not enough for": "shapes are inferred at a batch that comes out even",
    "shares of the samples are too many beside": "what asks for shares adds them up first",
    "changes the number of elements": "views whose shapes do not fit are refused by the operator",
    "a name or metadata is not UTF-8": "names and metadata of documents are",
    "it has no kernel on": "the back end has a kernel for each operator and type that the operator takes",
    "%s has no output %d": "operators give the shape of each output that a vertex may have",
    "the shape of output '%s' of %s is not known": "likewise",
    "the model was exported for batches": "dlb-profile prints why the batch had to stay in its place",
}
EXPORT = "pkg.torch.export.ExportedProgram.graph_signature"
F, I, B, S = 1, 7, 9, 8		# ONNX's numbers of f32, i64, bool, string


def ints(name, *v):
    return tensor(name, [len(v)], struct.pack("<%dq" % len(v), *v), dtype=I)


def floats(name, dims):
    n = 1
    for d in dims:
        n *= d
    return tensor(name, dims, struct.pack("<%df" % n, *((i * 7 % 13 - 6) / 8 for i in range(n))))


def text(name, s):
    return sub(5, sub(1, name) + sub(4, s) + num(20, 3))


def body(vertices, formals, results, extra=b""):
    return b"".join(vertices) + b"".join(sub(11, sub(1, f)) for f in formals) + b"".join(sub(12, sub(1, r)) for r in results) + extra


def graph_of(name, *args, **more):
    return graph_attribute(name, body(*args, **more))


x, y = value(11, "x", ["batch", 4]), value(12, "y", ["batch", 3])
y4 = value(12, "y", ["batch", 4])
w = floats("w", [4, 3])
linear = node("MatMul", ["x", "w"], ["y"]) + w + x + y
yes = whole("yes", 1, B)


def sequence_models():
    q = node("SequenceConstruct", ["x", "x"], ["q"])
    at = node("SequenceAt", ["q", "n"], ["y"]) + whole("n", 0)
    split = node("SplitToSequence", ["x", "s"], ["q"], attributes=attribute_int("axis", 1)) + at + x + y4
    return {
        "no-sequence": node("SequenceAt", ["x", "n"], ["y"]) + whole("n", 0) + x + y4,
        "construct-sequence": q + node("SequenceConstruct", ["q"], ["r"]) + node("SequenceAt", ["r", "n"], ["y"]) + whole("n", 0) + x + y4,
        "insert-sequence": q + node("SequenceInsert", ["q", "q"], ["r"]) + node("SequenceAt", ["r", "n"], ["y"]) + whole("n", 0) + x + y4,
        "no-position": q + node("SequenceAt", ["q"], ["y"]) + x + y4,
        "two-outputs": q + node("SequenceAt", ["q", "n"], ["y", "z"]) + whole("n", 0) + x + y4,
        "split-0": split + whole("s", 0), "split-5": split + ints("s", 3, 2),
        "split-data": node("ReduceMax", ["x"], ["m"], attributes=attribute_ints("axes", [0]) + attribute_int("keepdims", 0)) +
        node("Cast", ["m"], ["s"], attributes=attribute_int("to", I)) + split,
        "join-no-axis": q + node("ConcatFromSequence", ["q"], ["y"]) + x + y4,
        "join-empty": node("SequenceEmpty", [], ["q"]) + node("ConcatFromSequence", ["q"], ["y"], attributes=attribute_int("axis", 0)) + x + y4,
        "position-list": q + node("SequenceAt", ["q", "n"], ["y"]) + ints("n", 0, 1) + x + y4,
        "position-batch": q + node("Shape", ["x"], ["s"]) + node("Gather", ["s", "n"], ["i"]) + node("SequenceAt", ["q", "i"], ["y"]) +
        whole("n", 0) + x + y4,
        "position-sequence": q + node("SequenceAt", ["q", "q"], ["y"]) + x + y4,
        "split-axis": node("SplitToSequence", ["x"], ["q"], attributes=attribute_int("axis", 7)) + at + x + y4,
        "split-nothing": node("SplitToSequence", [""], ["q"]) + at + x + y4,
        "relu-of-sequence": q + node("Relu", ["q"], ["y"]) + x + y4,
        "condition-sequence": q + node("If", ["q"], ["y"], attributes=graph_of("then_branch", [], [], ["x"]) +
                                       graph_of("else_branch", [], [], ["x"])) + x + y4,
    }


def loop(body_of, outputs=("y",), count=2, state=("x",), extra=b"", **more):
    return node("Loop", ["count", ""] + list(state), list(outputs), attributes=graph_attribute("body", body_of)) + whole("count", count) + x + y4 + extra


def scan(inputs, outputs, n, body_of, attributes=b"", extra=b""):
    return node("Scan", inputs, outputs, attributes=attribute_int("num_scan_inputs", n) + attributes + graph_attribute("body", body_of)) + x + y4 + extra


def structure_models():
    two = floats("a", [2, 4]) + floats("b", [3, 4])
    step = body([node("Add", ["s", "e"], ["t"])], ["s", "e"], ["t"])
    pair = body([node("Add", ["d", "e"], ["t"])], ["d", "e"], ["t"])
    copy = [node("Identity", ["s"], ["t"])]
    return {
        "if-one-branch": node("If", ["yes"], ["y"], attributes=graph_of("else_branch", [], [], ["x"])) + yes + x + y4,
        "loop-4-outputs": loop(body(copy, ["i", "c", "s"], ["c", "t"]), outputs=("y", "z")),
        "loop-state-left-out": loop(body([], ["i", "c", "s", "u"], ["c", "s", "u"]), outputs=("z", "y"), state=("", "x")),
        "loop-state-never-made": loop(body([], ["i", "c", "s", "u"], ["c", "s", "u"]), outputs=("y", "z"), state=("", "x"), count=0),
        "loop-none": loop(body(copy, ["i", "c", "s"], ["c", "s", "t"]), outputs=("y", "z"), count=0, extra=value(12, "z", [0, 4])),
        "loop-stacks-sequences": loop(body([node("SequenceConstruct", ["s"], ["q"])], ["i", "c", "s"], ["c", "s", "q"]), outputs=("y", "z"),
                                      extra=value(12, "z", [2, 4])),
        "scan-lengths": scan(["a", "b"], ["z"], 2, pair, extra=two + node("Add", ["x", "z"], ["y"])),
        "scan-outputs": scan(["s0", "a"], ["z", "u"], 1, step, extra=two + floats("s0", [4]) + node("Add", ["x", "z"], ["y"])),
        "scan-missing": scan(["", "a"], ["z"], 1, step, extra=two + node("Add", ["x", "z"], ["y"])),
        "loop-on-batch": node("Shape", ["x"], ["sh"]) + node("Gather", ["sh", "zero"], ["count"]) +
        node("Loop", ["count", "", "x"], ["y"], attributes=graph_of("body", copy, ["i", "c", "s"], ["c", "t"])) + whole("zero", 0) + x + y4,
        "body-formal-no-name": loop(body(copy, ["", "c", "s"], ["c", "t"])),
        "body-string": loop(body([node("Constant", [], ["k"], attributes=text("value_string", "a"))] + copy, ["i", "c", "s"], ["c", "t"])),
        "body-two-constants": loop(body(copy, ["i", "c", "s"], ["c", "t"], extra=floats("k", [1]) + floats("k", [2]))),
    }, {
        "scan8-samples": scan(["", "a", "b"], ["z"], 2, pair, extra=two + node("Add", ["x", "z"], ["y"])),
        "scan8-lengths": scan(["l", "a"], ["z"], 1, body([node("Identity", ["e"], ["t"])], ["e"], ["t"]),
                              extra=two + ints("l", 1, 1) + node("Add", ["x", "z"], ["y"])),
    }


def reader_models():
    deep = b""
    for _ in range(80):
        deep = sub(1, sub(5, sub(1, "a") + sub(6, deep) + num(20, 5)))
    outside = tensor("w", [4, 3], None, extra=num(14, 1) + sub(13, sub(1, "location") + sub(2, "data")) + sub(13, sub(1, "offset") + sub(2, "999")))
    folder = tensor("w", [4, 3], None, extra=num(14, 1) + sub(13, sub(1, "location") + sub(2, "folder")))
    mm = node("MatMul", ["x", "w"], ["y"])
    return {
        "wire-tag": b"\x80", "wire-field-0": b"\x00\x00", "wire-number": b"\x08\x80", "wire-fixed": b"\x0d\x00",
        "wire-twice": model(linear) + sub(7, linear), "wire-deep": num(1, 8) + sub(7, deep),
        "domain-opset": model(node("MatMul", ["x", "w"], ["y"], domain="own") + w + x + y) + sub(8, sub(1, "own") + num(2, 1 << 40)),
        "dims-9": model(mm + w + value(11, "x", [1] * 9) + y), "input-no-name": model(mm + w + x + value(11, "", [1]) + y),
        "external-end": model(mm + outside + x + y), "external-folder": model(mm + folder + x + y),
        "dim-empty": model(linear.replace(x, b"") + sub(11, sub(1, "x") + sub(2, sub(1, num(1, 1) + sub(2, sub(1, sub(2, "batch")) + sub(1, b"")))))),
    }


def batch_models():
    """{name: (model, options)}"""
    seq = value(11, "x", ["batch", "seq"])
    return {
        "dim-no-size": (node("Relu", ["x"], ["y"]) + seq + value(12, "y", ["batch", "seq"]), []),
        "dim-square": (node("Relu", ["x"], ["y"]) + value(11, "x", ["batch", "batch*batch"]) + y, []),
        "dim-text": (linear, ["--dim", "seq"]), "dim-unknown": (linear, ["--dim", "seq=3"]),
        "rewrite": (linear, ["--no-rewrite", "fusing"]),
        "padding-text": (linear, ["--padding-row", "w"]), "padding-none": (linear, ["--padding-row", "w=0"]),
        "lora-rank": (linear, ["--lora", "0"]), "lora-none": (linear, ["--lora", "2:nothing"]),
        "lora-no-product": (node("Relu", ["x"], ["y"]) + value(11, "x", ["batch", 4]) + value(12, "y", ["batch", 4]), ["--lora", "2"]),
        "dropout-text": (linear, ["--dropout", "MatMul=2"]), "dropout-none": (linear, ["--dropout", "nothing=.5"]),
        "nonlinear": (node("MatMul", ["x", "t"], ["y"]) + node("Transpose", ["x"], ["t"]) + node("Shape", ["x"], ["s"]) + node("Mul", ["s", "s"], ["s2"]) +
                      node("ConstantOfShape", ["s2"], ["z"]) + x + value(12, "y", ["batch", "batch"]) + value(12, "z", ["a", "b"]), []),
        "gemm-1": (node("Gemm", ["x"], ["y"]) + x + y, []), "concat-0": (node("Concat", [], ["y"], attributes=attribute_int("axis", 0)) + x + y, []),
        "statistics": (node("BatchNormalization", ["x", "a", "a", "a", "a"], ["y", "m", "v"]) + floats("a", [4]) + x + y4 + value(12, "m", [4]), []),
        "mixed": (node("Reshape", ["x", "s"], ["y"]) + ints("s", 2, -1) + x + value(12, "y", [2, "n"]), []),
        "wired": (node("Add", ["x", "c"], ["a"]) + node("MatMul", ["a", "w"], ["y"]) + floats("c", [2, 4]) + w + value(11, "x", [2, 4]) +
                  value(12, "y", [2, 3]), ["--batch", "6"]),
        "kind-changes": (node("Shape", ["x"], ["s"]) + node("Gather", ["s", "zero"], ["n"]) + node("ConstantOfShape", ["n"], ["ones"]) +
                         node("Cast", ["ones"], ["sh"], attributes=attribute_int("to", I)) + node("ConstantOfShape", ["sh"], ["y"]) +
                         ints("zero", 0) + value(11, "x", [2, 4]) + value(12, "y", ["a", "b"]), ["--batch", "4"]),
        "ragged-softmax": (node("NonZero", ["x"], ["n"]) + node("Transpose", ["n"], ["i"]) + node("GatherND", ["x", "i"], ["g"]) +
                           node("Softmax", ["g"], ["y"], attributes=attribute_int("axis", 0)) + x + value(12, "y", ["n"]), []),
        "ragged-scalar": (node("ReduceSum", ["x"], ["s"], attributes=attribute_int("keepdims", 0)) + node("NonZero", ["s"], ["y"]) + x +
                          value(12, "y", [0, "n"]), []),
        "ragged-batch": (node("NonZero", ["x"], ["n"]) + node("Transpose", ["n"], ["i"]) + node("GatherND", ["t", "i"], ["g"]) +
                         node("ReduceSum", ["g"], ["y"], attributes=attribute_int("keepdims", 0)) + floats("t", [4, 4]) + value(11, "x", [4, 4]) +
                         value(12, "y", []), ["--batch", "8", "--loss", "sum"]),
        "unknown-shape": (node("NonZero", ["x"], ["y"]) + x + value(12, "y", [2, "n"]), []),
        "nothing-to-train": (node("Relu", ["x"], ["y"]) + x + y4, []),
    }


def loss_models():
    """{name: (model, options)}"""
    four = node("Reshape", ["x", "s"], ["y"]) + ints("s", -1, 2, 2, 1) + x + value(12, "y", ["batch", 2, 2, 1])
    whole_output = node("Cast", ["x"], ["k"], attributes=attribute_int("to", I)) + value(12, "k", ["batch", 4])
    cases = {
        "weights-2": (linear, "cross-entropy,weights=1/2"), "axis-batch": (node("Transpose", ["x"], ["y"]) + x + value(12, "y", [4, "batch"]), None),
        "axis-2": (four, "cross-entropy:2"), "next-token-2": (linear, "next-token"), "axis-7": (linear, "cross-entropy:7"),
        "no-default": (node("ReduceSum", ["x", "one"], ["y"], attributes=attribute_int("keepdims", 0)) + ints("one", 1) + x + value(12, "y", ["batch"]), None),
        "pos-weight": (linear, "bce,pos-weight=1/2"), "no-float": (whole_output + x, None), "of-whole": (linear + whole_output, "k=mse"),
        "number": (linear, "huber:x"), "no-output": (linear, "q=mse"), "unknown": (linear, "foo"), "number-of-mse": (linear, "mse:3"),
        "axis-1.5": (linear, "cross-entropy:1.5"), "huber-0": (linear, "huber:0"), "weights-negative": (linear, "cross-entropy,weights=-1/2/3"),
        "no-option": (linear, "mse,smoothing=.1"), "option-no-value": (linear, "cross-entropy,smoothing"),
        "smoothing-2": (linear, "cross-entropy,smoothing=2"), "factor-0": (linear, "mse*0"),
    }
    cases = {name: (m, ["--loss", loss] if loss else []) for name, (m, loss) in cases.items()}
    return {**cases, "none-and-mse": (linear, ["--loss", "none", "--loss", "mse"])}


def safetensors(header, data=b"\0" * 48):
    header = header.encode()
    return struct.pack("<Q", len(header)) + header + data


def weight_files():
    one = '"w":{"dtype":"F32","shape":[4,3],"data_offsets":[0,48]}'
    return {
        "overlap": safetensors("{" + one + ',"v":{"dtype":"F32","shape":[1],"data_offsets":[40,44]}}'),
        "hole": safetensors('{"v":{"dtype":"F32","shape":[1],"data_offsets":[44,48]}}'), "longer": safetensors("{" + one + "}", b"\0" * 50),
        "bool": safetensors('{"v":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}', b"\2"),
        "metadata": safetensors('{"__metadata__":3,' + one + "}"), "metadata-number": safetensors('{"__metadata__":{"a":3},' + one + "}"),
        "other-module": safetensors('{"other":{"dtype":"F32","shape":[4,3],"data_offsets":[0,48]}}', struct.pack("<12f", *range(12))),
        "nine": safetensors('{"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}', b"\0" * 4),
        "half": safetensors('{"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}', b"\0" * 4),
    }


SPLITS = ["/0/Conv", "/0/Conv=1", "/0/Conv=2:sideways", "/2/MaxPool=2", "/nothing=2", "/0/Conv=999:output", "/7/Gemm=2:head", "loss=2:batch"]

# of the graph alone: jq, the tool that reads it
EDITS = {
    "stated": ".graph.ops[2].outputs[0] as $t | .graph.tensors[$t].dtype = \"f64\"",
    "also": ".graph.tensors[0].also = [3]", "weight-made": ".graph.ops[1].outputs += [.graph.inputs[0]]",
    "sizes": ".graph.tensors[0] |= (del(.shape, .fill, .in_model) | .size_bytes = 1 | .size_per_sample_bytes = 100)",
    "value-follows": ".graph.inputs[0] as $t | .graph.tensors[$t].value = [1]", "value-no-shape": ".graph.tensors[0] |= (del(.shape) | .value = [1])",
    "bool-follows": ".graph.tensors[0] |= (.dtype = \"bool\" | .shape = [1] | .value = [true] | .value_per_sample = [1])",
    "negative-shape": ".graph.tensors[0].shape = [\"N-100\"]", "too-large": ".graph.tensors[0].shape = [1073741824, 1073741824, 1073741824]",
    "int-text": ".graph.ops[0].attributes.a = {int: \"x\"}", "unsigned": ".graph.tensors[0] |= (.dtype = \"u64\" | .shape = [1] | .value = [\"-1\"])",
    "value-number": ".graph.tensors[0] |= (.shape = [1] | .value = 3)", "values-2": ".graph.tensors[0] |= (.shape = [1] | .value = [1, 2])",
    "attribute-large": ".graph.ops[0].attributes.a = {dtype: \"f32\", shape: [4611686018427387904, 4], value: []}",
    "attribute-true": ".graph.ops[0].attributes.a = true", "no-model": "del(.graph.model)",
    "two-names": ".graph.tensors[1].name = .graph.tensors[0].name", "op-no-name": ".graph.ops[0].name = \"\"", "op-no-type": ".graph.ops[0].type = \"\"",
    "tensor-no-name": ".graph.tensors[0].name = \"\"", "flop": ".graph.ops[0].flop = -1", "dims": ".graph.tensors[0].shape = [\"2*N+\"]",
    "sha": ".graph.model.sha256 = \"abc\"", "colocate": ".graph.ops[0].colocate = 1 | .graph.ops[1].colocate = 0",
    "fill-and-value": ".graph.tensors[0].fill = 1 | .graph.tensors[0].value = [1]", "per-sample": ".graph.tensors[0].value_per_sample = [1]",
    "dtype": ".graph.tensors[0].dtype = \"f31\"", "layout": ".graph.tensors |= map(if (.shape | length) == 1 then .layout = \"channels-last\" else . end)",
    "phases": ".graph.ops[-1].phase as $p | .graph.ops[0].phase = $p", "loss": ".graph.loss = .graph.inputs[0]",
}


# Everything else, by bash. linear.json: linear.onnx placed.
LINEAR = "dlb-profile -q --analytic --loss mse --batch 4 %s | dlb-costmodel -q -c cpu:1 | dlb-place -q"
RUN = "dlb-run -q --data random --steps 1 --save %s %s"
COMMANDS = {
    "freeze-all": "dlb-run -q --data random --steps 3 --freeze-at '*@1' doc.json",
    "slice-dims": "dlb-costmodel -q -c cpu:2 --split /7/Gemm=2:output graph.json >slices.json; "
                  "jq '.graph.tensors |= map(if .slice then .slice.shape = [1, 2, 3] else . end)' slices.json >1.json; dlb-place 1.json",
    "slice-part": "jq '.graph.tensors |= map(if .slice then .slice.first = 99999 else . end)' slices.json >1.json; dlb-place 1.json",
    "split-part-again": "dlb-costmodel -q -c cpu:2 --split '/7/Gemm@0=2:input' slices.json",
    "split-share-again": "dlb-costmodel -q -c cpu:2 --split '/7/Gemm=2:batch' graph.json >shares.json; "
                         "dlb-costmodel -q -c cpu:2 --split '/7/Gemm@0=2:batch' shares.json",
    "shares-of-1": "jq '.graph.batch = 1' shares.json >1.json; dlb-place 1.json",
    "split-unknown": "jq 'del(.profile) | .graph.ops[2].type = \"Frobnicate\"' graph.json >1.json; dlb-costmodel -q -c cpu:2 --split '/7/Gemm=2' 1.json",
    "affinity-unknown": "echo '{\"classes\": {\"dense\": [\"gpu\"], \"conv\": [\"fpga\"], \"activation\": [\"asic\"]}}' >home.json; "
                        "jq -c 'del(.profile) | (.graph.ops[] | select(.type == \"MaxPool\") | .type) = \"Frobnicate\" | "
                        ".cluster = {kinds: [\"gpu\", \"fpga\", \"asic\"] | map({name: ., backend: \"cpu\", threads: 1}), "
                        "groups: [{name: \"box\", class: \"host\"}], links: [], nodes: [range(3) as $i | {id: $i, "
                        "kind: [\"gpu\", \"fpga\", \"asic\"][$i], group: \"box\", speed: 1, host: \"h0\", device: $i}]}' graph.json | "
                        "dlb-costmodel -q >1.json; dlb-place -q -a by-kind --affinity home.json 1.json",
    "split-many": "dlb-profile -q --analytic --batch 100000 model.onnx >1.json; "
                  "dlb-costmodel -q -c cpu:2 --split /0/Conv=4093:batch --split /3/Conv=4091:batch --split /7/Gemm=4079:batch 1.json",
    "split-by-itself": "dlb-profile -q --analytic --loss sum product.onnx >1.json; dlb-costmodel -q -c cpu:2 --split MatMul=2:batch 1.json",
    "split-groups": "dlb-profile -q --analytic --loss mse groups.onnx >1.json; dlb-costmodel -q -c cpu:2 --split '*=2' 1.json",
    "split-no-product": "dlb-profile -q --analytic resnet8.onnx >1.json; dlb-costmodel -q -c cpu:2 --split '*BatchNorm*=2:batch' 1.json",
    "split-statistics": "dlb-profile -q --analytic resnet8.onnx >1.json; dlb-costmodel -q -c cpu:2 --split "
                        "\"$(jq -r '[.graph.ops[] | select(.type == \"BatchNormalization\")][0].name' 1.json)=2:batch\" 1.json",
    "weights-missing": "dlb-profile -q --analytic --weights missing.safetensors linear.onnx", "model-missing": "dlb-profile -q missing.onnx",
    "model-folder": "dlb-profile -q folder", "weights-other": "dlb-profile -q --analytic --weights model.onnx linear.onnx",
    "weights-shape": "dlb-profile -q --analytic --weights wide.onnx linear.onnx", "weights-type": "dlb-profile -q --analytic --weights whole.onnx linear.onnx",
    "too-many-operands": "dlb-profile -q many-operands.onnx", "too-many-messages": "dlb-profile -q many-messages.onnx",
    "changed": "cp linear.onnx changing.onnx; dlb-profile -q --analytic changing.onnx >1.json; cp wide.onnx changing.onnx; dlb-profile -q --analytic 1.json",
    "changed-data": LINEAR % "external.onnx" + " >1.json; printf x | dd of=data bs=1 seek=20 conv=notrunc status=none; " + RUN % ("1.onnx", "1.json"),
    "changed-weights": "dlb-profile -q --analytic --loss mse --weights external.onnx linear.onnx | dlb-costmodel -q -c cpu:1 | dlb-place -q >1.json; "
                       "printf y | dd of=data bs=1 seek=20 conv=notrunc status=none; " + RUN % ("1.onnx", "1.json"),
    "external-pipe": "dlb-profile -q --analytic <(cat external-end.onnx)",
    "path": "cp linear.onnx $'\\xff.onnx'; dlb-profile -q --analytic $'\\xff.onnx'",
    "derived-dims": "dlb-profile -q --analytic --weights transposed.safetensors linear.onnx >derived.json; "
                    "jq '.graph.derived[0].parts[0].perm = [0]' derived.json >1.json; dlb-profile -q --analytic 1.json",
    "derived-fit": "jq '.graph.derived[0].parts[0].count = 1' derived.json >1.json; dlb-profile -q --analytic 1.json",
    "derived-function": "jq '.graph.derived[0].function = \"sin(x)\"' derived.json >1.json; dlb-profile -q --analytic 1.json",
    "adapters": "dlb-profile -q --analytic --lora 2:w linear.onnx | jq '.graph.adapters[0].rank = 3' >1.json; dlb-profile -q --analytic 1.json",
    "save-nowhere": LINEAR % "linear.onnx" + " >linear.json; " + RUN % ("nowhere/w.safetensors", "linear.json"),
    "save-no-tensor": "jq 'del(.profile, .cost.inputs, .plan.inputs) | .graph.tensors |= map(if .name == \"w\" then .name = \"v\" | del(.in_model) | .fill = .5 else . end)' linear.json >renamed.json; " + 
                      RUN % ("1.onnx", "renamed.json"),
    "save-no-vertex": "jq '.graph.unmerged = [{name: \"v\", of: \"w\", vertex: \"nowhere\"}]' renamed.json >1.json; " + RUN % ("1.onnx", "1.json"),
    "save-shape": "cp wide.onnx changing.onnx; " + LINEAR % "changing.onnx" + " >1.json; cp linear.onnx changing.onnx; " + RUN % ("1.onnx --init 1", "1.json"),
    "save-apart": LINEAR % "two.onnx" + """ >two.json; jq --arg path "$PWD/function.onnx" 'del(.profile, .cost.inputs, .plan.inputs) |
        .graph.model = {path: $path, format: "onnx"} | .graph.tensors |= map(if .name == "one/k" or .name == "two/k" then del(.in_model) | .fill = .5 else . end)' \
        two.json >1.json; """ + RUN % ("1.onnx", "1.json"),
    "save-twice": "jq 'del(.cost.inputs, .plan.inputs) | .graph.tensors |= map(if .name == \"w\" then .also = [\"w\"] else . end)' linear.json >1.json; " + RUN % ("1.safetensors", "1.json"),
}


def function_model():
    """y = f(f(x)), where f multiplies by a constant of its own."""
    constant = sub(5, sub(1, "value") + sub(5, floats("k", [4, 4])[2:]) + num(20, 4))
    f = sub(1, "f") + sub(4, "a") + sub(5, "b") + b"".join(sub(7, n[2:]) for n in (
        node("Constant", [], ["k"], attributes=constant), node("MatMul", ["a", "k"], ["b"]))) + sub(9, num(2, 17)) + sub(10, "own")
    calls = node("f", ["x"], ["t"], "one", domain="own") + node("f", ["t"], ["y"], "two", domain="own")
    return model(calls + x + y4) + sub(8, sub(1, "own") + num(2, 1)) + sub(25, f)


def write(folder, name, data):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)
    return name


def profiles(folder):
    """Models, each profiled."""
    structures, structures8 = structure_models()
    models = {**{n: (model(m), []) for n, m in {**sequence_models(), **structures}.items()},
              **{n: (model(m, opset=8), []) for n, m in structures8.items()}, **{n: (m, []) for n, m in reader_models().items()},
              **{n: (model(m), o) for n, (m, o) in {**batch_models(), **loss_models()}.items()}}
    for name, (data, options) in models.items():
        yield name, ["dlb-profile", "-q", "--analytic"] + options + [write(folder, name + ".onnx", data)], True
    for name, data in weight_files().items():
        yield name, ["dlb-profile", "-q", "--analytic", "--weights", write(folder, name + ".safetensors", data), "linear.onnx"], True


def hostile(root, build, folder):
    """What other tests have: all of tests/data/bad must be refused, of what unit tests make some."""
    for test in ("onnx", "onnx_functions"):
        os.mkdir(os.path.join(folder, test))
        subprocess.run([os.path.join(build, "tests/test_" + test), os.path.join(folder, test)], cwd=root, check=True, stdout=subprocess.DEVNULL)
    for where in ("bad/onnx", "onnx", "onnx_functions"):
        for file in sorted(os.listdir(os.path.join(folder, where))):
            if file != "link":
                yield file, ["dlb-profile", "-q", "--analytic", f"{where}/{file}"], where == "bad/onnx"
    for file in sorted(os.listdir(os.path.join(folder, "bad/safetensors"))):
        yield file, ["dlb-profile", "-q", "--analytic", "--weights", "bad/safetensors/" + file, "linear.onnx"], True
    for line in open(os.path.join(root, "tests/data/bad/edits")):
        if "graph" in line.split("|")[0] and not line.startswith("#"):
            name, tool, edit = line.rstrip("\n").split(" | ", 2)
            yield name, f"jq -c '{edit}' doc.json >{name}.json && exec {tool} {name}.json", True


def make(root, build, folder):
    """The cases, whose files are written to `folder`."""
    env = dict(os.environ, PATH=os.path.join(build, "bin") + ":" + os.environ["PATH"])
    source = os.path.join(root, "share/models/digits_cnn.onnx")
    subprocess.run([os.path.join(root, "tests/data/bad/make"), source, "bad"], cwd=folder, check=True)
    write(folder, "model.onnx", open(source, "rb").read())
    write(folder, "linear.onnx", model(linear))
    write(folder, "wide.onnx", model(node("MatMul", ["x", "w"], ["y"]) + floats("w", [4, 5]) + x + value(12, "y", ["batch", 5])))
    write(folder, "whole.onnx", model(node("Cast", ["w"], ["f"], attributes=attribute_int("to", F)) + node("MatMul", ["x", "f"], ["y"]) +
                                      tensor("w", [4, 3], b"\0" * 96, dtype=I) + x + y))
    write(folder, "function.onnx", function_model())
    write(folder, "groups.onnx", model(
        node("Conv", ["i", "a"], ["h"], "one") + node("Relu", ["h"], ["r"]) + node("Conv", ["r", "b"], ["o"], "two", attributes=attribute_int("group", 2)) +
        floats("a", [8, 4, 1, 1]) + floats("b", [8, 4, 1, 1]) + value(11, "i", ["batch", 4, 2, 2]) + value(12, "o", ["batch", 8, 2, 2])))
    write(folder, "two.onnx", model(node("MatMul", ["x", "one/k"], ["t"], "one") + node("MatMul", ["t", "two/k"], ["y"], "two") + floats("one/k", [4, 4]) +
                                    floats("two/k", [4, 4]) + x + y4))
    write(folder, "product.onnx", model(node("MatMul", ["x", "w"], ["h"], "hidden") + node("Transpose", ["h"], ["t"]) + node("MatMul", ["h", "t"], ["y"]) + w + x +
                                        value(12, "y", ["batch", "batch"])))
    write(folder, "many-operands.onnx", model(sub(1, sub(1, "x") * 1000001 + sub(2, "y") + sub(3, "sum") + sub(4, "Sum")) + x + y))
    write(folder, "many-messages.onnx", num(1, 8) + sub(7, sub(1, b"") * 4000001))
    write(folder, "resnet8.onnx", open(os.path.join(root, "share/models/resnet8.onnx"), "rb").read())
    values = [(i * 7 % 13 - 6) / 8 for i in range(12)]
    write(folder, "transposed.safetensors", safetensors('{"fc.weight":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}}',
                                                        struct.pack("<12f", *(values[i % 4 * 3 + i // 4] for i in range(12)))))
    write(folder, "data", b"\0" * 64)
    write(folder, "external.onnx", model(node("MatMul", ["x", "w"], ["y"]) + tensor("w", [4, 3], None, extra=num(14, 1) + sub(
        13, sub(1, "location") + sub(2, "data"))) + x + y))
    os.mkdir(os.path.join(folder, "folder"))
    subprocess.run("dlb-profile -q --analytic --batch 16 model.onnx >graph.json && dlb-costmodel -q -c cpu:2 graph.json | dlb-place -q -m 4 >doc.json",
                   shell=True, cwd=folder, env=env, check=True)
    yield from hostile(root, build, folder)
    yield from profiles(folder)
    for split in SPLITS:
        yield "split " + split, ["dlb-costmodel", "-q", "-c", "cpu:2", "--split", split, "graph.json"], True
    for name, edit in EDITS.items():
        yield name, f"jq -c '{edit}' graph.json >{name}.json && exec dlb-profile -q --analytic {name}.json", True
    for name, command in COMMANDS.items():
        yield name, "set -o pipefail; " + command, True
