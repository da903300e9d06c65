"""Delayed gradients by the formula, in plain Python: a network of two dense layers trained with momentum, layer k's
weights read `late[k]` updates behind, forward and backward.

    w_k(t+1) = w_k(t) - lr v_k(t),  v(t) = mu v(t-1) + g(t),  g(t) = grad f(w_0(t - late[0]), w_1(t - late[1]))

and with `predict`, forward, in place of what is late, what it was to become: w_k(t - d) - d lr v_k(t - d - 1), d = late[k];
backward w_k(t) itself.

usage: delayed.py WEIGHTS.safetensors IMAGES.gz LABELS.gz STEPS BATCH LR MU LATE0 LATE1 [predict] <LOSSES.json
Compares the losses on standard input with f at each step; status 1 when one differs by more than 1e-5, relatively.
"""
import gzip, json, math, struct, sys

path, images, labels = sys.argv[1:4]
steps, batch = int(sys.argv[4]), int(sys.argv[5])
lr, mu = float(sys.argv[6]), float(sys.argv[7])
late = [int(sys.argv[8]), int(sys.argv[9])]
predict = sys.argv[10:] == ['predict']
raw = open(path, 'rb').read()
size = struct.unpack('<Q', raw[:8])[0]
head = json.loads(raw[8:8 + size])


def tensor(name):
    a, b = head[name]['data_offsets']
    flat = struct.unpack('<%df' % ((b - a) // 4), raw[8 + size + a:8 + size + b])
    shape = head[name]['shape']
    return [list(flat[i * shape[1]:(i + 1) * shape[1]]) for i in range(shape[0])] if len(shape) == 2 else list(flat)


x = gzip.open(images).read()[16:]
y = gzip.open(labels).read()[8:]
layer = [[tensor('1.weight'), tensor('1.bias')], [tensor('3.weight'), tensor('3.bias')]]


def dense(w, b, rows):
    return [[sum(p * q for p, q in zip(wi, r)) + bi for wi, bi in zip(w, b)] for r in rows]


def gradient(g, rows):
    n_out, n_in = len(g[0]), len(rows[0])
    dw = [[sum(g[s][o] * rows[s][i] for s in range(len(rows))) for i in range(n_in)] for o in range(n_out)]
    return [dw, [sum(g[s][o] for s in range(len(rows))) for o in range(n_out)]]


def step(l0, l1, rows, wanted, l1_backward):
    h = [[max(v, 0.0) for v in r] for r in dense(*l0, rows)]
    loss, g = 0.0, []
    for r, k in zip(dense(*l1, h), wanted):
        most = max(r)
        p = [math.exp(v - most) for v in r]
        total = sum(p)
        loss -= math.log(p[k] / total) / len(wanted)
        g.append([(v / total - (i == k)) / len(wanted) for i, v in enumerate(p)])
    back = [[sum(g[s][o] * l1_backward[0][o][i] for o in range(len(g[0]))) if h[s][i] > 0 else 0.0 for i in range(len(h[0]))] for s in range(len(rows))]
    return loss, [gradient(back, rows), gradient(g, h)]


def moved(a, b, f):
    return [[f(p, q) for p, q in zip(r, s)] for r, s in zip(a, b)] if isinstance(a[0], list) else [f(p, q) for p, q in zip(a, b)]


def read(k, t):
    d = t - max(0, t - late[k])
    if not predict or d == 0 or d == t:         # as the run began, nothing is known to move on by
        return past[k][t - d]
    return [moved(w, v, lambda p, q: p - d * lr * q) for w, v in zip(past[k][t - d], moves[k][t - d - 1])]


past = [[l] for l in layer]                     # w(0), w(1), ...
moves = [[], []]                                # v(0), v(1), ...
got = json.load(sys.stdin)
for t in range(steps):
    rows = [[v / 16 for v in x[i * 64:(i + 1) * 64]] for i in range(t * batch, (t + 1) * batch)]
    l0, l1 = read(0, t), read(1, t)
    loss, g = step(l0, l1, rows, y[t * batch:(t + 1) * batch], past[1][t] if predict else l1)
    if abs(got[t] - loss) > 1e-5 * loss:
        sys.exit('step %d: %.9g, by the formula %.9g' % (t, got[t], loss))
    for k in (0, 1):
        moves[k].append([moved(v, d, lambda p, q: mu * p + q) for v, d in zip(moves[k][-1], g[k])] if t else g[k])
        past[k].append([moved(w, v, lambda p, q: p - lr * q) for w, v in zip(past[k][-1], moves[k][-1])])
