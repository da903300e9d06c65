"""ONNX models for the tests of K-FAC and of compression: kfac_models.py tied|grouped|wide|fused FILE.onnx

tied:     dense 64 -> 12, which reads the data as they are fed, Relu, dense 12 -> 12, Relu, the same again, Relu, dense 12 -> 10
grouped:  convolution 1 -> 4, Relu, pooling, convolution 4 -> 6 in 2 groups, Relu, pooling, dense 24 -> 10, as digits_cnn
wide:     dense 784 -> 512, Relu, dense 512 -> 256, Relu, dense 256 -> 10
fused:    dense 64 -> 32 + 16 + 16 by one weight, taken apart by Split: Relu of the first plus the others, dense 32 -> 10
"""
import os, random, struct, sys
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import onnx_file as f

kind, path = sys.argv[1:3]
random.seed(5)
graph = b''


def tensor(name, shape, scale):
    global graph
    n = 1
    for d in shape:
        n *= d
    graph += f.tensor(name, shape, struct.pack('<%df' % n, *(random.uniform(-scale, scale) for _ in range(n))))
    return name


def layer(name, shape):
    fan = 1
    for d in shape[1:]:
        fan *= d
    return [tensor(name + '.weight', shape, fan ** -0.5), tensor(name + '.bias', shape[:1], fan ** -0.5)]


def put(op, inputs, output, **attr):
    global graph
    graph += f.node(op, inputs, [output], output, b''.join(
        f.attribute_int(k, v) if isinstance(v, int) else f.attribute_ints(k, v) for k, v in attr.items()))
    return output


if kind == 'tied':
    shape = ['N', 64]
    first, again, last = layer('first', [12, 64]), layer('again', [12, 12]), layer('last', [10, 12])
    a = put('Relu', [put('Gemm', ['x'] + first, 'z0', transB=1)], 'a0')
    a = put('Relu', [put('Gemm', [a] + again, 'z1', transB=1)], 'a1')
    a = put('Relu', [put('Gemm', [a] + again, 'z2', transB=1)], 'a2')
    put('Gemm', [a] + last, 'y', transB=1)
elif kind == 'wide':
    shape = ['N', 784]
    a = put('Relu', [put('Gemm', ['x'] + layer('first', [512, 784]), 'z0', transB=1)], 'a0')
    a = put('Relu', [put('Gemm', [a] + layer('second', [256, 512]), 'z1', transB=1)], 'a1')
    put('Gemm', [a] + layer('last', [10, 256]), 'y', transB=1)
elif kind == 'fused':
    shape = ['N', 64]
    a = put('Gemm', ['x'] + layer('fused', [64, 64]), 'z0', transB=1)
    graph += f.tensor('sizes', [3], struct.pack('<3q', 32, 16, 16), dtype=7)
    graph += f.node('Split', [a, 'sizes'], ['u', 'v', 'w'], 'apart', f.attribute_int('axis', 1))
    a = put('Add', [put('Relu', ['u'], 'r0'), put('Concat', ['v', 'w'], 'c0', axis=1)], 'a0')
    put('Gemm', [a] + layer('last', [10, 32]), 'y', transB=1)
else:
    shape = ['N', 1, 8, 8]
    pads, half = [1, 1, 1, 1], dict(kernel_shape=[2, 2], strides=[2, 2])
    a = put('Conv', ['x'] + layer('first', [4, 1, 3, 3]), 'z0', pads=pads)
    a = put('MaxPool', [put('Relu', [a], 'a0')], 'p0', **half)
    a = put('Conv', [a] + layer('second', [6, 2, 3, 3]), 'z1', pads=pads, group=2)
    a = put('MaxPool', [put('Relu', [a], 'a1')], 'p1', **half)
    put('Gemm', [put('Flatten', [a], 'a2')] + layer('last', [10, 24]), 'y', transB=1)
with open(path, 'wb') as out:
    out.write(f.model(graph + f.value(11, 'x', shape) + f.value(12, 'y', ['N', 10])))
