"""ONNX models for the tests of K-FAC, of digits: kfac_models.py tied|grouped FILE.onnx; exits with 77 without the package onnx.

tied:     dense 64 -> 12, which reads the data as they are fed, Relu, dense 12 -> 12, Relu, the same again, Relu, dense 12 -> 10
grouped:  convolution 1 -> 4, Relu, pooling, convolution 4 -> 6 in 2 groups, Relu, pooling, dense 24 -> 10, as digits_cnn
"""
import random, sys
try:
    import onnx
except ImportError:
    sys.exit(77)
from onnx import TensorProto as T, helper as h

kind, path = sys.argv[1:3]
random.seed(5)
weights, nodes = [], []


def tensor(name, shape, scale):
    n = 1
    for d in shape:
        n *= d
    weights.append(h.make_tensor(name, T.FLOAT, shape, [random.uniform(-scale, scale) for _ in range(n)]))
    return name


def layer(name, shape):
    fan = 1
    for d in shape[1:]:
        fan *= d
    return [tensor(name + '.weight', shape, fan ** -0.5), tensor(name + '.bias', shape[:1], fan ** -0.5)]


def put(op, inputs, output, **attr):
    nodes.append(h.make_node(op, inputs, [output], output, **attr))
    return output


if kind == 'tied':
    shape = ['N', 64]
    first, again, last = layer('first', [12, 64]), layer('again', [12, 12]), layer('last', [10, 12])
    a = put('Relu', [put('Gemm', ['x'] + first, 'z0', transB=1)], 'a0')
    a = put('Relu', [put('Gemm', [a] + again, 'z1', transB=1)], 'a1')
    a = put('Relu', [put('Gemm', [a] + again, 'z2', transB=1)], 'a2')
    put('Gemm', [a] + last, 'y', transB=1)
else:
    shape = ['N', 1, 8, 8]
    pads, half = [1, 1, 1, 1], dict(kernel_shape=[2, 2], strides=[2, 2])
    a = put('Conv', ['x'] + layer('first', [4, 1, 3, 3]), 'z0', pads=pads)
    a = put('MaxPool', [put('Relu', [a], 'a0')], 'p0', **half)
    a = put('Conv', [a] + layer('second', [6, 2, 3, 3]), 'z1', pads=pads, group=2)
    a = put('MaxPool', [put('Relu', [a], 'a1')], 'p1', **half)
    put('Gemm', [put('Flatten', [a], 'a2')] + layer('last', [10, 24]), 'y', transB=1)
graph = h.make_graph(nodes, kind, [h.make_tensor_value_info('x', T.FLOAT, shape)], [h.make_tensor_value_info('y', T.FLOAT, ['N', 10])], weights)
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid('', 17)], ir_version=8), path)
