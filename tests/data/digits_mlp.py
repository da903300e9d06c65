"""share/models/digits_mlp.onnx and its digits in plain Python: Flatten, dense, Relu, dense, softmax cross-entropy."""
import gzip, json, math, struct


def tensors(path, names):
    """of a safetensors file, by name: (shape, flat list)"""
    raw = open(path, 'rb').read()
    size = struct.unpack('<Q', raw[:8])[0]
    head = json.loads(raw[8:8 + size])

    def tensor(name):
        a, b = head[name]['data_offsets']
        return head[name]['shape'], list(struct.unpack('<%df' % ((b - a) // 4), raw[8 + size + a:8 + size + b]))

    return [tensor(n) for n in names]


def layers(path, names):
    """[[W, b], ...] of the layers' names, W a row of weights for each output"""
    read = tensors(path, [n + what for n in names for what in ('.weight', '.bias')])
    rows = [[flat[i:i + len(flat) // shape[0]] for i in range(0, len(flat), len(flat) // shape[0])] if len(shape) > 1 else flat for shape, flat in read]
    return [[rows[i], rows[i + 1]] for i in range(0, len(rows), 2)]


def weights(path):
    return layers(path, ['1', '3'])


class Digits:
    def __init__(self, images, labels):
        self.x = gzip.open(images).read()[16:]
        self.y = gzip.open(labels).read()[8:]

    def batch(self, t, n):
        """samples and labels of step t in sequential order"""
        return [[v / 16 for v in self.x[i * 64:(i + 1) * 64]] for i in range(t * n, (t + 1) * n)], self.y[t * n:(t + 1) * n]


def dense(w, b, rows):
    return [[sum(p * q for p, q in zip(wi, r)) + bi for wi, bi in zip(w, b)] for r in rows]


def gradient(g, rows):
    n_out, n_in = len(g[0]), len(rows[0])
    dw = [[sum(g[s][o] * rows[s][i] for s in range(len(rows))) for i in range(n_in)] for o in range(n_out)]
    return [dw, [sum(g[s][o] for s in range(len(rows))) for o in range(n_out)]]


def cross_entropy(logits, wanted):
    """the mean loss and its gradient"""
    loss, g = 0.0, []
    for r, k in zip(logits, wanted):
        most = max(r)
        p = [math.exp(v - most) for v in r]
        total = sum(p)
        loss -= math.log(p[k] / total) / len(wanted)
        g.append([(v / total - (i == k)) / len(wanted) for i, v in enumerate(p)])
    return loss, g


def step(l0, l1, rows, wanted, l1_backward=None):
    """the loss, and of each layer what went in and the gradient of what came out; l1_backward: for the way back, if another"""
    l1_backward = l1_backward or l1
    h = [[max(v, 0.0) for v in r] for r in dense(*l0, rows)]
    loss, g = cross_entropy(dense(*l1, h), wanted)
    back = [[sum(g[s][o] * l1_backward[0][o][i] for o in range(len(g[0]))) if h[s][i] > 0 else 0.0 for i in range(len(h[0]))] for s in range(len(rows))]
    return loss, [(rows, back), (h, g)]


def moved(a, b, f):
    return [[f(p, q) for p, q in zip(r, s)] for r, s in zip(a, b)] if isinstance(a[0], list) else [f(p, q) for p, q in zip(a, b)]
