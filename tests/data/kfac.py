"""K-FAC by the formula, in plain Python and double precision: of digits_mlp's dense layers, digits_cnn's convolutions, layers with
one weight, or groups of a convolution.

    A = keep A + (1 - keep) mean a a^T (a with a 1 for the bias),  G = keep G + (1 - keep) mean g g^T,  both from I
    [W b] -= lr nu (G + damping I)^-1 [dW db] (A + damping I)^-1,  inverses made anew in steps 0, every, 2 every ...
    nu = min(1, sqrt(kl_clip / (lr^2 sum of [dW db] . (G + damping I)^-1 [dW db] (A + damping I)^-1 over the layers)))

g: the gradient of one sample's own loss. Of a convolution a is the patch of an image at a position; A is the mean over images
and positions, G the mean over images of the sum over positions. Groups of a convolution are layers of their own; layers with
one weight are one, with the rows of all. kl_clip 0: nu = 1.
usage: kfac.py mlp|cnn|tied|grouped WEIGHTS.safetensors IMAGES.gz LABELS.gz STEPS BATCH LR DAMPING KEEP EVERY KL_CLIP TOLERANCE <LOSSES.json
Compares the losses on standard input with those of each step; status 1 when one differs by more than TOLERANCE, relatively.
"""
import json, math, sys
import digits_cnn, digits_grouped, digits_mlp, digits_tied
from digits_mlp import Digits, gradient

model = {'mlp': digits_mlp, 'cnn': digits_cnn, 'tied': digits_tied, 'grouped': digits_grouped}[sys.argv[1]]
path, images, labels = sys.argv[2:5]
steps, batch = int(sys.argv[5]), int(sys.argv[6])
lr, damping, keep = map(float, sys.argv[7:10])
every, kl_clip, tolerance = int(sys.argv[10]), float(sys.argv[11]), float(sys.argv[12])


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
layer = model.weights(path)
A = [unit(len(w[0]) + 1) for w, _ in layer]
G = [unit(len(w)) for w, _ in layer]
got = json.load(sys.stdin)
clipped = 0
for t in range(steps):
    rows, wanted = digits.batch(t, batch)
    loss, through = model.step(*layer, rows, wanted)
    if abs(got[t] - loss) > tolerance * loss:
        sys.exit('step %d: %.9g, by the formula %.9g' % (t, got[t], loss))
    for k, (a, back) in enumerate(through):
        A[k] = averaged(A[k], [r + [1.0] for r in a], 1 / len(a))
        G[k] = averaged(G[k], back, batch)
    if t % every == 0:
        inverses = [(inverse(a), inverse(g)) for a, g in zip(A, G)]
    moves, moved = [], 0.0
    for k, (a, back) in enumerate(through):
        dw, db = gradient(back, a)
        both = [r + [b] for r, b in zip(dw, db)]
        moves.append(product(product(inverses[k][1], both), inverses[k][0]))
        moved += sum(x * y for r, s in zip(both, moves[k]) for x, y in zip(r, s))
    nu = min(1.0, math.sqrt(kl_clip / (lr * lr * moved))) if kl_clip else 1.0
    clipped += nu < 1
    for k, d in enumerate(moves):
        w, b = layer[k]
        layer[k] = [[[v - lr * nu * x for v, x in zip(r, s)] for r, s in zip(w, d)], [v - lr * nu * s[-1] for v, s in zip(b, d)]]
print(clipped)
