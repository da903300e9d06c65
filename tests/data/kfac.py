"""K-FAC by the formula, in plain Python and double precision: a network of two dense layers.

    A = keep A + (1 - keep) mean a a^T (a with a 1 for the bias),  G = keep G + (1 - keep) mean g g^T,  both from I
    [W b] -= lr (G + damping I)^-1 [dW db] (A + damping I)^-1,  inverses made anew in steps 0, every, 2 every ...

g: the gradient of one sample's own loss. usage: kfac.py WEIGHTS.safetensors IMAGES.gz LABELS.gz STEPS BATCH LR DAMPING KEEP
EVERY TOLERANCE <LOSSES.json
Compares the losses on standard input with those of each step; status 1 when one differs by more than TOLERANCE, relatively.
"""
import json, sys
from digits_mlp import Digits, gradient, step, weights

path, images, labels = sys.argv[1:4]
steps, batch = int(sys.argv[4]), int(sys.argv[5])
lr, damping, keep = map(float, sys.argv[6:9])
every, tolerance = int(sys.argv[9]), float(sys.argv[10])


def unit(n):
    return [[float(i == j) for j in range(n)] for i in range(n)]


def product(a, b):
    columns = list(zip(*b))
    return [[sum(p * q for p, q in zip(r, c)) for c in columns] for r in a]


def averaged(m, rows, scale):
    """keep m + (1 - keep) scale rows^T rows"""
    columns = list(zip(*rows))
    return [[keep * m[i][j] + (1 - keep) * scale * sum(p * q for p, q in zip(x, y)) for j, y in enumerate(columns)] for i, x in enumerate(columns)]


def inverse(m):
    """(m + damping I)^-1, by elimination with pivots"""
    n = len(m)
    a = [[v + damping * (i == j) for j, v in enumerate(r)] + e for i, (r, e) in enumerate(zip(m, unit(n)))]
    for k in range(n):
        at = max(range(k, n), key=lambda i: abs(a[i][k]))
        a[k], a[at] = a[at], a[k]
        a[k] = [v / a[k][k] for v in a[k]]
        for i in range(n):
            if i != k and a[i][k]:
                f = a[i][k]
                a[i] = [v - f * p for v, p in zip(a[i], a[k])]
    return [r[n:] for r in a]


digits = Digits(images, labels)
layer = weights(path)
A = [unit(len(w[0]) + 1) for w, _ in layer]
G = [unit(len(w)) for w, _ in layer]
got = json.load(sys.stdin)
for t in range(steps):
    rows, wanted = digits.batch(t, batch)
    loss, through = step(*layer, rows, wanted)
    if abs(got[t] - loss) > tolerance * loss:
        sys.exit('step %d: %.9g, by the formula %.9g' % (t, got[t], loss))
    for k, (a, back) in enumerate(through):
        A[k] = averaged(A[k], [r + [1.0] for r in a], 1 / batch)
        G[k] = averaged(G[k], back, batch)
    if t % every == 0:
        inverses = [(inverse(a), inverse(g)) for a, g in zip(A, G)]
    for k, (a, back) in enumerate(through):
        dw, db = gradient(back, a)
        d = product(product(inverses[k][1], [r + [b] for r, b in zip(dw, db)]), inverses[k][0])
        w, b = layer[k]
        layer[k] = [[[v - lr * x for v, x in zip(r, s)] for r, s in zip(w, d)], [v - lr * s[-1] for v, s in zip(b, d)]]
